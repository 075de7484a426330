#!/usr/bin/env python3
"""What opening costs: time until a source is open, its tree built and served, and the memory that takes.

    opening.py [--check FACTOR] [--rounds N]

prints a Markdown table, medians of N rounds; the inputs are made in a temporary folder. With --check a figure over
FACTOR times its target ends the run with exit code 1. MOUNT_CKPT names the binary. Standard library only.
"""
import argparse, json, os, resource, statistics, struct, subprocess, sys, tempfile, time, zlib

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
import orbax_file

BINARY = os.environ.get("MOUNT_CKPT", "build-release/mount.ckpt")
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def long(i):
    n = i.bit_length() // 8 + 1
    return b"\x8a" + bytes([n]) + i.to_bytes(n, "little", signed=True)


def tensor(key, count):
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + long(count) + b"tQ"
    return REBUILD + b"(" + storage + b"K\0" + long(count) + b"\x85K\1\x85\x89ccollections\nOrderedDict\n)RtR"


def state_dict(counts):
    return b"\x80\2}(" + b"".join(text(k) + tensor(str(i), n) for i, (k, n) in enumerate(counts.items())) + b"u."


def write_zip(path, entries):
    """(name, size, bytes or None for a hole, stored bytes if deflated); zip64 throughout, checksums not computed."""
    directory = []
    with open(path, "wb") as f:
        for name, size, data, deflated in entries:
            at, stored = f.tell(), size if deflated is None else len(deflated)
            extra = struct.pack("<HHQQ", 1, 16, size, stored)
            common = struct.pack("<HHHHIII", 0, 8 if deflated else 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF)
            f.write(b"PK\3\4" + struct.pack("<H", 45) + common + struct.pack("<HH", len(name), len(extra)) + name.encode() + extra)
            if data is None and deflated is None:
                f.seek(size, 1)
            else:
                f.write(data if deflated is None else deflated)
            extra = struct.pack("<HHQQQ", 1, 24, size, stored, at)
            directory.append(b"PK\1\2" + struct.pack("<HH", 45, 45) + common
                          + struct.pack("<HHHHHII", len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF) + name.encode() + extra)
        at, n, directory = f.tell(), len(entries), b"".join(directory)
        f.write(directory + b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, n, n, len(directory), at))
        f.write(b"PK\6\7" + struct.pack("<IQI", 0, at + len(directory), 1) + b"PK\5\6" + b"\0" * 4 + b"\xff" * 12 + b"\0\0")


def make_big(path):
    count = 4_300_000_000 // 4
    pickle = state_dict({"w": count, "end": 4})
    write_zip(path, [("a/data.pkl", len(pickle), pickle, None), ("a/data/0", 4 * count, None, None), ("a/data/1", 16, b"the right bytes!", None)])


def make_many(path, n=10_000):
    pickle = state_dict({f"layers.{i // 10}.part{i % 10}": 4 for i in range(n)})
    write_zip(path, [("a/data.pkl", len(pickle), pickle, None)] + [(f"a/data/{i}", 16, b"\0" * 16, None) for i in range(n)])


def make_header(path, n=100_000):
    header = {f"layers.{i // 10}.part{i % 10}": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(n)}
    t = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(t)) + t + b"\0" * 4 * n)


