"""Checkpoints that people publish: where they come from, and the table of what PyTorch reads from them.

fixtures/real/packages.txt pins Python packages that contain checkpoints, by version and by hash. They are
too large to keep, so they are downloaded; fixtures/real/tensors.tsv has the SHA-256 of each tensor in them.
"""
import csv
import glob
import os
import subprocess
import zipfile

import peer

FIXTURES = os.path.join(peer.HERE, "..", "fixtures", "real")
PACKAGES = os.path.join(FIXTURES, "packages.txt")
TABLE = os.path.join(FIXTURES, "tensors.tsv")
COLUMNS = ["file", "key", "dtype", "shape", "sha256"]
ENDINGS = (".pth", ".pt", ".jit", ".ckpt", ".bin", ".safetensors")


def download(folder):
    """Downloads the packages and unpacks them in this folder; nothing of them is installed or run."""
    python = peer.python_with(["pip"])
    got = subprocess.run([python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                          "--only-binary", ":all:", "--require-hashes", "--dest", folder, "-r", PACKAGES],
                         capture_output=True, text=True)
    if got.returncode != 0:
        raise SystemExit(f"pip can't download the packages: {peer.last_line(got.stderr)}")
    for wheel in glob.glob(os.path.join(folder, "*.whl")):
        with zipfile.ZipFile(wheel) as z:
            z.extractall(folder)


def checkpoints(folder):
    """Their paths below this folder."""
    found = [os.path.relpath(os.path.join(d, name), folder) for d, _, names in os.walk(folder) for name in names]
    return sorted(path for path in found if path.endswith(ENDINGS))


def table():
    """{file: {key: (dtype, shape, sha256)}} of the recorded table."""
    out = {}
    with open(TABLE, encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f, delimiter="\t"):
            out.setdefault(row["file"], {})[row["key"]] = (row["dtype"], row["shape"], row["sha256"])
    return out
