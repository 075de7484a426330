"""Nothing can be changed: each call that would write fails with EROFS, for root and for others, on files, folders, hidden files
and names that aren't there, with `rw` given as well."""
import ctypes, errno, fcntl, mmap, socket, stat, traceback
from mounted import *

A1 = fixture("a1", "a1_full.pt")
NOBODY = 65534
libc = ctypes.CDLL(None, use_errno=True)


def exchange(a, b):
    if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), 2):
        raise OSError(ctypes.get_errno(), "renameat2")


def on_fd(call):
    """The call on a descriptor of the file that may be read."""
    def opened(path):
        fd = os.open(path, os.O_RDONLY)
        try:
            return call(fd)
        finally:
            os.close(fd)
    return opened


def bind(path):
    with socket.socket(socket.AF_UNIX) as s:
        folder, name = os.path.split(path)
        os.chdir(folder)  # an address holds 107 bytes
        try:
            s.bind(name)
        finally:
            os.chdir("/")


def opens(flags):
    return lambda path: os.close(os.open(path, flags, 0o644))


ON_FILES = {
    "open O_WRONLY": opens(os.O_WRONLY),
    "open O_RDWR": opens(os.O_RDWR),
    "open O_TRUNC": opens(os.O_RDONLY | os.O_TRUNC),
    "open O_APPEND": opens(os.O_WRONLY | os.O_APPEND),
    "open O_CREAT for writing": opens(os.O_RDWR | os.O_CREAT),
    "open O_DIRECT for writing": opens(os.O_RDWR | os.O_DIRECT),
    "truncate": lambda p: os.truncate(p, 0),
    "truncate to its size": lambda p: os.truncate(p, os.stat(p).st_size),
    "unlink": os.unlink,
    "rename": lambda p: os.rename(p, p + "x"),
    "exchange": lambda p: exchange(p, os.path.join(os.path.dirname(p), "index.json")),
    "link": lambda p: os.link(p, p + "x"),
}
ON_BOTH = {
    "chmod": lambda p: os.chmod(p, 0o777),
    "chmod to its mode": lambda p: os.chmod(p, stat.S_IMODE(os.stat(p).st_mode)),
    "chown": lambda p: os.chown(p, os.getuid(), os.getgid()),
    "lchown": lambda p: os.lchown(p, os.getuid(), os.getgid()),
    "utimes": lambda p: os.utime(p, (0, 0)),
    "utimes to now": os.utime,
    "setxattr": lambda p: os.setxattr(p, "user.ckpt.key", b"x"),
    "setxattr of a new name": lambda p: os.setxattr(p, "user.x", b"x"),
    "removexattr": lambda p: os.removexattr(p, "user.ckpt.key"),
    "fchmod": on_fd(lambda fd: os.fchmod(fd, 0o777)),
    "fchown": on_fd(lambda fd: os.fchown(fd, -1, -1)),
    "futimes": on_fd(lambda fd: os.utime(fd, (0, 0))),
    "fsetxattr": on_fd(lambda fd: os.setxattr(fd, "user.x", b"x")),
}
IN_FOLDERS = {
    "create": lambda d: opens(os.O_WRONLY | os.O_CREAT)(os.path.join(d, "new")),
    "create with O_EXCL": lambda d: opens(os.O_WRONLY | os.O_CREAT | os.O_EXCL)(os.path.join(d, "new")),
    "create to read": lambda d: opens(os.O_RDONLY | os.O_CREAT)(os.path.join(d, "new")),
    "O_TMPFILE": opens(os.O_RDWR | os.O_TMPFILE),
    "mkdir": lambda d: os.mkdir(os.path.join(d, "new")),
    "symlink": lambda d: os.symlink("x", os.path.join(d, "new")),
    "mkfifo": lambda d: os.mkfifo(os.path.join(d, "new")),
    "mknod of a file": lambda d: os.mknod(os.path.join(d, "new"), 0o644 | stat.S_IFREG),
    "bind of a socket": lambda d: bind(os.path.join(d, "new")),
}
ON_FOLDERS = {
    "rmdir": os.rmdir,
    "rename": lambda d: os.rename(d, d + "x"),
}
# What the kernel refuses before it looks at the mount: it wants a writable descriptor, and none is to be had.
OTHERWISE = {
    "fallocate": (on_fd(lambda fd: os.posix_fallocate(fd, 0, 4096)), "EBADF"),
    "write": (on_fd(lambda fd: os.write(fd, b"x")), "EBADF"),
    "ftruncate": (on_fd(lambda fd: os.ftruncate(fd, 0)), "EINVAL"),
    "copy_file_range": (on_fd(lambda fd: os.copy_file_range(fd, fd, 1, 0, 2)), "EBADF"),
    "shared mapping to write": (on_fd(lambda fd: mmap.mmap(fd, 1, mmap.MAP_SHARED, mmap.PROT_WRITE)), "EACCES"),
    "chattr": (on_fd(lambda fd: fcntl.ioctl(fd, 0x40086602, bytes(8))), "EROFS ENOTTY EPERM"),
}


