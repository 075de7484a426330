"""What was agreed with the kernel holds: what it need not ask twice, how large its requests are, which files it reads past us.
Requests are counted, so each of these fails if the setting is lost."""
import errno, mmap, os, shutil, subprocess
from mounted import *
from requests import Requests

MIB = 1 << 20
FILES = 300


def large(d, tensors=2, nbytes=8 * MIB):
    """A source whose model.safetensors has other bytes than itself: our header is longer."""
    path = os.path.join(d, "large.safetensors")
    write_safetensors(path, {f"t{i}": ("U8", [nbytes], os.urandom(nbytes)) for i in range(tensors)})
    return path


def many(d):
    path = os.path.join(d, "many.safetensors")
    write_safetensors(path, {f"layer.{i}": ("F32", [2], bytes([i % 256] * 8)) for i in range(FILES)})
    return path


def own_export(d):
    """Mounted again, it changes nothing."""
    path = os.path.join(d, "own.safetensors")
    assert run("--export", path, large(d)).returncode == 0
    return path


def count(directory, call, *args):
    with Requests(directory) as r:
        call(*args)
    return r.n


def look(directory):
    for folder, _, files in os.walk(directory):
        for name in files:
            os.stat(os.path.join(folder, name))
    assert not os.path.exists(os.path.join(directory, "no-such-name"))


def mapped(path):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as view:
        return bytes(view)


def fetch(path):
    """Reads it all, without asking whether it is a terminal as open() does, which is a request each time."""
    fd = os.open(path, os.O_RDONLY)
    try:
        while os.read(fd, MIB // 4):
            pass
    finally:
        os.close(fd)


# --- metadata

def test_folders_are_read_with_what_is_in_them():
    """readdirplus: names and attributes come together, in few requests, none for each file."""
    with tempfile.TemporaryDirectory() as d, Mount(many(d)) as m:
        n = count(m, look, m)
        assert n < FILES / 4, n


def test_a_second_look_asks_nothing():
    """Folders, names, attributes and what is not there: all is kept."""
    with tempfile.TemporaryDirectory() as d, Mount(many(d)) as m:
        assert count(m, look, m) > 0
        assert count(m, look, m) == 0


# --- the page cache

def test_a_second_read_comes_from_the_page_cache():
    with tempfile.TemporaryDirectory() as d, Mount(large(d)) as m:
        path = os.path.join(m, "model.safetensors")
        first = read(path)
        assert count(m, fetch, path) == 2, "OPEN and RELEASE"
        assert mapped(path) == first
    with tempfile.TemporaryDirectory() as d, Mount(large(d), "direct_io") as m:
        path = os.path.join(m, "model.safetensors")
        assert count(m, fetch, path) > 2 and count(m, fetch, path) > 2, "past the page cache each read is a request"


def test_no_request_for_closing_or_seeking():
    def seek(path):
        fd = os.open(path, os.O_RDONLY)
        os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 0, os.SEEK_HOLE)
        os.close(os.dup(fd)), os.close(fd)
    with tempfile.TemporaryDirectory() as d, Mount(large(d)) as m:
        seek(os.path.join(m, "t0"))
        assert count(m, seek, os.path.join(m, "t0")) == 2, "OPEN and RELEASE"


# --- the size of requests

def test_programs_are_told_to_read_a_mebibyte_at_once():
    """cp and cat believe st_blksize; past the page cache each of their reads is one request."""
    with tempfile.TemporaryDirectory() as d, Mount(large(d), "direct_io") as m:
        path = os.path.join(m, "model.safetensors")
        assert os.stat(path).st_blksize == MIB
        size = os.path.getsize(path)
        n = count(m, lambda: subprocess.run(["cp", path, d + "/copy"], check=True))
        assert n <= size // MIB + 10, n


def test_root_raises_read_ahead():
    if os.geteuid() != 0:
        return print("skipped: only root may")
    with tempfile.TemporaryDirectory() as d, Mount(large(d)) as m:
        device = os.stat(m).st_dev
        bdi = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
        if not os.path.exists(bdi):
            return print("skipped: sysfs does not show it here")
        assert int(read(bdi)) == 1024
        path = os.path.join(m, "model.safetensors")
        n = count(m, lambda: subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True))
        assert n < os.path.getsize(path) / (MIB / 2), f"{n} requests: of a MiB, but for the first few"


# --- threads

def devices(directory):
    folder = f"/proc/{daemon_of(directory)}/fd"
    return sum(os.path.realpath(os.path.join(folder, fd)) == os.path.realpath("/dev/fuse") for fd in os.listdir(folder))


def test_each_thread_has_a_device_of_its_own():
    with tempfile.TemporaryDirectory() as d:
        with Mount(many(d), "threads=4") as m:
            read(m, "index.json")
            assert devices(m) >= 2, "the mount's own, and a clone for each thread there is"
        with Mount(many(d), "nomt") as m:
            assert devices(m) == 1


# --- -o direct_io

def maps_directly(mount):
    """Whether the kernel allows it. The mount says if not."""
    if "direct_io" in mount.said:
        assert mount.said.count("\n") == 1 and "6.6" in mount.said, mount.said
        return False
    assert mount.said == "", mount.said
    return True


