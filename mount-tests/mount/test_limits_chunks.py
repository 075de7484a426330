"""Reading chunks takes no more anonymous memory than cache= and 64 MiB, whoever reads them how; the first byte of a huge one does
not wait for its last; who reads forwards needs no temporary file. A mount at rest, all of whose files have been read, keeps no more
than cache=64M.

The chunks are frames of repeated bytes: GiB of array in KiB of file. A sanitizer's own memory is none of ours to bound."""
import concurrent.futures, zlib
import torch_file
from mounted import *

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
sys.dont_write_bytecode = True
import measured

ROWS, COLUMNS = 16384, 4096  # of float32: 256 MiB
BLOCK = 1 << 17


def zstd(nbytes):
    """Each 128 KiB repeats a byte, its number; a window of 512 KiB, as of level 1."""
    out = [b"\x28\xb5\x2f\xfd\xc0\x48" + struct.pack("<Q", nbytes)]
    for i in range(nbytes // BLOCK):
        out.append(struct.pack("<I", (i == nbytes // BLOCK - 1) | 2 | BLOCK << 3)[:3] + bytes([i % 251]))
    return b"".join(out)


def gzip(nbytes):
    c = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join(c.compress(bytes([i % 251]) * BLOCK) for i in range(nbytes // BLOCK)) + c.flush()


def make(folder, encode=zstd, compressor={"id": "zstd", "level": 1}, arrays=3, shape=(ROWS, COLUMNS), chunks=None):
    chunks = chunks or shape
    names = [f"a{i}" for i in range(arrays)]
    data = encode(4 * chunks[0] * chunks[1])
    for n in names:
        os.makedirs(os.path.join(folder, n))
        with open(os.path.join(folder, n, ".zarray"), "w") as f:
            json.dump({"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<f4", "order": "C", "compressor": compressor,
                       "fill_value": None, "filters": None, "dimension_separator": "."}, f)
        for i in range(shape[0] // chunks[0]):
            for k in range(shape[1] // chunks[1]):
                with open(os.path.join(folder, n, f"{i}.{k}"), "wb") as f:
                    f.write(data)
    with open(os.path.join(folder, "_METADATA"), "w") as f:
        json.dump({"tree_metadata": {f"('{n}',)": {"key_metadata": [{"key": n, "key_type": 2}], "value_metadata": {"value_type": "np.ndarray", "skip_deserialize": False}}
                                     for n in names}}, f)
    return folder


def transposed(folder):
    path = os.path.join(folder, "rules.json")
    with open(path, "w") as f:
        json.dump({"rules": [{"match": "a.", "ops": [["permute", [1, 0]]]}]}, f)
    return [f"rules={path}", "layout=torch"]


def has_temporary_file(daemon):
    folder = f"/proc/{daemon.process.pid}/fd"
    return any(os.readlink(os.path.join(folder, fd)).endswith("(deleted)") for fd in os.listdir(folder))


def drain(path, most=1 << 62):
    done = 0
    with open(path, "rb", buffering=0) as f:
        while done < most and (got := len(f.read(1 << 20))):
            done += got
    return done


def peak(source, cache, read, *opts):
    """MiB of anonymous memory at most while read(mount) runs; whether there was a temporary file."""
    with measured.mounted(BINARY, source, *options(f"cache={cache}M", *opts)) as d, measured.Peak(d) as p:
        read(d.dir)
        spilled = has_temporary_file(d)
        most = max(p.mib, d.status("RssAnon"))
    print(f"  cache={cache}M {' '.join(o.split('=')[0] for o in opts)}: {most:.0f} MiB{', temporary file' if spilled else ''}", flush=True)
    assert most <= cache + 64, (cache, opts, most)
    return most, spilled


def test_forwards():
    with tempfile.TemporaryDirectory() as d:
        make(d)
        for cache in (16, 64):
            assert not peak(d, cache, lambda m: drain(os.path.join(m, "model.safetensors")), "layout=source")[1]


def test_many_readers():
    def read(m):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(drain, [os.path.join(m, f"a{i % 3}") for i in range(8)]))

    with tempfile.TemporaryDirectory() as d:
        make(d)
        peak(d, 16, read, "layout=source")
        peak(d, 16, lambda m: drain(os.path.join(m, "a0"), 64 << 20), *transposed(d))


def test_chunks_side_by_side():
    """Rows that go through four chunks of 64 MiB in turns; by direct_io, since the kernel's read-ahead may overtake itself."""
    with tempfile.TemporaryDirectory() as d:
        make(d, arrays=1, chunks=(ROWS, COLUMNS // 4))
        assert not peak(d, 16, lambda m: drain(os.path.join(m, "a0")), "layout=source", "direct_io")[1]


def test_at_once():
    """What must be decoded to its end."""
    with tempfile.TemporaryDirectory() as d:
        make(d, gzip, {"id": "gzip", "level": 1}, arrays=2)
        assert peak(d, 16, lambda m: drain(os.path.join(m, "model.safetensors")), "layout=source")[1]


def test_first_byte():
    """Of 4 GiB, in a cache that could hold them."""
    with tempfile.TemporaryDirectory() as d:
        make(d, arrays=1, shape=(16 * ROWS, COLUMNS))
        mib, _ = peak(d, 8192, lambda m: drain(os.path.join(m, "a0"), 4096), "layout=source")
        assert mib < 32, mib


def write_linears(path, deflated, n=5, rows=2048, columns=4096):
    """A state dict of matrices of 32 MiB, which are transposed."""
    pickle = torch_file.state_dict({f"fc{i}.weight": torch_file.tensor(str(i), [rows, columns]) for i in range(n)})
    storages = {str(i): bytes([i, i + 1, i + 2, 63]) * (rows * columns) for i in range(n)}
    with open(path, "wb") as f:
        f.write(torch_file.checkpoint(pickle, storages, deflated=deflated))
    return path


def at_rest(source, decoded):
    """Everything is read, hidden files and verify.json too, by one and then by eight: at most so much while it is, as soon as it has
    been, and once nobody reads. The check has 40 MiB of its own."""
    with measured.mounted(BINARY, source, "-o", "list=all,cache=64M") as d, measured.Peak(d) as p:
        files = sorted(os.path.join(folder, f) for folder, _, names in os.walk(d.dir) for f in names)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for f in files:
                drain(f)
            list(pool.map(drain, files))
        then = d.status("RssAnon")
        end = time.monotonic() + 20
        while (rest := d.status("RssAnon")) > 6 + decoded and time.monotonic() < end:
            time.sleep(0.05)
    print(f"  everything of {os.path.basename(source)}, {len(files)} files: {then:.0f} MiB, at most {p.mib:.0f}, {rest:.0f} at rest", flush=True)
    assert p.mib <= 100 and then <= 66 and rest <= 6 + decoded, (source, then, p.mib, rest)


def test_at_rest():
    with tempfile.TemporaryDirectory() as d:
        at_rest(write_linears(os.path.join(d, "stored.pt"), False), 0)
        at_rest(write_linears(os.path.join(d, "deflated.pt"), True), 32)
        at_rest(make(os.path.join(d, "orbax")), 32)


if __name__ == "__main__":
    if sanitizer():
        print("skipped: a sanitizer's own memory cannot be told from the program's")
        sys.exit(77)
    main(__name__)
