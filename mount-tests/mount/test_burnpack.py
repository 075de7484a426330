#!/usr/bin/env python3
"""A burnpack that burn saved, mounted: every tensor has the bytes that burn reads, the scalars are values, and it shows as it is.
And model.bpk, the burnpack of any model."""
import hashlib
import os
import random
import shutil
import tempfile

import mounted
from mounted import Mount, fixture, options, read, read_json, run, safetensors, write_safetensors

DTYPES = {"Bool(Native)": "BOOL", "Bool(U8)": "BOOL", "Bool(U32)": "U32", "Flex32": "F32"}
SCALARS = {"int": "-5", "uint": "18446744073709551615", "half": "1.5", "double": "0.1", "bool": "true"}


def sha256(*path):
    return hashlib.sha256(read(*path)).hexdigest()


def check(name, mount):
    expected = read_json(fixture("burnpack"), f"{name}.expected.json")
    index = read_json(mount, "index.json")
    assert index["source"]["format"] == "burnpack" and index["dialect"] == "burn", index["dialect"]
    shown = {t["key"]: t for t in index["tensors"]}
    for want in expected["tensors"]:
        if want["dtype"].startswith("QFloat"):
            assert index["unsupported"] == [{"path": [want["name"]], "reason": index["unsupported"][0]["reason"]}]
            continue
        t = shown.pop(want["name"])
        assert t["dtype"] == DTYPES.get(want["dtype"], want["dtype"]), t
        assert t["shape"] == want["shape"] and t["nbytes"] == want["bytes"] and t["ops"] == [], t
        assert sha256(mount, t["path"]) == want["sha256"], t["key"]
    assert not shown, f"not in the file: {list(shown)}"
    return index


def test_saved_by_burn():
    with Mount(fixture("burnpack", "a1.bpk"), "strict") as m:
        assert check("a1", m)["warnings"] == []
    with Mount(fixture("burnpack", "dtypes.bpk")) as m:
        index = check("dtypes", m)
        assert any("32-bit booleans" in w for w in index["warnings"]), index["warnings"]
        for name, text in SCALARS.items():
            assert read(m, f"{name}.json").strip() == text.encode(), name


def test_hidden():
    source = fixture("a1", "a1_state.pt")
    with Mount(source) as m:
        assert "model.bpk" not in os.listdir(m) and os.path.getsize(os.path.join(m, "model.bpk")) > 0
        assert b"model.bpk" in read(m, "summary.txt")
    with Mount(source, "list=all") as m:
        assert "model.bpk" in os.listdir(m)
        assert os.path.getsize(os.path.join(m, "model.bpk")) == len(read(m, "model.bpk"))


ROUND_TRIPS = [(("a1", "a1_ckpt.pt"), []), (("a1", "a1_bf16.pt"), []), (("a1", "a1_state.pt"), ["layout=torch"]), (("burnpack", "dtypes.bpk"), []),
               (("burnpack", "a1.bpk"), ["layout=source"]), (("pt", "views.pt"), []), (("pt", "empties.pt"), []), (("burn-nn", "lstm_bi_full.pt"), [])]


def test_round_trip():
    """model.bpk, mounted, has the tensors of model.safetensors in the same order, and its own model.bpk is the same file."""
    with tempfile.TemporaryDirectory(prefix="ckpt-test.") as folder:
        for source, opts in ROUND_TRIPS:
            once = os.path.join(folder, "once.bpk")
            with Mount(fixture(*source), *opts) as m:
                shutil.copyfile(os.path.join(m, "model.bpk"), once)
                want, _ = safetensors(os.path.join(m, "model.safetensors"))
            exported = os.path.join(folder, "exported.bpk")
            assert run("--export", exported, *options(*opts), fixture(*source)).returncode == 0
            assert read(exported) == read(once), source
            with Mount(once, *opts) as m:
                got, _ = safetensors(os.path.join(m, "model.safetensors"))
                assert list(got.items()) == list(want.items()), source
                assert read(m, "model.bpk") == read(once), source
                assert not any(t["ops"] for t in read_json(m, "index.json")["tensors"]), source


def test_ranges():
    """Any range is the same bytes as of the whole."""
    with Mount(fixture("burn-nn", "lstm_bi_full.pt")) as m:
        whole, rng = read(m, "model.bpk"), random.Random(7)
        with open(os.path.join(m, "model.bpk"), "rb", buffering=0) as f:
            for _ in range(300):
                at, n = rng.randrange(len(whole)), rng.randrange(3000)
                assert os.pread(f.fileno(), n, at) == whole[at : at + n], (at, n)


def test_left_out():
    """What burnpack has no dtype for is left out, and summary.txt says so."""
    with tempfile.TemporaryDirectory(prefix="ckpt-test.") as folder:
        source = os.path.join(folder, "odd.safetensors")
        write_safetensors(source, {"a": ("F8_E4M3", [4], b"abcd"), "b": ("F32", [1], b"wxyz"), "c": ("U16", [1], b"xy")})
        with Mount(source) as m:
            summary = read(m, "summary.txt").decode()
            assert "model.bpk: 1 tensors of dtypes that burn lacks, F8_E4M3 'a'" in summary, summary
            shutil.copyfile(os.path.join(m, "model.bpk"), os.path.join(folder, "odd.bpk"))
        with Mount(os.path.join(folder, "odd.bpk")) as m:
            assert [t["key"] for t in read_json(m, "index.json")["tensors"]] == ["b", "c"]


if __name__ == "__main__":
    mounted.main(__name__)
