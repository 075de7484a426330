"""Hostile safetensors files, directories, and what is no checkpoint at all."""
import json, os, struct
import torch_file as t
from hostile_case import Case, damaged, write_tree

BYTES = struct.pack("<4f", 1, 2, 3, 4)
SHARD_PT = t.checkpoint(t.state_dict({"w": t.tensor("0", [4])}), {"0": BYTES})


def with_header(text, data=b"", length=None):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def of(tensors, data=BYTES):
    return with_header(json.dumps(tensors), data)


def one(dtype="F32", shape=(4,), offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape, "data_offsets": list(offsets) if isinstance(offsets, tuple) else offsets}


SOUND = of({"__metadata__": {"format": "pt"}, "w": one()})


def headers():
    yield "sound", SOUND, True
    for n in (0, 1, 1 << 20, 1 << 32, 1 << 63, (1 << 64) - 1):
        yield f"length {n}", with_header("{}", length=n), False
    for i, text in enumerate(["", "[]", "null", "1", '"x"', "{", "{}x", "{},{}", "\ufeff{}", " {}", "{'w': 1}", "// x\n{}", '{"w": NaN}', '{"w": 1e999}', "[" * 100000, '{"a":' * 1000, '{"w": 01}', '{"w": +1}',
                              '{"w": "\x01"}', '{"w": "\\x"}', '{"w": "\\ud800"}', b'{"\xff": 1}', '{"w": tru}', "{" + '"a":{},' * 3 + "}", b"\0" * 100]):
        yield f"text {i}", with_header(text, BYTES), False
    yield "no tensors", with_header("{}"), True
    for i, change in enumerate([dict(dtype="f32"), dict(dtype="F33"), dict(dtype=1), dict(dtype=None), dict(shape=(-4,)), dict(shape=(4.0,)), dict(shape=(True,)), dict(shape=("4",)), dict(shape=4), dict(shape=None),
                                dict(shape=(1 << 63,)), dict(shape=(1 << 64,)), dict(shape=(10**30,)), dict(shape=(1 << 32, 1 << 32)), dict(shape=(0, 1 << 63)), dict(shape=(3,)), dict(shape=(5,)), dict(shape=(1,) * 70 + (4,)),
                                dict(shape=[[4]]), dict(offsets=(0, 17)), dict(offsets=(16, 0)), dict(offsets=(-16, 0)), dict(offsets=(0, 16, 32)), dict(offsets=(0,)), dict(offsets=()), dict(offsets=(0.0, 16.0)),
                                dict(offsets=("0", "16")), dict(offsets=(1 << 63, (1 << 63) + 16)), dict(offsets=(8, 24)), dict(offsets=None), dict(dtype="F4", shape=(31,)), dict(dtype="F4", shape=(1 << 63,))]):
        yield f"tensor {i}", of({"w": one(**change)}), None if i == 17 else False
    yield "hole", of({"a": one(shape=(1,), offsets=(0, 4)), "b": one(shape=(1,), offsets=(8, 12))}, BYTES[:12]), False
    yield "hole at the beginning", of({"b": one(shape=(3,), offsets=(4, 16))}), False
    yield "bytes left over", of({"b": one(shape=(3,), offsets=(0, 12))}), False
    yield "overlap", of({"a": one(), "b": one(shape=(2,), offsets=(8, 16))}), False
    yield "the same bytes twice", of({"a": one(), "b": one()}), False
    yield "duplicate key", with_header('{"w":' + json.dumps(one()) + ',"w":' + json.dumps(one()) + "}", BYTES), False
    yield "duplicate key by an escape", with_header('{"w":' + json.dumps(one()) + ',"\\u0077":' + json.dumps(one()) + "}", BYTES), False
    yield "duplicate field", with_header('{"w":' + json.dumps(one())[:-1] + ',"dtype":"F32"}}', BYTES), False
    yield "field missing", of({"w": {"dtype": "F32", "shape": [4]}}), False
    yield "field too many", of({"w": {**one(), "x": 1}}), None
    yield "tensor that is a list", of({"w": []}), False
    for i, metadata in enumerate([1, [], "x", None, {"a": 1}, {"a": None}, {"a": {"b": "c"}}]):
        yield f"metadata {i}", of({"__metadata__": metadata, "w": one()}), None if metadata is None else False
    for i, key in enumerate(["", ".", "..", "/", "../../etc/passwd", "\0", "\n", "x" * 1000, "x" * 100_000, "a" + ".b" * 1000, "." * 5000, "index.json", "verify.json", ".source"]):
        yield f"key {i}", of({key: one()}), None
    yield "key that is another's prefix", of({"a": one(shape=(2,), offsets=(0, 8)), "a.b": one(shape=(2,), offsets=(8, 16))}), True
    yield "20,000 empty tensors", of({str(i): one(shape=(0,), offsets=(0, 0)) for i in range(20_000)}, b""), True
    yield "only metadata", of({"__metadata__": {"a": "b"}}, b""), True


def index(weights, **files):
    text = weights if isinstance(weights, bytes) else json.dumps({"weight_map": weights}).encode()
    return {"model.safetensors.index.json": text, **files}


