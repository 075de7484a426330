"""What df, du, ls, find and stat make of a mount: the adapted tensors' bytes, nothing free, sizes and blocks that agree."""
import shutil
from mounted import *

ROWS, COLUMNS = 300, 1000  # 2,400,000 bytes as F64, which a cast halves


def out(*command):
    p = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, env={**os.environ, "LC_ALL": "C"})
    assert p.returncode == 0, (command, p.stderr)
    return p.stdout


class Served:
    """A mount of three tensors."""

    def __init__(self, *opts):
        self.opts = opts

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "m.safetensors")
        write_safetensors(path, {f"fc{i}.weight": ("F64", [ROWS, COLUMNS], bytes(8 * ROWS * COLUMNS)) for i in range(3)})
        self.mount = Mount(path, *self.opts)
        return self.mount.__enter__()

    def __exit__(self, *_):
        self.mount.__exit__()
        self.folder.cleanup()


def blocks(nbytes, size=4096):
    return -(-nbytes // size)


def files(m):
    return [os.path.join(w, n) for w, _, names in os.walk(m) for n in names]


def check_statfs(m, nbytes):
    st = os.statvfs(m)
    assert (st.f_bsize, st.f_frsize, st.f_blocks) == (4096, 4096, blocks(nbytes)), st
    assert st.f_bfree == st.f_bavail == st.f_ffree == 0 and st.f_namemax == 255 and st.f_flag & os.ST_RDONLY, st
    assert st.f_files >= len(out("find", m, "-not", "-path", "*/.source*", "-not", "-name", "*.npy").splitlines()), "df -i knows fewer files than find"
    usage = shutil.disk_usage(m)
    assert usage.total == usage.used == 4096 * blocks(nbytes) and usage.free == 0, usage
    assert os.statvfs(os.path.join(m, "fc0", "weight")) == st, "of a file it is the same"


def check_df(m, nbytes):
    size = 4096 * blocks(nbytes)
    fields = out("df", "-B1", "--output=fstype,size,used,avail,pcent,target", m).splitlines()[1].split()
    assert fields == ["fuse.ckpt", str(size), str(size), "0", "100%", m], fields
    assert m in out("df", "-t", "fuse.ckpt", m), "df leaves it out"
    assert out("df", "-i", m).splitlines()[1].split()[3:5] == ["0", "100%"]
    assert out("df", "-h", m).splitlines()[1].split()[4] == "100%"
    assert out("stat", "-f", "-c", "%b %f %a %S", m).split() == [str(blocks(nbytes)), "0", "0", "4096"]


def test_df_shows_the_adapted_size():
    nbytes = 3 * ROWS * COLUMNS * 8
    for opts, expected in (((), nbytes), (("cast=f32",), nbytes // 2), (("layout=torch",), nbytes), (("include=fc0",), nbytes // 3), (("list=all",), nbytes)):
        with Served(*opts) as m:
            check_statfs(m, expected)
            check_df(m, expected)


def test_sizes_and_blocks_agree():
    with Served("cast=f32") as m:
        for path in files(m):
            st = os.stat(path)
            assert st.st_blocks == blocks(st.st_size, 512) and st.st_blksize == 1 << 20, (path, st)
            assert len(read(path)) == st.st_size, path
        weight = os.path.join(m, "fc0", "weight")
        assert out("ls", "-s", "--block-size=512", weight).split()[0] == str(blocks(ROWS * COLUMNS * 4, 512))
        assert sorted(out("find", m, "-size", f"{ROWS * COLUMNS * 4}c").splitlines()) == [os.path.join(m, f"fc{i}", "weight") for i in range(3)]
        assert out("find", m, "-name", "weight", "-size", "+1100k", "-size", "-1200k").count("\n") == 3
        assert out("stat", "-c", "%s %b %B", weight).split() == [str(ROWS * COLUMNS * 4), str(blocks(ROWS * COLUMNS * 4, 512)), "512"]


def test_du_adds_up_what_is_listed():
    with Served() as m:
        listed = [os.stat(p) for p in files(m)]
        hidden = os.stat(os.path.join(m, "fc0", "weight.npy")).st_size + os.stat(os.path.join(m, "model.bpk")).st_size
        assert hidden > ROWS * COLUMNS * 8
        assert int(out("du", "-sb", m).split()[0]) == sum(s.st_size for s in listed)
        assert int(out("du", "-s", "--block-size=512", m).split()[0]) == sum(s.st_blocks for s in listed)
        assert int(out("du", "-sb", os.path.join(m, "fc0")).split()[0]) == ROWS * COLUMNS * 8
        assert out("du", "-xsb", m) == out("du", "-sb", m)
    with Served("list=all") as m:
        assert int(out("du", "-sb", m).split()[0]) >= sum(s.st_size for s in listed) + hidden, "with list=all they are counted"


def test_nothing_to_show():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "empty.safetensors")
        write_safetensors(path, {})
        with Mount(path) as m:
            assert os.statvfs(m).f_blocks == 0 and out("df", m) and out("du", "-s", m)


def test_a_copy_of_the_tensors_fits_where_df_says():
    """The tensors alone weigh what df shows; model.safetensors holds them once more."""
    with Served() as m:
        tensors = sum(os.stat(p).st_size for p in files(m) if os.path.basename(p) == "weight")
        assert blocks(tensors) == os.statvfs(m).f_blocks
        assert os.stat(os.path.join(m, "model.safetensors")).st_size > tensors


if __name__ == "__main__":
    main(__name__)
