"""Hostile Orbax checkpoints: databases, arrays, chunks, descriptions and msgpack, each wrong in one place."""
import json, os, struct
import orbax_file as o
from hostile_case import Case, damaged, write_tree

BYTES = struct.pack("<4f", 1, 2, 3, 4)
RANDOM = bytes(i * 37 % 251 for i in range(400))
ARRAY = {"w/.zarray": o.zarray(), "w/0": BYTES}
TWO = {**ARRAY, "x/.zarray": o.zarray((100,), (50,)), "x/0": RANDOM[:200], "x/1": RANDOM[200:]}
METADATA = o.described({("w",): "jax.Array"})
HUGE = (1 << 63, (1 << 64) - 1)


def item(entries=ARRAY, metadata=METADATA, **more):
    return {**o.store(entries), **({"_METADATA": metadata} if metadata is not None else {}), **more}


# --- the database ---


def manifests():
    """What the manifest is, given where the root lies; whether it must be accepted."""
    of = lambda *a, **kw: lambda root: o.envelope(o.MANIFEST, o.manifest([b"d/data"], root, 2, *a, **kw))
    wrapped = lambda **kw: lambda root: o.envelope(o.MANIFEST, o.manifest([b"d/data"], root, 2), **kw)
    sound = of()
    yield "sound", sound, True
    yield "compressed", wrapped(compression=None), True
    for i, n in enumerate((0, 1, 11, 12, 17, 18, 40)):
        yield f"cut at {n}", lambda root, n=n: sound(root)[:n], False
    yield "bytes behind it", lambda root: sound(root) + b"\0", False
    yield "magic", lambda root: b"\x0c\xdb\x20\xde" + sound(root)[4:], False
    for n in (0, 1, 1 << 32, *HUGE):
        yield f"length {n}", wrapped(length=n), False
    for n in (1, 127, 1 << 63):
        yield f"version {n}", wrapped(version=n), False
    for n in (1, 2, 1 << 63):
        yield f"compression {n}", lambda root, n=n: o.envelope(o.MANIFEST, b"\0" * 50, compression=n), False
    yield "checksum", wrapped(crc=b"\0\0\0\0"), False
    yield "a bomb", lambda root: o.envelope(o.MANIFEST, o.zstd_frame([(1, b"\0", 1 << 17)] * 200), compression=1), False
    yield "a bomb that says so", lambda root: o.envelope(o.MANIFEST, o.zstd_frame([(0, b"")], size=1 << 62), compression=1), False
    for i, config in enumerate((b"", b"\xff" * 11, o.varint(1024) + o.varint(1) + b"\4\2", o.varint(1024) + o.varint(1) + b"\4\1")):
        yield f"configuration {i}", of(config=config), False
    for kind in (1, 2, 255):
        yield f"kind {kind}", of(kind=kind), False
    for n in (0, 2, 1 << 20, (1 << 20) + 1, *HUGE):
        yield f"files {n}", lambda root, n=n: o.envelope(o.MANIFEST, bytes(17) + b"\0\1\4\0" + o.files([b"d/data"], n=n) + b"\0\0"), False
    for n in (0, 2, 1 << 20, *HUGE):
        yield f"versions {n}", of(n=n), False
    for i, root in enumerate(((1, 0, 50), (1 << 63, 0, 50), (0, 0, 0), (0, 1 << 20, 50), (0, (1 << 64) - 2, 50), (0, 0, (1 << 64) - 1), (0, 1, 50), (0, o.NOWHERE, o.NOWHERE))):
        yield f"root {i}", lambda _, r=root: o.envelope(o.MANIFEST, o.manifest([b"d/data"], r, 2)), False
    for height in (1, 2, 255):
        yield f"height {height}", of(height=height), False
    for keys in (0, 1, 3, *HUGE):
        yield f"keys {keys}", lambda root, k=keys: o.envelope(o.MANIFEST, o.manifest([b"d/data"], root, k)), False
    for i, tail in enumerate((b"", b"\1", b"\0\0", o.varint(1 << 63), o.varint(HUGE[1]))):
        yield f"older versions {i}", of(tail=tail), False


def paths():
    """Names of data files; the checkpoint says that its root is there."""
    for i, path in enumerate([b"..", b"../x", b"a/../../x", b"d/..", b"/etc/passwd", b"/", b"", b".", b"d", b"d/\0data", b"d/data/", b"\xff\xfe", b"a\nb", b"x" * 300, b"d/" * 2000 + b"x", b"x" * 65535, b"x" * 65536,
                              b"d/data\x1b[31m", b"./d/data"]):
        yield f"path {i}", path, True if path == b"./d/data" else False
    yield "path of 255", b"x" * 255, False


