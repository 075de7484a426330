"""mount.ckpt against Orbax and tensorstore. CKPT_ORBAX_PYTHON names a Python with jax, orbax-checkpoint, tensorstore and safetensors.

CPU seconds are user and system: of reader and daemon, the daemon's mounting included, or of all threads of the Python process; own_cpu
is that without starting Python and importing. What both sides wrote is compared once: the same bytes of each tensor.
"""
import json
import os
import subprocess
import tempfile

from cases import option_words, tensor_path
from measured import Peak, mounted, timed
from peers import GATE, own_figures
from table import Skip

PEER = """
import os, time
os.environ["JAX_PLATFORMS"] = "cpu"
import logging; logging.disable(logging.WARNING)
import numpy as np
IN, OUT = os.environ["IN"], os.environ["OUT"]
%s
t = time.monotonic(), time.process_time()
%s
print(time.monotonic() - t[0], time.process_time() - t[1])
"""

READ_ONE = """
s = ts.open({"driver": "zarr", "open": True, "kvstore": {"driver": "ocdbt", "base": "file://" + IN, "path": "%s/"}}).result()
x = s.read().result()
""" % GATE

BODIES = {
    "restore + save_file": PEER % ("""
import jax, orbax.checkpoint as ocp
from safetensors.numpy import save_file
""", """
c = ocp.PyTreeCheckpointer()
tree = c.metadata(IN).item_metadata.tree
tree = c.restore(IN, restore_args=jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree))
flat = {}
def walk(t, prefix):
    for k, v in t.items():
        if isinstance(v, dict): walk(v, prefix + k + ".")
        else: flat[prefix + k] = v
walk(tree, "")
save_file(flat, OUT)
"""),
    "metadata()": PEER % ("import orbax.checkpoint as ocp", """
assert len(ocp.PyTreeCheckpointer().metadata(IN).item_metadata.tree["params"]) == 1000
"""),
    "read": PEER % ("import tensorstore as ts", READ_ONE),
    "read, transpose": PEER % ("import tensorstore as ts", READ_ONE + "np.ascontiguousarray(x.T)"),
}


def python():
    found = os.environ.get("CKPT_ORBAX_PYTHON")
    if not found:
        raise Skip("CKPT_ORBAX_PYTHON names no Python with jax and orbax-checkpoint")
    return found


def source(b, name):
    """The checkpoint, saved by Orbax itself if it isn't there."""
    path = os.path.join(b.data, name)
    if not os.path.exists(path):
        subprocess.run([python(), os.path.join(os.path.dirname(os.path.abspath(__file__)), "gen_orbax.py"), b.data], check=True)
    return path


def peer(b, body, name):
    with tempfile.TemporaryDirectory(prefix="ckpt-bench.", dir=b.out) as folder:
        out = os.path.join(folder, "out")
        wall, cpu, said = timed(python(), "-c", BODIES[body], env=dict(os.environ, IN=source(b, name), OUT=out))
        if os.path.exists(out):
            b.compare("peer", out)
    return {"wall": wall, "cpu": cpu, **own_figures(said)}


def served(b, name, options):
    return mounted(b.binary, source(b, name), *option_words(options))


def mount(b, name):
    with served(b, name, ()) as d:
        return {"wall": d.wall, "cpu": d.cpu(), "anon": d.status("RssAnon")}


def copy(b, name, *options):
    with tempfile.TemporaryDirectory(prefix="ckpt-bench.", dir=b.out) as folder:
        out = os.path.join(folder, "out")
        with served(b, name, options) as d, Peak(d) as peak:
            wall, cpu, _ = timed("cp", d.dir + "/model.safetensors", out)
            cpu += d.cpu()
        if "layout=source" in options:
            b.compare("mount", out)
    return {"wall": wall, "cpu": cpu, "peak": peak.mib}


def cat(b, name, *options):
    with served(b, name, options) as d:
        wall, cpu, _ = timed("cat", os.path.join(d.dir, tensor_path(GATE)), stdout=subprocess.DEVNULL)
        return {"wall": wall, "cpu": cpu + d.cpu()}


def everything(b, name, *options):
    with served(b, name, options) as d, Peak(d) as peak:
        timed("find", d.dir, "-type", "f", "!", "-name", "verify.json", "-exec", "cat", "{}", "+", stdout=subprocess.DEVNULL)
        return {"peak": peak.mib, "anon": d.status("RssAnon")}


def tensors(path):
    """(key, dtype, shape, bytes) of a safetensors file, one after the other; the folder that holds all is no part of the key."""
    with open(path, "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(n))
        header.pop("__metadata__", None)
        for key, v in sorted(header.items()):
            begin, end = v["data_offsets"]
            f.seek(8 + n + begin)
            yield key.removeprefix("model."), v["dtype"], v["shape"], f.read(end - begin)


class Compare:
    """Holds what one side wrote until the other has; asks once."""

    def __init__(self, path):
        self.path, self.side = path, None

    def __call__(self, side, path):
        if self.side is None:
            os.link(path, self.path)
            self.side = side
        elif self.path and side != self.side:
            for one, other in zip(tensors(self.path), tensors(path), strict=True):
                assert one == other, (one[:3], other[:3])
            os.unlink(self.path)
            self.path = None
