#!/usr/bin/env python3
"""burn reads model.bpk: every tensor has the name, dtype, shape and bytes that it has in model.safetensors, and modules loaded by
BurnpackStore compute what PyTorch recorded."""
import json
import os
import subprocess
import sys

import peer
from mounted import Mount, fixture, need_fuse, read_json

SAME = [
    ("a1", "a1_state.pt"), ("a1", "a1_ckpt.pt"), ("a1", "a1_bf16.pt"), ("a1", "a1_f64.safetensors"),
    ("pt", "views.pt"), ("pt", "empties.pt"), ("pt", "dtypes_classic.pt"), ("burnpack", "dtypes.bpk"),
    ("burn-nn", "norms_full.pt"), ("burn-nn", "decoder_pre_gelu_full.pt"),
]
A1 = [("a1_state.pt", []), ("a1_full_legacy.pt", []), ("a1_ckpt.pt", []), ("a1_bf16.pt", ["cast=f32"])]
# judge's command, its arguments, the fixture: as burn-nn/reference.json has them
LAYERS = [
    ("enc", "8 16 2 2 post relu", "encoder_post_relu"), ("enc", "8 16 2 2 pre gelu", "encoder_pre_gelu"),
    ("dec", "8 16 2 2 pre relu", "decoder_pre_relu"), ("mha", "8 2", "mha"), ("lstm", "4 6", "lstm"), ("bigru", "4 6", "gru_bi"),
    ("norms", "8 tuple", "norms"),
]
# burn's name of a dtype that safetensors calls otherwise
DTYPES = {"Bool(Native)": "BOOL"}


def ask(judge, *words):
    p = subprocess.run([judge, *words], capture_output=True, text=True, timeout=300)
    assert p.stdout.startswith("{"), f"judge {' '.join(words)}: exit {p.returncode}: {p.stdout}{p.stderr}"
    return p.returncode, p.stdout


def check_same(judge, source):
    with Mount(fixture(*source)) as m:
        index = read_json(m, "index.json")
        shown = {t["key"]: t for t in index["tensors"] if t["offset"] is not None and t["dtype"] not in ("F8_E4M3", "F8_E5M2", "C64")}
        code, said = ask(judge, "bpkload", os.path.join(m, "model.bpk"))
        said = json.loads(said)
        assert code == 0 and said["metadata"]["format"] == "burnpack", said
        assert {t["name"] for t in said["tensors"]} == set(shown), set(shown) ^ {t["name"] for t in said["tensors"]}
        for t in said["tensors"]:
            mine = shown[t["name"]]
            assert DTYPES.get(t["dtype"], t["dtype"]) == mine["dtype"] and t["shape"] == mine["shape"], (t, mine)
            # as the file of the tensor, which the tests of the formats compare with PyTorch
            sha = subprocess.run(["sha256sum", os.path.join(m, mine["path"])], capture_output=True, text=True, check=True).stdout.split()[0]
            assert t["sha256"].lower() == sha, t["name"]


def flat(x):
    return [y for z in x for y in flat(z)] if isinstance(x, list) else [x]


def check_numbers(got, want, tolerance):
    worst = max(abs(a - b) for a, b in zip(flat(got), flat(want), strict=True))
    assert worst <= tolerance, f"off by {worst}"


def check_a1(judge, name, opts):
    want = read_json(fixture("a1"), "reference.json")["logits"]["bf16_as_f32" if "bf16" in name else "f32"]
    with Mount(fixture("a1", name), *opts) as m:
        code, said = ask(judge, "load", os.path.join(m, "model.bpk"))
    said = json.loads(said)
    assert code == 0 and said["applied"] == 4 and not said["unused"], said
    check_numbers(said["logits"], want, 1e-6)


def check_layer(judge, command, arguments, name):
    want = read_json(fixture("burn-nn"), "reference.json")[name]["y"]
    with Mount(fixture("burn-nn", f"{name}_full.pt")) as m:
        code, said = ask(judge, command, os.path.join(m, "model.bpk"), *arguments.split())
    said = json.loads(said)
    assert code == 0 and not said["missing"] and not said["errors"], said
    assert all(k.endswith("num_batches_tracked") for k in said["unused"]), said
    check_numbers(said["y"], want, 1e-5)


def main():
    need_fuse()
    judge = peer.judge()
    failed = 0
    rows = [(check_same, (s,)) for s in SAME] + [(check_a1, r) for r in A1] + [(check_layer, r) for r in LAYERS]
    for check, row in rows:
        try:
            check(judge, *row)
            print("ok   ", check.__name__, *row, flush=True)
        except (AssertionError, KeyError, ValueError) as e:
            failed += 1
            print("FAIL ", check.__name__, *row, repr(e)[:600], flush=True)
    print(f"{len(rows) - failed} of {len(rows)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
