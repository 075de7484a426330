"""What opening costs: until a source is open, its tree built and one text of it made, and the memory that takes; without FUSE."""
import os
import resource
import subprocess
import sys
import time
import zlib

import data
from cases import mount_and
from measured import timed

SUMMARY = ("--cat", "summary.txt")


def open_wall(b, source, command, expected, before=None):
    """What it prints is taken through a pipe and must be as many bytes as expected."""
    start = time.monotonic()
    p = subprocess.run([b.binary, *command, b.file(source)], stdout=subprocess.PIPE, check=True, preexec_fn=before)
    seconds = time.monotonic() - start
    assert len(p.stdout) == expected, f"{source}: {len(p.stdout)} bytes"
    return {"wall": seconds}


def opened(b, source):
    wall, cpu, _ = timed(b.binary, *SUMMARY, b.file(source))
    return {"wall": wall, "cpu": cpu}


def open_memory(b, source):
    """MiB at most. A process counts from what its parent had, so the parent is a fresh interpreter of about 10 MiB."""
    script = "import os, sys; p = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); print(os.wait4(p, 0)[2].ru_maxrss, file=sys.stderr)"
    p = subprocess.run([sys.executable, "-ISc", script, b.binary, *SUMMARY, b.file(source)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return {"peak": int(p.stderr) / 1024}


def mount_huge(b):
    """The last tensor's bytes are compared, and 16 of the first one's at its very end."""
    def look(directory):
        with open(f"{directory}/end", "rb") as f:
            assert f.read() == b"the right bytes!"
        with open(f"{directory}/w", "rb") as f:
            assert f.seek(-16, os.SEEK_END) > 1 << 32 and f.read() == b"\0" * 16

    return {"wall": mount_and(b, "huge.pt", (), look)}


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def one_of_many_shards(b):
    return open_wall(b, "shards", ("--cat", "t1400"), 1, before=few_files)


def read_deflated(b):
    return open_wall(b, "zlib.pt", ("--cat", "w"), data.DEFLATED_MIB << 20)


def zlib_inflates(b):
    with open(b.file("zlib.deflate"), "rb") as f:
        stream = f.read()
    start = time.monotonic()
    zlib.decompress(stream, -15)
    return {"wall": time.monotonic() - start}
