"""The benchmark's inputs, made where they are missing. Standard library only; what torch would write is written by hand.

    data.py FOLDER [NAME...]    makes those files, or all

Weights are repeated blocks of plausible numbers: nothing that is measured depends on what the numbers are.
"""
import collections
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import types
import zlib

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
import orbax_file
import torch_file
from zip64_file import write_zip

HIDDEN, MLP = 4096, 11008
ELEMENT = {"f16": 2, "f32": 4}
STORAGE = {"f16": "HalfStorage", "f32": "FloatStorage"}
BLOCK = 1 << 20
HUGE = 4_300_000_000  # bytes of the sparse tensor
DEFLATED_MIB = 64


def llama(kind, short=False):
    """{key: shape}: 1 GiB of a LLaMA's layers, nearly all of it in Linears; in the short form a third."""
    layers, vocabulary = {"f16": (2, 32000), "f32": (1, 16384)}[kind]
    parts = {f"self_attn.{n}_proj": (HIDDEN, HIDDEN) for n in "qkvo"}
    parts |= {"mlp.gate_proj": (MLP, HIDDEN), "mlp.up_proj": (MLP, HIDDEN), "mlp.down_proj": (HIDDEN, MLP)}
    if short:
        layers, vocabulary, parts = 1, 1024, {"mlp.gate_proj": (MLP, HIDDEN), "mlp.down_proj": (HIDDEN, MLP)}
    shapes = {"model.embed_tokens.weight": (vocabulary, HIDDEN)}
    for layer in range(layers):
        shapes |= {f"model.layers.{layer}.{part}.weight": shape for part, shape in parts.items()}
        shapes |= {f"model.layers.{layer}.{norm}.weight": (HIDDEN,) for norm in ("input_layernorm", "post_attention_layernorm")}
    return shapes | {"model.norm.weight": (HIDDEN,)}


def size(shape, element):
    n = element
    for d in shape:
        n *= d
    return n