def test_direct_io_and_shared_maps():
    with tempfile.TemporaryDirectory() as d:
        mount = Mount(large(d), "direct_io")
        with mount as m:
            path = os.path.join(m, "model.safetensors")
            data = read(path)
            if maps_directly(mount):
                assert mapped(path) == data
                assert mapped(os.path.join(m, "t1")) == data[-8 * MIB :]
                return
            try:
                mapped(path)
            except OSError as e:
                assert e.errno == errno.ENODEV
            else:
                raise AssertionError("it was mapped, though the mount said that it could not be")


def test_verify_json_is_mapped_before_it_is_computed():
    with tempfile.TemporaryDirectory() as d:
        probe = Mount(many(d), "direct_io")
        with probe:
            if not maps_directly(probe):
                return print("skipped: this kernel cannot map files opened direct_io")
        with Mount(fixture("a1", "a1_full.pt")) as m:
            text = mapped(os.path.join(m, "verify.json"))
            assert json.loads(text)["status"] and text == read(m, "verify.json")


# --- -o passthrough

class Passed(Mount):
    """A mount with passthrough. Where that cannot be, the test ends."""

    def __init__(self, source, *opts):
        super().__init__(source, "passthrough", *opts)

    def __enter__(self):
        m = super().__enter__()
        if self.said:
            super().__exit__()
            assert self.said.count("\n") == 1 and "passthrough" in self.said, self.said
            print(f"skipped: {self.said.strip()}")
            sys.exit(77)
        return m


def is_passed(directory, path):
    """Nothing but OPEN and RELEASE reaches the daemon, though nobody has read it before."""
    os.stat(path)
    return count(directory, fetch, path) == 2


def test_passthrough_of_our_own_export():
    with tempfile.TemporaryDirectory() as d:
        source = own_export(d)
        with Passed(source) as m:
            path = os.path.join(m, "model.safetensors")
            assert is_passed(m, path)
            assert read(path) == read(source) == mapped(path)
            tensor = os.path.join(m, "t1")
            assert not is_passed(m, tensor), "it begins in the middle of the source"
            assert read(tensor) == mapped(tensor) == read(source)[-8 * MIB :]


def test_passthrough_of_what_is_not_the_source():
    """Our header is not the source's, and one that lies elsewhere or differs in a byte is another file."""
    with tempfile.TemporaryDirectory() as d:
        source = own_export(d)
        data = read(source)
        padded = os.path.join(d, "padded.safetensors")
        header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
        text = json.dumps(header, separators=(",", ":")).encode()
        same_length = text[:1] + text[1:].replace(b'"format":"pt"', b'"format":"np"') + b" " * (len(data) - 16 * MIB - 8 - len(text))
        with open(padded, "wb") as f:
            f.write(struct.pack("<Q", len(same_length)) + same_length + data[-16 * MIB :])
        assert os.path.getsize(padded) == len(data)
        for other in large(d), padded:
            with Passed(other) as m:
                path = os.path.join(m, "model.safetensors")
                want, _ = safetensors(other)
                assert safetensors(path)[0] == want
                assert os.path.getsize(path) != os.path.getsize(other) or read(path) != read(other), "it is no test then"
                assert not is_passed(m, os.path.join(m, "t0"))


def directory(d):
    """A directory with shards and plain files."""
    folder = os.path.join(d, "model")
    os.mkdir(folder)
    write_safetensors(os.path.join(folder, "model-00001-of-00001.safetensors"), {"a": ("U8", [4], b"abcd")})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"weight_map": {"a": "model-00001-of-00001.safetensors"}}, f)
    for name, nbytes in (("tokenizer.json", 3 * MIB), ("empty.txt", 0)):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(os.urandom(nbytes))
    return folder


def test_passthrough_of_plain_files():
    with tempfile.TemporaryDirectory() as d:
        folder = directory(d)
        with Passed(folder) as m:
            path = os.path.join(m, "tokenizer.json")
            assert is_passed(m, path)
            assert is_passed(m, path), "opened again after the last has closed"
            want = read(folder, "tokenizer.json")
            with open(path, "rb") as one, open(path, "rb") as two:
                assert one.read(MIB) == two.read(MIB) == want[:MIB]
                one.close()
                assert two.read() == want[MIB:] and read(path) == want == mapped(path)
            assert read(m, "empty.txt") == b""


def test_passthrough_and_direct_io():
    """Each file goes the shortest way that it can."""
    with tempfile.TemporaryDirectory() as d:
        folder = directory(d)
        with Passed(folder, "direct_io") as m:
            assert is_passed(m, os.path.join(m, "tokenizer.json"))
            assert read(m, "a") == b"abcd"


def test_passthrough_of_a_source_that_changes():
    """Who opens it afterwards gets ESTALE, as always. Who has it open sees the source as it is now: shorter."""
    with tempfile.TemporaryDirectory() as d:
        source = own_export(d)
        with Passed(source) as m:
            path = os.path.join(m, "model.safetensors")
            with open(path, "rb") as f:
                first = f.read(MIB)
                os.truncate(source, 2 * MIB)
                f.seek(0)
                assert len(f.read()) == 2 * MIB and read(source)[:MIB] == first
            try:
                open(path, "rb").close()
            except OSError as e:
                assert e.errno == errno.ESTALE
            else:
                raise AssertionError("a changed source was opened")


if __name__ == "__main__":
    main(__name__)
