"""Orbax checkpoints put together byte by byte, sound ones and others: OCDBT databases, zarr arrays, descriptions, msgpack.

    store({"w/.zarray": b"{...}", "w/0": b"..."})   the files of a database: {name: bytes}

Standard library and, through ctypes, the libzstd that mount.ckpt itself is linked to."""
import ctypes, itertools, json, struct

MANIFEST, NODE = 0x0CDB3A2A, 0x0CDB20DE
NOWHERE = (1 << 64) - 1
_TABLE = [0] * 256
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = _c >> 1 ^ (0x82F63B78 if _c & 1 else 0)
    _TABLE[_i] = _c


def crc32c(data):
    crc = 0xFFFFFFFF
    for x in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ x) & 0xFF]
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def zstd(data, level=3):
    lib = ctypes.CDLL("libzstd.so.1")
    lib.ZSTD_compressBound.restype = lib.ZSTD_compress.restype = ctypes.c_size_t
    room = lib.ZSTD_compressBound(ctypes.c_size_t(len(data)))
    out = ctypes.create_string_buffer(room)
    n = lib.ZSTD_compress(out, ctypes.c_size_t(room), data, ctypes.c_size_t(len(data)), level)
    assert n <= room
    return out.raw[:n]


def zstd_frame(blocks, size=None, window=0x58):
    """A frame by hand: blocks of (0, bytes) as they are, or (1, byte, times); its content size if it shall say one."""
    head = struct.pack("<I", 0xFD2FB528) + (bytes([0, window]) if size is None else b"\xe0" + struct.pack("<Q", size))
    out = b""
    for i, (kind, data, *n) in enumerate(blocks):
        length = n[0] if kind else len(data)
        out += struct.pack("<I", (i == len(blocks) - 1) | kind << 1 | length << 3)[:3] + data
    return head + out


def varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def column(numbers):
    return b"".join(map(varint, numbers))


def envelope(magic, body, version=0, compression=None, length=None, crc=None):
    """What manifests and nodes come in. compression None: zstd where it is worth it."""
    if compression is None:
        compression, body = (1, zstd(body)) if len(body) > 4096 else (0, body)
    n = 12 + len(varint(version)) + len(varint(compression)) + len(body) + 4
    data = struct.pack(">I", magic) + struct.pack("<Q", n if length is None else length) + varint(version) + varint(compression) + body
    return data + (crc32c(data) if crc is None else crc)


def shared(names):
    """How much of each name, but of the first, is that of the one before."""
    for a, b in itertools.pairwise(names):
        yield next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def names_by_columns(names, between=b"", prefix=None, suffix=None):
    kept = list(shared(names)) if prefix is None else prefix
    rest = [n[k:] for n, k in zip(names, [0, *kept])]
    return column(kept) + column(map(len, rest) if suffix is None else suffix) + between + b"".join(rest)


def files(paths, bases=None, n=None, **kw):
    return varint(len(paths) if n is None else n) + names_by_columns(paths, column(bases or [0] * len(paths)), **kw)


def manifest(data_files, root, keys, height=0, n=1, kind=0, config=None, versions=None, tail=b"\0", **kw):
    """root: (file, offset, length)."""
    config = config if config is not None else varint(1024) + varint(100_000_000) + b"\4" + b"\0"
    if kind == 1:
        return bytes(16) + b"\1" + config
    if versions is None:
        versions = varint(n) + b"\1" + bytes([height]) + column(root) + varint(keys) + b"\0\0" + bytes(8)
    return bytes(16) + bytes([kind]) + config + files(data_files, **kw) + versions + tail


def leaf(data_files, entries, n=None, height=0, kinds=None, lengths=None, tail=b"", files_as=None, **kw):
    """entries: {key: bytes, which are inline, or (file, offset, length)}."""
    values = list(entries.values())
    out = bytes([height]) + (files(data_files) if files_as is None else files_as) + varint(len(values) if n is None else n)
    out += names_by_columns(list(entries), **kw)
    refs = [v for v in values if isinstance(v, tuple)]
    out += column([v[2] if isinstance(v, tuple) else len(v) for v in values] if lengths is None else lengths)
    out += bytes(isinstance(v, tuple) for v in values) if kinds is None else kinds
    return out + column(r[0] for r in refs) + column(r[1] for r in refs) + b"".join(v for v in values if not isinstance(v, tuple)) + tail


