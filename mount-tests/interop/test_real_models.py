#!/usr/bin/env python3
"""Networks of real size with seeded weights, recorded by contrib/ckpt-reference.py, checked by contrib/ckpt-matrix: each PASSes, and
the weights are streamed. Wants CKPT_TORCH_PYTHON=PATH, a Python with torch and safetensors; models of torchvision, timm and
transformers where it has them. 9 GB of temporary files, some minutes. CKPT_MATRIX_OUT=DIR keeps matrix.md and the results.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import peer
from mounted import BINARY, FIXTURES

CONTRIB = pathlib.Path(__file__).resolve().parents[2] / "contrib"
VERIFY = pathlib.Path(FIXTURES) / "verify"
ROOM = 9 << 30
MIB = 1 << 20
# id: (library, words for ckpt-reference.py, bound of anonymous memory in MiB, or None)
SMALL_SWITCH = "num_layers=4,num_decoder_layers=4,num_sparse_encoder_layers=1,num_sparse_decoder_layers=1"
MODELS = {
    "resnet18": ("torchvision", ["torchvision:resnet18"], 100),
    "mobilenet_v2": ("torchvision", ["torchvision:mobilenet_v2"], 100),
    "efficientnet_b0": ("torchvision", ["torchvision:efficientnet_b0"], 100),
    "mixer_b16_224": ("timm", ["timm:mixer_b16_224"], 300),
    "gmlp_s16_224": ("timm", ["timm:gmlp_s16_224"], 300),
    "resmlp_12_224": ("timm", ["timm:resmlp_12_224"], 300),
    "switch_base_8": ("transformers", [f"transformers:switch_base_8:{SMALL_SWITCH}"], 300),
    "qwen_moe": ("transformers", ["transformers:qwen_moe:num_hidden_layers=2,num_experts=16,vocab_size=8192"], None),
    "toy_topk_moe": ("torch", ["verify_models:TopKMoe", "--input", "f32:2,64"], 100),
    "toy_soft_moe": ("torch", ["verify_models:SoftMoe", "--input", "f32:2,64"], 100),
    "toy_switch_moe": ("torch", ["verify_models:SwitchMoe", "--input", "f32:2,64"], 100),
    "linears_1gb": ("torch", ["stack.py:make"], 300),
}
STACK = """import torch
from torch import nn

def make():
    return nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(16))), torch.randn(4, 4096)
"""


def find_python():
    python = os.environ.get("CKPT_TORCH_PYTHON")
    if not python:
        peer.skip("CKPT_TORCH_PYTHON=PATH is not set: a Python that has torch, safetensors, torchvision, timm and transformers")
    if shutil.disk_usage(tempfile.gettempdir()).free < ROOM:
        peer.skip(f"{tempfile.gettempdir()} has less than {ROOM >> 30} GB free")
    return python


def libraries(python):
    found = {}
    for name in sorted({library for library, _, _ in MODELS.values()} | {"safetensors"}):
        p = subprocess.run([python, "-c", f"import {name}; print({name}.__version__)"], capture_output=True, text=True)
        if p.returncode == 0:
            found[name] = p.stdout.strip()
    if not {"torch", "safetensors"} <= found.keys():
        peer.skip(f"{python} has no torch or no safetensors")
    return found


def record(python, folder, name):
    words = MODELS[name][1]
    p = subprocess.run([python, CONTRIB / "ckpt-reference.py", *words, "--weights", "--path", VERIFY, "-o", name], cwd=folder,
                       capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    assert p.returncode == 0, f"{name}: {p.stderr}"
    print(name, p.stdout.split("\n")[0], flush=True)


def matrix(folder, out, names):
    listed = pathlib.Path(folder) / "list"
    listed.write_text("".join(f"{n} {n}.safetensors\n" for n in names))
    p = subprocess.run([sys.executable, CONTRIB / "ckpt-matrix", "--out", out, "--list", listed, "--mount-ckpt", BINARY])
    print((pathlib.Path(out) / "matrix.md").read_text())
    return p.returncode


def judge(out, name, sanitized):
    result = json.loads((pathlib.Path(out) / "results" / f"{name}.json").read_text())
    report, bound = result["report"], MODELS[name][2]
    assert result["status"] == "PASS", f"{name}: {result['status']}: {result['reason']}"
    runs = {r["name"]: float(r["diff"]["max_abs"]) for r in report["runs"]}
    assert len(runs) == 3 and max(runs.values()) <= 2e-5, f"{name}: {runs}"
    assert report["params"]["missing"] == report["params"]["differs"] == [], f"{name}: {report['params']}"
    if bound and not sanitized:
        assert result["peak_anonymous_bytes"] <= bound * MIB, f"{name}: {result['peak_anonymous_bytes'] / MIB:.0f} MiB"


def main():
    python = find_python()
    found = libraries(python)
    print(" ".join(f"{k} {v}" for k, v in found.items()))
    names = [n for n, (library, _, _) in MODELS.items() if library in found]
    for n in MODELS.keys() - set(names):
        print(f"skipped: {n}, since {python} has no {MODELS[n][0]}")
    linked = subprocess.run(["ldd", BINARY], capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="ckpt-real.") as folder:
        pathlib.Path(folder, "stack.py").write_text(STACK)
        out = os.environ.get("CKPT_MATRIX_OUT") or os.path.join(folder, "out")
        for n in names:
            record(python, folder, n)
        code = matrix(folder, out, names)
        for n in names:
            judge(out, n, "asan" in linked)
        assert code == 0, code
    print(f"{len(names)} of {len(MODELS)} models")


if __name__ == "__main__":
    main()
