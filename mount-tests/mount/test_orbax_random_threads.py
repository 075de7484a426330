"""Random zarr arrays (version 3: chunks, transpositions, shards in shards, codecs, chunks that are absent), read through random
permutations and slices by eight threads, with room for little: each byte against index arithmetic. CKPT_SEED repeats a case."""
import concurrent.futures, itertools, os, random, zlib
from mounted import *

DTYPES = {"uint8": ("U8", 1), "int16": ("I16", 2), "float32": ("F32", 4), "complex64": ("C64", 8)}
CRC = [0] * 256
for i in range(256):
    c = i
    for _ in range(8):
        c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    CRC[i] = c


def crc32c(data):
    c = 0xFFFFFFFF
    for x in data:
        c = CRC[(c ^ x) & 255] ^ c >> 8
    return struct.pack("<I", c ^ 0xFFFFFFFF)


def zstd(data):
    """A frame of blocks that are stored, or one byte repeated."""
    out = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", len(data))
    blocks = [data[i:i + 100_000] for i in range(0, len(data), 100_000)] or [b""]
    for i, b in enumerate(blocks):
        repeated = len(b) > 0 and b.count(b[0]) == len(b)
        out += struct.pack("<I", (i == len(blocks) - 1) | (2 if repeated else 0) | len(b) << 3)[:3] + (b[:1] if repeated else b)
    return out


def gzip(data):
    c = zlib.compressobj(1, zlib.DEFLATED, 31)
    return c.compress(data) + c.flush()


STEPS = {"zstd": ({"level": 1, "checksum": False}, zstd), "gzip": ({"level": 1}, gzip), "crc32c": (None, lambda d: d + crc32c(d))}


def codec(name, configuration=None):
    return {"name": name} | ({"configuration": configuration} if configuration is not None else {})