def weights(kind):
    """BLOCK bytes of numbers around zero."""
    rng = random.Random(1234)
    numbers = [rng.gauss(0, 0.02) for _ in range(4096)]
    piece = struct.pack(f"<{len(numbers)}{'e' if kind == 'f16' else 'f'}", *numbers)
    return piece * (BLOCK // len(piece))


def repeated(block, nbytes):
    for at in range(0, nbytes, len(block)):
        yield block[: nbytes - at]


def write_safetensors(path, shapes, kind):
    header, at = {}, 0
    for key, shape in sorted(shapes.items()):
        end = at + size(shape, ELEMENT[kind])
        header[key] = {"dtype": kind.upper(), "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for piece in repeated(weights(kind), at):
            f.write(piece)


def stored(name, data):
    return name, len(data), [data], zlib.crc32(data), False


def torch_stand_in():
    """What a state dict's pickle names, under torch's names, so that Python's own pickle writes what torch.save does; and a tensor's class."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2():
        pass

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    for name in STORAGE.values():
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    return torch, utils


class Tensor:
    """A contiguous one with a storage of its own."""

    def __init__(self, storage, shape):
        self.storage, self.shape = storage, tuple(shape)

    def __reduce__(self):
        strides = tuple(size(self.shape[i + 1 :], 1) for i in range(len(self.shape)))
        return sys.modules["torch._utils"]._rebuild_tensor_v2, (self.storage, 0, self.shape, strides, False, collections.OrderedDict())


class Storage:
    """Not pickled, but named: ("storage", class, number of its entry, device, elements)."""

    def __init__(self, *name):
        self.name = name


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        return obj.name if isinstance(obj, Storage) else None


def state_dict(shapes, kind="f32"):
    """The pickle's entry and the version's, as torch.save has them; storage N is the N-th tensor's."""
    torch, utils = torch_stand_in()
    kept = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": torch, "torch._utils": utils})
    out = io.BytesIO()
    tensors = {key: Tensor(Storage("storage", getattr(torch, STORAGE[kind]), str(i), "cpu", size(shape, 1)), shape) for i, (key, shape) in enumerate(shapes.items())}
    Pickler(out, protocol=2).dump(tensors)
    for name, module in kept.items():
        sys.modules.pop(name) if module is None else sys.modules.update({name: module})
    return [stored("a/data.pkl", out.getvalue()), stored("a/version", b"3\n")]


def repeated_crc(block, nbytes):
    crc = 0
    for piece in repeated(block, nbytes):
        crc = zlib.crc32(piece, crc)
    return crc


def write_pt(path, shapes, kind):
    block = weights(kind)
    entries = state_dict(shapes, kind)
    for i, shape in enumerate(shapes.values()):
        n = size(shape, ELEMENT[kind])
        entries.append((f"a/data/{i}", n, repeated(block, n), repeated_crc(block, n), False))
    write_zip(path, entries)


def write_deflated(path, kind="f16", shape=(4096, 8192), count=4):
    """Tensors of 64 MiB of which nothing repeats within a window, deflated."""
    data = random.Random(7).randbytes(BLOCK)
    deflated, n = torch_file.repeated_deflate(data, size(shape, ELEMENT[kind]) // BLOCK)
    shapes = {f"layers.{i}.weight": shape for i in range(count)}
    write_zip(path, state_dict(shapes, kind) + [(f"a/data/{i}", n, [deflated], 0, True) for i in range(count)])


def write_huge_pt(path):
    shapes = {"w": (HUGE // 4,), "end": (4,)}
    write_zip(path, state_dict(shapes) + [("a/data/0", HUGE, None, 0, False), stored("a/data/1", b"the right bytes!")])


def write_many_pt(path, n=10_000):
    shapes = {f"layers.{i // 10}.part{i % 10}": (4,) for i in range(n)}
    write_zip(path, state_dict(shapes) + [(f"a/data/{i}", 16, [b"\0" * 16], 0, False) for i in range(n)])


def write_many_safetensors(path, n):
    write_safetensors(path, {f"layers.{i // 10}.part{i % 10}": (1,) for i in range(n)}, "f32")


def compressible():
    """The bytes of a tensor that compresses well, and their deflate stream."""
    data = bytes(range(256)) * 4096 * DEFLATED_MIB
    c = zlib.compressobj(6, zlib.DEFLATED, -15)
    return data, c.compress(data) + c.flush()


def write_zlib_pt(path):
    data, deflated = compressible()
    write_zip(path, state_dict({"w": (len(data) // 4,)}) + [("a/data/0", len(data), [deflated], 0, True)])


def write_deflate(path):
    with open(path, "wb") as f:
        f.write(compressible()[1])


def write_shards(folder, n=1500):
    os.mkdir(folder)
    for i in range(n):
        text = json.dumps({f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        with open(f"{folder}/m-{i:05}.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + bytes([i % 256]))
    with open(f"{folder}/model.safetensors.index.json", "w") as f:
        json.dump({"weight_map": {f"t{i}": f"m-{i:05}.safetensors" for i in range(n)}}, f)


def write_orbax(folder, database, n=10_000):
    """As networks are: kernels, and small vectors beside them; in a database or a folder each."""
    values, paths = {}, {}
    for i in range(n):
        path = ("params", f"layer_{i // 10}", f"part_{i % 10}")
        shape = (16, 16) if i % 4 == 0 else (16,)
        name = ".".join(path)
        values[name + "/.zarray"] = orbax_file.zarray(shape, shape)
        values[name + "/" + ".".join("0" * len(shape))] = b"\0" * size(shape, 4)
        paths[path] = "np.ndarray"
    files = (orbax_file.store(values, inline=1000) if database else values) | {"_METADATA": orbax_file.described(paths)}
    for name, data in files.items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)


# name: (function, arguments after the path)
FILES = {f"llama_{kind}.{ending}": (write, (llama(kind), kind))
         for kind in ELEMENT for ending, write in (("pt", write_pt), ("safetensors", write_safetensors))}
FILES |= {f"short_f32.{ending}": (write, (llama("f32", True), "f32")) for ending, write in (("pt", write_pt), ("safetensors", write_safetensors))}
FROM_DISK = "llama_f16_from_disk.safetensors"
FILES |= {
    FROM_DISK: FILES["llama_f16.safetensors"],
    "deflated.pt": (write_deflated, ()),
    "huge.pt": (write_huge_pt, ()),
    "many.pt": (write_many_pt, ()),
    "many.safetensors": (write_many_safetensors, (10_000,)),
    "header.safetensors": (write_many_safetensors, (100_000,)),
    "zlib.pt": (write_zlib_pt, ()),
    "zlib.deflate": (write_deflate, ()),
    "shards": (write_shards, ()),
    "database.orbax": (write_orbax, (True,)),
    "folders.orbax": (write_orbax, (False,)),
}


def files_below(path):
    if os.path.isfile(path):
        return [path]
    return [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]


LARGE, SPARSE = 64 << 20, "huge.pt"
PIECE = 8 << 10


def settle(path):
    """Into the page cache, in a state that is the same in every run. The kernel keeps a file in pieces as large as its writes and reads were, if memory is not
    too fragmented for that, and these side by side, if it can; readers feel both by a factor of three. So what is large is written in small pieces that lie
    scattered, as on a machine that has been up for a while; FROM_DISK was read back."""
    if os.path.basename(path) == FROM_DISK:
        drop(path)
    elif os.path.isfile(path) and os.path.getsize(path) >= LARGE and os.path.basename(path) != SPARSE:
        return write_anew(path)
    for file in files_below(path) if os.path.basename(path) != SPARSE else ():
        read(file)


def read(path):
    with open(path, "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while f.read(1 << 20):
            pass


def drop(path):
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_anew(path):
    places = list(range(0, os.path.getsize(path), PIECE))
    random.Random(1).shuffle(places)
    with open(path, "rb") as f, open(path + ".part", "wb") as out:
        for at in places:
            os.pwrite(out.fileno(), os.pread(f.fileno(), PIECE, at), at)
        os.fsync(out.fileno())
    os.rename(path + ".part", path)


def make(folder, name):
    """The path of an input, made if it isn't there yet: under another name until it is whole."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        write, args = FILES[name]
        print(f"making {name}", file=sys.stderr, flush=True)
        write(path + ".part", *args)
        # Nothing of it is left to be written to the disk while others are measured.
        subprocess.run(["sync", "-f", folder], check=True)
        os.rename(path + ".part", path)
    return path


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for wanted in sys.argv[2:] or FILES:
        make(sys.argv[1], wanted)
