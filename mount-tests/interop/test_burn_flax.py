#!/usr/bin/env python3
"""burn as the judge of dialect=flax: the model of fixtures/flax, adapted, loads through burn's plain store, nothing missing,
nothing left over, and computes what flax recorded."""
import json
import os
import struct
import subprocess
import sys
import tempfile

import peer
from mounted import fixture, options, run, safetensors

TOLERANCE = 1e-5
# As judge puts the outputs one behind the other.
ORDER = ["dense", "bare", "heads", "project", "general", "conv1", "conv2", "conv3", "up1", "up2", "up3", "up4", "embed", "layer_norm", "group_norm",
         "rms_norm", "batch_norm", "attention", "lstm", "fast", "gru", "simple", "prelu", "layers"]
# A field of a Rust struct is in snake case.
LINEN = {"DenseGeneral_0": "project", "ConvTranspose_0": "up1", "ConvTranspose_1": "up2", "ConvTranspose_2": "up3", "ConvTranspose_3": "up4"}
# nnx's attributes are called as one likes: only the user knows that these are no Conv. A cell is in an RNN.
NNX = [r"map=^(lstm|fast|gru|simple)\.cell\.=>$1.", "kind=^up[123]$=>conv_transpose", "kind=^project$=>dense:1"]
CASES = [("model", "flax", "expected", [f"map=^{old}\\.=>{new}." for old, new in LINEN.items()], ["mgu"]),
         ("model.msgpack", "flax", "expected", [f"map=^{old}\\.=>{new}." for old, new in LINEN.items()], ["mgu"]),
         ("nnx", "flax-nnx", "expected_nnx", NNX, ["lora"])]


def ask(judge, command, source, opts, ending):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "model" + ending)
        opts = options("strict", *opts)
        if ending == ".safetensors":
            p = run("--export", out, *opts, source)
        else:
            with open(out, "wb") as f:
                p = subprocess.run([os.environ["MOUNT_CKPT"], "--cat", "model.bpk", *opts, source], stdout=f, stderr=subprocess.PIPE)
        assert p.returncode == 0, p.stderr
        p = subprocess.run([judge, command, out], capture_output=True, text=True, timeout=300)
    assert p.stdout.startswith("{"), f"judge: exit {p.returncode}: {p.stdout}{p.stderr}"
    return json.loads(p.stdout)


def wrong(said, outputs, order):
    """What is wrong with judge's answer, layer by layer."""
    if not said["ok"] or said["unused"]:
        return [f"not all of it loaded: { {k: v for k, v in said.items() if k != 'y'} }"]
    left, bad = said["y"], []
    for name in order:
        y, left = left[: len(outputs[name])], left[len(outputs[name]):]
        worst = max((abs(a - b) for a, b in zip(y, outputs[name])), default=0)
        if len(y) != len(outputs[name]) or not worst <= TOLERANCE:
            bad.append(f"{name}: off by {worst}")
    return bad + ["more outputs than flax has"] * bool(left)


def recorded(name):
    outputs = {k[: -len(".output")]: struct.unpack(f"<{len(data) // 4}f", data)
               for k, (_, _, data) in safetensors(fixture("flax", name + ".safetensors"))[0].items() if k.endswith(".output")}
    return {LINEN.get(k, k): v for k, v in outputs.items()}


def main():
    judge = peer.judge()
    failed = 0
    for source, command, expected, opts, more in CASES:
        outputs, order = recorded(expected), ORDER + more
        assert sorted(outputs) == sorted(order), sorted(set(outputs) ^ set(order))
        for ending in (".safetensors", ".bpk"):
            bad = wrong(ask(judge, command, fixture("flax", source), opts, ending), outputs, order)
            failed += bool(bad)
            print(f"{'FAIL' if bad else 'ok  '} {source} {ending} {'; '.join(bad)}", flush=True)
    sys.exit(1 if failed else 0)


main()
