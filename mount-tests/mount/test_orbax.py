"""Orbax checkpoints: every array of every fixture against the SHA-256 that its own library computed (NAME.expected.json)."""
import concurrent.futures, glob, hashlib, json, re, shutil
import orbax_file as o
from hostile_case import write_tree
from mounted import *

DTYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16",
          "int8": "I8", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64", "bool": "BOOL", "complex64": "C64",
          "complex128": "C128", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
          "float8_e5m2fnuz": "F8_E5M2FNUZ", "int4": "I4", "float8_e4m3b11fnuz": "F8_E4M3B11FNUZ"}


def expected(name):
    with open(fixture("orbax", name + ".expected.json"), encoding="utf-8") as f:
        return json.load(f)


def newest(want):
    """The leaves that a mount shows, by their path: of the newest step; with the item's name if there are several."""
    items = {k: v for k, v in want.items() if isinstance(v, dict)}
    step = lambda item: int((re.findall(r"\d+", os.path.dirname(item)) or [0])[-1])
    kept = [k for k in items if step(k) == max(map(step, items))]
    return {(f"{os.path.basename(i)}/{k}" if len(kept) > 1 else k): v for i in kept for k, v in items[i].items()}


def arrays(leaves):
    return {k: (DTYPES[v["dtype"]], v["shape"], v["sha256"]) for k, v in leaves.items() if v["kind"] == "array"}


def served(mount, readable_only=False):
    got = {}
    for t in read_json(mount, "index.json")["tensors"]:
        try:
            data = read(mount, *t["path"].split("/"))
        except OSError:
            assert readable_only, t["path"]
            continue
        got["/".join(t["source"]["path"])] = (t["dtype"], t["shape"], hashlib.sha256(data).hexdigest())
    return got


def names(damaged):
    all_names = sorted(os.path.basename(p)[: -len(".expected.json")] for p in glob.glob(fixture("orbax", "*.expected.json")))
    return [n for n in all_names if ("error" in expected(n)) == damaged]


def test_sound_ones():
    for name in names(False):
        want = arrays(newest(expected(name)))
        with Mount(fixture("orbax", name), "layout=source") as m:
            got = served(m)
            assert got == want, (name, {k for k in got.keys() | want.keys() if got.get(k) != want.get(k)})


def test_damaged_ones_are_refused():
    for name, part in {"x_truncated_data": "10 of its 3827 bytes are missing", "x_missing_process_dir": "is absent",
                       "x_manifest_crc": "checksum", "x_root_node_crc": "checksum", "x_unmerged": "never finished"}.items():
        p = run("--inspect", fixture("orbax", name))
        assert p.returncode and part in p.stderr and p.stderr.count("\n") == 1, (name, p.stderr)


def test_what_is_sound_of_damaged_ones():
    for name in names(True):
        want = arrays(newest(expected(name)))
        if not want:
            continue
        with Mount(fixture("orbax", name), "layout=source", "keep_going") as m:
            assert served(m, readable_only=True) == want, name


def test_byte_check():
    for name in ("e_multichunk_zarr2", "e_edge_zarr2", "e_edge_zarr3", "f_flax_msgpack", "f_old_aggregate"):
        p = run("--verify", "-o", "layout=source", fixture("orbax", name))
        assert json.loads(p.stdout)["bytes"]["status"] == "PASS", (name, p.stdout[:500])


def test_readers_at_once():
    """Eight readers of arrays in chunks, with room for hardly any chunk: each sees the same bytes."""
    want = arrays(expected("e_multichunk_zarr3")["."])
    with Mount(fixture("orbax", "e_multichunk_zarr3"), "layout=source", "cache=4K") as m:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(got == want for got in pool.map(served, [m] * 24))


def test_levels():
    for below in ("20", "20/state"):
        with Mount(fixture("orbax", "e_adam_manager", below), "layout=source") as m:
            assert served(m) == arrays(expected("e_adam_manager")["20/state"])
    with Mount(fixture("orbax", "e_adam_manager"), "layout=source") as m:
        assert "step 20 is shown, the newest of 3" in read(m, "summary.txt").decode()
        assert isinstance(read_json(m, "meta", "metadata"), dict), "an item of JSON shows as it is"
        assert "state" not in os.listdir(m) and "commit_success.txt" not in os.listdir(m)


def test_unfinished():
    p = run("--inspect", fixture("orbax", "x_tmp", "20.orbax-checkpoint-tmp"))
    assert p.returncode and "temporary" in p.stderr, p.stderr
    with tempfile.TemporaryDirectory() as d:
        run_dir = os.path.join(d, "run")
        shutil.copytree(fixture("orbax", "e_adam_manager"), run_dir)
        path = os.path.join(run_dir, "20", "_CHECKPOINT_METADATA")
        with open(path, encoding="utf-8") as f:
            meta = json.load(f)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(meta | {"commit_timestamp_nsecs": None}, f)
        p = run("--inspect", os.path.join(run_dir, "20"))
        assert p.returncode and "no time of a commit" in p.stderr, p.stderr
        p = run("--inspect", run_dir)
        assert "step 10 is shown" in p.stdout and "never committed: 20" in p.stdout, p.stdout


