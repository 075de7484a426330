"""Random reads in all the ways that programs read (mount-tests/load/random_reader.c: pread, preadv, O_DIRECT, mmap, sendfile, splice,
copy_file_range) by 8 threads: transposed, cast, sliced, deflated and chunked tensors and the files made of them, against bytes that
are computed here. Prints its seed; CKPT_SEED repeats a run, CKPT_READ_SECONDS=60 makes it longer."""
import contextlib, random, zlib
from mounted import *
import orbax_file as o
import torch_file as t

SEED = int(os.environ.get("CKPT_SEED", random.SystemRandom().getrandbits(32)))
SECONDS = os.environ.get("CKPT_READ_SECONDS", "3")
READER = os.environ.get("RANDOM_READER")
INTEGER = {1: "B", 2: "H", 4: "I", 8: "Q"}


def turned(data, rows, columns, size):
    """As transposed, by columns."""
    m = memoryview(data).cast(INTEGER[size])
    return b"".join(m[c::columns].tobytes() for c in range(columns))


def product(shape):
    n = 1
    for d in shape:
        n *= d
    return n


# --- sources: each writes files and gives options and what they show: {path: bytes} ---


def plain(folder, rng, layout):
    """Tensors of several element sizes in a safetensors; with the files made of them."""
    tensors = {}
    for i, (dtype, size, shape) in enumerate([("F32", 4, [300, 517]), ("F16", 2, [513, 129]), ("F64", 8, [64, 200]), ("BF16", 2, [1, 7]), ("F32", 4, [900, 3]),
                                              ("F32", 4, [2, 3, 5, 7]), ("I64", 8, [11]), ("F32", 4, [1024, 1500]), ("F32", 4, [700_000])]):
        tensors[f"layer{i}.weight"] = (dtype, shape, rng.randbytes(size * product(shape)))
        if len(shape) == 2:
            tensors[f"layer{i}.bias"] = (dtype, [shape[0]], rng.randbytes(size * shape[0]))
    write_safetensors(os.path.join(folder, "plain.safetensors"), tensors)
    want = {}
    for key, (dtype, shape, data) in tensors.items():
        if layout == "burn" and len(shape) == 2:
            data = turned(data, *shape, len(data) // product(shape))
        want[key.replace(".", "/")] = data
    return "plain.safetensors", [f"layout={layout}"], want


def cast(folder, rng, layout):
    """f16 and bf16 shown as f32."""
    half, brain = [500, 700], [300, 1000]
    f16 = bytes(b & 0x7B if i % 2 else b for i, b in enumerate(rng.randbytes(2 * product(half))))  # no NaN
    bf16 = rng.randbytes(2 * product(brain))
    write_safetensors(os.path.join(folder, "cast.safetensors"), {"f16.weight": ("F16", half, f16), "bf16.weight": ("BF16", brain, bf16)})
    widened = bytearray(2 * len(bf16))
    widened[2::4], widened[3::4] = bf16[::2], bf16[1::2]
    n = product(half)
    want = {"f16/weight": struct.pack(f"<{n}f", *struct.unpack(f"<{n}e", f16)), "bf16/weight": bytes(widened)}
    if layout == "burn":
        want = {"f16/weight": turned(want["f16/weight"], *half, 4), "bf16/weight": turned(want["bf16/weight"], *brain, 4)}
    return "cast.safetensors", [f"layout={layout}", "cast=f32"], want


def views(folder, rng, deflated):
    """Slices of rows and columns, every other element, a transposition: strides of a .pt."""
    rows, columns = 600, 800
    data = b"".join(struct.pack("<f", rng.randrange(1000)) for _ in range(rows * columns))
    m = memoryview(data).cast("I")
    strided = {"rows": ([500, 300], [columns, 1], columns + 17), "narrow": ([600, 20], [columns, 1], 5), "turned": ([700, 600], [1, columns], 100),
               "steps": ([300, 400], [2 * columns, 2], 1), "all": ([rows, columns], [columns, 1], 0)}
    want = {}
    for key, (shape, stride, offset) in strided.items():
        want[key] = b"".join(m[offset + r * stride[0]:][:(shape[1] - 1) * stride[1] + 1:stride[1]].tobytes() for r in range(shape[0]))
    name = "deflated.pt" if deflated else "stored.pt"
    with open(os.path.join(folder, name), "wb") as f:
        f.write(t.checkpoint(t.state_dict({k: t.tensor("0", s, st, off, rows * columns) for k, (s, st, off) in strided.items()}), {"0": data}, deflated=deflated))
    return name, ["layout=torch", "cache=1M" if deflated else "cache=256M"], want


def chunked(folder, rng, compressor):
    """Orbax's arrays: chunks that are compressed, shown as they are and transposed."""
    shape, chunk = [900, 700], [256, 200]
    source = os.path.join(folder, f"chunked-{compressor}")
    data = b"".join(struct.pack("<f", rng.randrange(1000)) for _ in range(product(shape)))
    m = memoryview(data).cast("I")
    leaves = {(n,): "np.ndarray" for n in ("a", "b")}
    for (name,) in leaves:
        os.makedirs(os.path.join(source, name))
        with open(os.path.join(source, name, ".zarray"), "wb") as f:
            f.write(o.zarray(shape, chunk, compressor={"id": compressor, "level": 1}, dimension_separator="."))
        for i in range(-(-shape[0] // chunk[0])):
            for k in range(-(-shape[1] // chunk[1])):
                rows = [m[r * shape[1]:][:shape[1]][k * chunk[1]:][:chunk[1]].tobytes() if r < shape[0] else b"" for r in range(i * chunk[0], (i + 1) * chunk[0])]
                piece = b"".join(r.ljust(4 * chunk[1], b"\0") for r in rows)
                with open(os.path.join(source, name, f"{i}.{k}"), "wb") as f:
                    f.write(o.zstd(piece) if compressor == "zstd" else zlib.compress(piece, 1))
    with open(os.path.join(source, "_METADATA"), "wb") as f:
        f.write(o.described(leaves))
    rules = os.path.join(folder, "turn-b.json")
    with open(rules, "w") as f:
        json.dump({"rules": [{"match": "b", "ops": [["permute", [1, 0]]]}]}, f)
    return os.path.basename(source), ["layout=torch", f"rules={rules}", "cache=1M"], {"a": data, "b": turned(data, *shape, 4)}


# --- files made of tensors, once they are known to hold the right bytes ---


def made_files(m, want):
    tensors = {k.replace(".", "/"): v[2] for k, v in safetensors(os.path.join(m, "model.safetensors"))[0].items()}
    assert tensors == want, "model.safetensors"
    name, data = max(want.items(), key=lambda x: len(x[1]))
    npy, bpk = read(m, name + ".npy"), read(m, "model.bpk")
    assert npy.startswith(b"\x93NUMPY") and npy.endswith(data) and len(npy) - len(data) < 4096, "npy"
    assert all(v in bpk for v in want.values()), "model.bpk"
    return {"model.safetensors": read(m, "model.safetensors"), name + ".npy": npy, "model.bpk": bpk}


def pairs(folder, m, want):
    """File and reference, for all of one mount."""
    where = tempfile.mkdtemp(dir=folder)
    for i, (name, data) in enumerate((want | made_files(m, want)).items()):
        with open(os.path.join(where, str(i)), "wb") as f:
            f.write(data)
        yield from (os.path.join(m, name), os.path.join(where, str(i)))


def read_in_all_ways(*opts, layout="burn"):
    if not READER:
        print("skipped: RANDOM_READER does not name the program")
        sys.exit(77)
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as d, contextlib.ExitStack() as mounts:
        arguments = []
        for name, fixed, want in (plain(d, rng, layout), cast(d, rng, layout), views(d, rng, False), views(d, rng, True), chunked(d, rng, "zstd"), chunked(d, rng, "zlib")):
            m = mounts.enter_context(Mount(os.path.join(d, name), *fixed, *opts))
            arguments += pairs(d, m, want)
        p = subprocess.run([READER, str(SEED), "8", SECONDS, "0", *arguments], capture_output=True, text=True, timeout=float(SECONDS) + 200)
        assert p.returncode == 0, p.stdout + p.stderr
        print(f"     {p.stdout.strip()}")


def test_default():
    read_in_all_ways()


def test_direct_io():
    read_in_all_ways("direct_io")


def test_one_thread():
    read_in_all_ways("nomt")


def test_torch_layout():
    read_in_all_ways(layout="torch")


if __name__ == "__main__":
    print(f"CKPT_SEED={SEED}")
    main(__name__)
