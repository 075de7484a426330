"""File handles, which is what an NFS server keeps: they outlive the kernel's memory of the files, and the daemon, as long as
the same source is mounted again; those of another source are stale."""
import ctypes, errno, os
from mounted import *

A1 = fixture("a1", "a1_full.pt")
libc = ctypes.CDLL(None, use_errno=True)


class Handle(ctypes.Structure):
    _fields_ = [("n", ctypes.c_uint), ("type", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]


def checked(result):
    if result < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return result


def handle_of(path):
    h, mount = Handle(n=128), ctypes.c_int()
    checked(libc.name_to_handle_at(-100, path.encode(), ctypes.byref(h), ctypes.byref(mount), 0))
    return h


def open_handle(directory, handle):
    at = os.open(directory, os.O_RDONLY)
    try:
        return checked(libc.open_by_handle_at(at, ctypes.byref(handle), os.O_RDONLY))
    finally:
        os.close(at)


def read_handle(directory, handle):
    with os.fdopen(open_handle(directory, handle), "rb") as f:
        return f.read()


def error_of(directory, handle):
    try:
        os.close(open_handle(directory, handle))
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


def need_handles(directory):
    """CAP_DAC_READ_SEARCH in the first user namespace."""
    if error_of(directory, handle_of(directory)) == "EPERM":
        print("skipped: open_by_handle_at is not permitted here")
        sys.exit(77)


FILES = ["fc1/weight", "fc1/bias", "fc1/weight.npy", "model.safetensors", "index.json", "model.bpk", ".source/fc1/weight"]
FOLDERS = ["fc1", ".source/fc1"]


def all_of(directory):
    handles = {f: handle_of(os.path.join(directory, f)) for f in FILES + FOLDERS}
    return handles, {f: read(directory, f) for f in FILES}


def test_handles_survive_the_daemon():
    """A new mount is a new kernel's memory: everything is found by its number alone."""
    with Mount(A1, "list=all") as m:
        need_handles(m)
        handles, data = all_of(m)
        for f in FILES:
            assert read_handle(m, handles[f]) == data[f], f
    with Mount(A1, "list=all") as m:
        for f in FILES:
            assert read_handle(m, handles[f]) == data[f], f
        for f in FOLDERS:
            fd = open_handle(m, handles[f])
            assert sorted(os.listdir(fd)) == sorted(os.listdir(os.path.join(m, f))), f
            assert os.stat("..", dir_fd=fd).st_ino == os.stat(os.path.dirname(os.path.join(m, f))).st_ino, f
            os.close(fd)
        assert read(m, "fc1/weight") == data["fc1/weight"]
        assert os.listdir(m), "the root is sound"


def test_names_agree_with_handles():
    """What a handle finds and what a name finds is one file, whichever comes first."""
    with Mount(A1) as m:
        need_handles(m)
        by_name = os.stat(os.path.join(m, "fc1", "weight"))
        fd = open_handle(m, handle_of(os.path.join(m, "fc1", "weight")))
        assert os.fstat(fd) == by_name
        os.close(fd)


def test_handles_of_another_mount_are_stale():
    """The numbers are the same, the files are not: another source, other options, the source written again."""
    with tempfile.TemporaryDirectory() as d:
        one, other = (os.path.join(d, n + ".safetensors") for n in ("one", "other"))
        for path in one, other:
            write_safetensors(path, {"fc1.weight": ("F32", [2, 3], bytes(24))})
        with Mount(one) as m:
            need_handles(m)
            old = handle_of(os.path.join(m, "fc1", "weight"))
        with Mount(one) as m:
            assert read_handle(m, old) == bytes(24)
        with Mount(other) as m:
            assert error_of(m, old) == "ESTALE", "another source"
        with Mount(one, "cast=f16") as m:
            assert error_of(m, old) == "ESTALE", "other options"
        os.utime(one, ns=(1, 1))
        with Mount(one) as m:
            assert error_of(m, old) == "ESTALE", "written again"


def test_numbers_never_given_out_are_stale():
    with Mount(A1) as m:
        need_handles(m)
        good = handle_of(os.path.join(m, "fc1", "weight"))
        number = int.from_bytes(bytes(good.bytes[:8]), sys.byteorder)
        number = number >> 32 | (number & 0xFFFFFFFF) << 32  # the upper word first
        assert number == os.stat(os.path.join(m, "fc1", "weight")).st_ino, "the kernel's handle begins with the inode number"
        for wrong in [0, *range(number + 100, number + 140), 1 << 31, (1 << 32) + number, (1 << 64) - 1]:
            h = Handle.from_buffer_copy(good)
            h.bytes[:8] = (wrong >> 32 | (wrong & 0xFFFFFFFF) << 32).to_bytes(8, sys.byteorder)
            assert error_of(m, h) == "ESTALE", wrong
        assert read_handle(m, good) == read(m, "fc1/weight")


if __name__ == "__main__":
    main(__name__)
