"""The tree of a mounted a1: names, bytes, stat, xattrs, index.json and the virtual files agree with one another and with
PyTorch's bytes (a1.safetensors was written by the safetensors package)."""
import ast, os, stat, struct
from mounted import *

SOURCE, META = safetensors(fixture("a1", "a1.safetensors"))


ORDER = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]  # of a1's modules, and so of its .pt files


def adapted():
    """What burn must see: Linear weights as [in, out]."""
    out = {}
    for k, (dtype, shape, data) in SOURCE.items():
        out[k] = (dtype, shape[::-1], transposed(data, *shape, 4)) if len(shape) == 2 else (dtype, shape, data)
    return out


def names_of(root):
    return sorted(os.path.relpath(os.path.join(d, f), root) for d, _, fs in os.walk(root) for f in fs)


def test_listing():
    with Mount(fixture("a1", "a1_full.pt")) as m:
        assert names_of(m) == sorted(["fc1/weight", "fc1/bias", "fc2/weight", "fc2/bias", "index.json", "model.safetensors", "summary.txt", "verify.json"]), names_of(m)
        assert [n for n in os.listdir(m) if n.startswith("fc")] == ["fc1", "fc2"], "readdir order is the checkpoint's"
        assert os.listdir(os.path.join(m, "fc1")) == ["weight", "bias"]


def test_bytes():
    for name in ("a1.safetensors", "a1_state.pt", "a1_state_legacy.pt", "a1_full.pt", "a1_full_legacy.pt"):
        with Mount(fixture("a1", name)) as m:
            for k, (_, _, data) in adapted().items():
                assert read(m, *k.split(".")) == data, (name, k)
            got, meta = safetensors(os.path.join(m, "model.safetensors"))
            assert {k: (v[0], list(v[1]), v[2]) for k, v in got.items()} == adapted(), name
            assert meta["format"] == "pt" and meta["mount.ckpt.layout"] == "burn", meta


def test_other_layouts():
    for layout in ("torch", "source"):
        with Mount(fixture("a1", "a1_state.pt"), f"layout={layout}") as m:
            assert safetensors(os.path.join(m, "model.safetensors"))[0] == SOURCE
            assert read(m, "fc1", "weight") == SOURCE["fc1.weight"][2]


def test_checkpoint_shows_its_whole_tree():
    with Mount(fixture("a1", "a1_ckpt.pt")) as m:
        assert read_json(m, "epoch.json") == 3
        assert read(m, "model_state_dict", "fc1", "weight") == adapted()["fc1.weight"][2]
        assert read_json(m, "index.json")["root"] == "model_state_dict"
        assert list(safetensors(os.path.join(m, "model.safetensors"))[0]) == ORDER
        assert read_json(m, "optimizer_state_dict.json") == {"lr": 0.001}


def test_stat():
    source = fixture("a1", "a1_full.pt")
    with Mount(source, "umask=022") as m:
        for path in (m, os.path.join(m, "fc1"), os.path.join(m, "fc1", "weight"), os.path.join(m, "verify.json")):
            s = os.stat(path)
            assert stat.S_IMODE(s.st_mode) == (0o555 if stat.S_ISDIR(s.st_mode) else 0o444), oct(s.st_mode)
            assert s.st_mtime_ns == os.stat(source).st_mtime_ns and s.st_uid == os.getuid() and s.st_blksize == 1 << 20
            assert s.st_blocks == (s.st_size + 511) // 512 or stat.S_ISDIR(s.st_mode)
        assert os.stat(os.path.join(m, "fc1", "weight")).st_size == 128
        v = os.statvfs(m)
        assert v.f_flag & os.ST_RDONLY and v.f_blocks * v.f_frsize >= sum(len(d) for _, _, d in SOURCE.values())
        inodes = {p: os.stat(os.path.join(m, p)).st_ino for p in names_of(m)}
        assert len(set(inodes.values())) == len(inodes)
    with Mount(source) as m:
        assert inodes == {p: os.stat(os.path.join(m, p)).st_ino for p in names_of(m)}, "inodes are stable"


