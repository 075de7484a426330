#!/usr/bin/env python3
"""reader.py HOW SEED COUNT FILE REFERENCE: reads random pieces of FILE, by HOW (pread, mmap, preadv, sendfile), and compares them with
REFERENCE. Prints what differs and exits with 1. A process of its own, since a mapping whose daemon is gone is a SIGBUS.
"""
import mmap, os, random, sys


def piece_of(size, rng):
    at = rng.randrange(size + 1)
    return at, min(rng.choice([1, 3, 64, 4096, 65536, 1 << 20, 4 << 20]), size - at)


def pread(fd, size):
    return lambda at, n: os.pread(fd, n, at)


def preadv(fd, size):
    def read(at, n):
        parts = [bytearray(n // 3), bytearray(n - n // 3)]
        got = os.preadv(fd, parts, at)
        return b"".join(parts)[:got]
    return read


def mapped(fd, size):
    view = mmap.mmap(fd, size, prot=mmap.PROT_READ) if size else b""
    return lambda at, n: view[at : at + n]


def sendfile(fd, size):
    def read(at, n):
        ends = os.pipe()
        try:
            got = os.sendfile(ends[1], fd, at, min(n, 65536))
            return os.read(ends[0], got) + os.pread(fd, n - got, at + got)
        finally:
            os.close(ends[0]), os.close(ends[1])
    return read


def main():
    how, seed, count, path, reference = sys.argv[1:]
    rng = random.Random(seed)
    fd, right = os.open(path, os.O_RDONLY), os.open(reference, os.O_RDONLY)
    size = os.fstat(fd).st_size
    if size != os.fstat(right).st_size:
        sys.exit(f"{path}: {size} bytes, not {os.fstat(right).st_size}")
    read = {"pread": pread, "preadv": preadv, "mmap": mapped, "sendfile": sendfile}[how](fd, size)
    for _ in range(int(count)):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # so that the daemon is asked
        at, n = piece_of(size, rng)
        if read(at, n) != os.pread(right, n, at):
            sys.exit(f"{path}: {how} of {n} bytes at {at} differs")


if __name__ == "__main__":
    main()
