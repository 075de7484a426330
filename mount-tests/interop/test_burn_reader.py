#!/usr/bin/env python3
"""burn's own reader and adapter against ours (modules=store): each tensor that burn reads from a file of fixtures/pt, a1 and
burn-nn has the same bytes when it is served for burn; and where the modules are known, what burn's adapter would do to it
is what was done. What burn can't read is listed, and none of it may be refused by us."""
import hashlib
import json
import os
import re
import subprocess
import sys

import peer
from mounted import Mount, fixture, need_fuse, read_json, run

OPTIONS = ["layout=burn", "modules=store", "contiguous=off", "keep_going"]
READ_MIN = 100  # files that burn reads, of those that lie here; fewer means that something else is wrong

# Where burn and PyTorch differ, and we are with PyTorch: {file: {tensor: why}}; "" stands for all tensors.
BURN_DIFFERS = {
    "neg.pt": {"neg": "burn does not apply the negative bit"},
}
# burn keeps one of two tensors that have the same key; we say that there are two.
WE_REFUSE = {"odd_keys_clash.pt", "key_twice.pt"}


# Modules whose kinds are known, by the last part of their paths: what PyTorchToBurnAdapter does to them (adapter.rs).
LINEAR = re.compile(r"(^|\.)(fc\d|linear\d|out_proj)$")
NORM = re.compile(r"(^|\.)norm\d$")
SEQUENTIAL = {"linear": {"7", "10"}, "norm": {"3", "4", "8", "9"}}  # fixtures/burn-nn/norms


def ask(judge, *args):
    """{name: (shape, sha256)} or the sentence of the refusal."""
    p = subprocess.run([judge, "dump", *args], capture_output=True, text=True, timeout=120)
    lines = [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]
    if p.returncode:
        return lines[-1]["error"] if lines else peer.last_line(p.stdout + p.stderr)
    return {t["name"]: (t["shape"], t["sha256"]) for t in lines}


def ours(source):
    """{source name: (shape, sha256, key, transposed)} of everything that the mount shows."""
    out = {}
    with Mount(source, *OPTIONS) as m:
        for t in read_json(m, "index.json")["tensors"]:
            with open(os.path.join(m, t["path"]), "rb") as f:
                sha = hashlib.sha256(f.read()).hexdigest()
            out[".".join(t["source"]["path"])] = (t["shape"], sha, t["key"], "transpose" in t["ops"])
    return out


def compare(name, mine, plain, linear):
    """What differs. `linear` is burn's dump with each weight transposed as its own adapter does for a Linear."""
    known = BURN_DIFFERS.get(name, {})
    for key, want in plain.items():
        if key in known or "" in known:
            continue
        if key not in mine:
            yield f"{key}: burn reads it, we do not serve it"
            continue
        shape, sha, _, transposed = mine[key]
        if transposed:
            want = linear[key]
        if (shape, sha) != tuple(want):
            yield f"{key}: {shape} {sha[:8]}, burn has {want[0]} {want[1][:8]}"


def adapted(folder, name, key, rank):
    """(key, transposed) as burn's adapter makes them of a tensor of a module whose kind is known."""
    module, _, leaf = key.rpartition(".")
    norms = folder == "burn-nn" and name.startswith("norms")
    if rank == 2 and leaf == "weight" and (module in SEQUENTIAL["linear"] if norms else LINEAR.search(module)):
        return key, True
    if leaf in ("weight", "bias") and (module in SEQUENTIAL["norm"] if norms else NORM.search(module)):
        return f"{module}.{'gamma' if leaf == 'weight' else 'beta'}", False
    return key, False


def compare_adapter(folder, name, mine):
    """What differs from burn's adapter in names and transpositions."""
    for source, (shape, _, key, transposed) in mine.items():
        want = adapted(folder, name, source, len(shape))
        if (key, transposed) != want:
            yield f"{source}: {key}, transposed: {transposed}; burn's adapter: {want}"


def fixtures():
    for folder, endings in (("pt", (".pt", ".pth", ".tar", ".ckpt", ".pkl", ".bin")), ("a1", (".pt", ".safetensors")),
                            ("burn-nn", (".pt", ".safetensors"))):
        for name in sorted(set(os.listdir(fixture(folder))) - WE_REFUSE):
            if name.endswith(endings) and not name.startswith(("bad_", "evil_")) and ".reference." not in name:
                yield folder, name


def main():
    need_fuse()
    judge = peer.judge()
    failed = read = tensors = 0
    for folder, name in fixtures():
        source = fixture(folder, name)
        plain = ask(judge, source)
        if isinstance(plain, str):
            p = run("--inspect", "--json", *[x for o in OPTIONS for x in ("-o", o)], source)
            failed += p.returncode != 0
            print("FAIL" if p.returncode else "ok  ", name, f"burn refuses: {plain}", p.stderr.strip(), flush=True)
            continue
        mine = ours(source)
        wrong = list(compare(name, mine, plain, ask(judge, source, "linear")))
        if folder == "burn-nn":
            wrong += compare_adapter(folder, name, mine)
        failed, read, tensors = failed + bool(wrong), read + 1, tensors + len(plain)
        print("FAIL" if wrong else "ok  ", name, f"{len(plain)} tensors", *wrong, sep="\n     " if wrong else " ", flush=True)
    print(f"{read} files with {tensors} tensors read by burn, {failed} failed")
    return 1 if failed or read < READ_MIN else 0


if __name__ == "__main__":
    sys.exit(main())
