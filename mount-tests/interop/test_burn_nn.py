#!/usr/bin/env python3
"""burn itself as the judge of its own layers: what is shown of each layer of fixtures/burn-nn loads through burn's plain
store into burn's layer, nothing missing, nothing left over, and computes what PyTorch recorded."""
import json
import os
import re
import subprocess
import sys
import tempfile

import peer
from mounted import fixture, options, read_json, run

TOLERANCE = 1e-5
UNUSED = re.compile(r"\.num_batches_tracked$")  # burn has no such field


def numbers(reference, *names):
    return [str(reference[name]) for name in names]


def command(name, r):
    """judge's command for a fixture, after the file."""
    if name.startswith(("encoder", "decoder")):
        return name[:3], numbers(r, "d", "ff", "heads", "layers") + [r["norm"], r["activation"]]
    if name == "mha":
        return name, numbers(r, "d", "heads")
    if name == "mha_kv":
        return "linears", numbers(r, "d", "heads", "kdim", "vdim")
    if name == "norms":
        return name, numbers(r, "d") + ["tuple"]
    layer, _, form = name.partition("_")
    return ("bi" if form == "bi" else "") + layer, numbers(r, "input", "hidden", *(["layers"] if form == "stacked" else []))


def cases(name, r):
    """Every form in which the layer comes: (judge's command, its arguments, file, options). The graph beside the .safetensors
    is its evidence."""
    verb, args = command(name, r)
    yield verb, args, name + "_full.pt", []
    yield verb, args, name + ".safetensors", ["contiguous=on"]
    if name == "norms":
        yield verb, [*args[:-1], "vec"], name + ".safetensors", []


def ask(judge, verb, args, source, opts):
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "model.safetensors")
        p = run("--export", out, *options(*opts), source)
        if p.returncode:
            return p.returncode, {"ok": False, "error": p.stderr.strip()}
        p = subprocess.run([judge, verb, out, *args], capture_output=True, text=True, timeout=300)
    assert p.stdout.startswith("{"), f"judge {verb}: exit {p.returncode}: {p.stdout}{p.stderr}"
    return p.returncode, json.loads(p.stdout)


def wrong(answer, reference):
    """None, or what is wrong with judge's answer."""
    code, said = answer
    left = [key for key in said.get("unused", []) if not UNUSED.search(key)]
    if code or not said["ok"] or said["missing"] or said["errors"] or left:
        return f"exit {code}: {json.dumps(said)[:500]}"
    if said["shape"] != reference["y_shape"]:
        return f"shape {said['shape']}"
    worst = max(abs(a - b) for a, b in zip(said["y"], reference["y"], strict=True))
    return None if worst <= TOLERANCE else f"differs by {worst}"


def store_differs(judge, name, verb, args):
    """None, or where modules=store gives burn another model than burn's own reader and adapter make of the same file."""
    source = fixture("burn-nn", name + "_full.pt")
    p = subprocess.run([judge, verb, source, *args], capture_output=True, text=True, timeout=300)
    said = json.loads(p.stdout)
    if "applied" not in said:  # a folder's name of 21 characters: burn can't open the file
        return None
    _, ours = ask(judge, verb, args, source, ["modules=store"])
    same = all(ours.get(field) == said[field] for field in ("ok", "applied", "missing", "errors", "y"))
    return None if same else f"{ours}, burn itself: {said}"


def must_fail(judge):
    """Our own sanity: burn must refuse, or compute otherwise, what isn't adapted or adapted wrongly."""
    reference = read_json(fixture("burn-nn"), "reference.json")
    for name, opts in (("lstm", ["modules=store"]), ("mha", ["modules=store"]),
                       ("encoder_pre_relu", [r"kind=^layers\.\d+$=>encoder_layer:post"]),
                       ("decoder_post_gelu", [r"kind=^layers\.\d+$=>decoder_layer:pre"])):
        verb, args = command(name, reference[name])
        yield name, wrong(ask(judge, verb, args, fixture("burn-nn", name + "_full.pt"), opts), reference[name])


def main():
    judge = peer.judge()
    reference = read_json(fixture("burn-nn"), "reference.json")
    failed = count = 0
    for name, r in reference.items():
        for verb, args, file, opts in cases(name, r):
            bad = wrong(ask(judge, verb, args, fixture("burn-nn", file), opts), r)
            failed, count = failed + bool(bad), count + 1
            print("FAIL" if bad else "ok  ", verb, file, *args, bad or "", flush=True)
    for name, r in reference.items():
        bad = store_differs(judge, name, *command(name, r))
        failed, count = failed + bool(bad), count + 1
        print("FAIL" if bad else "ok  ", "modules=store is burn's adapter:", name, bad or "", flush=True)
    for name, bad in must_fail(judge):
        failed, count = failed + (not bad), count + 1
        print("ok  " if bad else "FAIL", "refused or different:", name, bad, flush=True)
    print(f"{count - failed} of {count} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
