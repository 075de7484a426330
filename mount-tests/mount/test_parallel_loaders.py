"""Eight processes load one model at once, each every eighth row of every tensor, as data-parallel loaders do: through safetensors'
safe_open and numpy's memmap where a Python that has both is at hand (that of the interop tests), through mmap everywhere."""
import random
from load import *
from test_random_reader import turned

SEED = int(os.environ.get("CKPT_SEED", random.SystemRandom().getrandbits(32)))
PROCESSES = 8
KINDS = [("F32", 4, [640, 1200]), ("F16", 2, [1000, 513]), ("F32", 4, [2048, 300]), ("F32", 4, [1500, 1600])]
PEER = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mount.ckpt", "venv", "bin", "python")

# LOADER FIRST STEP MODEL REFERENCE: argv. The reference: {key: [dtype, rows, columns, offset in the model, file]}.
LOADER = """
import json, mmap, sys
first, step, model, about = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.load(open(sys.argv[4]))
want = {k: open(a[4], "rb").read() for k, a in about.items()}

def check(how, key, row, got):
    _, rows, columns, at, file = about[key]
    n = len(want[key]) // rows
    assert got == want[key][row * n : (row + 1) * n], f"{how}: row {row} of {key} differs"

with open(model, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
    for row in range(first, max(a[1] for a in about.values()), step):
        for key, (_, rows, _, at, _) in about.items():
            n = len(want[key]) // rows
            if row < rows:
                check("mmap", key, row, m[at + row * n : at + (row + 1) * n])
try:
    import numpy as np
    from safetensors import safe_open
except ImportError as e:
    sys.exit(print(f"mmap only: {e}"))
for key, (dtype, rows, columns, at, _) in about.items():
    mapped = np.memmap(model, {"F32": "<f4", "F16": "<f2"}[dtype], "r", at, (rows, columns))
    for row in range(first, rows, step):
        check("memmap", key, row, mapped[row].tobytes())
with safe_open(model, framework="np") as lazy:
    for key, (_, rows, _, _, _) in about.items():
        for row in range(first, rows, step * 8):
            check("safe_open", key, row, lazy.get_slice(key)[row : row + 1].tobytes())
        assert lazy.get_tensor(key).tobytes() == want[key], f"safe_open: {key} differs"
print("safe_open, memmap and mmap")
"""


def python():
    has_both = subprocess.run([PEER, "-c", "import numpy, safetensors"], capture_output=True).returncode == 0 if os.path.exists(PEER) else False
    return PEER if has_both else sys.executable


def build(folder, rng):
    """A source; the adapted bytes by key."""
    tensors = {f"fc{i}.weight": (dtype, shape, rng.randbytes(size * shape[0] * shape[1])) for i, (dtype, size, shape) in enumerate(KINDS)}
    path = os.path.join(folder, "source.safetensors")
    write_safetensors(path, tensors)
    return path, {k: turned(data, *shape, len(data) // (shape[0] * shape[1])) for k, (_, shape, data) in tensors.items()}


def reference(folder, model, want):
    """What the loaders compare with; the model's header is read by ourselves."""
    with open(model, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
    about = {}
    for key, data in want.items():
        file = os.path.join(folder, key)
        with open(file, "wb") as f:
            f.write(data)
        about[key] = [header[key]["dtype"], *header[key]["shape"], 8 + n + header[key]["data_offsets"][0], file]
    path = os.path.join(folder, "about.json")
    with open(path, "w") as f:
        json.dump(about, f)
    return path


def eight_loaders(*opts):
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as d:
        source, want = build(d, rng)
        with Served(source, "layout=burn", "cache=8M", *opts) as daemon:
            about = reference(d, daemon.path("model.safetensors"), want)
            loaders = [subprocess.Popen([python(), "-c", LOADER, str(i), str(PROCESSES), daemon.path("model.safetensors"), about],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for i in range(PROCESSES)]
            said = [(p.communicate(timeout=300)[0].strip(), p.returncode) for p in loaders]
            assert not any(rc for _, rc in said), said
            print(f"     by {said[0][0]}")


def test_default():
    eight_loaders()


def test_direct_io():
    eight_loaders("direct_io")


if __name__ == "__main__":
    print(f"CKPT_SEED={SEED}")
    main(__name__)
