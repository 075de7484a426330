"""Files that stand at limits, as the tests of memory need them: huge archives without checksums, many shards, stores."""
import json, os, struct

import orbax_file, zip64_file

REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def long(i):
    n = i.bit_length() // 8 + 1
    return b"\x8a" + bytes([n]) + i.to_bytes(n, "little", signed=True)


def tensor(key, count):
    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + long(count) + b"tQ"
    return REBUILD + b"(" + storage + b"K\0" + long(count) + b"\x85K\1\x85\x89ccollections\nOrderedDict\n)RtR"


def state_dict(counts):
    return b"\x80\2}(" + b"".join(text(k) + tensor(str(i), n) for i, (k, n) in enumerate(counts.items())) + b"u."


def write_zip(path, entries):
    """(name, size, bytes or None for a hole, stored bytes if deflated); checksums not computed."""
    def pieces(data, deflated):
        return None if data is None and deflated is None else [data if deflated is None else deflated]
    zip64_file.write_zip(path, [(name, size, pieces(data, deflated), 0, deflated is not None) for name, size, data, deflated in entries])


def make_shards(folder, n=1500):
    os.mkdir(folder)
    for i in range(n):
        t = json.dumps({f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        with open(f"{folder}/m-{i:05}.safetensors", "wb") as f:
            f.write(struct.pack("<Q", len(t)) + t + bytes([i % 256]))
    with open(f"{folder}/model.safetensors.index.json", "w") as f:
        json.dump({"weight_map": {f"t{i}": f"m-{i:05}.safetensors" for i in range(n)}}, f)


def write_files(folder, files):
    """{name below the folder: bytes}"""
    for name, data in files.items():
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)


def orbax_files(arrays, database=True):
    """A checkpoint of Orbax: {path, a tuple of names: (shape, bytes of float32, or None for no chunk: the fill value)}."""
    values = {}
    for path, (shape, data) in arrays.items():
        name = ".".join(path)
        values[name + "/.zarray"] = orbax_file.zarray(shape, shape)
        if data is not None:
            values[name + "/" + ".".join("0" * len(shape))] = data
    return (orbax_file.store(values, inline=1000) if database else values) | {"_METADATA": orbax_file.described({p: "np.ndarray" for p in arrays})}