def directories(marker):
    yield "sound", index({"w": "s"}, s=SOUND), True
    for i, name in enumerate(["../x", "/etc/passwd", "a/b", "..", ".", "", "s\0", "absent", "x" * 5000, "model.safetensors.index.json", "s/"]):
        yield f"shard name {i}", index({"w": name}, s=SOUND), False
    for i, text in enumerate([b"", b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map": {"w": 1}}', b'{"weight_map": {"w": "s", "w": "s"}}', b'{"weight_map": {}, "weight_map": {}}', b"[" * 100000, b'{"weight_map": {"w": "s"}} x',
                              b'{"weight_map": {"w": "\xff"}}', b'{"weight_map": null}', b'{"metadata": ' + b'{"a":' * 1000]):
        yield f"index {i}", index(text, s=SOUND), False
    yield "tensor that its shard lacks", index({"v": "s"}, s=SOUND), False
    yield "tensor that the index lacks", index({}, s=SOUND), None
    yield "shard that is a link to itself", index({"w": "s"}, s="s"), False
    yield "links in a circle", index({"w": "a"}, a="b", b="a"), False
    yield "shard that is a device", index({"w": "s"}, s="/dev/zero"), False
    yield "shard that is a directory", index({"w": "s"}, **{"s/x": b""}), False
    yield "index that is a link to itself", {"model.safetensors.index.json": "model.safetensors.index.json"}, False
    yield "plain files that link around", {"model.safetensors": SOUND, "loop": "loop", "up": "..", "self": ".", "out": "/", "gone": "/absent", "zero": "/dev/zero"}, None
    yield "sharded pickle", {"pytorch_model.bin.index.json": b'{"weight_map": {"w": "s.bin"}}', "s.bin": SHARD_PT}, True
    yield "sharded pickle: ../", {"pytorch_model.bin.index.json": b'{"weight_map": {"w": "../s.bin"}}', "s.bin": SHARD_PT}, False
    run = t.pickle(t.call(t.global_("os", "system"), t.text("touch " + marker)))
    yield "distributed: metadata that would run", {".metadata": run, "__0_0.distcp": b""}, False
    yield "distributed: no metadata", {".metadata": b"", "__0_0.distcp": b""}, False
    yield "distributed: not what it says", {".metadata": t.pickle(t.EMPTY_DICT), "__0_0.distcp": b""}, False
    for name, files in {"step": {"_CHECKPOINT_METADATA": b"{}", "default/_METADATA": b"{}", "default/manifest.ocdbt": b"\x0c", "default/d/x": b""}, "item": {"_METADATA": b"{}", "manifest.ocdbt": b"", "d/x": b"", "_sharding": b"{}"},
                        "zarr": {"params.w/.zarray": b"{}", "params.w/0": b"", "checkpoint": b"\x80"}, "evil": {"_METADATA": b"[" * 100000, "manifest.ocdbt": bytes(range(256)) * 100, "d": "d"}}.items():
        yield "orbax: " + name, files, None
    yield "empty", {}, False
    yield "other files", {"README.md": b"x", "a/b/c": b"y"}, False


def strangers(rng):
    for name, data in {"empty": b"", "html": b"<!DOCTYPE html><html>", "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "gzip": b"\x1f\x8b\x08\0" + bytes(100),
                       "zeros": bytes(1 << 20), "text": b"hello\n", "elf": b"\x7fELF" + bytes(100), "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(100), "numpy": b"\x93NUMPY\1\0" + bytes(100), "gguf": b"GGUF" + bytes(100),
                       "a byte": b"P", "PK": b"PK", "PK34": b"PK\3\4", "an end of a zip": b"PK\5\6" + bytes(18), "STOP": b".", "0x80": b"\x80", "spaces": b" " * 10000, "JSON": b'{"a": 1}',
                       "ustar alone": bytes(257) + b"ustar\0" + b"00" + bytes(300), "burnpack": b"NRUB" + bytes(100)}.items():
        yield Case("stranger: " + name, data, None if name in ("STOP", "an end of a zip") else False)
    for i in range(10):
        yield Case(f"noise {i}", rng.randbytes(4096))
    yield Case("a pipe", lambda folder: os.mkfifo(folder + "/x.pt"), False)
    yield Case("absent", lambda folder: None, False)
    yield Case("a device", lambda folder: "/dev/zero", False)
    yield Case("nothing", lambda folder: "/dev/null", False)
    yield Case("a link to itself", lambda folder: os.symlink("x.pt", folder + "/x.pt"), False)
    yield Case("a directory with a pipe", with_pipe, True, "m")
    yield Case("a directory with a pipe as shard", with_pipe_shard, False, "m")


def with_pipe(folder):
    write_tree(folder + "/m", {"model.safetensors": SOUND})
    os.mkfifo(folder + "/m/pipe")


def with_pipe_shard(folder):
    write_tree(folder + "/m", index({"w": "s"}))
    os.mkfifo(folder + "/m/s")


def cases(marker, rng):
    for name, data, expect in headers():
        yield Case("safetensors: " + name, data, expect, "x.safetensors")
    for name, files, expect in directories(marker):
        yield Case("directory: " + name, files, expect, "m")
    yield from strangers(rng)
    yield from damaged("safetensors", of({"__metadata__": {"format": "pt"}, "a.weight": one(shape=(2, 1), offsets=(0, 8)), "a.bias": one(shape=(2,), offsets=(8, 16))}), rng, "x.safetensors")
