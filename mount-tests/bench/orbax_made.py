"""Orbax checkpoints of any number of arrays, written without Orbax: zarr of version 2 in a database (OCDBT) of one leaf, or in
folders. The standard library is all that is needed.

    database(folder, arrays), folders(folder, arrays)    arrays: {path, a tuple of names: (shape, bytes of float32 or None)}

No bytes: no chunk is stored, so that the array is its fill value throughout.
"""
import json, os, struct

MANIFEST, NODE = 0x0CDB3A2A, 0x0CDB20DE
CONFIG = bytes(16) + b"\0" + b"\x80\x08" + b"\x80\xc2\xd7\x2f" + b"\4" + b"\0"  # no UUID; not numbered; limits; not compressed


def crc32c_table():
    table = list(range(256))
    for _ in range(8):
        table = [c >> 1 ^ (0x82F63B78 if c & 1 else 0) for c in table]
    return table


TABLE = crc32c_table()


def crc32c(data):
    c = 0xFFFFFFFF
    for byte in data:
        c = c >> 8 ^ TABLE[(c ^ byte) & 255]
    return c ^ 0xFFFFFFFF


def varint(v):
    out = bytearray()
    while v >= 128:
        out.append(v & 127 | 128)
        v >>= 7
    return bytes(out + bytes([v]))


def column(numbers):
    return b"".join(map(varint, numbers))


def envelope(magic, body):
    data = struct.pack(">I", magic) + struct.pack("<Q", 12 + 2 + len(body) + 4) + b"\0\0" + body
    return data + struct.pack("<I", crc32c(data))


def leaf(values):
    """All keys and their values, inline."""
    keys = sorted(values)
    shared = [len(os.path.commonprefix(pair)) for pair in zip(keys, keys[1:])]
    rests = [k[n:] for k, n in zip(keys, [0, *shared])]
    return (b"\0\0" + varint(len(keys)) + column(shared) + column(map(len, rests)) + b"".join(rests)
            + column(len(values[k]) for k in keys) + bytes(len(keys)) + b"".join(values[k] for k in keys))


def manifest(path, keys, root_bytes):
    """One version, whose root is the whole file at that path."""
    files = b"\1" + varint(len(path)) + b"\0" + path
    return CONFIG + files + b"\1\1\0\0\0" + varint(root_bytes) + varint(keys) + varint(root_bytes) + b"\0" + bytes(8) + b"\0"


def metadata(shape):
    return json.dumps({"chunks": [max(n, 1) for n in shape], "compressor": None, "dtype": "<f4", "fill_value": None, "filters": None,
                       "order": "C", "shape": shape, "zarr_format": 2, "dimension_separator": "."}, separators=(",", ":")).encode()


def store(arrays):
    """What the store holds, by its keys."""
    values = {}
    for path, (shape, data) in arrays.items():
        name = ".".join(path).encode()
        values[name + b"/.zarray"] = metadata(shape)
        if data is not None:
            values[name + b"/" + (".".join("0" * len(shape)) or "0").encode()] = data
    return values


def describe(folder, arrays):
    leaves = {str(path): {"key_metadata": [{"key": k, "key_type": 2} for k in path],
                          "value_metadata": {"value_type": "np.ndarray", "skip_deserialize": False}} for path in arrays}
    with open(f"{folder}/_METADATA", "w", encoding="utf-8") as f:
        json.dump({"tree_metadata": leaves, "use_zarr3": False, "store_array_data_equal_to_fill_value": False}, f)


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def database(folder, arrays):
    values = store(arrays)
    node = envelope(NODE, leaf(values))
    os.makedirs(f"{folder}/d")
    write(f"{folder}/d/0", node)
    write(f"{folder}/manifest.ocdbt", envelope(MANIFEST, manifest(b"d/0", len(values), len(node))))
    describe(folder, arrays)


def folders(folder, arrays):
    os.mkdir(folder)
    for key, data in store(arrays).items():
        path = os.path.join(folder, key.decode())
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write(path, data)
    describe(folder, arrays)
