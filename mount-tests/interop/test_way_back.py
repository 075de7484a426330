#!/usr/bin/env python3
"""What burn saved, with layout=torch, is what PyTorch had: burn saves the small model as safetensors and as burnpack, and
each tensor is compared; PyTorch's own layers load what went to burn's layout and back, and compute what they did.

PyTorch is asked where CKPT_TORCH_PYTHON, or else python3, has torch and safetensors."""
import os
import subprocess
import sys
import tempfile

import peer
from mounted import fixture, options, read_json, run, safetensors


def export(out, source, *opts):
    p = run("--export", out, *options(*opts), source)
    assert p.returncode == 0, f"{source}: {p.stderr}"


def saved_by_burn(judge, d, verb, ending):
    """None, or what is wrong with the small model that burn saved."""
    saved, back = os.path.join(d, "saved" + ending), os.path.join(d, "back.safetensors")
    p = subprocess.run([judge, verb, fixture("a1", "a1_state.pt"), saved], capture_output=True, text=True, timeout=300)
    if p.returncode:
        return f"judge {verb}: {p.stdout}{p.stderr}"
    export(back, saved, "layout=torch")
    got, want = safetensors(back)[0], safetensors(fixture("a1", "a1.safetensors"))[0]
    if got != want:
        return f"tensors differ: {sorted(k for k in {*got, *want} if got.get(k) != want.get(k))}"
    as_it_is = os.path.join(d, "as-it-is.safetensors")
    export(as_it_is, saved)
    adapted = os.path.join(d, "adapted.safetensors")
    export(adapted, fixture("a1", "a1.safetensors"))
    return None if safetensors(as_it_is)[0] == safetensors(adapted)[0] else "it does not mount as itself"


def python_with_torch():
    python = os.environ.get("CKPT_TORCH_PYTHON", sys.executable)
    try:
        probe = subprocess.run([python, "-c", "import torch, safetensors"], capture_output=True, text=True)
    except OSError as e:
        return None, str(e)
    return (python, "") if probe.returncode == 0 else (None, peer.last_line(probe.stderr))


def layers_of_torch(python, d):
    reference = read_json(fixture("burn-nn"), "reference.json")
    burn = os.path.join(d, "burn.safetensors")
    for name in reference:
        export(burn, fixture("burn-nn", name + "_full.pt"), "contiguous=off")
        export(os.path.join(d, name + ".safetensors"), burn, "layout=torch")
    script = os.path.join(peer.HERE, "torch_layers.py")
    return subprocess.run([python, script, d, fixture("burn-nn", "reference.json")]).returncode


def main():
    judge, failed = peer.judge(), 0
    with tempfile.TemporaryDirectory() as d:
        for verb, ending in (("export", ".safetensors"), ("bpk", ".bpk")):
            why = saved_by_burn(judge, d, verb, ending)
            failed += why is not None
            print("FAIL" if why else "ok  ", f"saved by burn as {ending}", why or "", flush=True)
        python, why = python_with_torch()
        if not python:
            print(f"skipped: PyTorch's layers, since CKPT_TORCH_PYTHON or python3 has no torch: {why}")
        else:
            failed += layers_of_torch(python, d)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
