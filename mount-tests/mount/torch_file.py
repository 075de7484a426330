"""Writes what torch.save writes, opcode by opcode, so that a test can get any of it wrong. Standard library only.

Each function of the first part gives the pickle opcodes of one value (protocol 2).
"""
import io, struct, zipfile, zlib

NONE, TRUE, FALSE, EMPTY_TUPLE, EMPTY_DICT, EMPTY_LIST = b"N", b"\x88", b"\x89", b")", b"}", b"]"


def text(s):
    s = s.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(s)) + s


def integer(i):
    if 0 <= i < 256:
        return b"K" + bytes([i])
    n = i.bit_length() // 8 + 1
    return b"\x8a" + bytes([n]) + i.to_bytes(n, "little", signed=True)


def floating(x):
    return b"G" + struct.pack(">d", x)


def tuple_(*items):
    return b"(" + b"".join(items) + b"t"


def list_(*items):
    return b"](" + b"".join(items) + b"e"


def dict_(pairs):
    """Of (opcodes, opcodes)."""
    return b"}(" + b"".join(k + v for k, v in pairs) + b"u"


def global_(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def call(function, *args):
    return function + tuple_(*args) + b"R"


def pickle(value):
    return b"\x80\x02" + value + b"."


def storage(key, numel, cls="FloatStorage", location="cpu"):
    return tuple_(text("storage"), global_("torch", cls), text(key), text(location), integer(numel)) + b"Q"


def contiguous(shape):
    stride, n = [], 1
    for d in reversed(shape):
        stride.insert(0, n)
        n *= max(d, 1)
    return stride


def tensor(key, shape, stride=None, offset=0, numel=None, cls="FloatStorage"):
    n = 1
    for d in shape:
        n *= d
    sizes = tuple_(*map(integer, shape))
    strides = tuple_(*map(integer, contiguous(shape) if stride is None else stride))
    return call(global_("torch._utils", "_rebuild_tensor_v2"), storage(key, n if numel is None else numel, cls), integer(offset), sizes, strides, FALSE,
                call(global_("collections", "OrderedDict")))


def state_dict(tensors):
    """Of {key: opcodes}."""
    return pickle(dict_([(text(k), v) for k, v in tensors.items()]))


# --- containers ---


def archive(entries, root="a", deflated=False):
    """The bytes of a ZIP of {name below the root: bytes}."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as z:
        for name, data in entries.items():
            z.writestr(f"{root}/{name}" if root else name, data)
    return out.getvalue()


def checkpoint(data_pkl, storages=None, deflated=False, **extra):
    """A .pt of a pickle and {key: bytes}."""
    entries = {"data.pkl": data_pkl, **{f"data/{k}": v for k, v in (storages or {}).items()}, "version": b"3\n", **extra}
    return archive(entries, deflated=deflated)


def repeated_deflate(piece, times):
    """A deflate stream of `times` pieces, compressed once; and their size."""
    c = zlib.compressobj(1, zlib.DEFLATED, -15)
    block = c.compress(piece) + c.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(1, zlib.DEFLATED, -15).flush()
    return block * times + end, len(piece) * times


def raw_archive(entries, comment=b""):
    """A ZIP of dicts: name, data (as stored), and what either header may say otherwise: local_name, method, flags, crc, size (inflated), stored,
    header (offset)."""
    body = directory = b""
    for e in entries:
        name, data = e["name"].encode("utf-8", "surrogateescape"), e["data"]
        common = struct.pack("<HHHHIII", e.get("flags", 0), e.get("method", 0), 0, 0, e.get("crc", 0), e.get("stored", len(data)), e.get("size", len(data)))
        local = e.get("local_name", e["name"]).encode("utf-8", "surrogateescape")
        header = e.get("header", len(body))
        body += b"PK\3\4" + struct.pack("<H", 20) + e.get("local_common", common) + struct.pack("<HH", len(local), 0) + local + data
        directory += (b"PK\1\2" + struct.pack("<HH", e.get("made_by", 20), 20) + common
                      + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, e.get("attributes", 0), header) + name)
    end = struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), len(body), len(comment))
    return body + directory + b"PK\5\6" + end + comment
