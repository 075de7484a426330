"""Hostile pickles, in a ZIP, in a legacy stream, in a TAR and bare."""
import io, struct, tarfile
import torch_file as t
from hostile_case import Case, damaged

BYTES = struct.pack("<4f", 1, 2, 3, 4)
W = t.tensor("0", [4])
MAGIC = t.pickle(b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19") + t.pickle(b"M\xe9\x03")


# --- what would run, if anything did ---

CALLS = [("os", "system"), ("posix", "system"), ("nt", "system"), ("subprocess", "Popen"), ("subprocess", "check_output"), ("builtins", "eval"), ("builtins", "exec"),
         ("__builtin__", "eval"), ("builtins", "__import__"), ("builtins", "getattr"), ("builtins", "open"), ("runpy", "run_path"), ("shutil", "copyfile"), ("pathlib", "Path.touch"),
         ("importlib", "import_module"), ("webbrowser", "open"), ("pty", "spawn"), ("torch.hub", "load"), ("torch", "load"), ("pickle", "loads"), ("functools", "partial"),
         ("operator", "methodcaller"), ("code", "interact"), ("timeit", "timeit"), ("numpy.testing._private.utils", "runstring"), ("ctypes", "CDLL")]


def evil(marker):
    argument = t.text("touch " + marker)
    system = t.global_("os", "system")
    run = t.call(system, argument)
    for module, name in CALLS:
        yield f"call of {module}.{name}", t.dict_([(t.text("w"), W), (t.text("x"), t.call(t.global_(module, name), argument))]), True
    with_w = lambda value: t.dict_([(t.text("w"), W), (t.text("x"), value)])
    yield "INST", with_w(b"(" + argument + b"ios\nsystem\n"), True
    yield "OBJ", with_w(b"(" + system + argument + b"o"), True
    yield "NEWOBJ", with_w(system + argument + b"\x85\x81"), True
    yield "NEWOBJ_EX", with_w(system + argument + b"\x85}\x92"), True
    yield "STACK_GLOBAL", with_w(t.text("os") + t.text("system") + b"\x93" + argument + b"\x85R"), True
    yield "BUILD", with_w(t.global_("os", "system") + b")\x81" + argument + b"b"), True
    yield "a call as key", t.dict_([(t.text("w"), W), (run, t.NONE)]), None
    yield "a call, popped", run + b"0" + t.dict_([(t.text("w"), W)]), None
    yield "a call as root", run, None
    yield "a call in hooks", t.dict_([(t.text("w"), W[:-1].rpartition(t.call(t.global_("collections", "OrderedDict")))[0] + run + b"tR")]), None
    yield "a call as persistent id", with_w(run + b"Q"), None
    yield "a call as storage class", with_w(W.replace(t.global_("torch", "FloatStorage"), run)), None
    yield "a call as size", with_w(W.replace(t.tuple_(t.integer(4)), run)), None
    yield "a pickle in bytes", with_w(t.call(t.global_("torch.storage", "_load_from_bytes"), b"B" + struct.pack("<I", len(t.pickle(run))) + t.pickle(run))), None
    yield "copyreg", with_w(t.call(t.global_("copy_reg", "_reconstructor"), t.global_("os", "system"), t.global_("__builtin__", "object"), t.NONE)), None


# --- opcodes ---

def opcodes():
    many = 200_000
    yield "lists in lists", b"]" * many + b"a" * (many - 1), False
    yield "tuples in tuples", b")" + b"\x85" * many, False
    yield "dicts in dicts", b"}" + b"K\0}" * many + b"s" * many, False
    yield "marks", b"(" * many, False
    yield "marks and a list", b"(" * many + b"l", False
    yield "laughs", b"]q\0" + b"".join(b"](" + b"h" + bytes([i]) * 1 + (b"h" + bytes([i])) * 9 + b"eq" + bytes([i + 1]) for i in range(130)), None
    yield "a list in itself", b"]q\0h\0a", None
    yield "a dict in itself", b"}q\0" + t.text("x") + b"h\0s", None
    yield "a tuple in a list in itself", b"]q\0(h\0ta", None
    yield "a module in itself", t.global_("torch.nn.modules.container", "Sequential") + b")\x81q\0}" + t.text("_modules") + b"}" + t.text("0") + b"h\0ssb", None
    yield "memo index of 2^32 - 1", b"}r\xff\xff\xff\xff", True
    yield "memo index of 10^30", b"}p" + b"9" * 30 + b"\n", False
    yield "negative memo index", b"}p-1\n", False
    yield "absent memo", b"h\x07", False
    yield "memo of a mark", b"(q\0t", None
    yield "a million memos", b"}" + b"\x94" * 1_000_000, None
    for i, code in enumerate([b"0", b"1", b"2", b"a", b"e", b"s", b"u", b"t", b"l", b"d", b"\x85", b"\x87", b"R", b"b", b"o", b"\x81", b"\x92", b"Q", b"\x90", b"\x93"]):
        yield f"{code!r} on nothing", code, False
    for i, code in enumerate([b"K\1K\2s", b"K\1K\2a", b"}(K\1u", b"(K\1K\2K\3d", b"]K\1K\2s", b"}K\1a", b"(K\1" + b"00", b"}(K\1K\2" + b"s", b"]}K\0s", b"}]K\0s", b"}}K\0s"]):
        yield f"wrong operands {i}", code, None
    yield "items set on a tensor", W + t.text("x") + b"K\1s", None
    yield "state for a number", b"K\1}b", None
    for name, code in [("BINUNICODE8", b"\x8d"), ("BINBYTES8", b"\x8e"), ("BYTEARRAY8", b"\x96"), ("FRAME", b"\x95")]:
        for n in (1 << 63, (1 << 64) - 1, 1 << 40):
            yield f"{name} of {n}", code + struct.pack("<Q", n) + b"x", False
    for name, code in [("LONG4", b"\x8b"), ("BINSTRING", b"T"), ("BINUNICODE", b"X"), ("BINBYTES", b"B")]:
        for n in (0xFFFFFFFF, 0x7FFFFFFF, 0x80000000):
            yield f"{name} of {n}", code + struct.pack("<I", n) + b"x", False
    for i, code in enumerate([b"\x97", b"\x98", b"\x82\1", b"\x83\1\0", b"\x84\1\0\0\0", b"y", b"\xff", b"\0"]):
        yield f"opcode {code!r}", code, False
    for i, line in enumerate([b"I12x\n", b"I\n", b"I" + b"9" * 100000 + b"\n", b"L5\n", b"F1e999\n", b"Fnan\n", b"Fx\n", b"Sx\n", b"S'x\n", b"S'\\xzz'\n", b"V\\ud800\n", b"V\\uzzzz\n",
                              b"Punknown\n", b"gx\n", b"c\n\n", b"cx\n", b"c" + b"x" * 100000 + b"\ny\n", b"ix\n", b"X\4\0\0\0\xff\xff\xff\xff", b"\x8c\1\xed"]):
        yield f"text {i}", line, None
    yield "no STOP", b"", False
    yield "an integer of 255 bytes", b"\x8a\xff" + b"\x7f" * 255, True
    yield "an integer of a MiB", b"\x8b" + struct.pack("<I", 1 << 20) + b"\x7f" * (1 << 20), None
    yield "100,000 opaque objects", t.list_(*[t.call(t.global_("x", "Y"))] * 100_000), None
    yield "100,000 globals", t.list_(*[t.global_("x", f"Y{i}") for i in range(100_000)]), None
    yield "a key of a MiB", t.dict_([(t.text("k" * (1 << 20)), W)]), None
    yield "keys below keys", t.dict_([(t.text("a" + ".a" * i), W) for i in range(300)]), None
    yield "keys that flatten alike", t.dict_([(t.text("a.b"), W), (t.text("a"), t.dict_([(t.text("b"), W)]))]), None
    yield "odd keys", t.dict_([(t.text(k), W) for k in ["", ".", "..", "/", "a/../b", "\0", "\n", "\ud800", "x" * 300, "index.json", ".source"]]), True
    yield "unhashable key", t.dict_([(b"]", W)]), None
    yield "the same key twice", t.dict_([(t.text("w"), W), (t.text("w"), W)]), True


# --- tensors ---

def geometries():
    huge = 1 << 62
    for name, args in {"negative size": ([-4],), "negative stride": ([4], [-1]), "negative offset": ([4], None, -1), "offset past the end": ([4], None, 1), "stride past the end": ([4], [2]),
                       "product overflows": ([huge, huge, huge],), "2^62 elements": ([huge],), "expanded to 2^46 bytes": ([1 << 44], [0]), "expanded to 2^62": ([huge], [0]),
                       "65 dimensions": ([1] * 65,), "1000 dimensions": ([1] * 1000,), "bignum size": ([1 << 70],), "bignum stride": ([4], [1 << 70]), "bignum offset": ([4], None, 1 << 70),
                       "fewer strides": ([2, 2], [1]), "more strides": ([4], [1, 1]), "huge stride of one": ([1], [huge]), "no elements, past the end": ([0], [1], 1 << 40),
                       "strides that overflow": ([2, 2, 2], [huge, huge, huge])}.items():
        yield name, t.tensor("0", *args, **({} if len(args) > 3 else {"numel": 4})), None if "one" in name or "no elements" in name or name.endswith("2^46 bytes") else False
    for numel in -1, 0, 3, 5, huge, 1 << 64, 1 << 70:
        yield f"storage of {numel}", t.tensor("0", [4], numel=numel), False
    for i, value in enumerate([t.NONE, t.TRUE, t.text("4"), t.floating(4.0), t.EMPTY_LIST, t.EMPTY_TUPLE, b"]q\7h\7a"]):
        yield f"size {i}", W.replace(t.tuple_(t.integer(4)), t.tuple_(value)), None
        yield f"sizes {i}", W.replace(t.tuple_(t.integer(4)), value), None
        yield f"storage {i}", W.replace(t.storage("0", 4), value), None
    for i, cls in enumerate(["StringStorage", "QUInt4x2Storage", "", "FloatStorage.x", "float32"]):
        yield f"class {i}", t.tensor("0", [4], cls=cls), None
    rebuild = lambda name, *args: t.call(t.global_("torch._utils", name), *args)
    yield "parameter of nothing", rebuild("_rebuild_parameter", t.NONE, t.TRUE, t.NONE), None
    yield "no arguments", rebuild("_rebuild_tensor_v2"), None
    yield "a hundred arguments", rebuild("_rebuild_tensor_v2", *[t.NONE] * 100), None
    yield "sparse of strings", rebuild("_rebuild_sparse_tensor", t.text("x"), t.text("y")), None
    yield "quantised of nothing", rebuild("_rebuild_qtensor", t.storage("0", 4), t.integer(0), t.tuple_(t.integer(4)), t.tuple_(t.integer(1)), t.tuple_(), t.FALSE, t.NONE), None
    yield "dtype that is none", rebuild("_rebuild_tensor_v3", t.storage("0", 16, "UntypedStorage"), t.integer(0), t.tuple_(t.integer(4)), t.tuple_(t.integer(1)), t.FALSE, t.NONE,
                                        t.global_("os", "system")), None
    array = lambda shape, dtype, raw: t.call(t.global_("numpy.core.multiarray", "_reconstruct"), t.global_("numpy", "ndarray"), t.tuple_(t.integer(0)), t.text("b")) + t.tuple_(
        t.integer(1), shape, dtype, t.FALSE, raw) + b"b"
    dtype = lambda name: t.call(t.global_("numpy", "dtype"), t.text(name), t.FALSE, t.TRUE)
    for i, (shape, name, raw) in enumerate([([1 << 62], "f4", b"U\4abcd"), ([-1], "f4", b"U\4abcd"), ([1], "f4", b"U\3abc"), ([1], "O8", b"]"), ([1], "V999999999", b"U\1a"), ([1], "", b"U\1a"),
                                            ([1], "f4", b"N"), ([2] * 70, "f4", b"U\4abcd"), ([1], "U1000000000", b"U\1a")]):
        yield f"array {i}", array(t.tuple_(*map(t.integer, shape)), dtype(name), raw), None


def ids():
    storage = [t.text("storage"), t.global_("torch", "FloatStorage"), t.text("0"), t.text("cpu"), t.integer(4)]
    for i, fields in enumerate([storage[:4], storage + [t.NONE], [], [t.text("module")] + storage[1:], storage[:1] + [t.text("FloatStorage")] + storage[2:],
                                storage[:2] + [t.integer(0)] + storage[3:], storage[:4] + [t.text("4")], storage[:4] + [t.NONE], [t.NONE] * 5]):
        yield f"persistent id {i}", W.replace(t.storage("0", 4), t.tuple_(*fields) + b"Q"), None if i == 5 else False
    yield "persistent id in itself", b"]q\0h\0aQ", False
    yield "persistent id of a string", t.text("0") + b"Q", False
    yield "one storage, two sizes", t.list_(t.tensor("0", [4]), t.tensor("0", [2], numel=2)), None
    yield "one storage, two classes", t.list_(t.tensor("0", [4]), t.tensor("0", [4], cls="LongStorage")), None
    yield "100,000 tensors of one storage", t.dict_([(t.text(str(i)), W) for i in range(20_000)]), True


# --- other containers ---

def legacy(value, keys=("0",), counts=(4,), info=t.EMPTY_DICT, key_list=None, data=BYTES):
    listed = t.list_(*map(t.text, keys)) if key_list is None else key_list
    return MAGIC + t.pickle(info) + t.pickle(value) + t.pickle(listed) + b"".join(struct.pack("<q", n) + data for n in counts)


def streams(marker):
    run = t.call(t.global_("os", "system"), t.text("touch " + marker))
    stored = lambda view: t.tensor("0", [4]).replace(t.storage("0", 4), t.tuple_(t.text("storage"), t.global_("torch", "FloatStorage"), t.text("0"), t.text("cpu"), t.integer(4), view) + b"Q")
    w = t.dict_([(t.text("w"), stored(t.NONE))])
    yield "sound", legacy(w), True
    for n in (3, 5, 0, -1, 1 << 62, -(1 << 63)):
        yield f"count of {n}", legacy(w, counts=(n,)), False
    yield "no keys", legacy(w, keys=(), counts=()), False
    yield "another key", legacy(w, keys=("1",)), False
    yield "two keys, one storage", legacy(w, keys=("0", "1")), False
    yield "a key twice", legacy(w, keys=("0", "0"), counts=(4, 4)), None
    yield "keys that are numbers", legacy(w, key_list=t.list_(t.integer(0))), None
    yield "keys that are no list", legacy(w, key_list=t.integer(0)), False
    yield "keys that would run", legacy(w, key_list=run), None
    yield "information that would run", legacy(w, info=run), None
    yield "value that would run", legacy(run), None
    yield "storage cut", legacy(w)[:-1], False
    yield "other protocol", legacy(w).replace(b"M\xe9\x03", b"M\xea\x03"), False
    yield "view past the end", legacy(t.dict_([(t.text("w"), stored(t.tuple_(t.text("v"), t.integer(1), t.integer(4))))])), False
    yield "view of a negative offset", legacy(t.dict_([(t.text("w"), stored(t.tuple_(t.text("v"), t.integer(-1), t.integer(4))))])), False
    yield "view that is none", legacy(t.dict_([(t.text("w"), stored(t.text("v")))])), False
    yield "source that would run", legacy(t.tuple_(t.text("module"), t.global_("os", "system"), t.text("x.py"), t.text(f"import os; os.system('touch {marker}')")) + b"Q"), None
    yield "magic alone", MAGIC, False


def tar(**change):
    members = {"sys_info": t.pickle(t.EMPTY_DICT), "pickle": t.pickle(t.dict_([(t.text("w"), t.text("1") + b"Q")])),
               "tensors": t.pickle(t.integer(1)) + t.pickle(t.tuple_(t.text("1"), t.text("0"), t.global_("torch", "FloatTensor"))) + struct.pack("<iiqqq", 1, 0, 4, 1, 0),
               "storages": t.pickle(t.integer(1)) + t.pickle(t.tuple_(t.text("0"), t.text("cpu"), t.global_("torch", "FloatStorage"))) + struct.pack("<q", 4) + BYTES + t.pickle(b"]"), **change}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as f:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if data is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            elif data is not False:
                info.size = len(data)
            if data is not False:
                f.addfile(info, io.BytesIO(data or b""))
    return out.getvalue()


def tars(marker):
    run = t.pickle(t.call(t.global_("os", "system"), t.text("touch " + marker)))
    described = lambda ndim, *numbers: t.pickle(t.integer(1)) + t.pickle(t.tuple_(t.text("1"), t.text("0"), t.global_("torch", "FloatTensor"))) + struct.pack(
        f"<ii{len(numbers)}q", ndim, 0, *numbers)
    yield "sound", tar(), True
    for member in "sys_info", "pickle", "tensors", "storages":
        yield f"{member} is a link", tar(**{member: None}), None
        yield f"no {member}", tar(**{member: False}), None
        yield f"{member} is empty", tar(**{member: b""}), None
        yield f"{member} would run", tar(**{member: run}), None
    for i, d in enumerate([described(1 << 30), described(-1), described(65), described(1, -4, 1, 0), described(1, 1 << 62, 1, 0), described(1, 4, 1, 1), described(1, 4, -1, 0), described(1, 4)]):
        yield f"tensor {i}", tar(tensors=d), False
    yield "2^60 tensors", tar(tensors=t.pickle(t.integer(1 << 60))), False
    yield "storages: a negative count", tar(storages=t.pickle(t.integer(-1))), False
    sound = tar()
    for i, field in enumerate([b"7" * 11 + b"\0", b"-0000000001\0", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"zzzzzzzzzzz\0", b"\0" * 12]):
        yield f"size {i}", sound[:124] + field + sound[136:], None
    yield "link to itself", tar(**{"sys_info": None})[:157] + b"sys_info\0" + tar(**{"sys_info": None})[166:], None


def cases(marker, rng):
    for name, value, expect in evil(marker):
        yield Case("pickle: " + name, t.checkpoint(t.pickle(value), {"0": BYTES}), expect)
    for name, value, expect in opcodes():
        data = b"\x80\x02" + value if name == "no STOP" else t.pickle(value)
        yield Case("opcodes: " + name, t.checkpoint(data, {"0": BYTES}), expect)
    for version in 6, 128, 255:
        yield Case(f"protocol {version}", t.checkpoint(b"\x80" + bytes([version]) + b"}.", {}), False)
    for name, value, expect in geometries():
        yield Case("tensor: " + name, t.checkpoint(t.state_dict({"w": value}), {"0": BYTES}), expect)
    for name, value, expect in ids():
        yield Case("id: " + name, t.checkpoint(t.pickle(value), {"0": BYTES}), expect)
    for name, data, expect in streams(marker):
        yield Case("legacy: " + name, data, expect)
    for name, data, expect in tars(marker):
        yield Case("tar: " + name, data, expect)
    run = t.call(t.global_("os", "system"), t.text("touch " + marker))
    yield Case("bare pickle that would run", t.pickle(run), None, "x.pkl")
    yield Case("bare pickle, list in itself", t.pickle(b"]q\0h\0a"), None, "x.pkl")
    yield Case("bare pickle, lists in lists", t.pickle(b"]" * 200_000 + b"a" * 199_999), False, "x.pkl")
    stream = legacy(t.dict_([(t.text("w"), t.tensor("0", [4]).replace(t.storage("0", 4), t.storage("0", 4)[:-2] + t.NONE + b"tQ"))]))
    yield from damaged("legacy stream", stream, rng, cuts=10, flips=16)
    yield from damaged("tar", tar(), rng, cuts=6, flips=12)
    pkl = t.state_dict({"w": W, "x": t.dict_([(t.text("y"), t.floating(1.5))])})
    for case in damaged("pickle in a zip", pkl, rng, cuts=10, flips=24):
        yield Case(case.name, t.checkpoint(case.content, {"0": BYTES}))
