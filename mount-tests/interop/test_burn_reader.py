#!/usr/bin/env python3
"""burn's own reader of PyTorch files against ours: each tensor that burn reads from a file of fixtures/pt has the
same bytes when it is served for burn. What burn can't read is listed, and none of it may be refused by us."""
import hashlib
import json
import os
import subprocess
import sys

import peer
from mounted import Mount, fixture, need_fuse, read_json, run

OPTIONS = ["layout=burn", "modules=store", "contiguous=off", "keep_going"]
READ_MIN = 40  # files that burn reads, of those that lie here; fewer means that something else is wrong

# Where burn and PyTorch differ, and we are with PyTorch: {file: {tensor: why}}; "" stands for all tensors.
BURN_DIFFERS = {
    "neg.pt": {"neg": "burn does not apply the negative bit"},
}
# burn keeps one of two tensors that have the same key; we say that there are two.
WE_REFUSE = {"odd_keys_clash.pt"}


def ask(judge, *args):
    """{name: (shape, sha256)} or the sentence of the refusal."""
    p = subprocess.run([judge, "dump", *args], capture_output=True, text=True, timeout=120)
    lines = [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]
    if p.returncode:
        return lines[-1]["error"] if lines else peer.last_line(p.stdout + p.stderr)
    return {t["name"]: (t["shape"], t["sha256"]) for t in lines}


def ours(source):
    """{source name: (shape, sha256, transposed)} of everything that the mount shows."""
    out = {}
    with Mount(source, *OPTIONS) as m:
        for t in read_json(m, "index.json")["tensors"]:
            with open(os.path.join(m, t["path"]), "rb") as f:
                sha = hashlib.sha256(f.read()).hexdigest()
            out[".".join(t["source"]["path"])] = (t["shape"], sha, "transpose" in t["ops"])
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
        shape, sha, transposed = mine[key]
        if transposed:
            want = linear[key]
        if (shape, sha) != tuple(want):
            yield f"{key}: {shape} {sha[:8]}, burn has {want[0]} {want[1][:8]}"


def fixtures():
    for name in sorted(set(os.listdir(fixture("pt"))) - WE_REFUSE):
        kept = name.endswith((".pt", ".pth", ".tar", ".ckpt", ".pkl", ".bin"))
        if kept and not name.startswith(("bad_", "evil_")):
            yield name


def main():
    need_fuse()
    judge = peer.judge()
    failed = read = tensors = 0
    for name in fixtures():
        source = fixture("pt", name)
        plain = ask(judge, source)
        if isinstance(plain, str):
            p = run("--inspect", "--json", *[x for o in OPTIONS for x in ("-o", o)], source)
            failed += p.returncode != 0
            print("FAIL" if p.returncode else "ok  ", name, f"burn refuses: {plain}", p.stderr.strip(), flush=True)
            continue
        wrong = list(compare(name, ours(source), plain, ask(judge, source, "linear")))
        failed, read, tensors = failed + bool(wrong), read + 1, tensors + len(plain)
        print("FAIL" if wrong else "ok  ", name, f"{len(plain)} tensors", *wrong, sep="\n     " if wrong else " ", flush=True)
    print(f"{read} files with {tensors} tensors read by burn, {failed} failed")
    return 1 if failed or read < READ_MIN else 0


if __name__ == "__main__":
    sys.exit(main())
