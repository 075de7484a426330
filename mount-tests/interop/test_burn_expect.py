#!/usr/bin/env python3
"""-o expect= against burn itself: what contrib/burn-parameters prints of a module, checked on the matching checkpoint, is
applied in full, and on another is what burn's own loader says."""
import json
import os
import subprocess
import sys
import tempfile

import peer
from mounted import fixture, options, run

NN = "burn-nn"

# judge's command with `-` for the file, the checkpoint, options: everything applied, only num_batches_tracked unused
FITS = [
    (["load", "-"], ("a1", "a1_state.pt"), []),
    (["load", "-"], ("a1", "a1_ckpt.pt"), []),
    (["seq", "-"], ("a1", "a1_seq.pt"), []),
    (["enc", "-", "8", "16", "2", "2", "post", "relu"], (NN, "encoder_post_relu_full.pt"), []),
    (["dec", "-", "8", "16", "2", "2", "pre", "gelu"], (NN, "decoder_pre_gelu_full.pt"), []),
    (["norms", "-", "8", "tuple"], (NN, "norms_full.pt"), []),
]
# And what doesn't fit: burn says the same of the exported file.
MISFITS = [
    (["load", "-"], ("a1", "a1_seq.pt"), []),
    (["mha", "-", "8", "2"], (NN, "mha_kv_full.pt"), []),
    (["lstm", "-", "4", "6"], (NN, "lstm_bi_full.pt"), []),
]


def ask(judge, command, path):
    return subprocess.run([judge, *[path if word == "-" else word for word in command]], capture_output=True, text=True, timeout=300)


def listed(judge, command, folder):
    """The list of the module's parameters, as a file."""
    p = ask(judge, command, "-")
    assert p.returncode == 0 and p.stdout.startswith("{\n"), p.stdout + p.stderr
    path = os.path.join(folder, "model.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write(p.stdout)
    return path


def expectation(source, opts):
    p = run("--inspect", "--json", *options(*opts), source)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)["expect"]


def check_fit(judge, folder, command, source, opts):
    path = listed(judge, command, folder)
    e = expectation(source, [f"expect={path}", *opts])
    unused = [t["key"] for t in e["unused"] if not t["key"].endswith("num_batches_tracked")]
    wrong = e["missing"] + e["shape"] + e["dtype"] + e["width"] + unused
    assert e["applied"] == e["parameters"] > 0 and not wrong, wrong


def check_misfit(judge, folder, command, source, opts):
    path = listed(judge, command, folder)
    e = expectation(source, [f"expect={path}", *opts])
    out = os.path.join(folder, "model.safetensors")
    assert run("--export", out, *options(*opts), source).returncode == 0
    said = json.loads(ask(judge, command, out).stdout)
    assert not said["ok"] and e["applied"] < e["parameters"]
    if "missing" not in said:  # a store that stops at the first error has no lists
        return
    assert said["applied"] == e["applied"], said
    assert sorted(said["missing"]) == sorted(p["name"] for p in e["missing"]), said
    assert sorted(said["unused"]) == sorted(t["key"] for t in e["unused"]), said
    assert len(said["errors"]) == len(e["shape"]) + len(e["dtype"]), said


def main():
    judge = peer.judge()
    failed = 0
    for check, rows in ((check_fit, FITS), (check_misfit, MISFITS)):
        for command, source, opts in rows:
            with tempfile.TemporaryDirectory(prefix="ckpt-test.") as folder:
                try:
                    check(judge, folder, command, fixture(*source), opts)
                    print("ok   ", check.__name__, " ".join(command), source[1], flush=True)
                except AssertionError as e:
                    failed += 1
                    print("FAIL ", check.__name__, " ".join(command), source[1], e, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