def inner(data_files, children, height=1, n=None, **kw):
    """children: {key: (bytes of the key that are its prefix, file, offset, length)}."""
    c = list(children.values())
    out = bytes([height]) + files(data_files) + varint(len(c) if n is None else n)
    out += names_by_columns(list(children), column(x[0] for x in c), **kw)
    return out + b"".join(column(x[i] for x in c) for i in (1, 2, 3)) + bytes(3 * len(c))


def encoded(entries):
    return {k.encode() if isinstance(k, str) else k: v for k, v in sorted(entries.items())}


def store(entries, inline=100, keys=None, manifest_as=None, node_as=None, path="d/data", **kw):
    """A database of one leaf; values of more than `inline` bytes lie in the data file."""
    data, placed = b"", {}
    for k, v in encoded(entries).items():
        if isinstance(v, bytes) and len(v) > inline:
            v, data = (0, len(data), len(v)), data + v
        placed[k] = v
    node = (node_as or envelope)(NODE, leaf([path.encode()], placed, **kw)) if not isinstance(node_as, bytes) else node_as
    root = (0, len(data), len(node))
    whole = envelope(MANIFEST, manifest([path.encode()], root, len(placed) if keys is None else keys)) if manifest_as is None else manifest_as(root)
    return {"manifest.ocdbt": whole, path: data + node}


def tree(node, keys, height=0, data=b"", path="d/data"):
    """A database whose root is that node, in its envelope or not, behind `data`."""
    node = node if node[:4] == struct.pack(">I", NODE) else envelope(NODE, node)
    return {"manifest.ocdbt": envelope(MANIFEST, manifest([path.encode()], (0, len(data), len(node)), keys, height)), path: data + node}


# --- zarr ---


def zarray(shape=(4,), chunks=(4,), dtype="<f4", compressor=None, fill=0, order="C", **more):
    return json.dumps({"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "compressor": compressor, "fill_value": fill, "order": order, "filters": None, **more}).encode()


BYTES = {"name": "bytes", "configuration": {"endian": "little"}}


def zarr3(shape=(4,), chunks=(4,), dtype="float32", codecs=(BYTES,), fill=0, **more):
    return json.dumps({"zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
                       "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "fill_value": fill, "codecs": codecs, **more}).encode()


def sharded(chunks, codecs=(BYTES,), index=(BYTES, {"name": "crc32c"}), **more):
    return {"name": "sharding_indexed", "configuration": {"chunk_shape": chunks, "codecs": codecs, "index_codecs": index, "index_location": "end", **more}}


def shard(pieces, index=None, crc=True):
    """Chunks and their index at the end. pieces: bytes, or None for an absent one."""
    at, entries = 0, b""
    for p in pieces:
        entries += struct.pack("<QQ", at, len(p)) if p is not None else b"\xff" * 16
        at += len(p or b"")
    entries = entries if index is None else b"".join(struct.pack("<QQ", *e) for e in index)
    return b"".join(p or b"" for p in pieces) + entries + (crc32c(entries) if crc else b"")


# --- descriptions ---


def described(leaves, **more):
    """_METADATA of {(key, ...): value type}."""
    tree_metadata = {str(path): {"key_metadata": [{"key": k, "key_type": 2} for k in path], "value_metadata": {"value_type": t, "skip_deserialize": t in ("Dict", "List", "None")}} for path, t in leaves.items()}
    return json.dumps({"tree_metadata": tree_metadata, "use_zarr3": False, "store_array_data_equal_to_fill_value": False, **more}).encode()


# --- msgpack ---


def packed(x):
    """As flax writes it; bytes are an item as it is."""
    if isinstance(x, bytes):
        return x
    if isinstance(x, bool):
        return b"\xc3" if x else b"\xc2"
    if isinstance(x, int):
        return b"\xcf" + struct.pack(">Q", x) if x >= 0 else b"\xd3" + struct.pack(">q", x)
    if isinstance(x, float):
        return b"\xcb" + struct.pack(">d", x)
    if isinstance(x, str):
        return b"\xdb" + struct.pack(">I", len(x.encode())) + x.encode()
    if isinstance(x, (list, tuple)):
        return b"\xdd" + struct.pack(">I", len(x)) + b"".join(map(packed, x))
    return b"\xdf" + struct.pack(">I", len(x)) + b"".join(packed(k) + packed(v) for k, v in x.items())


def ext(kind, payload):
    return b"\xc9" + struct.pack(">I", len(payload)) + bytes([kind]) + payload


def binary(data):
    return b"\xc6" + struct.pack(">I", len(data)) + data


def array(shape, dtype, data):
    return ext(1, packed([list(shape), dtype, binary(data)]))
