"""What was agreed with the kernel holds: what it need not ask twice, how large its requests are, that it maps what it does not
cache. Requests are counted, so each of these fails if the setting is lost."""
import errno, os, subprocess
from mounted import *
from kernel_requests import *

FILES = 10000  # more than one reply of readdirplus holds


def many(d):
    path = os.path.join(d, "many.safetensors")
    write_safetensors(path, {f"layer.{i}": ("F32", [2], bytes([i % 256] * 8)) for i in range(FILES)})
    return path


def look(directory):
    for folder, _, files in os.walk(directory):
        for name in files:
            os.stat(os.path.join(folder, name))
    assert not os.path.exists(os.path.join(directory, "no-such-name"))


# --- metadata

def test_folders_are_read_with_what_is_in_them():
    """readdirplus: names and attributes come together, in few requests, none for each file; however large a folder."""
    def list_then_look(folder):
        for name in os.listdir(folder):
            os.stat(os.path.join(folder, name))
    with tempfile.TemporaryDirectory() as d, Mount(many(d)) as m:
        n = count(m, list_then_look, os.path.join(m, "layer"))
        assert n < 20, n


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
        assert count(m, fetch, path, least=2) == 2, "OPEN and RELEASE"
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
        assert count(m, seek, os.path.join(m, "t0"), least=2) == 2, "OPEN and RELEASE"


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


if __name__ == "__main__":
    main(__name__)