def leaves():
    """The root node's body, how many keys it has, whether it is to be accepted."""
    sound = o.encoded(ARRAY)
    of = lambda entries=sound, **kw: o.leaf([b"d/data"], entries, **kw)
    one = {b"k": b"v"}
    yield "sound", of(), 2, True
    yield "empty value", of({b"w/.zarray": o.zarray(), b"w/0": b""}), 2, False
    for n in (0, 1, 3, 1 << 20, (1 << 20) + 1, *HUGE):
        yield f"entries {n}", of(n=n), 2, False
    yield "nothing", b"", 2, False
    yield "a byte", b"\0", 2, False
    for height in (1, 255):
        yield f"height {height}", of(height=height), 2, False
    for i, kept in enumerate(([3], [10], [65535], [1 << 63], [HUGE[1]])):
        yield f"prefix {i}", of(prefix=kept), 2, None if i == 0 else False
    for i, rest in enumerate(([9, 0], [0, 0], [0, 1], [9, 1 << 63], [HUGE[1], 1], [65536, 1])):
        yield f"suffix {i}", of(suffix=rest), 2, False
    yield "keys fall", o.leaf([b"d/data"], {b"w/0": BYTES, b"w/.zarray": o.zarray()}), 2, False
    yield "a key twice", of({b"w/.": b"1", b"w/.zarray": o.zarray()}, prefix=[2], suffix=[9, 7]), 2, False
    for i, kinds in enumerate((b"\2\0", b"\xff\0", b"\0\xff")):
        yield f"kind {i}", of(kinds=kinds), 2, False
    for i, lengths in enumerate(([1, 16], [len(sound[b"w/.zarray"]), 17], [1 << 63, 16], [HUGE[1], HUGE[1]], [0, 0])):
        yield f"lengths {i}", of(lengths=lengths), 2, False
    yield "bytes left over", of(tail=b"x"), 2, False
    for i, ref in enumerate(((0, 0, 16), (0, 1 << 62, 16), (0, (1 << 64) - 8, 16), (0, 0, HUGE[0]), (0, 0, HUGE[1]), (1, 0, 16), (1 << 63, 0, 16), (0, 8, 1 << 40))):
        yield f"value elsewhere {i}", of({b"w/.zarray": o.zarray(), b"w/0": ref}), 2, i == 0
    yield "metadata elsewhere", of({b"w/.zarray": (0, 0, 1 << 40), b"w/0": BYTES}), 2, False
    yield "all values in one place", of({b"w/.zarray": o.zarray((4000,), (4,)), **{f"w/{i}".encode(): (0, 0, 16) for i in sorted(range(1000), key=str)}}), 1001, True
    for i, key in enumerate((b"", b"/", b"..", b"../.zarray", b"\0", b"\xff", b"w/.zarray/", b"w\n/.zarray", b"x" * 65535)):
        yield f"key {i}", of(dict(sorted({key: b"{}", **sound}.items()))), 3, None
    yield "many files", of(files_as=o.files([f"{i:06}".encode() for i in range(50_000)] + [b"d/data"])), 2, True
    yield "files: prefix", of(files_as=o.files([b"a", b"d/data"], prefix=[2])), 2, False
    yield "files: base", of(files_as=o.files([b"d/data"], bases=[7])), 2, False
    yield "files: none", of({b"w/.zarray": o.zarray(), b"w/0": (0, 0, 16)}, files_as=b"\0"), 2, False
    yield "one of another kind", of(one), 1, False


def chain(height, ends):
    """Nodes above one another, each with one child; the last refers to the first if ends is False."""
    data = o.envelope(o.NODE, o.leaf([b"d/data"], o.encoded(ARRAY))) if ends else b""
    last = (0, len(data))
    for h in range(1, height + 1):
        node = o.envelope(o.NODE, o.inner([b"d/data"], {b"w": (0, 0, *last)}, h))
        last = (len(data), len(node))
        data += node
    whole = o.envelope(o.MANIFEST, o.manifest([b"d/data"], (0, *last), 2, height))
    return {"manifest.ocdbt": whole, "d/data": data, "_METADATA": METADATA}


def shared_nodes(height, ways):
    """Every node has all its ways lead to the same child: ways ** height leaves in a few bytes."""
    data = o.envelope(o.NODE, o.leaf([b"d/data"], {b"k": b"v"}))
    last = (0, len(data))
    for h in range(1, height + 1):
        node = o.envelope(o.NODE, o.inner([b"d/data"], {f"{i:04}".encode(): (4, 0, *last) for i in range(ways)}, h))
        last = (len(data), len(node))
        data += node
    return {"manifest.ocdbt": o.envelope(o.MANIFEST, o.manifest([b"d/data"], (0, *last), ways**height, height)), "d/data": data}


def trees():
    yield "255 levels", chain(255, True), True
    node = o.inner([b"d/data"], {b"w": (1, 0, 0, 60)}, 1)
    yield "a node in itself", o.tree(node, 2, 1), False
    yield "a node whose child is one above it", o.tree(o.envelope(o.NODE, o.inner([b"d/data"], {b"w": (0, 0, 0, 100)}, 2)), 2, 2), False
    for height, ways in ((30, 2), (3, 1000), (255, 2), (2, 5000)):
        yield f"{ways}^{height} leaves", shared_nodes(height, ways), False
    child = o.envelope(o.NODE, o.leaf([b"d/data"], o.encoded(ARRAY)))
    sound = lambda **kw: o.tree(o.inner([b"d/data"], {b"w/.zarray": (0, 0, 0, len(child))}, **kw), 2, 1, child)
    yield "two levels", {**sound(), "_METADATA": METADATA}, True
    yield "a prefix longer than its key", o.tree(o.inner([b"d/data"], {b"w": (2, 0, 0, len(child))}), 2, 1, child), False
    yield "a prefix of 2^63", o.tree(o.inner([b"d/data"], {b"w": (1 << 63, 0, 0, len(child))}), 2, 1, child), False
    yield "children whose keys overlap", o.tree(o.inner([b"d/data"], {b"a": (0, 0, 0, len(child)), b"b": (0, 0, 0, len(child))}), 4, 1, child), False
    yield "a child in another file", o.tree(o.inner([b"d/data"], {b"w": (0, 3, 0, len(child))}), 2, 1, child), False
    yield "a child at the end", o.tree(o.inner([b"d/data"], {b"w": (0, 0, 1 << 40, len(child))}), 2, 1, child), False
    for n in (0, 2, 1 << 20, HUGE[1]):
        yield f"children {n}", sound(n=n), False
    long = o.envelope(o.NODE, o.leaf([b"d/data"], {b"k" * 40_000: b"v"}))
    yield "a key too long by its prefix", o.tree(o.inner([b"d/data"], {b"p" * 40_000: (40_000, 0, 0, len(long))}), 1, 1, long), False
    numbered = o.envelope(o.MANIFEST, o.manifest([], None, 0, kind=1))
    yield "numbered: none", {"manifest.ocdbt": numbered}, False
    yield "numbered: another one", {"manifest.ocdbt": numbered, "manifest.0000000000000001": numbered}, False
    yield "numbered: empty", {"manifest.ocdbt": numbered, "manifest.ffffffffffffffff": b""}, False
    yield "numbered: a link to itself", {"manifest.ocdbt": numbered, "manifest.0000000000000001": "manifest.0000000000000001"}, False
    yield "node: a bomb", o.tree(o.envelope(o.NODE, o.zstd_frame([(1, b"\0", 1 << 17)] * 2000), compression=1), 2), False
    yield "node: no zstd", o.tree(o.envelope(o.NODE, b"abcdefgh", compression=1), 2), False
    yield "node: two frames", o.tree(o.envelope(o.NODE, o.zstd(o.leaf([b"d/data"], o.encoded(ARRAY))[:50]) + o.zstd(o.leaf([b"d/data"], o.encoded(ARRAY))[50:]), compression=1), 2), None


