"""read_safetensors.py MOUNTPOINT REFERENCE.json PREFIX: run by test_safetensors.py, once a process.

The expected bytes are burn's own (sha256 of each tensor, recorded from burn's PyTorch importer).
PREFIX is the folder of the mount that the model lies in.
"""
import hashlib
import json
import os
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file


def check(how, key, array, expected):
    got = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    assert list(array.shape) == expected["shape"], f"{how} {key}: shape {array.shape}, expected {expected['shape']}"
    assert got == expected["sha256"], f"{how} {key}: other bytes than burn's"


def main():
    mount, reference, prefix = sys.argv[1:]
    with open(reference, encoding="utf-8") as f:
        expected = json.load(f)["burn_tensors"]
    model = os.path.join(mount, "model.safetensors")
    whole = load_file(model)
    assert sorted(whole) == sorted(expected), f"keys {sorted(whole)}"
    with safe_open(model, framework="np") as lazy:
        assert sorted(lazy.keys()) == sorted(expected), f"keys {sorted(lazy.keys())}"
        assert lazy.metadata()["format"] == "pt", f"metadata {lazy.metadata()}"
        for key, about in expected.items():
            check("safe_open", key, lazy.get_tensor(key), about)
            rows = lazy.get_slice(key)[1:3]
            assert np.array_equal(rows, whole[key][1:3]), f"get_slice {key}"
    for key, about in expected.items():
        path = os.path.join(mount, prefix, *key.split("."))
        check("load_file", key, whole[key], about)
        check("memmap", key, np.memmap(path, "<f4", "r", shape=tuple(about["shape"])), about)
        check("npy", key, np.load(path + ".npy", mmap_mode="r"), about)


if __name__ == "__main__":
    main()
