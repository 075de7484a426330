#!/usr/bin/env python3
"""contrib/ckpt-reference.py: what it writes is found and PASSes; what can't be done is one line, and leaves nothing behind.

Needs a Python with torch and safetensors: python3 itself, or the one that CKPT_TORCH_PYTHON names.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import peer
from mounted import FIXTURES, options, run, safetensors

PYTHON = os.environ.get("CKPT_TORCH_PYTHON", sys.executable)
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "contrib" / "ckpt-reference.py"
VERIFY = pathlib.Path(FIXTURES) / "verify"
MODELS = """
import time
import torch
from torch import nn

class Named(nn.Module):
    '''Takes a mask that may be None, a keyword, and gives a dict.'''
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(11, 6), nn.Linear(6, 3)
    def forward(self, ids, mask=None, *, scale=None):
        h = self.table(ids)
        if mask is not None:
            h = h * mask[..., None]
        h = self.out(h)
        return {"logits": h if scale is None else h * scale, "none": None, "ids": ids + 1}

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(2, 2)
    def forward(self, x):
        open("started", "w").close()
        time.sleep(600)

def pair():
    return nn.Linear(3, 2), torch.ones(2, 3)

def nothing():
    return 5
"""


def script(folder, *words, **more):
    p = subprocess.run([PYTHON, SCRIPT, *map(str, words)], cwd=folder, capture_output=True, text=True,
                       env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, **more)
    assert "Traceback" not in p.stderr, p.stderr
    return p


def make(folder, *words):
    p = script(folder, *words)
    assert p.returncode == 0, f"{words}: {p.stderr}"
    return p


def must_pass(source, *more, outputs=1):
    p = run("--verify", *options(*more), str(source))
    report = json.loads(p.stdout)
    assert report["status"] == "PASS" and report["graph"]["inputs"] == "recorded", f"{source}: {report['graph']}"
    assert len(report["runs"]) == 3 * outputs, report["runs"]
    return report


def no_machine_paths(folder):
    for path in pathlib.Path(folder).iterdir():
        if path.suffix in (".pt2", ".pt", ".safetensors"):
            data = path.read_bytes()
            for text in (str(folder), str(VERIFY), os.path.expanduser("~/"), "site-packages"):
                assert text.encode() not in data, f"{path.name} holds {text}"


def test_models(folder):
    make(folder, "models:pair", "--weights", "--state")
    assert sorted(os.listdir(folder)) == ["models.py", "pair.pt", "pair.pt2", "pair.reference.safetensors", "pair.safetensors"]
    must_pass(folder / "pair.safetensors")
    must_pass(folder / "pair.pt")
    for stem, words in (("none", ["--input", "i64:2,5:11"]), ("mask", ["--input", "i64:2,5:11", "--input", "f32:2,5"]),
                        ("scale", ["--input", "i64:2,5:11", "--input", "none", "--input", "scale=f32:3"])):
        for graph in ("export", "trace"):
            make(folder, "models.py:Named", *words, "--graph", graph, "--weights", "-o", f"{stem}_{graph}")
            must_pass(folder / f"{stem}_{graph}.safetensors", outputs=2)
    make(folder, "models:Named", "--inputs", "scale_export.reference.safetensors", "--load", "scale_export.safetensors", "-o", "again")
    no_machine_paths(folder)


def test_whole_modules(folder):
    for name in ("mlp_full.pt", "lstm_full.pt"):
        shutil.copy(VERIFY / name, folder)
    p = script(folder, "mlp_full.pt", "--path", VERIFY)
    assert p.returncode == 2 and "executes code" in p.stderr and "--trust" in p.stderr, p.stderr
    p = script(folder, "mlp_full.pt", "--trust")
    assert p.returncode == 1 and "--path" in p.stderr, p.stderr
    for name in ("mlp_full", "lstm_full"):
        make(folder, f"{name}.pt", "--trust", "--path", VERIFY, *(["--input", "f32:2,5,6"] if name[0] == "l" else []))
        must_pass(folder / f"{name}.pt")


def test_fallback(folder):
    """A branch that depends on data can't be exported."""
    (folder / "guarded.py").write_text("import verify_models\ndef make():\n    return verify_models.TopKMoe(guard=True)\n")
    p = make(folder, "guarded:make", "--path", VERIFY, "--input", "f32:2,64", "--weights")
    assert "torch.export refuses" in p.stderr and "make.torchscript.pt" in p.stdout, p
    must_pass(folder / "make.safetensors")
    p = script(folder, "guarded:make", "--path", VERIFY, "--input", "f32:2,64", "--graph", "export", "-o", "other")
    assert p.returncode == 1 and not list(folder.glob("other*")), p


def test_refusals(folder):
    before = sorted(os.listdir(folder))
    for words, code, word in (
        (["nowhere:make"], 1, "nowhere can't be imported"), (["models:gone"], 1, "has no gone"), (["models:nothing"], 1, "neither a torch.nn"),
        (["absent.pt"], 2, "neither a file"), (["models:Named", "--input", "f99:2"], 2, "f99"), (["models:Named", "--input", "i64:x"], 2, "shape"),
        (["models:Named", "--input", "f32:2,2"], 1, "doesn't run"), (["models:Named", "--inputs", "absent.safetensors"], 1, "can't be read"),
        (["models:pair", "-o", "no/such/folder/x"], 1, "No such file"), (["models:pair", "--load", "models.py"], 1, "can't be loaded"),
    ):
        p = script(folder, *words)
        assert p.returncode == code and word in p.stderr and p.stdout == "", f"{words}: {p}"
        assert len(p.stderr.strip().splitlines()) == 1 or "no inputs were given" in p.stderr, p.stderr
    assert sorted(os.listdir(folder)) == before
    (folder / "pair.pt2").write_text("mine")
    p = script(folder, "models:pair")
    assert p.returncode == 2 and "--force" in p.stderr and (folder / "pair.pt2").read_text() == "mine"
    make(folder, "models:pair", "--force")


def test_seed(folder):
    for stem, seed in (("a", 1), ("b", 1), ("c", 2)):
        make(folder, "models:Named", "--input", "i64:2,5:11", "--weights", "--seed", seed, "-o", stem)
    a, b, c = (safetensors(str(folder / f"{s}.reference.safetensors"))[0] for s in "abc")
    assert a == b and a != c


def test_interrupted(folder):
    for number in (signal.SIGINT, signal.SIGTERM):
        p = subprocess.Popen([PYTHON, SCRIPT, "models:Slow", "--weights", "--input", "f32:1,2"], cwd=folder, stderr=subprocess.PIPE, text=True)
        for _ in range(1200):
            if (folder / "started").exists():
                break
            time.sleep(0.1)
        p.send_signal(number)
        _, err = p.communicate(timeout=60)
        assert p.returncode == 130 and "interrupted" in err and "Traceback" not in err, err
        (folder / "started").unlink()
        assert not [n for n in os.listdir(folder) if n.startswith((".ckpt", "Slow"))], os.listdir(folder)


def main():
    p = subprocess.run([PYTHON, "-c", "import torch, safetensors; print(torch.__version__)"], capture_output=True, text=True)
    if p.returncode:
        peer.skip(f"{PYTHON} has no torch or no safetensors; CKPT_TORCH_PYTHON=PATH names a Python that has them")
    for name, f in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory(prefix="ckpt-reference-test.") as folder:
                pathlib.Path(folder, "models.py").write_text(MODELS)
                f(pathlib.Path(folder))
            print("ok", name, flush=True)


if __name__ == "__main__":
    main()