def databases(rng):
    for name, make, expect in manifests():
        yield Case("manifest: " + name, {**o.store(ARRAY, manifest_as=make), "_METADATA": METADATA}, expect, "m")
    for name, path, expect in paths():
        whole = o.envelope(o.MANIFEST, o.manifest([path], (0, 0, 60), 2))
        yield Case(name, {**o.store(ARRAY, manifest_as=lambda root, p=path: o.envelope(o.MANIFEST, o.manifest([p], root, 2))), "_METADATA": METADATA}, expect, "m")
        if len(path) < 60_000:
            node = o.leaf([path], {b"w/.zarray": o.zarray(), b"w/0": (0, 0, 16)})
            yield Case("node: " + name, {**o.tree(node, 2, data=BYTES), "_METADATA": METADATA}, expect, "m")
    for name, node, keys, expect in leaves():
        yield Case("leaf: " + name, {**o.tree(node, keys, data=BYTES), "_METADATA": METADATA}, expect, "m")
    for name, files, expect in trees():
        yield Case("tree: " + name, files, expect, "m")
    whole = o.store(TWO, inline=0)
    described = {"_METADATA": o.described({("w",): "jax.Array", ("x",): "jax.Array"})}
    for part in whole:
        for case in damaged(part, whole[part], rng, "m", 8, 24):
            yield Case(case.name, {**whole, **described, part: case.content}, file="m")


# --- arrays ---

CRC = {"name": "crc32c"}


def metadata_2():
    z = o.zarray
    yield "sound", z(), True
    for i, shape in enumerate([(1 << 62,), (1 << 63,), (1 << 64,), (1 << 32, 1 << 31), (1 << 31, 1 << 31), (0, 1 << 62), (-4,), (4.0,), (True,), ("4",), 4, None, "4", (), (4, 1), (1,) * 32, (1,) * 33, [[4]], (10**40,)]):
        yield f"shape {i}", z(shape, (1,) * len(shape) if isinstance(shape, tuple) else (1,)), None
    for i, chunks in enumerate([(0,), (-1,), (1 << 62,), (1 << 63,), (1 << 40,), (5,), (3,), (1,), (), (4, 4), (4.0,), None, [0], "4"]):
        yield f"chunks {i}", z(chunks=chunks), None if i in (5, 6, 7) else False
    yield "2^62 chunks", z((1 << 62,), (1,), "|u1"), None
    yield "2^124 chunks", z((1 << 62, 1 << 62), (1, 1), "|u1"), False
    yield "chunks of 2^64 bytes", z((1 << 31, 1 << 31), (1 << 31, 1 << 31), "<f4"), False
    yield "a chunk of 2^36 bytes and one", z(((1 << 36) + 1,), ((1 << 36) + 1,), "|u1"), False
    for i, dtype in enumerate(["|O", "<U4", "|S4", "<f3", ">f16", "<m8[ns]", "float32", "", "<", "|u0", "bfloat16", "<V2", None, 4, [["a", "<f4"]], {"name": "<f4"}, "<f4\0", "x" * 100_000]):
        yield f"dtype {i}", z(dtype=dtype), None
    for i, dtype in enumerate(["|u1", "<f8", "<c16", "|b1", ">f4", "int4", "float8_e4m3fn"]):
        yield f"confused dtype {i}", z(dtype=dtype), None if dtype == ">f4" else False
    for i, fill in enumerate(["NaN", "Infinity", "-Infinity", "nan", "x", "0x7fc00000", "0xzz", "0x" + "f" * 17, "", [], [1], [1, 2], [1, 2, 3], {}, None, True, 1e308, -(1 << 63), 1 << 64, 10**100, [[1]], ["NaN", "NaN"], "AAAAAA=="]):
        yield f"fill {i}", z(fill=fill), None
        yield f"fill of no chunk {i}", z(shape=(8,), fill=fill), None
        yield f"fill of integers {i}", z((8,), (4,), "<i4", fill=fill), None
    for i, order in enumerate(["X", "", None, 1, "F"]):
        yield f"order {i}", z(order=order), order == "F"
    for i, compressor in enumerate([{}, {"id": "lzma"}, {"id": 1}, {"id": None}, [], "zstd", 1, {"id": "zstd", "id2": {"a": [[]]}}, {"level": 1}, {"id": "none"}]):
        yield f"compressor {i}", z(compressor=compressor), None
    for i, filters in enumerate([[{"id": "delta"}], {}, 1, [], [None]]):
        yield f"filters {i}", z(filters=filters), None
    for i, separator in enumerate(["", "x", "..", None, 1, "/"]):
        yield f"separator {i}", z(dimension_separator=separator), None
    yield "format 3", z(zarr_format=3), False
    yield "format 2^70", z(zarr_format=1 << 70), False
    for key in ("shape", "chunks", "dtype", "zarr_format"):
        yield f"no {key}", json.dumps({k: v for k, v in json.loads(z()).items() if k != key}).encode(), False
    for i, text in enumerate([b"", b"{", b"[]", b"null", z() + b"x", z() + z(), b"[" * 100_000, b'{"a":' * 70, z()[:-1] + b',"shape":[4]}', z()[:-1] + b',"\\u0073hape":[4]}', b"\xef\xbb\xbf" + z(), z().replace(b'"C"', b'"\\ud800"'), z()[:-1] + b',"x":"\xff"}', z()[:20] + b"\0" + z()[20:],
                              z()[:-1] + b',"x":"' + b"y" * (1 << 20) + b'"}', z()[:-1] + b',"x":' + b"9" * 400 + b"}", z()[:-1] + b',"fill_value":NaN}']):
        yield f"text {i}", text, None if text.endswith(b"9}") else False