def make_deflated(path, mib=64):
    data = bytes(range(256)) * 4096 * mib
    c = zlib.compressobj(6, zlib.DEFLATED, -15)
    deflated = c.compress(data) + c.flush()
    pickle = state_dict({"w": len(data) // 4})
    write_zip(path, [("a/data.pkl", len(pickle), pickle, None), ("a/data/0", len(data), data, deflated)])
    return data, deflated


def make_shards(folder, n=1500):
    os.mkdir(folder)
    for i in range(n):
        t = json.dumps({f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        with open(f"{folder}/m-{i:05}.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(t)) + t + bytes([i % 256]))
    with open(f"{folder}/model.safetensors.index.json", "w") as f:
        json.dump({"weight_map": {f"t{i}": f"m-{i:05}.safetensors" for i in range(n)}}, f)


def write_files(folder, files):
    """{name below the folder: bytes}"""
    for name, data in files.items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)


def orbax_files(arrays, database=True):
    """A checkpoint of Orbax: {path, a tuple of names: (shape, bytes of float32, or None for no chunk: the fill value)}."""
    values = {}
    for path, (shape, data) in arrays.items():
        name = ".".join(path)
        values[name + "/.zarray"] = orbax_file.zarray(shape, shape)
        if data is not None:
            values[name + "/" + ".".join("0" * len(shape))] = data
    return (orbax_file.store(values, inline=1000) if database else values) | {"_METADATA": orbax_file.described({p: "np.ndarray" for p in arrays})}


def make_orbax(database, folders, n=10_000):
    """As networks are: kernels, and small vectors beside them."""
    shape = lambda i: (16, 16) if i % 4 == 0 else (16,)
    arrays = {("params", f"layer_{i // 10}", f"part_{i % 10}"): (shape(i), b"\0" * 4 * 16 ** len(shape(i))) for i in range(n)}
    write_files(database, orbax_files(arrays))
    write_files(folders, orbax_files(arrays, False))


def run(args, before=None):
    """Seconds and standard output."""
    start = time.monotonic()
    p = subprocess.run([BINARY, *args], stdout=subprocess.PIPE, preexec_fn=before)
    assert p.returncode == 0, f"{args}: exit {p.returncode}"
    return time.monotonic() - start, p.stdout


def cpu_seconds(args):
    """User and system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(args)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peak_memory(args):
    """MiB at most. A process counts from what its parent had, so the parent is a fresh interpreter of about 10 MiB."""
    script = "import os, sys; p = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); print(os.wait4(p, 0)[2].ru_maxrss, file=sys.stderr)"
    p = subprocess.run([sys.executable, "-ISc", script, BINARY, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return int(p.stderr) / 1024


def mount(source):
    """Seconds until the mount serves; its last tensor's bytes are compared, and 16 of the first one's at its very end."""
    folder = tempfile.mkdtemp()
    try:
        seconds = run([source, folder])[0]
        with open(f"{folder}/end", "rb") as f:
            assert f.read() == b"the right bytes!"
        with open(f"{folder}/w", "rb") as f:
            assert f.seek(-16, 2) == 4_300_000_000 - 16 and f.read() == b"\0" * 16
        return seconds
    finally:
        subprocess.run(["umount" if os.geteuid() == 0 else "fusermount3", *([] if os.geteuid() == 0 else ["-u"]), folder], check=False)
        os.rmdir(folder)


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def measure(folder, rounds):
    """Rows: what, figure, target, unit."""
    big, many, header, deflated, shards, database, folders = (f"{folder}/{n}" for n in (
        "big.pt", "many.pt", "header.safetensors", "deflated.pt", "shards", "database.orbax", "folders.orbax"))
    make_big(big), make_many(many), make_header(header), make_shards(shards), make_orbax(database, folders)
    data, stream = make_deflated(deflated)

    def inflate():
        start = time.monotonic()
        assert zlib.decompress(stream, -15) == data
        return time.monotonic() - start

    def shard():
        seconds, out = run(["--cat", "t1400", shards], few_files)
        assert out == bytes([1400 % 256])
        return seconds

    def forwards():
        seconds, out = run(["--cat", "w", deflated])
        assert out == data
        return seconds

    median = lambda f: statistics.median(f() for _ in range(rounds))
    if os.access("/dev/fuse", os.W_OK):
        yield "mount of a sparse 4.3 GB zip64 `.pt`, its end read right", median(lambda: mount(big)) * 1000, 50, "ms"
    else:
        print("skipped: the mount of a 4.3 GB file, /dev/fuse cannot be used here", file=sys.stderr)
    yield "open a `.pt` of 10,000 tensors", median(lambda: run(["--cat", "summary.txt", many])[0]) * 1000, 150, "ms"
    yield "the same, peak memory", peak_memory(["--cat", "summary.txt", many]), 40, "MiB"
    yield "open a safetensors header of 100,000 tensors", median(lambda: run(["--cat", "summary.txt", header])[0]) * 1000, 500, "ms"
    for source, what, target in (database, "a database", 150), (folders, "a folder each", 350):
        yield f"open an Orbax checkpoint of 10,000 arrays in {what}, CPU", median(lambda: cpu_seconds(["--cat", "summary.txt", source])) * 1000, target, "ms"
        yield "the same, peak memory", peak_memory(["--cat", "summary.txt", source]), 40, "MiB"
    yield "read one tensor of 1,500 shards with a soft limit of 256 open files", median(shard) * 1000, 500, "ms"
    yield "read a deflated tensor of 64 MiB forwards, in inflations by Python's zlib", median(forwards) / median(inflate), 2, "times"


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--check", type=float, metavar="FACTOR")
    a.add_argument("--rounds", type=int, default=5)
    a = a.parse_args()
    over = 0
    print("| what | figure | target |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="ckpt-opening.") as folder:
        for what, figure, target, unit in measure(folder, a.rounds):
            late = a.check is not None and figure > a.check * target
            over += late
            print(f"| {what} | {figure:.3g} {unit} | {target} {unit} |{f' over {a.check:g} times the target' if late else ''}", flush=True)
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
