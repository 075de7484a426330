#!/usr/bin/env python3
"""Published checkpoints: each tensor that a mount of one serves has PyTorch's dtype, shape and bytes.

Downloads about 84 MB, so it runs only where CKPT_REAL_FILES=1 says that it may.
"""
import hashlib
import os
import sys
import tempfile

import peer
import real_files
from mounted import Mount, need_fuse, read, read_json, run, safetensors


def row(dtype, shape, data):
    return dtype, ",".join(map(str, shape)), hashlib.sha256(data).hexdigest()


def served(mount):
    """Two views of a mounted checkpoint, as {key: row}: its tensor files, and its model.safetensors."""
    files = {t["key"]: row(t["dtype"], t["shape"], read(mount, t["path"])) for t in read_json(mount, "index.json")["tensors"]}
    whole, _ = safetensors(os.path.join(mount, "model.safetensors"))
    return {"tensor files": files, "model.safetensors": {key: row(*tensor) for key, tensor in whole.items()}}


def differences(path, expected):
    """What a checkpoint's mount has otherwise than PyTorch, a line each."""
    with Mount(path, "layout=source") as mount:
        for view, found in served(mount).items():
            for key in sorted(expected.keys() | found.keys()):
                if expected.get(key) != found.get(key):
                    yield f"{view}: {key}: PyTorch has {expected.get(key)}, the mount {found.get(key)}"
    opened = run("--inspect", path)
    if opened.returncode != 0:
        yield f"doesn't open for burn: {opened.stderr.strip()}"


def main():
    if os.environ.get("CKPT_REAL_FILES") != "1":
        peer.skip("it downloads 84 MB of Python packages; CKPT_REAL_FILES=1 allows that")
    need_fuse()
    expected, failed = real_files.table(), 0
    with tempfile.TemporaryDirectory(prefix="ckpt-test.") as folder:
        real_files.download(folder)
        paths = real_files.checkpoints(folder)
        assert paths == sorted(expected), f"the packages have {paths}, the table {sorted(expected)}"
        for path in paths:
            found = list(differences(os.path.join(folder, path), expected[path]))
            failed += bool(found)
            print("\n  ".join([f"{'FAIL' if found else 'ok  '} {path}: {len(expected[path])} tensors", *found]), flush=True)
    print(f"{len(paths) - failed} of {len(paths)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
