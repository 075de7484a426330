"""What people use today, measured: Python programs with numpy, torch and safetensors, burn, and filesystems for archives.

A Python case gives wall and cpu of the whole process, and own_wall and own_cpu without starting Python and importing.
"""
import os
import subprocess
import tempfile
import time

from measured import serving, timed

GATE = "model.layers.0.mlp.gate_proj.weight"  # a Linear's

# Body: (modules needed, imports, what is measured). IN and OUT are paths, KEY a tensor.
FRAME = """
import json, os, sys, time
IN, OUT, KEY = (os.environ[name] for name in ("IN", "OUT", "KEY"))
def linear(key, ndim): return ndim == 2 and key.endswith(".weight") and "embed" not in key
def entry(key):
    with open(IN, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        v = json.loads(f.read(n))[key]
        return 8 + n + v["data_offsets"][0], {"F32": "<f4", "F16": "<f2"}[v["dtype"]], tuple(v["shape"])
def mapped(key):
    offset, dtype, shape = entry(key)
    return np.memmap(IN, dtype, "r", offset=offset, shape=shape)
%s
start = time.monotonic(), time.process_time()
%s
print(time.monotonic() - start[0], time.process_time() - start[1])
"""

SAVE_TORCH = "save_file({k: (v.t().contiguous() if linear(k, v.dim()) else v.contiguous()) for k, v in sd.items()}, OUT)"
LOAD_PT = 'sd = torch.load(IN, mmap=%s, weights_only=True, map_location="cpu")\n'
TORCH_AND_SAVE = ("torch safetensors", "import torch\nfrom safetensors.torch import load_file, save_file")
NUMPY = ("numpy", "import numpy as np")
NUMPY_AND_SAFETENSORS = ("numpy safetensors", "import numpy as np\nfrom safetensors import safe_open\nfrom safetensors.numpy import load_file, save_file")

BODIES = {
    # a whole model, transposed for burn and saved
    "torch.load(mmap), transpose, save_file": (*TORCH_AND_SAVE, LOAD_PT % True + SAVE_TORCH),
    "torch.load, transpose, save_file": (*TORCH_AND_SAVE, LOAD_PT % False + SAVE_TORCH),
    "safetensors.torch, transpose, save_file": (*TORCH_AND_SAVE, "sd = load_file(IN)\n" + SAVE_TORCH),
    "safetensors.numpy, transpose, save_file": (*NUMPY_AND_SAFETENSORS, """
save_file({k: (np.ascontiguousarray(v.T) if linear(k, v.ndim) else v) for k, v in load_file(IN).items()}, OUT)"""),
    "numpy, one tensor at a time": (*NUMPY, """
# the leanest program a careful person would write
with open(IN, "rb") as f: n = int.from_bytes(f.read(8), "little"); header = json.loads(f.read(n))
header.pop("__metadata__", None)
items = sorted(header, key=lambda k: header[k]["data_offsets"])
turned = {k: dict(header[k], shape=header[k]["shape"][::-1] if linear(k, len(header[k]["shape"])) else header[k]["shape"]) for k in items}
text = json.dumps(turned, separators=(",", ":")).encode(); text += b" " * (-len(text) % 8)
with open(OUT, "wb") as o:
    o.write(len(text).to_bytes(8, "little") + text)
    for k in items:
        x = mapped(k)
        o.write(np.ascontiguousarray(x.T if linear(k, x.ndim) else x).data.cast("B"))"""),
    # one tensor
    "numpy ascontiguousarray(x.T)": ("numpy", "import numpy as np\nx = mapped(KEY)\nx.max()  # now warm", "np.ascontiguousarray(x.T)"),
    "numpy memmap, one tensor": (*NUMPY, 'open(OUT, "wb").write(np.ascontiguousarray(mapped(KEY).T).data.cast("B"))'),
    "safe_open numpy, one tensor": (*NUMPY_AND_SAFETENSORS, """
with safe_open(IN, "np") as f: open(OUT, "wb").write(np.ascontiguousarray(f.get_tensor(KEY).T).data.cast("B"))"""),
    "torch.load(mmap), one tensor": (*TORCH_AND_SAVE, LOAD_PT % True + 'open(OUT, "wb").write(sd[KEY].t().contiguous().numpy().data.cast("B"))'),
    "numpy memmap, first byte": (*NUMPY, "assert mapped(KEY).T.flat[:1].view(np.uint8)[0] >= 0"),
    # looking
    "torch.load(mmap), list": (*TORCH_AND_SAVE, LOAD_PT % True + "for k, v in sd.items(): print(k, tuple(v.shape), v.dtype)"),
    "safe_open, list": (*NUMPY_AND_SAFETENSORS, """
with safe_open(IN, "np") as f:
    for k in f.keys(): s = f.get_slice(k); print(k, s.get_shape(), s.get_dtype())"""),
    # loaders, of whatever file
    "safetensors.numpy load_file": (*NUMPY_AND_SAFETENSORS, "load_file(IN)"),
    "safetensors.torch load_file": (*TORCH_AND_SAVE, "sum(float(v.view(torch.uint8)[..., ::4096].sum()) for v in load_file(IN).values())"),
    "safe_open, every tensor": (*NUMPY_AND_SAFETENSORS, """
with safe_open(IN, "np") as f:
    for k in f.keys(): f.get_tensor(k)"""),
    "np.load": (*NUMPY, "np.load(IN)"),
    "np.memmap, every byte": (*NUMPY, "np.memmap(IN, np.uint8, 'r').max()"),
    "open().read()": ("", "", 'open(IN, "rb").read()'),
    "torch .t().contiguous().float()": ("torch", """
import torch
torch.set_num_threads(1)
x = torch.randn(4096, 11008).to(torch.bfloat16)
x.t().contiguous().float()""", """
times = []
for _ in range(5):
    t = time.process_time(); x.t().contiguous().float(); times.append(time.process_time() - t)
print(sorted(times)[2])"""),
}


