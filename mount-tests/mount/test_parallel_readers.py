"""Sixty-four readers of random ranges at once, of tensors that must be transposed, cast, inflated and picked from strides: right
bytes, and memory within cache= and 64 MiB more. CKPT_SEED repeats a run, CKPT_READ_SECONDS makes it longer."""
import random
from load import *
import torch_file as t
from test_random_reader import READER, turned

SEED = int(os.environ.get("CKPT_SEED", random.SystemRandom().getrandbits(32)))
SECONDS = float(os.environ.get("CKPT_READ_SECONDS", "5"))
READERS = 64
CACHE_MIB = 16
MORE_MIB = 64


def build(folder, rng):
    """A deflated .pt of 48 MiB: more than bands and cache= hold. {path: bytes} as layout=burn and cast=f32 show it."""
    rows, columns = 1500, 1000
    want, tensors, storages = {}, {}, {}
    for i in range(6):
        data = rng.randbytes(1 << 16) * (rows * columns * 4 // (1 << 16) + 1)
        data = bytearray(data[:rows * columns * 4])
        data[3::4] = bytes(rng.randrange(64) for _ in range(16)) * (rows * columns // 16)  # no NaN
        data = bytes(data)
        tensors[f"fc{i}.weight"] = t.tensor(str(i), [rows, columns])
        storages[str(i)] = data
        want[f"fc{i}/weight"] = turned(data, rows, columns, 4)
    m = memoryview(storages["0"]).cast("I")
    tensors["steps"] = t.tensor("0", [rows // 2, columns // 2], [2 * columns, 2], 1, rows * columns)
    want["steps"] = b"".join(m[1 + 2 * r * columns:][:columns:2].tobytes() for r in range(rows // 2))
    half, shape = bytes(b & 0x7B if i % 2 else b for i, b in enumerate(rng.randbytes(1 << 20))), [1 << 10, 1 << 9]
    tensors["half.weight"] = t.tensor("half", shape, cls="HalfStorage")
    storages["half"] = half
    want["half/weight"] = turned(struct.pack(f"<{1 << 19}f", *struct.unpack(f"<{1 << 19}e", half)), *shape, 4)
    path = os.path.join(folder, "many.pt")
    with open(path, "wb") as f:
        f.write(t.checkpoint(t.state_dict(tensors), storages, deflated=True))
    return path, want


class Peak:
    """The most anonymous memory that the daemon had, asked for all the time."""

    def __init__(self, daemon):
        self.daemon, self.mib = daemon, 0

    def ask(self):
        self.mib = max(self.mib, self.daemon.status("RssAnon") / 1024)


def many_readers(*opts):
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as d:
        path, want = build(d, rng)
        os.environ["TMPDIR"] = d
        arguments = []
        with Served(path, "layout=burn", "cast=f32", f"cache={CACHE_MIB}M", *opts) as daemon:
            for i, (name, data) in enumerate(want.items()):
                with open(os.path.join(d, f"want{i}"), "wb") as f:
                    f.write(data)
                arguments += [daemon.path(name), os.path.join(d, f"want{i}")]
            peak = Peak(daemon)
            with tempfile.TemporaryFile("w+") as out:
                p = subprocess.Popen([READER, str(SEED), str(READERS), str(SECONDS), "0", *arguments], stdout=out, stderr=out)
                wait(lambda: (peak.ask(), p.poll() is not None)[1], "the readers to end", SECONDS + 200)
                out.seek(0)
                said = out.read().strip()
            assert p.returncode == 0, said
            print(f"     {peak.mib:.0f} MiB at most, {daemon.status('Threads')} threads; {said}")
            assert SANITIZED or peak.mib <= CACHE_MIB + MORE_MIB, f"{peak.mib:.0f} MiB of anonymous memory"


def test_default():
    many_readers()


def test_direct_io():
    many_readers("direct_io")


# Reads a byte of a file at an offset, says so, and then nothing more: the file stays open and a page of it mapped.
SLOW = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
at = int(sys.argv[2])
m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
print(os.pread(fd, 1, at)[0] == m[at], flush=True)
sys.stdin.read()
"""


def test_slow_readers():
    """Who has read a little of each band and goes no further keeps nothing from who reads all."""
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as d:
        path, want = build(d, rng)
        with Served(path, "layout=burn", "cast=f32", "cache=4M") as daemon:
            slow = []
            for name, data in want.items():
                for i in range(3):
                    command = [sys.executable, "-c", SLOW, daemon.path(name), str(len(data) * i // 3)]
                    slow.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            try:
                assert all(p.stdout.readline() == "True\n" for p in slow)
                for name, data in want.items():
                    assert read(daemon.path(name)) == data, name
                wait(daemon.is_idle, "the daemon to rest")
                assert SANITIZED or daemon.status("RssAnon") <= (4 + MORE_MIB) << 10
            finally:
                for p in slow:
                    p.communicate("")


if __name__ == "__main__":
    if not READER:
        print("skipped: RANDOM_READER does not name the program")
        sys.exit(77)
    print(f"CKPT_SEED={SEED}")
    main(__name__)
