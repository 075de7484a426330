#!/usr/bin/env python3
"""A burnpack that burn saved, mounted: every tensor has the bytes that burn reads, the scalars are values, and it shows as it is."""
import hashlib
import json
import os
import sys

from mounted import Mount, fixture, need_fuse, read_json

DTYPES = {"Bool(Native)": "BOOL", "Bool(U8)": "BOOL", "Bool(U32)": "U32", "Flex32": "F32"}
SCALARS = {"int": "-5", "uint": "18446744073709551615", "half": "1.5", "double": "0.1", "bool": "true"}


def sha256(*path):
    with open(os.path.join(*path), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


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


def main():
    need_fuse()
    with Mount(fixture("burnpack", "a1.bpk"), "strict") as m:
        assert check("a1", m)["warnings"] == []
    with Mount(fixture("burnpack", "dtypes.bpk")) as m:
        index = check("dtypes", m)
        assert any("32-bit booleans" in w for w in index["warnings"]), index["warnings"]
        for name, text in SCALARS.items():
            with open(os.path.join(m, f"{name}.json"), encoding="utf-8") as f:
                assert f.read().strip() == text, name
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