def own_figures(said):
    """What the frame printed last."""
    wall, cpu = map(float, said.split()[-2:])
    return {"own_wall": wall, "own_cpu": cpu}


def run_body(b, body, path, key):
    modules, imports, measured = BODIES[body]
    for module in modules.split():
        b.need_module(module)
    with tempfile.TemporaryDirectory(prefix="ckpt-bench.", dir=b.out) as folder:
        environment = dict(os.environ, IN=path, OUT=folder + "/out", KEY=key, PYTHONDONTWRITEBYTECODE="1")
        wall, cpu, said = timed(b.python, "-c", FRAME % (imports, measured), env=environment)
    return {"wall": wall, "cpu": cpu, **own_figures(said)}, said


def python(b, body, source, key=GATE):
    """A Python program on a source."""
    return run_body(b, body, b.file(source), key)[0]


def python_reader(b, body, path):
    """A Python program as reader of any file, without starting Python: (wall, cpu) as of a command."""
    figures, _ = run_body(b, body, path, GATE)
    return {"wall": figures["own_wall"], "cpu": figures["own_cpu"]}


def torch_transpose(b):
    """CPU seconds of one thread, the median of five; torch takes fresh memory for each, as it does for whoever calls it."""
    _, said = run_body(b, "torch .t().contiguous().float()", "", "")
    seconds = float(said.split()[0])
    return {"wall": seconds, "cpu": seconds}


def burn(b, source):
    """burn-store reads every tensor of a .pt as for a model of Linears, once; nothing is written."""
    wall, cpu, _ = timed(b.judge, "benchlin", b.file(source), "1")
    return {"wall": wall, "cpu": cpu}


ARCHIVE_FILESYSTEMS = {"fuse-zip": ["fuse-zip", "-f", "-r"], "ratarmount": ["ratarmount", "-f", "--index-file", ":memory:"]}


def archive(b, program, source):
    """Mounts the .pt as the ZIP it is and reads all entries; CPU of daemon and reader, and the daemon's anonymous memory in the end."""
    command = b.tool(program)
    start = time.monotonic()
    with serving(command, *ARCHIVE_FILESYSTEMS[program][1:], b.file(source)) as d:
        _, cpu, _ = timed("find", d.dir, "-type", "f", "-exec", "cat", "{}", "+", stdout=subprocess.DEVNULL)
        return {"wall": time.monotonic() - start, "cpu": cpu + d.cpu(), "anon": d.status("RssAnon")}
