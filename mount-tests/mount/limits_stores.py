"""Inputs at the limits for test_limits_memory.py: Orbax' stores and descriptions, msgpack, burnpack, DCP, TAR and pt2. Each makes the source `path`."""
import io, itertools, json, os, struct, tarfile
import hostile_burnpacks as bpk, limits_files, orbax_file as o, torch_file as t

cases = []


def case(f):
    cases.append(f)
    return f


def write(path, files):
    os.mkdir(path)
    for name, data in files.items():
        os.makedirs(os.path.dirname(f"{path}/{name}"), exist_ok=True)
        with open(f"{path}/{name}", "wb") as f:
            f.write(data)


def database(path, leaves, more=None):
    """A root above leaves, each {key: value}; values are inline or at (0, offset, length)."""
    data, children, keys = b"\x07" * 64, {}, 0
    for entries in leaves:
        node = o.envelope(o.NODE, o.leaf([b"d/data"], entries), compression=None)
        children[next(iter(entries))] = (0, 0, len(data), len(node))
        data += node
        keys += len(entries)
    write(path, {**o.tree(o.inner([b"d/data"], children), keys, 1, data), **(more or {})})


def chunked(items, n):
    items = iter(items)
    while part := dict(itertools.islice(items, n)):
        yield part


@case
def ocdbt_most_keys(path, n=1_100_000, each=200_000):
    """Chunks of one array, all in one place."""
    entries = itertools.chain([(b"w/.zarray", o.zarray((10**7,), (1,), "|u1"))], ((b"w/%07d" % (i + 10**6), (0, 0, 1)) for i in range(n)))
    database(path, chunked(entries, each))


@case
def ocdbt_many_keys(path, n=400_000, each=200_000):
    ocdbt_most_keys(path, n, each)


@case
def ocdbt_longest_keys(path, n=2000, each=500):
    """Long keys that share their beginnings, so that they take little room."""
    database(path, chunked(((b"%060000d/%04d" % (0, i), b"") for i in range(n)), each))


@case
def ocdbt_long_keys(path, n=900, each=900):
    ocdbt_longest_keys(path, n, each)


@case
def ocdbt_largest_value(path, n=90_000_000):
    database(path, [{b"w/.zarray": o.zarray((n,), (n,), "|u1"), b"w/0": bytes(n)}])


@case
def ocdbt_most_inline_values(path, n=100):
    database(path, chunked(((b"%03d/0" % i, bytes(4_000_000)) for i in range(n)), 10))


@case
def ocdbt_uncompressed_node(path, n=90_000_000):
    """Of zeros, whose checksum is soon computed: all but the end of it is skipped."""
    node = o.leaf([b"d/data"], {b"w/.zarray": o.zarray((n,), (n,), "|u1"), b"w/0": bytes(n)})
    write(path, o.tree(o.envelope(o.NODE, node, compression=0, crc=b"\0\0\0\0"), 2))


