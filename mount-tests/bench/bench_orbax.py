#!/usr/bin/env python3
"""bench_orbax.py --data DIR [--binary FILE] [--out DIR] [--rounds N]: mount.ckpt against Orbax and tensorstore.

CKPT_ORBAX_PYTHON names a Python with jax, orbax-checkpoint, tensorstore and safetensors; what gen_orbax.py makes is made in DIR
if it is not there. All cases of a round run one after the other; medians are printed, as a Markdown table. CPU seconds are user
and system: of reader and daemon together, the daemon's mounting included, or of all threads of the Python process, "in process"
meaning without starting Python and importing. Each measurement has a mount of its own; the source is in the page cache. What both
sides wrote is compared in the first round: the same bytes of each tensor.
"""
import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from measured import Peak, medians, mounted, print_row, timed

GATE = "model.layers.0.mlp.gate_proj.weight"
MANY = {"many": "10,000 arrays, OCDBT", "many_plain": "10,000 arrays, folders"}

# Each body runs after its imports; what it prints is its own (wall, CPU).
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

RESTORE = PEER % ("""
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
""")

LIST = PEER % ("import orbax.checkpoint as ocp", """
assert len(ocp.PyTreeCheckpointer().metadata(IN).item_metadata.tree["params"]) == 1000
""")

READ_ONE = """
s = ts.open({"driver": "zarr", "open": True, "kvstore": {"driver": "ocdbt", "base": "file://" + IN, "path": "%s/"}}).result()
x = s.read().result()
""" % GATE
ONE = PEER % ("import tensorstore as ts", READ_ONE)
ONE_TRANSPOSED = PEER % ("import tensorstore as ts", READ_ONE + "np.ascontiguousarray(x.T)")


def source(a, name):
    return f"{a.data}/{name}.orbax"


def scratch(a):
    return os.path.join(a.out, "out")


def peer(a, name, body):
    out = scratch(a)
    wall, cpu, said = timed(a.python, "-c", body, env=dict(os.environ, IN=source(a, name), OUT=out))
    own = said.split()
    if os.path.exists(out):
        a.compare("peer", out)
        os.unlink(out)
    return {"wall": wall, "cpu": cpu, "own_wall": float(own[-2]), "own_cpu": float(own[-1])}


def mount(a, name):
    with mounted(a.binary, source(a, name)) as d:
        return {"wall": d.wall, "cpu": d.cpu(), "anon": d.status("RssAnon")}


def copy(a, *options):
    out = scratch(a)
    with mounted(a.binary, source(a, "llama_f16"), *options) as d, Peak(d) as peak:
        wall, cpu, _ = timed("cp", d.dir + "/model.safetensors", out)
        cpu += d.cpu()
    if "layout=source" in options:
        a.compare("mount", out)
    os.unlink(out)
    return {"wall": wall, "cpu": cpu, "peak": peak.mib}


def cat(a, *options):
    with mounted(a.binary, source(a, "llama_f16"), *options) as d:
        wall, cpu, _ = timed("cat", os.path.join(d.dir, *GATE.split(".")), stdout=subprocess.DEVNULL)
        return {"wall": wall, "cpu": cpu + d.cpu()}


def read_everything(a, *options):
    with mounted(a.binary, source(a, "llama_f16"), *options) as d, Peak(d) as peak:
        timed("find", d.dir, "-type", "f", "!", "-name", "verify.json", "-exec", "cat", "{}", "+", stdout=subprocess.DEVNULL)
    return {"peak": peak.mib}


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


def cases(a):
    llama = "llama_f16"
    for name in MANY:
        yield f"mount {name}", lambda name=name: mount(a, name)
        yield f"list {name}", lambda name=name: peer(a, name, LIST)
    yield "copy", lambda: copy(a, "-o", "layout=source")
    yield "restore", lambda: peer(a, llama, RESTORE)
    yield "copy adapted", lambda: copy(a)
    yield "cat", lambda: cat(a, "-o", "layout=source")
    yield "one", lambda: peer(a, llama, ONE)
    yield "cat adapted", lambda: cat(a)
    yield "one transposed", lambda: peer(a, llama, ONE_TRANSPOSED)
    yield "everything", lambda: read_everything(a)
    yield "everything, 64M", lambda: read_everything(a, "-o", "cache=64M")


def report(m):
    print("| checkpoint | what | mount.ckpt | compared with | | ratio |\n|---|---|---|---|---|---|")
    for name, what in MANY.items():
        row, ours, theirs = functools.partial(print_row, what), m[f"mount {name}"], m[f"list {name}"]
        row("mount, wall", ours["wall"], "goal", 0.5, "s")
        row("the same, CPU", ours["cpu"], "Orbax' `metadata()` in process", theirs["own_cpu"], "s")
        row("its anonymous memory", ours["anon"], "goal", 64, "MiB")
    row = functools.partial(print_row, "1 GB, f16")
    row("`cp model.safetensors`, `layout=source`, CPU", m["copy"]["cpu"], "Orbax' restore + save_file", m["restore"]["cpu"], "s")
    row("the same", m["copy"]["cpu"], "the same in process", m["restore"]["own_cpu"], "s")
    row("the same, wall", m["copy"]["wall"], "the same in process", m["restore"]["own_wall"], "s")
    row("`cp model.safetensors`, transposed for burn, CPU", m["copy adapted"]["cpu"], "restore + save_file, nothing transposed", m["restore"]["cpu"], "s")
    row("`cat` of one array of 90 MB, CPU", m["cat"]["cpu"], "tensorstore's read", m["one"]["cpu"], "s")
    row("the same", m["cat"]["cpu"], "the same in process", m["one"]["own_cpu"], "s")
    row("the same, transposed", m["cat adapted"]["cpu"], "read + `ascontiguousarray(x.T)`", m["one transposed"]["cpu"], "s")
    row("the same", m["cat adapted"]["cpu"], "the same in process", m["one transposed"]["own_cpu"], "s")
    row("peak of anonymous memory, `cp`", m["copy adapted"]["peak"], "goal: cache + 64", 256 + 64, "MiB")
    row("the same, reading everything", m["everything"]["peak"], "goal: cache + 64", 256 + 64, "MiB")
    row("the same, `cache=64M`", m["everything, 64M"]["peak"], "goal: cache + 64", 64 + 64, "MiB")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--binary", default=os.path.join(here, "../../build-release/mount.ckpt"))
    parser.add_argument("--out", default="/dev/shm", help="folder for copies; best a tmpfs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases with this in their names; prints their medians, no table")
    a = parser.parse_args()
    a.python = os.environ.get("CKPT_ORBAX_PYTHON", sys.executable)
    a.data, a.binary = os.path.abspath(a.data), os.path.abspath(a.binary)
    subprocess.run([a.python, os.path.join(here, "gen_orbax.py"), a.data], check=True)
    subprocess.run(["find", a.data, "-type", "f", "-exec", "cat", "{}", "+"], check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="ckpt-bench.", dir=a.out) as a.out:
        a.compare = Compare(os.path.join(a.out, "kept"))
        got = medians([c for c in cases(a) if a.only in c[0]], a.rounds, "round")
    if a.only:
        print(json.dumps(got, indent=1))
    else:
        report(got)


if __name__ == "__main__":
    main()
