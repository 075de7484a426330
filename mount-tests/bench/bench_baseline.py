#!/usr/bin/env python3
"""Baselines for mount.ckpt: wall time, CPU time and peak memory of what people do today.

usage: bench_baseline.py --data DIR --out DIR --torch-python PY --jax-python PY
                         [--rounds 3] [--kinds f16,f32] [--cases a,b,...] [--json FILE]
                         [--extra NAME=COMMAND ...]
DIR must hold what gen_data.py / gen_orbax.py made (llama_{f16,f32}.{pt,safetensors,orbax}).
--extra adds a case run by /bin/sh with $IN (stem of the input), $OUT (a fresh output path) and $KIND set,
e.g.  --extra 'mount=mount.ckpt "$IN.pt" "$MNT" && cp "$MNT/model.safetensors" "$OUT"; fusermount3 -u "$MNT"'.
Cases are interleaved (round-robin), so a noisy moment hits all of them; medians are reported.
Adaptation used everywhere: a 2-D "*.weight" whose key has no "embed" is written transposed.
peak_rss is /usr/bin/time's maximum resident set (counts mapped file pages); peak_anon is the largest
RssAnon seen by polling every 10 ms (what the process really needs beyond the page cache).
"""
import argparse, json, os, re, shutil, statistics, subprocess, sys, tempfile, time

