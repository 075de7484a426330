"""Readers of what can't be had now, more than there are threads, in front of a disk that hangs: everything else is answered
meanwhile, page faults too; who is killed goes; and when the disk is back, all bytes are right."""
from load import *
from faulty import FaultFs

ROWS, COLUMNS = 512, 1024
MIB = 1 << 20
SLOW, COLD, GAP, WARM = "slow.weight", "cold.bias", "gap.bias", "warm.bias"  # the gap: what is read ahead of warm does not hang
READERS = 12  # of each; threads=2, and four that answer
PATIENCE = 20 if SANITIZED else 5  # seconds for what takes milliseconds, on a busy machine

# What a newcomer does, in a process of its own.
NEWCOMER = """
import mmap, os, sys
root, name, want = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
os.listdir(root), os.stat(os.path.join(root, "layer", name)), os.listxattr(os.path.join(root, "layer", name))
fd = os.open(os.path.join(root, "layer", name), os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
    assert m[:] == want
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
assert os.pread(fd, len(want), 0) == want
"""


def build(disk):
    shapes = {SLOW: [ROWS, COLUMNS], COLD: [READERS * MIB // 2], GAP: [ROWS * COLUMNS], WARM: [10_000]}
    data = {f"layer.{k}": os.urandom(4 * (s[0] * s[1] if len(s) > 1 else s[0])) for k, s in shapes.items()}
    write_safetensors(os.path.join(disk.below, "model.safetensors"), {k: ("F32", shapes[k[6:]], v) for k, v in data.items()})
    with open(os.path.join(disk.below, "model.safetensors"), "rb") as f:
        (header,) = struct.unpack("<Q", f.read(8))
    hangs = (8 + header, len(data[f"layer.{SLOW}"]) + len(data[f"layer.{COLD}"]))
    want = {k.split(".", 1)[1].replace(".", "/"): v for k, v in data.items()}
    want["slow/weight"] = transposed(want["slow/weight"], ROWS, COLUMNS, 4)
    return want, hangs


def newcomer(d, readers, want):
    """Not waited for when it hangs: nothing but the disk could end it."""
    p = readers.run(sys.executable, "-c", NEWCOMER, d.dir, "warm/bias", want.hex())
    try:
        assert p.wait(PATIENCE) == 0, "the newcomer failed"
    except subprocess.TimeoutExpired:
        raise AssertionError(f"a newcomer was not answered within {PATIENCE} s") from None


def saturate(d, disk, readers):
    """Readers of both kinds, all of which wait; no two of a page, and none of what is read ahead for another."""
    for i in range(READERS):
        for name, step in (("slow", ROWS * COLUMNS * 4 // 4096 // READERS), ("cold", 512)):
            readers.run("dd", f"if={d.path('layer', name, 'weight' if name == 'slow' else 'bias')}", "bs=4096", f"skip={i * step}", "count=1")
    disk.wait_for_waiting("model.safetensors", 2)
    wait(lambda: all(waits(p.pid) for p in readers.alive()), "all readers to wait", 60)
    assert len(readers.alive()) == 2 * READERS


def against_a_hanging_disk(*opts):
    with FaultFs() as disk:
        want, (at, n) = build(disk)
        with Served(disk.path("model.safetensors"), "layout=burn", "threads=2", *opts) as d, Readers() as readers:
            disk.fail("model.safetensors", f"read hang {at} {n}")
            try:
                newcomer(d, readers, want["warm/bias"])  # the source's pages of it are in memory from here on
                saturate(d, disk, readers)
                for _ in range(5):
                    newcomer(d, readers, want["warm/bias"])
                readers.kill()
                # Those whose request hangs in the kernel below us can't go: a lane each, the one to wait in, and a thread for
                # each of threads=.
                wait(lambda: len(readers.alive()) <= 2 + 1 + 2, "killed readers to go", PATIENCE)
                newcomer(d, readers, want["warm/bias"])
            finally:
                disk.heal()
            wait(lambda: not readers.alive(), "the last readers to go", PATIENCE)
            for name, data in want.items():
                assert read(d.dir, "layer", *name.split("/")) == data, name


def test_default():
    against_a_hanging_disk()


def test_direct_io():
    against_a_hanging_disk("direct_io")


if __name__ == "__main__":
    main(__name__)