class Array:
    def __init__(self, rng, big):
        self.dtype = rng.choice(list(DTYPES))
        self.esize = DTYPES[self.dtype][1]
        most = 1500 if big else 40
        self.shape = [rng.randint(2 if big else 1, most) for _ in range(2 if big else rng.randint(1, 3))]
        if big:
            self.shape[0] = 3_000_000 // (self.shape[1] * self.esize) + 1
        n = self.esize
        self.strides = []
        for s in reversed(self.shape):
            self.strides.insert(0, n)
            n *= s
        self.data = bytearray(rng.randbytes(n))
        for _ in range(rng.randint(0, 2)):  # the fill value
            at = rng.randrange(n)
            self.data[at:at + n // 2] = bytes(len(self.data[at:at + n // 2]))
        self.chunk = [s if big and rng.random() < 0.5 else rng.randint(max(1, s // 4), s + 2) for s in self.shape]
        self.chain = self.make_chain(rng, self.chunk, 0 if big else rng.randint(0, 2), big)

    def make_chain(self, rng, shape, shards, big):
        """shape is that of the chunk by the axes that the chain sees; made to fit if there are shards."""
        order = list(range(len(shape)))
        if rng.random() < 0.4 and not big:
            rng.shuffle(order)
        chain = {"order": order, "shards": None, "steps": rng.choice([[], ["zstd"], ["zstd"], ["gzip"], ["zstd", "crc32c"]])}
        if big:
            chain["steps"] = rng.choice([[], ["zstd"], ["zstd"]])
        if shards:
            stored = [shape[o] for o in order]
            inner = [rng.choice([d for d in range(1, s + 1) if s % d == 0 and s // d <= 4]) for s in stored]
            chain |= {"shards": inner, "inner": self.make_chain(rng, inner, shards - 1, big), "steps": rng.choice([[], [], ["zstd"]]),
                      "start": rng.random() < 0.3, "index_crc": rng.random() < 0.5}
        return chain

    def codecs(self, chain):
        out = [codec("transpose", {"order": chain["order"]})] if chain["order"] != sorted(chain["order"]) else []
        if chain["shards"]:
            index = [codec("bytes", {"endian": "little"})] + ([codec("crc32c")] if chain["index_crc"] else [])
            out.append(codec("sharding_indexed", {"chunk_shape": chain["shards"], "codecs": self.codecs(chain["inner"]), "index_codecs": index,
                                                  "index_location": "start" if chain["start"] else "end"}))
        else:
            out.append(codec("bytes", {"endian": "little"}))
        return out + [codec(s, STEPS[s][0]) for s in chain["steps"]]

    def row(self, start, size, axis, at):
        """Elements along an axis; beyond the edge junk."""
        if any(at[d] >= self.shape[d] for d in range(len(at)) if d != axis):
            return b"\xee" * (size * self.esize)
        base = sum(at[d] * self.strides[d] for d in range(len(at)) if d != axis) + start * self.strides[axis]
        there = max(0, min(size, self.shape[axis] - start))
        if self.strides[axis] == self.esize:
            got = bytes(self.data[base:base + there * self.esize])
        else:
            got = b"".join(bytes(self.data[base + i * self.strides[axis]:][:self.esize]) for i in range(there))
        return got + b"\xee" * ((size - there) * self.esize)

    def elements(self, start, size, axes):
        outer = axes[:-1]
        out = []
        for index in itertools.product(*(range(size[a]) for a in outer)):
            at = list(start)
            for a, i in zip(outer, index):
                at[a] += i
            out.append(self.row(start[axes[-1]], size[axes[-1]], axes[-1], at) if axes else bytes(self.data))
        return b"".join(out)

    def encode(self, chain, start, size, axes):
        """The stored bytes of a box of the array, whose axes the chain sees in this order; None: it is the fill value."""
        axes = [axes[o] for o in chain["order"]]
        if not chain["shards"]:
            data = self.elements(start, size, axes)
            if not data.strip(b"\0\xee"):
                return None
        else:
            inner = {a: n for a, n in zip(axes, chain["shards"])}
            parts = []
            for index in itertools.product(*(range(size[a] // inner[a]) for a in axes)):
                at = list(start)
                for a, i in zip(axes, index):
                    at[a] += i * inner[a]
                parts.append(self.encode(chain["inner"], at, [inner[a] for a in range(len(size))], axes))
            data = self.shard(chain, parts)
        for s in chain["steps"]:
            data = STEPS[s][1](data)
        return data

    def shard(self, chain, parts):
        size = 16 * len(parts) + 4 * chain["index_crc"]
        at = size if chain["start"] else 0
        index, body = b"", b""
        for p in parts:
            index += struct.pack("<QQ", at, len(p)) if p is not None else b"\xff" * 16
            body += p or b""
            at += len(p or b"")
        index += crc32c(index) if chain["index_crc"] else b""
        return index + body if chain["start"] else body + index

    def write(self, folder):
        os.makedirs(os.path.join(folder, "c"))
        meta = {"zarr_format": 3, "node_type": "array", "shape": self.shape, "data_type": self.dtype, "fill_value": [0, 0] if self.dtype == "complex64" else 0,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.chunk}}, "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
                "codecs": self.codecs(self.chain)}
        with open(os.path.join(folder, "zarr.json"), "w") as f:
            json.dump(meta, f)
        for index in itertools.product(*(range(-(-s // c)) for s, c in zip(self.shape, self.chunk))):
            data = self.encode(self.chain, [i * c for i, c in zip(index, self.chunk)], self.chunk, list(range(len(self.shape))))
            if data is not None:
                with open(os.path.join(folder, "c." + ".".join(map(str, index))), "wb") as f:
                    f.write(data)
        os.rmdir(os.path.join(folder, "c"))

    def view(self, rng):
        """Operations of a rule, and what they lead to."""
        ops, dims, offset = [], list(zip(self.shape, self.strides)), 0
        if rng.random() < 0.5:
            axis = rng.randrange(len(dims))
            size, stride = dims[axis]
            start = rng.randrange(size)
            stop = rng.randint(start + 1, size)
            if stop - start < size:
                ops.append(["slice", axis, start, stop])
                offset = start * stride
                dims[axis] = (stop - start, stride)
        if len(dims) > 1 and rng.random() < 0.6:
            order = list(range(len(dims)))
            rng.shuffle(order)
            ops.append(["permute", order])
            dims = [dims[o] for o in order]
        return ops, dims, offset

    def expected(self, dims, offset):
        if not dims:
            return bytes(self.data)
        (n, s), e = dims[-1], self.esize
        out = []
        for index in itertools.product(*(range(d) for d, _ in dims[:-1])):
            at = offset + sum(i * t for i, (_, t) in zip(index, dims))
            out.append(bytes(self.data[at:at + n * e]) if s == e else b"".join(bytes(self.data[at + i * s:at + i * s + e]) for i in range(n)))
        return b"".join(out)


def look(path, want, seed):
    rng = random.Random(seed)
    with open(path, "rb", buffering=0) as f:
        if rng.random() < 0.4:
            assert f.read(len(want) + 1) == want if len(want) < 100_000 else b"".join(iter(lambda: f.read(70_000), b"")) == want, path
        for _ in range(20):
            at = rng.randrange(len(want) + 1)
            n = rng.randint(1, rng.choice([100, 200_000]))
            assert os.pread(f.fileno(), n, at) == want[at:at + n], (path, at, n)


def one_case(seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "arrays")
        os.makedirs(source)
        arrays = {f"a{i}": Array(rng, i == 0 and rng.random() < 0.3) for i in range(4)}
        views = {name: a.view(rng) for name, a in arrays.items()}
        for name, a in arrays.items():
            a.write(os.path.join(source, name))
        key = lambda n: {"key_metadata": [{"key": n, "key_type": 2}], "value_metadata": {"value_type": "np.ndarray", "skip_deserialize": False}}
        with open(os.path.join(source, "_METADATA"), "w") as f:
            json.dump({"tree_metadata": {f"('{n}',)": key(n) for n in arrays}, "use_zarr3": True}, f)
        rules = os.path.join(d, "rules.json")
        with open(rules, "w") as f:
            json.dump({"rules": [{"match": n, "ops": v[0]} for n, v in views.items() if v[0]] or [{"match": "none"}]}, f)
        want = {n: arrays[n].expected(*views[n][1:]) for n in arrays}
        with Mount(source, "layout=torch", f"rules={rules}", f"cache={rng.choice(['4K', '64K', '1M', '8M'])}") as m:
            index = {t["key"]: t for t in read_json(m, "index.json")["tensors"]}
            for n, a in arrays.items():
                assert index[n]["shape"] == [s for s, _ in views[n][1]] and index[n]["dtype"] == DTYPES[a.dtype][0], (n, index[n], views[n])
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                jobs = [pool.submit(look, os.path.join(m, index[n]["path"]), want[n], rng.random()) for n in want for _ in range(3)]
                for j in jobs:
                    j.result()


def test_random():
    seed = int(os.environ.get("CKPT_SEED", 0)) or random.SystemRandom().randrange(1, 1 << 32)
    for i in range(int(os.environ.get("CKPT_CASES", 12))):
        print(f"CKPT_SEED={seed + i}", flush=True)
        one_case(seed + i)


if __name__ == "__main__":
    main(__name__)