def metadata_3():
    z = o.zarr3
    yield "sound", z(), True
    for i, codecs in enumerate([[], [CRC], [o.BYTES, o.BYTES], [CRC, o.BYTES], ["bytes"], [{"name": "transpose", "configuration": {"order": [0]}}, o.BYTES], [{"name": "transpose", "configuration": {"order": [1]}}, o.BYTES],
                                [{"name": "transpose", "configuration": {"order": [0, 0]}}, o.BYTES], [{"name": "transpose", "configuration": {"order": [-1]}}, o.BYTES], [{"name": "transpose", "configuration": {"order": "F"}}, o.BYTES],
                                [{"name": "transpose", "configuration": {"order": [0] * 40}}, o.BYTES], [{"name": "transpose"}, o.BYTES], [o.BYTES, {"name": "transpose", "configuration": {"order": [0]}}], [{"name": "bytes", "configuration": {"endian": "middle"}}],
                                [{"configuration": {}}], [{"name": "vlen-utf8"}], [1], None, {}, "bytes", [o.BYTES] + [CRC] * 9, [o.BYTES] + [{"name": "zstd"}] * 9, [{"name": "sharding_indexed"}], [{"name": "sharding_indexed", "configuration": {}}]]):
        yield f"codecs {i}", z(codecs=codecs), None if i == 15 else i in (4, 5, 9, 11)
    for i, (chunks, more) in enumerate([((3,), {}), ((0,), {}), ((-1,), {}), ((8,), {}), ((4, 1), {}), ((), {}), ((1,), {"index_codecs": []}), ((1,), {"index_codecs": [o.BYTES, {"name": "zstd"}]}), ((1,), {"codecs": []}), ((1,), {"index_location": "middle"}),
                                        ((1,), {"index_codecs": [o.sharded((1,))]}), (None, {}), ((1,), {"index_codecs": [{"name": "transpose", "configuration": {"order": [0, 1]}}, o.BYTES]})]):
        yield f"shards {i}", z(codecs=[o.sharded(chunks, **more)]), None if i in (7, 12) else False
    yield "2^22 and more chunks in a shard", z((1 << 23,), (1 << 23,), codecs=[o.sharded((1,))]), False
    nested = lambda n: o.sharded((4,), [nested(n - 1)] if n > 1 else [o.BYTES])
    for n in (8, 9, 10, 30, 60):
        yield f"shards {n} deep", z(codecs=[nested(n)]), False
    yield "unknown member", z(extra={"a": 1}), None
    yield "unknown member that may be ignored", z(extra={"must_understand": False}), True
    for i, more in enumerate([{"node_type": "group"}, {"node_type": 1}, {"data_type": {"name": "float32"}}, {"data_type": {"name": "struct"}}, {"data_type": None}, {"chunk_grid": {"name": "rectangular"}}, {"chunk_grid": {"name": "regular"}}, {"chunk_grid": "regular"},
                              {"chunk_key_encoding": {"name": "x"}}, {"chunk_key_encoding": "v2"}, {"chunk_key_encoding": {"name": "default", "configuration": {"separator": ""}}}, {"storage_transformers": [{}]}, {"dimension_names": {"a": [[]]}}, {"zarr_format": 2}]):
        yield f"member {i}", z(**more), None


def zstd_chunks():
    n = len(RANDOM)
    good = o.zstd(RANDOM)
    frame = o.zstd_frame
    yield "sound", good, True
    yield "by hand", frame([(0, RANDOM)]), True
    yield "in two frames", o.zstd(RANDOM[:100]) + o.zstd(RANDOM[100:]), True
    yield "behind a skippable frame", struct.pack("<II", 0x184D2A50, 4) + b"skip" + good, True
    yield "skippable frames alone", (struct.pack("<II", 0x184D2A50, 4) + b"skip") * 10, None
    yield "a skippable frame of 4 GiB", struct.pack("<II", 0x184D2A50, 0xFFFFFFFF) + good, None
    yield "a bomb", frame([(1, b"\0", 1 << 17)] * 8000), None
    yield "a bomb of one frame a block", frame([(1, b"\0", 1 << 17)]) * 2000, None
    yield "blocks of nothing", frame([(0, b"")] * 500_000), None
    yield "empty frames", frame([(0, b"")]) * 200_000, None
    for size in (0, n - 1, n + 1, *HUGE):
        yield f"size {size}", frame([(0, RANDOM)], size=size), None
    for window in (0x50, 0x58, 0xA8, 0xFF):
        yield f"window {window:x}", frame([(0, RANDOM)], window=window), None
    yield "short", frame([(0, RANDOM[:-1])]), None
    yield "long", frame([(0, RANDOM + b"x")]), None
    yield "cut", good[:-1], None
    yield "bytes behind it", good + b"x", None
    yield "zeros behind it", good + bytes(1000), None
    yield "a block of a reserved kind", frame([(0, RANDOM)])[:6] + b"\xff" * 10, None
    yield "a dictionary", good[:4] + b"\x63" + b"\1\1\1\1" + good[5:], None
    yield "nothing", b"", None
    yield "one byte", b"(", None


