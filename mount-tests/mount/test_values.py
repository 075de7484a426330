#!/usr/bin/env python3
"""What a checkpoint holds beside tensors: every leaf that torch found in the files of fixtures/pt is in the JSON
files of the tree, with its value."""
import json
import sys

from mounted import fixture, run

# What torch's leaves that have no JSON of their own must show as (fixtures/pt/gen/gen_valid.py makes them).
OBJECTS = {
    "ns": {"lr": 0.1, "name": "run", "layers": [1, 2]},
    "npscalar": 2.5,
    "npstr": ["ab", "c"],
    "npobj": [1, "x"],
    "st": [1, 2],
    "fst": [3],
    "by": [0, 255],
    "ba": [97, 98, 99],
    "dev": "cuda:1",
    "dt": "torch.bfloat16",
    "size": [2, 3],
    "cplx": "builtins.complex(1.0, 2.0)",
    "part": "functools.partial",
    "enum": "ptmodels.Color(1)",
    "date": "2024-01-02T00:00:00",
    "path": "/a/b",
    "ell": "builtins.Ellipsis",
    "rng": "builtins.range(0, 3, 1)",
    "sl": "builtins.slice(1, 2, None)",
    "cls": "torch.nn.modules.linear.Linear",
    "fn": "builtins.reduce",
    "lay": "torch.strided",
    "gen": "torch._C.Generator('cpu')",
}
OTHERS = {
    "omegaconf.ckpt": {"cfg": {"lr": 0.1, "net": {"dim": [1, 2]}}},
    "storages.pt": {"typed": "torch.FloatStorage", "untyped": "torch.storage.UntypedStorage"},
    "objects.pt": OBJECTS,
    "objects_proto4.pt": {**OBJECTS, "fn": "_functools.reduce"},
}
# Made by code of the module when torch loads the file (get_extra_state); the file itself has no such thing.
MADE_BY_CODE = {("extra_state_full.pt", "_extra_state")}
NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def expected(name, leaf):
    """The JSON of one leaf."""
    kind, value = leaf["type"], leaf.get("value")
    if leaf.get("empty"):
        return {} if kind == "dict" else []
    if kind == "float":
        return NOT_FINITE.get(value) or float(value)
    if kind == "int":
        return int(value)
    if kind in ("bool", "str", "NoneType"):
        return value
    return OTHERS[name][leaf["path"][0]]


def look_up(found, path):
    """The value at a path, from the file that covers it; raises KeyError."""
    for at, value in found:
        if path[: len(at)] == at:
            for s in path[len(at):]:
                value = value[int(s) if isinstance(value, list) else s]
            return value
    raise KeyError(f"no file covers {path}")


def cat(source, path):
    p = run("--cat", path, source)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


def check(name, leaves):
    """What is wrong with the values of one file."""
    source = fixture("pt", name)
    p = run("--inspect", "--json", source)
    if p.returncode:
        return [p.stderr.strip()]
    index = json.loads(p.stdout)
    found = [(v["source_path"], cat(source, v["path"])) for v in index["values"]]
    tensors = {tuple(t["source"]["path"]) for t in index["tensors"]}
    wrong = []
    for leaf in leaves:
        path = [str(s) for s in leaf["path"]]
        if tuple(path) in tensors or (name, path[0] if path else "") in MADE_BY_CODE:
            continue  # a numpy array of numbers is a tensor
        want = expected(name, leaf)
        try:
            got = look_up(found, path)
        except (KeyError, IndexError, TypeError) as e:
            got = e
        if got != want or isinstance(got, bool) != isinstance(want, bool):
            wrong.append(f"{path}: {got!r}, expected {want!r}")
    return wrong


def main():
    with open(fixture("pt", "values.json"), encoding="utf-8") as f:
        files = json.load(f)
    failed = leaves = 0
    for name, want in files.items():
        wrong = check(name, want)
        failed, leaves = failed + bool(wrong), leaves + len(want)
        for w in wrong:
            print(f"FAIL {name}: {w}")
    print(f"{leaves} values of {len(files)} files, {failed} files failed")
    return 1 if failed or leaves < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