def test_an_empty_chunk_is_refused():
    for array, chunk in (("edge.zstd", "1.0"), ("edge.none", "2.0")):
        with tempfile.TemporaryDirectory() as d:
            source = shutil.copytree(fixture("orbax", "e_edge_zarr2_dirs"), os.path.join(d, "c"))
            os.truncate(os.path.join(source, array, chunk), 0)
            p = run("--inspect", source)
            assert p.returncode == 32 and all(w in p.stderr for w in (array, chunk, "empty")), p.stderr


def test_pointing_at_the_wrong_place():
    """The folder of a run whose steps were never finished, and files inside a database."""
    with tempfile.TemporaryDirectory() as d:
        shutil.copytree(fixture("orbax", "x_tmp", "20.orbax-checkpoint-tmp"), os.path.join(d, "20.orbax-checkpoint-tmp"))
        p = run("--inspect", d)
        assert p.returncode == 32 and "never finished" in p.stderr and "20.orbax-checkpoint-tmp" in p.stderr, p.stderr
    database = fixture("orbax", "a_ocdbt_zarr2")
    folders = [where for where, _, files in os.walk(database) if "manifest.ocdbt" in files]
    p = run("--inspect", os.path.join(folders[0], "manifest.ocdbt"))
    assert p.returncode == 32 and "name the folder that it lies in" in p.stderr, p.stderr
    for name in os.listdir(os.path.join(folders[0], "d")):
        p = run("--inspect", os.path.join(folders[0], "d", name))
        assert p.returncode == 32 and "not a checkpoint" in p.stderr, p.stderr


def test_values():
    want = {k: v["value"] for k, v in expected("a_ocdbt_zarr2")["."].items() if v["kind"] == "string"}
    with Mount(fixture("orbax", "a_ocdbt_zarr2"), "layout=source") as m:
        assert want == {"name": read_json(m, "name.json")} and read_json(m, "none.json") is None
        assert read_json(m, "empty_dict.json") == {} and read_json(m, "empty_list.json") == []


def test_strings_whose_names_are_pointers():
    """Orbax has tensorstore write texts at JSON pointers: a name with a slash is in an object of its own."""
    texts = {"a/b": "1", "a/c/d": "2", "plain": "3", "/lead": "4", "trail/": "5", "a//b": "6", "x~1y": "7", "x~0y": "8"}
    stored = {"p.a": {"b": "1", "c": {"d": "2"}, "": {"b": "6"}}, "p.plain": "3", "p.": {"lead": "4"}, "p.trail": {"": "5"}, "p.x/y": "7", "p.x~y": "8"}
    files = o.store({"w/.zarray": o.zarray(), "w/0": bytes(16)})
    files |= {"_METADATA": o.described({("w",): "jax.Array"} | {("p", k): "string" for k in texts}), "_strings.json": json.dumps(stored).encode()}
    with tempfile.TemporaryDirectory() as d:
        d = write_tree(os.path.join(d, "c"), files)
        with Mount(d, "layout=source") as m:
            values = {v["source_path"][-1]: v["path"] for v in read_json(m, "index.json")["values"]}
            assert texts == {k: read_json(m, values[k]) for k in texts}, values


def test_openpi_folder():
    with Mount(fixture("orbax", "pi0"), "layout=source") as m:
        assert read_json(m, "assets", "tiny", "norm_stats.json")
        assert os.path.isdir(os.path.join(m, "params")), "the tree's own key, not the item"


def test_changed_chunks_are_errors():
    """Files that change below the mount: EIO, never other numbers."""
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "c")
        shutil.copytree(fixture("orbax", "c_dirs_zarr2"), source)
        with Mount(source, "layout=source") as m:
            with open(os.path.join(source, "params.big", "0.0"), "r+b") as f:
                f.truncate(100)
            try:
                read(m, "params", "big")
                raise AssertionError("a changed chunk could be read")
            except OSError as e:
                assert e.errno in (5, 116), e


def test_paths_that_leave_are_refused():
    """A manifest whose data file is ../x; its checksum is right."""
    path = b"../x"
    body = bytes(16) + b"\0\1\1\4\0" + b"\1" + bytes([len(path), 0]) + path + b"\1\1\0\0\0\1\1\1\0" + bytes(8) + b"\0"
    head = bytes.fromhex("0cdb3a2a")
    whole = head + struct.pack("<Q", 12 + 2 + len(body) + 4) + b"\0\0" + body
    crc = 0xFFFFFFFF
    for x in whole:
        crc ^= x
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "manifest.ocdbt"), "wb") as f:
            f.write(whole + struct.pack("<I", crc ^ 0xFFFFFFFF))
        p = run("--inspect", d)
        assert p.returncode and '"../x"' in p.stderr, p.stderr


if __name__ == "__main__":
    main(__name__)