ADAPT = '''
import os, sys
IN, OUT = os.environ["IN"], os.environ["OUT"]
KEY = "model.layers.0.mlp.gate_proj.weight"
def lin(k, nd): return nd == 2 and k.endswith(".weight") and "embed" not in k
'''
T = {}   # torch venv programs
T["pt_mmap"] = ADAPT + '''
import torch
from safetensors.torch import save_file
sd = torch.load(IN + ".pt", mmap=True, weights_only=True, map_location="cpu")
save_file({k: (v.t().contiguous() if lin(k, v.dim()) else v.contiguous()) for k, v in sd.items()}, OUT)
'''
T["pt_nommap"] = T["pt_mmap"].replace("mmap=True", "mmap=False")
T["pt_mmap_notranspose"] = ADAPT + '''
import torch
from safetensors.torch import save_file
save_file(dict(torch.load(IN + ".pt", mmap=True, weights_only=True)), OUT)
'''
T["st_torch"] = ADAPT + '''
from safetensors.torch import load_file, save_file
sd = load_file(IN + ".safetensors")
save_file({k: (v.t().contiguous() if lin(k, v.dim()) else v) for k, v in sd.items()}, OUT)
'''
T["st_numpy"] = ADAPT + '''
import numpy as np
from safetensors.numpy import load_file, save_file
sd = load_file(IN + ".safetensors")
save_file({k: (np.ascontiguousarray(v.T) if lin(k, v.ndim) else v) for k, v in sd.items()}, OUT)
'''
T["np_stream"] = ADAPT + '''
# numpy only, one tensor at a time: the leanest script a careful person would write
import json, numpy as np
f = open(IN + ".safetensors", "rb"); n = int.from_bytes(f.read(8), "little"); h = json.loads(f.read(n))
mm = np.memmap(IN + ".safetensors", np.uint8, "r", offset=8 + n)
DT = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2", "I64": "<i8"}
h.pop("__metadata__", None)
items = sorted(h.items(), key=lambda kv: kv[1]["data_offsets"])
nh = {k: dict(v, shape=v["shape"][::-1] if lin(k, len(v["shape"])) else v["shape"]) for k, v in items}
hb = json.dumps(nh, separators=(",", ":")).encode(); hb += b" " * (-len(hb) % 8)
with open(OUT, "wb") as o:
    o.write(len(hb).to_bytes(8, "little")); o.write(hb)
    for k, v in items:
        a, b = v["data_offsets"]; x = mm[a:b].view(DT[v["dtype"]]).reshape(v["shape"])
        o.write(np.ascontiguousarray(x.T if lin(k, x.ndim) else x).data.cast("B"))
'''
T["one_pt_mmap"] = ADAPT + '''
import torch
t = torch.load(IN + ".pt", mmap=True, weights_only=True)[KEY].t().contiguous()
open(OUT, "wb").write(t.numpy().data.cast("B"))
'''
T["one_pt_nommap"] = T["one_pt_mmap"].replace("mmap=True", "mmap=False")
T["one_st_torch"] = ADAPT + '''
from safetensors import safe_open
with safe_open(IN + ".safetensors", "pt") as f: t = f.get_tensor(KEY).t().contiguous()
open(OUT, "wb").write(t.numpy().data.cast("B"))
'''
T["one_st_numpy"] = ADAPT + '''
import numpy as np
from safetensors import safe_open
with safe_open(IN + ".safetensors", "np") as f: t = np.ascontiguousarray(f.get_tensor(KEY).T)
open(OUT, "wb").write(t.data.cast("B"))
'''
T["one_np_memmap"] = ADAPT + '''
import json, numpy as np
f = open(IN + ".safetensors", "rb"); n = int.from_bytes(f.read(8), "little"); v = json.loads(f.read(n))[KEY]
a, b = v["data_offsets"]; dt = {"F32": "<f4", "F16": "<f2"}[v["dtype"]]
x = np.memmap(IN + ".safetensors", dt, "r", offset=8 + n + a, shape=tuple(v["shape"]))
open(OUT, "wb").write(np.ascontiguousarray(x.T).data.cast("B"))
'''
T["list_pt"] = ADAPT + '''
import torch
for k, v in torch.load(IN + ".pt", mmap=True, weights_only=True).items(): print(k, tuple(v.shape), v.dtype)
'''
T["list_st"] = ADAPT + '''
from safetensors import safe_open
with safe_open(IN + ".safetensors", "np") as f:
    for k in f.keys(): s = f.get_slice(k); print(k, s.get_shape(), s.get_dtype())
'''
J = {}   # jax venv programs
J["orbax_save"] = ADAPT + '''
os.environ["JAX_PLATFORMS"] = "cpu"
import logging; logging.disable(logging.WARNING)
import numpy as np, orbax.checkpoint as ocp
from safetensors.numpy import save_file
p = os.path.abspath(IN + ".orbax"); c = ocp.PyTreeCheckpointer()
md = c.metadata(p); md = getattr(md, "item_metadata", md); md = getattr(md, "tree", md)
import jax
args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), md)
tree = c.restore(p, restore_args=args)
flat = {}
def walk(t, pre):
    for k, v in t.items():
        if isinstance(v, dict): walk(v, pre + k + ".")
        else: flat[pre + k] = np.ascontiguousarray(v)
walk(tree, "")
save_file(flat, OUT)
'''
J["one_orbax_ts"] = ADAPT + '''
# leanest route to one Orbax tensor: tensorstore directly, no jax / orbax import
import tensorstore as ts, numpy as np
s = ts.open({"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": "file://" + os.path.abspath(IN + ".orbax"), "path": KEY + "/"}}, open=True).result()
open(OUT, "wb").write(np.ascontiguousarray(s.read().result().T).data.cast("B"))
'''
J["one_orbax"] = ADAPT + '''
os.environ["JAX_PLATFORMS"] = "cpu"
import logging; logging.disable(logging.WARNING)
import numpy as np, orbax.checkpoint as ocp
p = os.path.abspath(IN + ".orbax")
tree = cur = {}
ks = KEY.split(".")
for k in ks[:-1]: cur = cur.setdefault(k, {})
cur[ks[-1]] = 0
args = {}; cur = args
for k in ks[:-1]: cur = cur.setdefault(k, {})
cur[ks[-1]] = ocp.RestoreArgs(restore_type=np.ndarray)
r = ocp.PyTreeCheckpointer().restore(p, args=ocp.args.PyTreeRestore(item=tree, restore_args=args, partial_restore=True))
for k in ks: r = r[k]
open(OUT, "wb").write(np.ascontiguousarray(r.T).data.cast("B"))
'''
SH = {
 "cp_st": 'cp "$IN.safetensors" "$OUT"',
 "cat_st": 'cat "$IN.safetensors" >/dev/null',
 "sha256_st": 'sha256sum "$IN.safetensors" >/dev/null',
}