def test_owner_and_umask():
    with Mount(fixture("a1", "a1_full.pt"), "uid=12,gid=34,umask=077") as m:
        s = os.stat(os.path.join(m, "fc1", "weight"))
        assert (s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode)) == (12, 34, 0o400)


def test_xattrs():
    with Mount(fixture("a1", "a1_full.pt")) as m:
        f = os.path.join(m, "fc1", "weight")
        get = lambda n, p=f: os.getxattr(p, "user.ckpt." + n).decode()
        assert get("key") == "fc1.weight" and get("dtype") == "F32" and json.loads(get("shape")) == [4, 8]
        assert json.loads(get("source_shape")) == [8, 4] and get("source_key") == "fc1.weight" and get("source_file") == "a1_full.pt"
        assert "transpose" in get("ops")
        assert set(os.listxattr(f)) >= {"user.ckpt." + n for n in ("key", "dtype", "shape", "ops")}
        assert get("tensors", m) == "4"
        for name in ("user.ckpt.nothing", "security.selinux", "system.posix_acl_access"):
            try:
                os.getxattr(f, name)
                raise AssertionError(f"{name} is there")
            except OSError as e:
                assert e.errno in (61, 95), e  # ENODATA; the kernel itself answers EOPNOTSUPP for ACLs


def test_index():
    with Mount(fixture("a1", "a1_full.pt")) as m:
        index, model = read_json(m, "index.json"), read(m, "model.safetensors")
        assert [t["key"] for t in index["tensors"]] == ORDER
        for t in index["tensors"]:
            data = read(m, t["path"])
            assert len(data) == t["nbytes"] and model[t["offset"] : t["offset"] + t["nbytes"]] == data
            assert t["source"]["shape"] == SOURCE[t["key"]][1] and t["source"]["file"] == "a1_full.pt"
            assert t["module"]["kind"] == "linear" and t["module"]["decided_by"] == "class", t["module"]
        assert ["transpose"] == index["tensors"][0]["ops"], index["tensors"][0]["ops"]
        p = run("--inspect", "--json", fixture("a1", "a1_full.pt"))
        assert p.returncode == 0 and json.loads(p.stdout) == index


def test_npy():
    with Mount(fixture("a1", "a1_full.pt")) as m:
        data = read(m, "fc1", "weight.npy")
        assert data[:8] == b"\x93NUMPY\x01\x00"
        (n,) = struct.unpack("<H", data[8:10])
        header = ast.literal_eval(data[10 : 10 + n].decode())
        assert header == {"descr": "<f4", "fortran_order": False, "shape": (4, 8)} and (10 + n) % 64 == 0
        assert data[10 + n :] == read(m, "fc1", "weight")
        assert "weight.npy" not in os.listdir(os.path.join(m, "fc1")), "there when named, not listed"
    with Mount(fixture("a1", "a1_full.pt"), "list=all") as m:
        assert "weight.npy" in os.listdir(os.path.join(m, "fc1")) and ".source" in os.listdir(m)


def test_source_tree():
    with Mount(fixture("a1", "a1_full.pt")) as m:
        assert ".source" not in os.listdir(m)
        for k, (_, _, data) in SOURCE.items():
            assert read(m, ".source", *k.split(".")) == data
        assert read(m, ".source", "fc1", "bias") == read(m, "fc1", "bias")


def test_mounting_our_own_output_changes_nothing():
    with Mount(fixture("a1", "a1_full.pt")) as m, tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "model.safetensors")
        with open(out, "wb") as f:
            f.write(read(m, "model.safetensors"))
        with Mount(out) as again:
            assert safetensors(os.path.join(again, "model.safetensors")) == safetensors(out)


def test_verify_and_summary():
    with Mount(fixture("a1", "a1_full.pt")) as m:
        size = os.stat(os.path.join(m, "verify.json")).st_size
        text = read(m, "verify.json")
        assert len(text) == size and json.loads(text)["status"] == "PASS"
        assert "fc1.weight" in read(m, "summary.txt").decode()


if __name__ == "__main__":
    main(__name__)