def blosc(nbytes, blocksize, cbytes, version=2, versionlz=1, flags=0x21, typesize=4, body=b""):
    return struct.pack("<BBBBIII", version, versionlz, flags, typesize, nbytes, blocksize, cbytes) + body


def other_chunks():
    import bz2, gzip, zlib
    n = len(RANDOM)
    for name, pack in (("gzip", gzip.compress), ("zlib", zlib.compress), ("bz2", bz2.compress)):
        good = pack(RANDOM)
        yield name, "sound", good, True
        yield name, "short", pack(RANDOM[:-1]), None
        yield name, "long", pack(RANDOM + b"x"), None
        yield name, "a bomb", pack(bytes(40_000_000)), None
        yield name, "two", pack(RANDOM[:100]) + pack(RANDOM[100:]), None
        yield name, "empty ones", pack(b"") * 20_000, None
        yield name, "cut", good[:-1], None
        yield name, "cut in the middle", good[: len(good) // 2], None
        yield name, "bytes behind it", good + b"x", None
        yield name, "checksum", good[:-8] + bytes(8), None
        yield name, "nothing", b"", None
        yield name, "another's", o.zstd(RANDOM), None
    yield "gzip", "a name without end", b"\x1f\x8b\x08\x08" + bytes(6) + b"x" * 100_000, None
    yield "gzip", "an extra field of 64 KiB", b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff" + bytes(70_000), None
    for i, data in enumerate([blosc(n, n, 16 + n, flags=0x23, body=RANDOM), blosc(n, 0, 16 + n, flags=0x23, body=RANDOM), blosc(n, n, 16, body=b""), blosc(n, n, 0xFFFFFFFF, body=RANDOM), blosc(0x7FFFFFFF, n, 16 + n, body=RANDOM), blosc(0xFFFFFFFF, n, 16 + n, body=RANDOM),
                              blosc(n, 0xFFFFFFFF, 16 + n, body=RANDOM), blosc(n, 1, 16 + n, body=RANDOM), blosc(n, n, 16 + n, typesize=0, body=RANDOM), blosc(n, n, 16 + n, typesize=255, body=RANDOM), blosc(n, n, 16 + n, version=99, body=RANDOM),
                              blosc(n, n, 16 + n, flags=0xFF, body=RANDOM), blosc(n, n, 24 + n, body=struct.pack("<II", 0xFFFFFFF0, n) + RANDOM), blosc(n, n, 24 + n, body=struct.pack("<iI", 20, n + 1) + RANDOM), blosc(n, n, 24 + n, body=struct.pack("<ii", -1, -1) + RANDOM), b"", b"\2\1"]):
        yield "blosc", f"frame {i}", data, True if i == 0 else None


def shards():
    """The chunks of an array of 4 bytes, and a shard; whether it is right."""
    pieces = [b"a", b"b", b"c", b"d"]
    index = [(0, 1), (1, 1), (2, 1), (3, 1)]
    of = lambda index: o.shard(pieces, index)
    yield "sound", o.shard(pieces), True
    yield "absent ones", o.shard([b"a", None, None, b"d"]), True
    yield "overlapping", of([(0, 1)] * 4), True
    yield "in the index", of([(4, 1), (5, 1), (6, 1), (7, 1)]), True
    for i, bad in enumerate([(68, 1), (67, 2), (1 << 63, 1), (HUGE[1], 1), (0, HUGE[1]), (HUGE[1], 2), (HUGE[1] - 1, 1), (0, 0), (0, 2), (0, 1 << 40)]):
        yield f"entry {i}", of([bad, *index[1:]]), False
    yield "cut", o.shard(pieces)[:-1], False
    yield "checksum", o.shard(pieces)[:-1] + b"x", False
    yield "no checksum", o.shard(pieces, crc=False), False
    yield "index alone", o.shard(pieces)[4:], False
    yield "short", b"abcd", False
    yield "nothing", b"", False


def one_array(metadata, chunk=BYTES, version=2):
    """In a database and in folders."""
    key = {2: ("w/.zarray", "w/0"), 3: ("w/zarr.json", "w/c/0")}[version]
    return {key[0]: metadata, key[1]: chunk}


def arrays():
    for version, metadata in ((2, metadata_2), (3, metadata_3)):
        for i, (name, text, expect) in enumerate(metadata()):
            files = one_array(text, version=version)
            yield Case(f"zarr {version}: {name}", item(files) if i % 2 else {**files, "_METADATA": METADATA}, expect, "m")
    plain = lambda compressor, chunk, n=100: {**one_array(o.zarray((n,), (n,), compressor={"id": compressor}), chunk), "_METADATA": METADATA}
    for name, chunk, right in zstd_chunks():
        yield Case("zstd: " + name, plain("zstd", chunk), right, "m")
    for kind, name, chunk, right in other_chunks():
        yield Case(f"{kind}: {name}", plain(kind, chunk), right, "m")
    for name, chunk, right in shards():
        text = o.zarr3((4,), (4,), "uint8", [o.sharded((1,), ["bytes"])])
        yield Case("shard: " + name, {**one_array(text, chunk, 3), "_METADATA": METADATA}, right or None, "m")
    summed = o.zarr3(codecs=[o.BYTES, CRC])
    for name, chunk, right in (("right", BYTES + o.crc32c(BYTES), True), ("wrong", BYTES + b"\0\0\0\0", None), ("absent", BYTES, False), ("alone", b"\0\0\0\0", False)):
        yield Case("crc32c: " + name, {**one_array(summed, chunk, 3), "_METADATA": METADATA}, right, "m")
    deep = o.sharded((1 << 20,), [o.sharded((1 << 19,), [o.sharded((1 << 18,), [o.BYTES])])])
    yield Case("shards in shards", {**one_array(o.zarr3((1 << 21,), (1 << 21,), codecs=[deep]), o.shard([None, None]), 3), "_METADATA": METADATA}, True, "m")
    yield Case("an array of 64 TiB", {**one_array(o.zarray((1 << 46,), (1 << 30,), "|u1", {"id": "zstd"}), b"x" * 100_000), "_METADATA": METADATA}, True, "m")
    yield Case("compressed again and again", {**one_array(o.zarr3((1 << 20,), (1 << 20,), "uint8", ["bytes", *[{"name": "zstd"}] * 8]), o.zstd_frame([(1, b"\0", 1 << 17)] * 8000), 3), "_METADATA": METADATA}, None, "m")
    names = ["w/00", "w/-1", "w/+1", "w/1e0", "w/4", "w/99999999999999999999", "w/0.0", "w/0/0", "w/c/0", "w/ 0", "w/0 ", "w/", "w//0", "w/\u0660"]
    yield Case("keys that name no chunk", item({**ARRAY, **{n: b"x" for n in names}}), True, "m")


# --- descriptions, msgpack, folders ---


def descriptions():
    d = o.described
    whole = d({("w",): "jax.Array"})
    yield "sound", whole, True
    yield "none", None, True
    for i, text in enumerate([b"", b"{}", b"[]", b"null", b"{", whole + b"x", b"[" * 100_000, b'{"a":' * 70, b'{"tree_metadata":[]}', b'{"tree_metadata":{"x":1}}', b'{"tree_metadata":{"x":{}}}', b'{"tree_metadata":{"x":{"key_metadata":{}}}}', b'{"tree_metadata":{"x":{"key_metadata":[{}]}}}',
                              b'{"tree_metadata":{"x":{"key_metadata":[{"key":1}]}}}', b'{"tree_metadata":{"x":{"key_metadata":[1]}}}', b'{"tree_metadata":{"x":{"key_metadata":[],"value_metadata":{"value_type":"jax.Array"}}}}', b'{"tree_metadata":{"x":{"key_metadata":[{"key":"w"}],"value_metadata":{"value_type":1}}}}',
                              b'{"tree_metadata":{"x":{"key_metadata":[{"key":"w"}],"value_metadata":1}}}', whole[:-1] + b',"tree_metadata":{}}', whole.replace(b'"w"', b'"\\ud800"'), whole.replace(b'"w"', b'"\xff"'), whole.replace(b'"w"', b'"\\u0000"'), whole.replace(b'"w"', b'"w\\u202e"'),
                              whole[:-1] + b',"store_array_data_equal_to_fill_value":1}', whole.replace(b"false", b"2"), whole.replace(b"2,", b"1e999,"), b"\0" * 1000, b"\xef\xbb\xbf" + whole]):
        yield f"text {i}", text, None
    for i, key in enumerate(["", ".", "..", "/", "../../w", "a/b", "\0", "x" * 70_000, "a" + ".b" * 2000, "\n", "\x1b[2J", "\u202ew", "W", "w/", "w/0", "index.json", ".source", "manifest.ocdbt"]):
        yield f"key {i}", d({(key,): "jax.Array"}), False
        yield f"key of a value {i}", d({("w",): "jax.Array", (key,): "Dict"}), None
    for n in (64, 255, 256, 257, 1000):
        yield f"{n} segments", d({("a",) * n: "Dict", ("w",): "jax.Array"}), n <= 256
    yield "a key above another", d({("w",): "jax.Array", ("w", "x"): "Dict"}), None
    yield "one array twice", d({("w",): "jax.Array", ("w", "w"): "None"}).replace(b'"key": "w", "key_type": 2}, {', b'"key": "", "key_type": 2}, {'), None
    for kind in ("", "string", "scalar", "None", "Dict", "\0", "x" * 10_000):
        yield f"type {kind[:9]!r}", d({("w",): kind}), None


def strings():
    for i, text in enumerate([b'{"s":"x"}', b"{}", b"", b"[]", b'{"s":1}', b'{"s":null}', b'{"s":{"a":1}}', b'{"s":"x","s":"y"}', b'{"s":"\\ud800"}', b"[" * 100_000, b'{"s":"x"', b'{"s":"x"}}', b'{"t":"x"}', b'{"s":"' + b"y" * 1_000_000 + b'"}', b'{"s":"\xff"}', b"\0"]):
        yield f"strings {i}", {**item(metadata=o.described({("w",): "jax.Array", ("s",): "string"})), "_strings.json": text}, i in (0, 13)
    yield "strings: none", item(metadata=o.described({("w",): "jax.Array", ("s",): "string"})), False


def msgpacks():
    p, a = o.packed, o.array
    sound = {"w": a((4,), "float32", BYTES), "n": 1, "f": 1.5, "t": "text", "l": [1, 2], "e": {}}
    yield "sound", p(sound), True
    key = p("k")
    many = lambda head, n: b"\x81" + key + head + struct.pack(">I", n)
    for i, data in enumerate([b"\x81", b"\x81" + key, b"\xdf\xff\xff\xff\xff" + key + b"\1", many(b"\xdd", 0xFFFFFFFF), many(b"\xdf", 0xFFFFFFFF), many(b"\xdd", 1_500_001) + b"\xc0" * 1_500_001, many(b"\xdb", 0xFFFFFFFF), many(b"\xc6", 0xFFFFFFFF),
                              many(b"\xdb", (16 << 20) + 1) + b"x" * ((16 << 20) + 1), many(b"\xc9", 0xFFFFFFFF) + b"\1", b"\x81" + key + b"\xc1", b"\x81" + key + b"\xd4\x05\0", b"\x81" + key + b"\xc7\0\1", p(sound) + b"\0", p(sound)[:-1], (b"\x81" + key) * 127 + b"\xc0",
                              (b"\x81" + key) * 129 + b"\xc0", (b"\x81" + key) * 100_000, b"\x81" + key + b"\x91" * 100_000, b"\x81" + key + b"\x81\1\1", b"\x81" + key + b"\x81\xc0\1", b"\x82" + (key + b"\1") * 2, b"\x81\xa1\xff\1", b"\x81\xa0\1",
                              b"\x81" + key + many(b"\xdd", 700_000) + b"\xc0" * 700_000]):
        yield f"text {i}", data, None if i in (5, 15, 21, 22, 23, 24) else False
    for i, x in enumerate([a((4,), "float64", BYTES), a((5,), "float32", BYTES), a((4,), "<f4", BYTES), a((4,), "object", BYTES), a((1 << 62,), "float32", BYTES), a((1 << 32, 1 << 32), "float32", BYTES), a((0, 1 << 63), "float32", b""), a((1,) * 64 + (4,), "float32", BYTES), a((1,) * 65 + (4,), "float32", BYTES),
                           a((4.0,), "float32", BYTES), a((-4,), "float32", BYTES), a(("4",), "float32", BYTES), o.ext(1, b""), o.ext(1, p([])), o.ext(1, p([[4], "float32"])), o.ext(1, p([[4], "float32", o.binary(BYTES), 1])), o.ext(1, p([[4], "float32", o.binary(BYTES)]) + b"x"),
                           o.ext(1, p([[4], "float32", "text"])), o.ext(1, p([4, "float32", o.binary(BYTES)])), o.ext(1, p([[4], 1, o.binary(BYTES)])), o.ext(2, p([1.0, 2.0])), o.ext(2, p([1, 2])), o.ext(2, p([1.0])), o.ext(2, p([1.0, 2.0]) + b"x"), o.ext(3, p([[], "float32", o.binary(BYTES[:4])])),
                           o.ext(127, b""), a((4,), "x" * 100_000, BYTES), a((4,), "bool", b"\0\1\2\3"), a((4,), "bfloat16", BYTES[:8])]):
        yield f"array {i}", p({"w": x}), None
    pieces = lambda shape, chunks: p({"w": {"__msgpack_chunked_array__": True, "shape": shape, "chunks": chunks}})
    half = a((2,), "float32", BYTES[:8])
    yield "pieces: sound", pieces({"0": 4}, {"0": half, "1": half}), True
    for i, data in enumerate([pieces({}, {}), pieces({"0": 4}, {}), pieces({"0": 5}, {"0": half, "1": half}), pieces({"0": 4}, {"0": half, "2": half}), pieces({"0": 4}, {"0": half, "1": a((4,), "float16", BYTES[:8])}), pieces({"0": 1 << 62, "1": 1 << 62}, {"0": half}), pieces({"0": 1.0}, {"0": half}),
                              pieces({"1": 4}, {"0": half, "1": half}), pieces([4], [half, half]), pieces({"0": 4}, {"0": half, "1": 1}), pieces({"0": 4}, {"0": a((1,), "float32", BYTES[:4]), "1": half}), pieces({"0": 4}, {"0": a((0,), "float32", b""), "1": half}), pieces({"0": 4}, {"0": half, "1": half, "x": 1}),
                              pieces({"0": 4}, {str(k): half for k in range(5000)}), p({"w": {"__msgpack_chunked_array__": True}}), p({"w": {"__msgpack_chunked_array__": 1, "shape": 1, "chunks": 1}})]):
        yield f"pieces {i}", data, False


def placeholders():
    """An old item: msgpack whose texts name arrays in the store."""
    for i, text in enumerate(["w", "", "/", "..", "../x", "x", "w/", "/w", "a/../w", "\0", "w\0", "x" * 100_000, "d/e/f"]):
        yield f"placeholder {i}", {**o.store(ARRAY), "checkpoint": o.packed({"p": "PLACEHOLDER://" + text})}, i == 0
    for i, path in enumerate(["w", "/a/b/w/", "w//", "", "/", "..", "x"]):
        t5x = {"driver": "zarr", "kvstore": {"driver": "file", "path": path}, "metadata": {}}
        yield f"T5X {i}", {**ARRAY, "checkpoint": o.packed({"p": t5x})}, None if i in (3, 4) else i < 3


def special(kind, name, sound):
    """A checkpoint of which one file is something else."""
    def make(folder):
        path = f"{folder}/m/{name}"
        write_tree(folder + "/m", {k: v for k, v in sound.items() if k != name})
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            os.mkdir(path)
        elif kind == "socket":
            import socket
            with socket.socket(socket.AF_UNIX) as s:
                here = os.open(folder + "/m", os.O_RDONLY)
                s.bind(f"/proc/self/fd/{here}/{name}")
                os.close(here)
        else:
            os.symlink({"zeros": "/dev/zero", "nothing": "/dev/null", "a link to itself": os.path.basename(name), "a link to nothing": "/absent", "the folder above": "..", "a terminal": "/dev/tty", "/proc": "/proc/self/mem"}[kind], path)
    return make


def special_files():
    database = item(TWO, o.described({("w",): "jax.Array", ("x",): "jax.Array"}))
    folders = {**ARRAY, "_METADATA": METADATA}
    old = {**ARRAY, "checkpoint": o.packed({"p": "PLACEHOLDER://w"})}
    for what, sound, names in (("database", database, ("manifest.ocdbt", "d/data", "_METADATA", "_strings.json")), ("folders", folders, ("w/.zarray", "w/0", "_METADATA")), ("old", old, ("checkpoint",))):
        for name in names:
            for kind in ("pipe", "folder", "socket", "zeros", "nothing", "a link to itself", "a link to nothing", "the folder above", "a terminal", "/proc"):
                yield f"{what}: {name} is {kind}", special(kind, name, sound), None


def folders():
    sound = item()
    for name in sound:
        yield f"no {name}", {k: v for k, v in sound.items() if k != name}, None if name == "_METADATA" else False
    yield "metadata alone", {"_METADATA": METADATA}, False
    yield "no .zarray", item({"w/0": BYTES}), False
    yield "no chunk", item({"w/.zarray": o.zarray()}), True
    yield "no chunk, but all were stored", item({"w/.zarray": o.zarray()}, o.described({("w",): "jax.Array"}, store_array_data_equal_to_fill_value=True)), False
    yield "2^62 chunks, of which all were stored", item({"w/.zarray": o.zarray((1 << 62,), (1,), "|u1"), "w/0": b"x"}, o.described({("w",): "jax.Array"}, store_array_data_equal_to_fill_value=True)), False
    yield "folders in folders", {**ARRAY, "a/" * 20 + "b": b"x"}, False
    yield "folders that link around", {**ARRAY, "up": "..", "self": ".", "root": "/", "_METADATA": METADATA}, True
    yield "a chunk that links out", {"w/.zarray": o.zarray(dtype="|u1"), "w/0": "/etc/hostname", "_METADATA": METADATA}, None
    yield "a temporary run", {"20.orbax-checkpoint-tmp-1/" + k: v for k, v in sound.items()}, False
    run = lambda **steps: {f"{n}/{k}": v for n, files in steps.items() for k, v in files.items()}
    yield "run", {f"{n}/default/{k}": v for n in ("1", "20", "3") for k, v in sound.items()}, True
    yield "run whose newest step is broken", {**{f"1/default/{k}": v for k, v in sound.items()}, "20/default/manifest.ocdbt": b"x"}, False
    yield "run in runs", {f"1/2/3/4/5/{k}": v for k, v in sound.items()}, None
    yield "steps with odd numbers", run(**{n: sound for n in ("0", "00", "99999999999999999999", "-1", "1_000", "x_1", "1.5")}), None
    yield "step that links to itself", {"1": "1", "2": "."}, False
    for i, text in enumerate([b"", b"{", b"[" * 100_000, b'{"init_timestamp_nsecs":1,"commit_timestamp_nsecs":null}', b'{"init_timestamp_nsecs":null,"commit_timestamp_nsecs":null}', b'{"init_timestamp_nsecs":"x"}', b"\0"]):
        yield f"step metadata {i}", {"_CHECKPOINT_METADATA": text, **{f"default/{k}": v for k, v in sound.items()}}, i != 3
    part = o.store(ARRAY)
    yield "parts of processes", {"_METADATA": METADATA, **{f"ocdbt.process_{i}/{k}": v for i in range(3) for k, v in part.items()}}, False
    yield "part without anything", {"_METADATA": METADATA, "ocdbt.process_0/x": b""}, False
    yield "old database of a key", {**item({"x": b""}, o.described({("a/w",): "jax.Array"})), **{f"a/{k}": v for k, v in o.store(ARRAY).items()}}, True
    yield "key that leads out", item(metadata=o.described({("../m/w",): "jax.Array"})), False
    yield "100,000 leaves that are not there", item(metadata=o.described({(str(i),): "jax.Array" for i in range(20_000)})), False


def cases(marker, rng):
    del marker
    yield from databases(rng)
    yield from arrays()
    for name, text, expect in descriptions():
        yield Case("_METADATA: " + name, item(metadata=text), expect, "m")
    for name, files, expect in strings():
        yield Case(name, files, expect, "m")
    for name, data, expect in msgpacks():
        yield Case("msgpack: " + name, data, expect, "x.msgpack")
    for name, files, expect in placeholders():
        yield Case(name, files, expect, "m")
    for name, make, expect in special_files():
        yield Case(name, make, expect, "m")
    for name, files, expect in folders():
        yield Case("folder: " + name, files, expect, "m")
    p = o.packed({"w": o.array((4,), "float32", BYTES), "n": [1, {"t": "text"}]})
    yield from damaged("msgpack", p, rng, "x.msgpack", 12, 48)
    for case in damaged("_METADATA", METADATA, rng, "m", 8, 24):
        yield Case(case.name, item(metadata=case.content), file="m")
    for case in damaged(".zarray", o.zarray(), rng, "m", 4, 24):
        yield Case(case.name, item(one_array(case.content)), file="m")