def error_of(call, path):
    try:
        call(path)
    except OSError as e:
        return errno.errorcode[e.errno]
    return "no error"


def cases(m, files, folders):
    """(name, call, path, errors that are right)"""
    for table, paths in ((ON_FILES, files), (ON_BOTH, files + folders + [m]), (IN_FOLDERS, folders + [m]), (ON_FOLDERS, folders)):
        for name, call in table.items():
            for path in paths:
                yield name, call, path, "EROFS"
    for name, (call, expected) in OTHERWISE.items():
        for path in files:
            yield name, call, path, expected


def complaints(m):
    """What went otherwise than it should, in the mount m."""
    files = [os.path.join(m, *p) for p in (("fc1", "weight"), ("index.json",), ("model.safetensors",), ("fc1", "weight.npy"), (".source", "fc1", "weight"))]
    folders = [os.path.join(m, "fc1"), os.path.join(m, ".source")]
    assert all(map(os.path.isfile, files)) and all(map(os.path.isdir, folders))
    for name, call, path, expected in cases(m, files, folders):
        got = error_of(call, path)
        if got not in expected.split():
            yield f"{name} on {path[len(m):] or '/'}: {got}, expected {expected}"
    for path in files + folders + [m]:
        if libc.access(os.fsencode(path), os.W_OK) != -1 or ctypes.get_errno() != errno.EROFS:
            yield f"access(W_OK) on {path}"
    with tempfile.NamedTemporaryFile() as outside:
        for call in (os.rename, os.link):
            got = error_of(lambda p: call(outside.name, p), os.path.join(m, "new"))
            if got not in ("EXDEV", "EROFS"):
                yield f"{call.__name__} from outside: {got}"


def as_somebody(user, m):
    """The complaints of a child with another user's rights."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if user:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            found = list(complaints(m))
            print("".join(f"{line}\n" for line in found), end="", flush=True)
            code = 1 if found else 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, f"as user {user}: see above"


def test_nothing_can_be_changed():
    root = os.geteuid() == 0
    for opts in (["list=all"], ["rw"], ["direct_io"], ["default_permissions", "rw", "umask=0"]):
        with Mount(A1, *opts, *(["allow_other"] if root else [])) as m:
            before = read(m, "index.json")
            as_somebody(0, m)
            if root:
                as_somebody(NOBODY, m)
            assert read(m, "index.json") == before and {"bias", "weight"} <= set(os.listdir(os.path.join(m, "fc1")))


def test_a_mount_over_a_folder_with_files_shows_none_of_them():
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "below"), "w") as f:
            f.write("x")
        assert run(A1, d).returncode == 0
        try:
            assert not os.path.exists(os.path.join(d, "below")) and error_of(opens(os.O_RDWR | os.O_CREAT), os.path.join(d, "below")) == "EROFS"
        finally:
            unmount(d)
        assert os.listdir(d) == ["below"]


if __name__ == "__main__":
    main(__name__)
