#!/usr/bin/env python3
"""burn itself as the judge: every form of the small model, mounted, is loaded by burn's plain store
without an adapter, and its logits are those that PyTorch recorded."""
import json
import os
import subprocess
import sys

import peer
from mounted import Mount, fixture, need_fuse, read_json

TOLERANCE = 1e-6
APPLIED = {"load": 4, "seq": 4, "sq": 2}

# source, judge's command, the reference's logits, mount options
MODELS = [
    ("a1.safetensors", "load", "f32", []),
    ("a1_state.pt", "load", "f32", []),
    ("a1_state_legacy.pt", "load", "f32", []),
    ("a1_full.pt", "load", "f32", []),
    ("a1_full_legacy.pt", "load", "f32", []),
    ("a1_ckpt.pt", "load", "f32", []),  # the model's part is found without root=
    ("a1_f64.pt", "load", "f64_as_f32", ["cast=f32"]),
    ("a1_f64.safetensors", "load", "f64_as_f32", ["cast=f32"]),
    ("a1_f16.pt", "load", "f16_as_f32", ["cast=f32"]),
    ("a1_f16.safetensors", "load", "f16_as_f32", ["cast=f32"]),
    ("a1_bf16.pt", "load", "bf16_as_f32", ["cast=f32"]),
    ("a1_bf16.safetensors", "load", "bf16_as_f32", ["cast=f32"]),
    ("a1_seq.pt", "seq", "f32", []),
    ("a1_seq_full.pt", "seq", "f32", []),
    ("a1_seq.safetensors", "seq", "f32", ["contiguous=on"]),
    ("a1_seq.safetensors", "load", "f32", [r"map=^net\.0\.=>fc1.", r"map=^net\.2\.=>fc2."]),
    ("sq.pt", "sq", None, []),
    ("sq.safetensors", "sq", None, []),
]
# Our own sanity: burn must refuse what isn't adapted, else a pass would mean nothing.
MUST_FAIL = [("a1_state.pt", "load", ["layout=torch"]), ("a1_seq.safetensors", "seq", ["contiguous=off"])]


def ask(judge, command, source, options):
    """What judge prints about the mounted model.safetensors."""
    with Mount(fixture("a1", source), *options) as m:
        p = subprocess.run([judge, command, os.path.join(m, "model.safetensors")],
                           capture_output=True, text=True, timeout=300)
    assert p.stdout.startswith("{"), f"judge {command}: exit {p.returncode}: {p.stdout}{p.stderr}"
    return p.returncode, json.loads(p.stdout)


def flat(numbers):
    return [x for row in numbers for x in (row if isinstance(row, list) else [row])]


def check(answer, command, expected):
    """None, or what is wrong with judge's answer."""
    code, said = answer
    if code or not said["ok"] or said["applied"] != APPLIED[command] or said["unused"]:
        return f"exit {code}: {json.dumps(said)}"
    got, want = flat(said["forward" if command == "sq" else "logits"]), flat(expected)
    worst = max(abs(a - b) for a, b in zip(got, want, strict=True))
    return None if worst <= TOLERANCE else f"logits differ by {worst}: {got}, expected {want}"


def main():
    need_fuse()
    judge = peer.judge()
    reference = read_json(fixture("a1"), "reference.json")
    failed = 0
    for source, command, logits, options in MODELS:
        expected = reference["logits"][logits] if logits else reference["sq"]["torch"]
        wrong = check(ask(judge, command, source, options), command, expected)
        failed += wrong is not None
        print("FAIL" if wrong else "ok  ", command, source, ",".join(options), wrong or "", flush=True)
    for source, command, options in MUST_FAIL:
        code, said = ask(judge, command, source, options)
        failed += code == 0
        print("FAIL" if code == 0 else "ok  ", "refused:", command, source, ",".join(options), said, flush=True)
    print(f"{len(MODELS) + len(MUST_FAIL) - failed} of {len(MODELS) + len(MUST_FAIL)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
