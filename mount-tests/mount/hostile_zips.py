"""Hostile ZIP archives: torch.save's, TorchScript's and torch.export's."""
import json, struct, zlib
import torch_file as t
from hostile_case import Case, damaged

W = t.state_dict({"w": t.tensor("0", [4])})
BYTES = struct.pack("<4f", 1, 2, 3, 4)


def entry(name, data=b"", **other):
    return {"name": name, "data": data, **other}


SOUND = [entry("a/data.pkl", W), entry("a/data/0", BYTES)]


def deflate(data):
    c = zlib.compressobj(9, zlib.DEFLATED, -15)
    return c.compress(data) + c.flush()


def pickled(value, **storages):
    return t.checkpoint(t.pickle(value), storages)


def bombs():
    million, size = t.repeated_deflate(bytes(1 << 20), 200)
    yield "pickle that inflates to 200 MiB", [entry("a/data.pkl", million, method=8, size=size)], False
    yield "pickle that claims less than it inflates to", [entry("a/data.pkl", million, method=8, size=100)], False
    yield "pickle that claims a GiB", [entry("a/data.pkl", deflate(W), method=8, size=1 << 30)], False
    yield "storage that claims 4 GiB", [SOUND[0], entry("a/data/0", deflate(BYTES), method=8, size=0xFFFFFFF0)], False
    big = t.state_dict({"w": t.tensor("0", [size // 4])})
    yield "storage that inflates to 200 MiB", [entry("a/data.pkl", big), entry("a/data/0", million, method=8, size=size)], True
    yield "storage that is no deflate stream", [entry("a/data.pkl", big), entry("a/data/0", b"\xff" * 300000, method=8, size=size)], None
    yield "storage that inflates to less", [SOUND[0], entry("a/data/0", deflate(BYTES[:8]), method=8, size=16)], None
    yield "byteorder of a MiB", [*SOUND, entry("a/byteorder", b"little" * 170000)], False
    yield "200 KiB of a version", [*SOUND, entry("a/version", b"3" * 200000)], None


def structures():
    inner = t.raw_archive([entry("b/data.pkl", W)])
    yield "duplicate entry", [*SOUND, SOUND[1]], False
    yield "duplicate pickle", [*SOUND, entry("a/data.pkl", t.pickle(t.EMPTY_DICT))], False
    yield "two entries, one header", [*SOUND, entry("a/data/0", BYTES, header=0)], False
    yield "entry inside another's bytes", [SOUND[0], entry("a/data/0", inner), entry("a/data/1", W, header=150)], False
    yield "entry that runs into the next", [SOUND[0], entry("a/data/0", BYTES, stored=60, size=60), entry("a/data/1", BYTES)], False
    yield "entry that runs past the end", [SOUND[0], entry("a/data/0", BYTES, stored=100000, size=100000)], False
    yield "local name differs", [SOUND[0], entry("a/data/0", BYTES, local_name="a/data/1")], False
    yield "local name is longer", [SOUND[0], entry("a/data/0", BYTES, local_name="a/data/0000")], False
    yield "local method differs", [SOUND[0], entry("a/data/0", BYTES, local_common=struct.pack("<HHHHIII", 0, 8, 0, 0, 0, 16, 16))], None
    yield "local size differs", [SOUND[0], entry("a/data/0", BYTES, local_common=struct.pack("<HHHHIII", 0, 0, 0, 0, 0, 9, 9))], None
    yield "local flags differ", [SOUND[0], entry("a/data/0", BYTES, local_common=struct.pack("<HHHHIII", 1, 0, 0, 0, 0, 16, 16))], None
    yield "two roots", [*SOUND, entry("b/data.pkl", W), entry("b/data/0", BYTES)], False
    yield "entry outside the root", [*SOUND, entry("b/other", BYTES)], None
    yield "no root", [entry("data.pkl", W), entry("data/0", BYTES)], False
    yield "pickle two folders down", [entry("a/b/data.pkl", W), entry("a/b/data/0", BYTES)], False
    yield "no pickle", [entry("a/data/0", BYTES)], False
    yield "no entries", [], False
    yield "no storage", [SOUND[0]], False
    yield "storage too short", [SOUND[0], entry("a/data/0", BYTES[:15])], False
    yield "storage too long", [SOUND[0], entry("a/data/0", BYTES + b"0")], False
    yield "storage empty", [SOUND[0], entry("a/data/0")], False
    yield "encrypted", [SOUND[0], entry("a/data/0", BYTES, flags=1)], False
    yield "strongly encrypted", [SOUND[0], entry("a/data/0", BYTES, flags=65)], False
    yield "stored, but sizes differ", [SOUND[0], entry("a/data/0", BYTES, size=32)], False
    yield "wrong checksum of the pickle", [entry("a/data.pkl", W, crc=1), SOUND[1]], False
    yield "wrong checksum of the storage", [SOUND[0], entry("a/data/0", BYTES, crc=1)], True
    yield "symbolic link", [SOUND[0], entry("a/data/0", b"/etc/passwd12345", made_by=0x314, attributes=0xA1FF0000)], None
    yield "header beyond the file", [SOUND[0], entry("a/data/0", BYTES, header=1 << 30)], False
    yield "header in the directory", [SOUND[0], entry("a/data/0", BYTES, header=200)], False
    for method in 1, 9, 12, 14, 93, 99:
        yield f"method {method}", [SOUND[0], entry("a/data/0", BYTES, method=method)], False
    yield "zip64 without its field", [SOUND[0], entry("a/data/0", BYTES, size=0xFFFFFFFF, stored=0xFFFFFFFF)], False


def names():
    for i, name in enumerate(["/etc/passwd", "../../etc/passwd", "a/../../b", "a/./x", "a//x", "a\\..\\x", "C:\\x", "a/\x01", "a/\udcff", "", "/", "a/", "..",
                              "a/" + "x" * 60000, "a/" + "/".join("x" * 20000), "A/data/0", "a/data/0 "]):
        yield f"name {i}", [*SOUND, entry(name, BYTES)], None
    for i, key in enumerate(["../../../etc/passwd", "/etc/passwd", "", ".", "..", "a/b", "\0", "0\n", "0" * 70000]):
        pkl = t.state_dict({"w": t.tensor(key, [4])})
        yield f"storage key {i}", [entry("a/data.pkl", pkl), *([entry(f"a/data/{key}", BYTES)] if len(key) < 60000 and "\0" not in key else [])], None


def ends():
    whole = t.raw_archive(SOUND)
    end = whole[-22:]
    at = len(whole) - 22
    patched = lambda offset, *fields: whole[: at + offset] + b"".join(fields) + whole[at + offset + sum(map(len, fields)) :]
    short, long = lambda n: struct.pack("<H", n), lambda n: struct.pack("<I", n)
    yield "end: more entries than there are", patched(8, short(5), short(5)), False
    yield "end: fewer entries than there are", patched(8, short(1), short(1)), False
    yield "end: two counts", patched(8, short(1), short(2)), None
    yield "end: another disk", patched(4, short(1), short(1)), None
    yield "end: 65535 entries", patched(8, short(65535), short(65535)), False
    yield "end: directory of no bytes", patched(12, long(0)), False
    yield "end: directory past the end", patched(16, long(1 << 31)), False
    yield "end: directory at 0", patched(16, long(0)), False
    yield "end: everything zip64, no locator", patched(8, b"\xff" * 12), False
    yield "end: comment longer than the file", patched(20, short(65535)), False
    yield "end: a second one in the comment", t.raw_archive(SOUND, comment=end), False
    yield "end: 70000 bytes after it", whole + bytes(70000), False
    yield "end: a hundred of them", whole + end * 100, None
    yield "begin: 1000 bytes before it", bytes(1000) + whole, None
    locator = b"PK\6\7" + struct.pack("<IQI", 0, 1 << 62, 1)
    yield "end: zip64 locator to nowhere", whole[:at] + locator + end, None
    yield "end: zip64 locator to itself", whole[:at] + b"PK\6\7" + struct.pack("<IQI", 0, at, 1) + b"PK\5\6" + b"\xff" * 16 + b"\0\0", False
    record = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1 << 60, 1 << 60, 1 << 60, 0)
    yield "end: zip64 with 2^60 entries", whole[:at] + record + b"PK\6\7" + struct.pack("<IQI", 0, at, 1) + b"PK\5\6" + b"\xff" * 16 + b"\0\0", False


def scripts(marker):
    module = lambda cls, state: t.global_("__torch__", cls) + b")\x81" + t.dict_(state) + b"b"
    weights = [(t.text("weight"), t.tensor("0", [4]))]
    code = b'class M(Module):\n  __parameters__ = ["weight", ]\n  __buffers__ = []\n  weight : Tensor\n'
    script = lambda value=module("M", weights), source=code, **more: t.checkpoint(t.pickle(value), {"0": BYTES}, **{
        "constants.pkl": t.pickle(t.EMPTY_TUPLE), "code/__torch__.py": source, **more})
    yield "script: sound", script(), True
    yield "script: class without code", script(module("N", weights)), None
    yield "script: code of no class", script(source=b"x = 1\n"), None
    yield "script: parameter that is none", script(source=code.replace(b'"weight"', b'"absent"')), None
    yield "script: list without end", script(source=code.replace(b"]", b"", 1)), None
    yield "script: 100,000 classes", script(source=b"class M(Module):\n  __parameters__ = []\n" * 100000), None
    yield "script: binary code", script(source=bytes(range(256)) * 100), None
    yield "script: constants that would run", script(**{"constants.pkl": t.pickle(t.call(t.global_("os", "system"), t.text("touch " + marker)))}), None
    yield "script: a module in itself", script(t.global_("__torch__", "M") + b")\x81q\1}" + t.text("self") + b"h\1sb"), None


def exports():
    meta = {"dtype": 7, "sizes": [{"as_int": 4}], "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "requires_grad": False, "device": {"type": "cpu"}, "layout": 7}
    weight = {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": meta}

    def export(config, weights={"weight_0": BYTES}, model=b"{}"):
        text = config if isinstance(config, bytes) else json.dumps(config).encode()
        return t.archive({"archive_format": b"pt2", "archive_version": b"0", ".data/version": b"6\n", "byteorder": b"little", "models/model.json": model,
                          "data/weights/model_weights_config.json": text, **{f"data/weights/{k}": v for k, v in weights.items()}})

    one = lambda **change: export({"config": {"w": {**weight, **change}}})
    of = lambda **change: one(tensor_meta={**meta, **change})
    yield "export: sound", one(), None
    for i, path in enumerate(["../model.json", "/etc/passwd", "", "absent", 7, None]):
        yield f"export: path {i}", one(path_name=path), False
    yield "export: a pickle that is none", one(use_pickle=True), None
    for i, (field, value) in enumerate([("dtype", 99), ("dtype", -1), ("dtype", "7"), ("sizes", [{"as_int": -4}]), ("sizes", [{"as_int": 1 << 62}] * 3), ("sizes", 7),
                                        ("sizes", [{"as_expr": {"expr_str": "s0"}}]), ("sizes", [{}]), ("strides", [{"as_int": -1}]), ("strides", []), ("strides", [{"as_int": 1 << 61}]),
                                        ("storage_offset", {"as_int": 1}), ("storage_offset", {"as_int": -1}), ("layout", 0), ("sizes", [{"as_int": 1}] * 100)]):
        yield f"export: {field} {i}", of(**{field: value}), None
    for i, config in enumerate([b"", b"[]", b"{", b'{"config": []}', b'{"config": {"w": 1}}', b'{"config": {"w": {}}}', b'{"config": {}, "config": {}}', b"[" * 100000,
                                b'{"config": ' + b'{"a": ' * 1000 + b"1" + b"}" * 1001, b"\xff\xfe{}"]):
        yield f"export: config {i}", export(config), None
    for i, model in enumerate([b"", b"[]", b"[" * 1000000, b'{"graph_module": {"graph": {"nodes": ' + b"[" * 500, b'{"graph_module": 1e999}']):
        yield f"export: model {i}", export({"config": {"w": weight}}, model=model), None


def cases(marker, rng):
    for make in bombs, structures, names:
        for name, entries, expect in make():
            yield Case("zip: " + name, t.raw_archive(entries), expect)
    for make in ends(), scripts(marker), exports():
        for name, data, expect in make:
            yield Case("zip: " + name, data, expect)
    yield from damaged("zip", t.checkpoint(W, {"0": BYTES}), rng)
    yield from damaged("deflated zip", t.checkpoint(t.state_dict({"w": t.tensor("0", [25, 40])}), {"0": BYTES * 250}, deflated=True), rng)
