"""Hostile burnpacks: a sound one put together here, and what may be wrong with its head, its CBOR and its tensors."""
import struct
from hostile_case import Case, damaged

DATA = bytes(range(16))


def head(major, n):
    """The first bytes of a CBOR item, n in as few as it needs."""
    for size, code, extra in ((24, "", 0), (1 << 8, ">B", 24), (1 << 16, ">H", 25), (1 << 32, ">I", 26), (1 << 64, ">Q", 27)):
        if n < size:
            return bytes([major << 5 | (extra or n)]) + (struct.pack(code, n) if code else b"")


def cbor(x):
    if isinstance(x, bytes):  # an item as it is
        return x
    if isinstance(x, int):
        return head(0, x) if x >= 0 else head(1, -1 - x)
    if isinstance(x, str):
        return head(3, len(x.encode())) + x.encode()
    if isinstance(x, list):
        return head(4, len(x)) + b"".join(map(cbor, x))
    return head(5, len(x)) + b"".join(cbor(k) + cbor(v) for k, v in x.items())


def pack(metadata, data=DATA, magic=b"NRUB", version=1, length=None):
    text = cbor(metadata)
    start = magic + struct.pack("<HI", version, len(text) if length is None else length) + text
    return start + bytes(-len(start) % 256) + data


def one(dtype="F32", shape=(4,), offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


SOUND = {"tensors": {"a.w": one(shape=(1, 2), offsets=(0, 8)), "b": one({"Bool": "Native"}, (3,), (8, 11))},
         "metadata": {"producer": "burn"}, "scalars": {"step": {"UInt": 7}}}
BREAK, BREAK_MAP = b"\xff", b"\xbf"


def packs():
    yield "sound", pack(SOUND), True
    for version in (0, 2, 65535):
        yield f"version {version}", pack(SOUND, version=version), False
    for length in (0, 1, 1 << 20, 100 << 20, (100 << 20) + 1, (1 << 32) - 1):
        yield f"length {length}", pack(SOUND, length=length), False
    for i, text in enumerate([b"", BREAK, b"\xa1", b"\xbf", b"\x9f" * 300, b"\x81" * 300, b"\xc0" * 300, b"\xbb" + b"\xff" * 8, b"\x9b" + b"\xff" * 8, b"\x7b" + b"\xff" * 8, b"\x1c", b"\xf8\x18",
                              BREAK_MAP + cbor("tensors") + BREAK, cbor({"tensors": {}}) + b"\0", cbor("tensors"), cbor([]), cbor({}), cbor({1: {}}), cbor({"tensors": []}), cbor({"tensors": {1: {}}}),
                              cbor({"tensors": {b"\x62\xc3\x28": one()}}), cbor({"tensors": {}, "metadata": {"a": 1}}), cbor({"tensors": {}, "scalars": {"a": {"Int": "1"}}}),
                              cbor({"tensors": {}, "scalars": {"a": {}}}), BREAK_MAP + 2 * (cbor("tensors") + cbor({})) + BREAK]):
        yield f"CBOR {i}", pack(text), False
    yield "indefinite lengths", pack(BREAK_MAP + cbor("tensors") + BREAK_MAP + b"\x7f\x61w\x60\xff" + cbor(one()) + BREAK + BREAK), True
    yield "a section of a later burn", pack({"later": [[[{}]]], "tensors": {"w": one()}}), True
    for i, change in enumerate([dict(dtype="f32"), dict(dtype="F31"), dict(dtype=1), dict(dtype={}), dict(dtype={"Bool": "U16"}), dict(dtype={"Bool": 1}), dict(dtype={"Bool": "U8", "x": 1}), dict(dtype={"F32": 1}),
                                dict(shape=(-4,)), dict(shape=("4",)), dict(shape=(3,)), dict(shape=(1 << 63,)), dict(shape=(1 << 32, 1 << 32)), dict(shape=(0, 1 << 63)), dict(shape=(1,) * 70 + (4,)), dict(offsets=(16, 0)),
                                dict(offsets=(0, 17)), dict(offsets=(0,)), dict(offsets=(0, 16, 32)), dict(offsets=(8, 24)), dict(offsets=((1 << 64) - 16, (1 << 64) - 1)), dict(shape=(1 << 34,), offsets=(0, 1 << 36))]):
        yield f"tensor {i}", pack({"tensors": {"w": one(**change)}}), False
    for missing in ("dtype", "shape", "data_offsets"):
        yield f"no {missing}", pack({"tensors": {"w": {k: v for k, v in one().items() if k != missing}}}), False
    yield "quantised", pack({"tensors": {"q": one({"QFloat": {"x": [{}]}}, (9,))}}), True
    yield "overlap", pack({"tensors": {"a": one(), "b": one(shape=(1,), offsets=(12, 16))}}), False
    yield "a name twice", pack(BREAK_MAP + cbor("tensors") + BREAK_MAP + 2 * (cbor("w") + cbor(one())) + BREAK + BREAK), False
    yield "bytes left over", pack({"tensors": {"w": one()}}, bytes(5000)), True
    yield "no data", pack({"tensors": {}}, b""), True
    yield "100,000 empty tensors", pack({"tensors": {str(i): one(shape=(0,), offsets=(0, 0)) for i in range(100_000)}}, b""), True
    yield "100,001 empty tensors", pack({"tensors": {str(i): one(shape=(0,), offsets=(0, 0)) for i in range(100_001)}}, b""), False
    for i, key in enumerate(["", "..", "/", "../../etc/passwd", "\0", "x" * 100_000, "a" + ".b" * 1000, "model.bpk", ".source"]):
        yield f"key {i}", pack({"tensors": {key: one()}, "scalars": {key: {"Bool": b"\xf5"}}}), None


def cases(marker, rng):
    del marker
    for name, data, expect in packs():
        yield Case("burnpack: " + name, data, expect, "x.bpk")
    yield from damaged("burnpack", pack(SOUND), rng, "x.bpk")