def run(argv, env, out):
    tf = tempfile.NamedTemporaryFile("r", suffix=".time")
    t0 = time.monotonic()
    p = subprocess.Popen(["/usr/bin/time", "-v", "-o", tf.name] + argv, env=env,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    anon = 0
    pid = None
    while p.poll() is None:
        try:
            if pid is None:
                c = open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()
                pid = int(c[0]) if c else None
            if pid:
                m = re.search(r"RssAnon:\s+(\d+)", open(f"/proc/{pid}/status").read())
                if m: anon = max(anon, int(m[1]))
        except (OSError, IndexError): pass
        time.sleep(0.01)
    wall = time.monotonic() - t0
    err = p.stderr.read().decode(errors="replace")
    s = tf.read()
    g = lambda pat: re.search(pat, s)[1]
    m, = re.findall(r"Elapsed.*: ([\d:.]+)", s); q = [float(x) for x in m.split(":")]
    if p.returncode: return dict(error=err.strip().splitlines()[-1:] or [str(p.returncode)])
    return dict(wall=wall, cpu=float(g(r"User time.*: ([\d.]+)")) + float(g(r"System time.*: ([\d.]+)")),
                rss=int(g(r"Maximum resident.*: (\d+)")) / 1024, anon=anon / 1024,
                bytes=os.path.getsize(out) if os.path.exists(out) else 0)

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--data", required=True); ap.add_argument("--out", required=True)
    ap.add_argument("--torch-python", required=True); ap.add_argument("--jax-python", default="")
    ap.add_argument("--rounds", type=int, default=3); ap.add_argument("--kinds", default="f16,f32")
    ap.add_argument("--cases", default=""); ap.add_argument("--json", default="")
    ap.add_argument("--extra", action="append", default=[]); ap.add_argument("--check", action="store_true")
    a = ap.parse_args()
    cases = [(n, ["/bin/sh", "-ec", c]) for n, c in SH.items()]
    cases += [(n, [a.torch_python, "-c", c]) for n, c in T.items()]
    if a.jax_python: cases += [(n, [a.jax_python, "-c", c]) for n, c in J.items()]
    for e in a.extra:
        n, c = e.split("=", 1); cases.append((n, ["/bin/sh", "-ec", c]))
    if a.cases:
        want = a.cases.split(","); cases = [c for c in cases if c[0] in want or any(c[0] == e.split("=", 1)[0] for e in a.extra)]
    os.makedirs(a.out, exist_ok=True)
    res, sums = {}, {}
    for kind in a.kinds.split(","):
        stem = os.path.join(os.path.abspath(a.data), f"llama_{kind}")
        for ext in (".safetensors", ".pt"): subprocess.run(["cat", stem + ext], stdout=subprocess.DEVNULL)
        subprocess.run(f"cat $(find {stem}.orbax -type f) >/dev/null", shell=True)
        for r in range(a.rounds):
            for name, argv in cases:
                out = os.path.join(os.path.abspath(a.out), f"bench_{os.getpid()}_{name}.out")
                env = dict(os.environ, IN=stem, OUT=out, KIND=kind, PYTHONDONTWRITEBYTECODE="1")
                x = run(argv, env, out)
                res.setdefault(kind, {}).setdefault(name, []).append(x)
                print(kind, r, name, {k: (round(v, 3) if isinstance(v, float) else v) for k, v in x.items()}, file=sys.stderr, flush=True)
                if a.check and r == 0 and os.path.exists(out) and not name.startswith(("cat", "sha", "list")):
                    sums[kind, name] = subprocess.run(["sha256sum", out], capture_output=True, text=True).stdout[:16]
                if os.path.exists(out): os.unlink(out)
    print(f"| kind | case | wall s (median, min–max) | CPU s | peak RSS MiB | peak anon MiB | out MB | sha |\n|---|---|---|---|---|---|---|---|")
    med = {}
    for kind, d in res.items():
        for name, xs in d.items():
            ok = [x for x in xs if "wall" in x]
            if not ok: print(f"| {kind} | {name} | error: {xs[0]['error']} | | | | | |"); continue
            M = lambda f: statistics.median(x[f] for x in ok); w = [x["wall"] for x in ok]
            med[f"{kind}/{name}"] = dict(wall=M("wall"), cpu=M("cpu"), rss=M("rss"), anon=M("anon"), n=len(ok), bytes=ok[0]["bytes"])
            print(f"| {kind} | {name} | {M('wall'):.2f} ({min(w):.2f}–{max(w):.2f}) | {M('cpu'):.2f} | {M('rss'):.0f} | {M('anon'):.0f} | {ok[0]['bytes']/1e6:.0f} | {sums.get((kind,name),'')} |")
    if a.json: json.dump(dict(raw=res, median=med), open(a.json, "w"), indent=1)
if __name__ == "__main__": main()