@case
def ocdbt_large_nodes_above_one_another(path, height=40, n=30_000_000):
    """Each inner node has a huge last key; all of them are open at a time."""
    data, last = b"", None
    node = o.envelope(o.NODE, o.leaf([b"d/data"], {b"a": b"v"}))
    for h in range(1, height + 1):
        last, data = (len(data), len(node)), data + node
        keys = {b"a": (0, 0, *last), **{b"b%060000d" % i: (0, 0, *last) for i in range(n // 60_000)}}
        node = o.envelope(o.NODE, o.inner([b"d/data"], keys, h))
    write(path, o.tree(node, 1, height, data))


@case
def ocdbt_most_files(path, n=1_000_000):
    files = o.files([b"%07d" % i for i in range(n)])
    write(path, o.tree(o.leaf([], {b"w/.zarray": o.zarray(), b"w/0": bytes(16)}, files_as=files), 2))


@case
def ocdbt_most_data_files(path, n=150_000):
    """Each looked at."""
    values = {b"w/.zarray": o.zarray((10**6,), (1,), "|u1"), **{b"w/%06d" % (i + 10**5): (i, 0, 1) for i in range(n)}}
    write(path, o.tree(o.leaf([b"%07d" % i for i in range(n)], values), n + 1))


@case
def ocdbt_shared_nodes(path, height=3, ways=1000):
    import hostile_orbax
    write(path, hostile_orbax.shared_nodes(height, ways))


def arrays(n, alike):
    for i in range(n):
        yield b"m.layers_%06d.kernel/.zarray" % i, o.zarray((2, 2), (2, 2), attributes="" if alike else str(i))
        yield b"m.layers_%06d.kernel/0.0" % i, (0, 0, 16)


def array_names(n):
    return o.described({("m", f"layers_{i:06}", "kernel"): "jax.Array" for i in range(n)})


@case
def orbax_arrays_alike(path, n=90_000):
    database(path, chunked(arrays(n, True), 50_000), {"_METADATA": array_names(n)})


@case
def orbax_arrays_all_different(path, n=80_000):
    database(path, chunked(arrays(n, False), 50_000), {"_METADATA": array_names(n)})


@case
def orbax_most_arrays(path, n=170_000):
    database(path, chunked(arrays(n, False), 50_000), {"_METADATA": array_names(n)})


@case
def orbax_arrays_without_description(path, n=80_000):
    database(path, chunked(arrays(n, False), 50_000))


@case
def orbax_arrays_of_two_chunks(path, n=60_000):
    def entries():
        for i in range(n):
            yield b"%06d/.zarray" % i, o.zarray((4,), (2,), "|u1")
            yield b"%06d/0" % i, (0, 0, 2)
            yield b"%06d/1" % i, (0, 0, 2)
    database(path, chunked(entries(), 50_000))


@case
def orbax_folders(path, n=25_000):
    os.mkdir(path)
    for i in range(n):
        os.mkdir(f"{path}/layers_{i}.w")
        with open(f"{path}/layers_{i}.w/.zarray", "wb") as f:
            f.write(o.zarray())
        with open(f"{path}/layers_{i}.w/0", "wb") as f:
            f.write(bytes(16))


def described(path, metadata, **more):
    write(path, {**o.store({"w/.zarray": o.zarray(), "w/0": bytes(16)}), "_METADATA": metadata, **more})


@case
def metadata_of_segments(path):
    one = b'{"key_metadata":[' + b",".join([b'{"key":""}'] * 250) + b'],"value_metadata":{"skip_deserialize":true}}'
    described(path, b'{"tree_metadata":{' + b",".join(b'"%d":%s' % (i, one) for i in range(35_000)) + b"}}")


@case
def metadata_of_small_leaves(path, n=170_000):
    described(path, b'{"tree_metadata":{' + b",".join(b'"%d":{"key_metadata":[{"key":"%d"}],"value_metadata":{"skip_deserialize":true}}' % (i, i) for i in range(n)) + b"}}")


@case
def metadata_of_one_key(path):
    described(path, b'{"tree_metadata":{"x":{"key_metadata":[{"key":"' + b"k" * 95_000_000 + b'"}]}}}')


@case
def metadata_of_escapes(path):
    described(path, b'{"tree_metadata":{"' + b"\\\\" * 47_000_000 + b'":{}}}')


@case
def metadata_of_keys(path):
    described(path, b'{"x":{' + b",".join(b'"%x":0' % i for i in range(8_000_000)) + b"}}")


@case
def strings_most(path, n=4_000_000):
    described(path, o.described({("w",): "string"}), **{"_strings.json": b"{" + b",".join(b'"%x":"%x"' % (i, i) for i in range(n)) + b"}"})


@case
def strings_longest(path):
    described(path, o.described({("w",): "string"}), **{"_strings.json": b'{"w":"' + b"x" * 95_000_000 + b'"}'})


@case
def zarr_largest_metadata(path, n=60):
    text = o.zarray()[:-1] + b',"attributes":"' + b"x" * 1_000_000 + b'"}'
    database(path, [{b"%03d/.zarray" % i: text for i in range(n)}])


def msgpack(path, body):
    with open(path, "wb") as f:
        f.write(body)


def many(head, n, item):
    return b"\x81\xa1k" + head + struct.pack(">I", n) + item


@case
def msgpack_most_numbers(path, n=700_000):
    msgpack(path, many(b"\xdd", n, b"\1" * n))


@case
def msgpack_numbers(path, n=150_000):
    msgpack(path, many(b"\xdd", n, b"\1" * n))


@case
def msgpack_most_nothings(path, n=1_490_000):
    msgpack(path, many(b"\xdd", n, b"\xc0" * n))


@case
def msgpack_most_lists(path, n=1_490_000):
    msgpack(path, many(b"\xdd", n, b"\x90" * n))


@case
def msgpack_most_keys(path, n=740_000):
    msgpack(path, many(b"\xdf", n, b"".join(b"\xa6%06x\xc0" % i for i in range(n))))


@case
def msgpack_longest_texts(path, n=30):
    msgpack(path, many(b"\xdd", n, (b"\xdb" + struct.pack(">I", 15_000_000) + b"x" * 15_000_000) * n))


@case
def msgpack_most_arrays(path, n=140_000):
    one = o.array((2, 2), "float32", bytes(16))
    msgpack(path, many(b"\xdf", n, b"".join(b"\xa6%06x" % i + one for i in range(n))))


@case
def msgpack_most_dimensions(path, n=100_000):
    one = o.ext(1, b"\x93\xdc\0\x40" + b"\1" * 64 + b"\xa5uint8\xc4\1\0")
    msgpack(path, many(b"\xdd", n, one * n))


def burnpack(path, metadata, data=b""):
    with open(path, "wb") as f:
        f.write(bpk.pack(metadata, data))


@case
def burnpack_most_tensors(path, n=100_000):
    burnpack(path, {"tensors": {f"layers.{i // 10}.part{i % 10}": bpk.one(shape=(1,), offsets=(4 * i, 4 * i + 4)) for i in range(n)}}, bytes(4 * n))


@case
def burnpack_most_pairs(path, n=100_000):
    burnpack(path, {"tensors": {"w": bpk.one()}, "metadata": {f"key {i}": f"value {i}" for i in range(n)}, "scalars": {f"scalar {i}": {"Int": i} for i in range(n)}}, bytes(16))


@case
def burnpack_longest_metadata(path):
    burnpack(path, {"tensors": {"w": bpk.one()}, "metadata": {"k": "x" * 100_000_000}}, bytes(16))


@case
def burnpack_longest_keys(path, n=512):
    burnpack(path, {"tensors": {f"{i:065500}": bpk.one(shape=(1,), offsets=(4 * i, 4 * i + 4)) for i in range(n)}}, bytes(4 * n))


@case
def burnpack_most_dimensions(path, n=100_000):
    burnpack(path, {"tensors": {str(i): bpk.one(shape=(1,) * 64, offsets=(4 * i, 4 * i + 4)) for i in range(n)}}, bytes(4 * n))


@case
def burnpack_pieces_of_text(path, n=30_000_000):
    """A text of an indefinite number of pieces."""
    burnpack(path, {"tensors": {"w": bpk.one()}, "metadata": {"k": b"\x7f" + b"\x61x" * n + b"\xff"}}, bytes(16))


@case
def burnpack_of_anything(path, n=50_000_000):
    burnpack(path, {"tensors": {"w": bpk.one()}, "later": b"\x9f" + b"\x80\xf6" * n + b"\xff"}, bytes(16))


def metadata_object(names, storage):
    """The pickle of torch.distributed.checkpoint's Metadata."""
    cls = "torch.distributed.checkpoint.metadata"
    obj = lambda module, name, state: t.global_(module, name) + b")\x81" + state + b"b"
    attributes = lambda **kw: t.dict_([(t.text(k), v) for k, v in kw.items()])
    tensor = obj(cls, "TensorStorageMetadata", attributes(size=t.tuple_(t.integer(4)), chunks=t.list_(t.NONE)))
    place = lambda i: obj("torch.distributed.checkpoint.filesystem", "_StorageInfo", attributes(relative_path=t.text("__0_0.distcp"), offset=t.integer(storage * i), length=t.integer(storage)))
    index = lambda n: obj(cls, "MetadataIndex", attributes(fqn=t.text(n), offset=t.NONE, index=t.NONE))
    return t.pickle(obj(cls, "Metadata", attributes(state_dict_metadata=t.dict_([(t.text(n), tensor) for n in names]), storage_data=t.dict_([(index(n), place(i)) for i, n in enumerate(names)]))))


@case
def dcp_most_tensors(path, n=40_000):
    item = t.checkpoint(t.pickle(t.tensor("0", [4])), {"0": bytes(16)})
    write(path, {".metadata": metadata_object([f"layers.{i}.weight" for i in range(n)], len(item)), "__0_0.distcp": item * n})


@case
def dcp_tensors(path, n=8_000):
    dcp_most_tensors(path, n)


@case
def tar_most_tensors(path, n=160_000):
    number = t.integer
    storages = t.pickle(number(1)) + t.pickle(t.tuple_(t.text("0"), t.text("cpu"), t.global_("torch", "FloatStorage"))) + struct.pack("<q", 4) + bytes(16) + t.pickle(b"]")
    tensors = t.pickle(number(n)) + b"".join(t.pickle(t.tuple_(t.text(str(i + 1)), t.text("0"), t.global_("torch", "FloatTensor"))) + struct.pack("<iiqqq", 1, 0, 4, 1, 0) for i in range(n))
    members = {"sys_info": t.pickle(t.EMPTY_DICT), "pickle": t.pickle(t.dict_([(t.text(f"layers.{i}.w"), t.text(str(i + 1)) + b"Q") for i in range(n)])), "tensors": tensors, "storages": storages}
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as f:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            f.addfile(info, io.BytesIO(data))


@case
def tar_tensors(path, n=80_000):
    tar_most_tensors(path, n)


@case
def pt2_most_tensors(path, n=160_000):
    meta = {"dtype": 7, "sizes": [{"as_int": 4}], "requires_grad": True, "device": {"type": "cpu", "index": None}, "strides": [{"as_int": 1}], "storage_offset": {"as_int": 0}, "layout": 7}
    config = json.dumps({"config": {f"layers.{i}.weight": {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": meta} for i in range(n)}}).encode()
    stored = lambda name, data: (f"m/{name}", len(data), data, None)
    limits_files.write_zip(path, [stored("archive_format", b"pt2"), stored("archive_version", b"0"), stored("byteorder", b"little"), stored("data/weights/weight_0", bytes(16)),
                             stored("data/weights/model_weights_config.json", config), stored("models/model.json", b"{}")])


@case
def pt2_tensors(path, n=80_000):
    pt2_most_tensors(path, n)
