"""What the tests that mount share. Standard library only.

MOUNT_CKPT names the binary, FIXTURES the folder of fixtures; both are set by ctest. A test that cannot
mount here ends with code 77 and says why.
"""
import json, os, re, struct, subprocess, sys, tempfile, time

BINARY = os.environ.get("MOUNT_CKPT", "build/mount.ckpt")
FIXTURES = os.environ.get("FIXTURES", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures"))
SANITIZER = re.compile(r"AddressSanitizer|runtime error:|LeakSanitizer|ThreadSanitizer")


def sanitizer():
    """What the binary was built with: "address", "thread" or "". Limits of time and memory are not for sanitizers."""
    with open(BINARY, "rb") as f:
        binary = f.read()
    return "address" if b"__asan_init" in binary else "thread" if b"__tsan_init" in binary else ""


def need_fuse():
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as e:
        print(f"skipped: /dev/fuse cannot be used here ({e.strerror})")
        sys.exit(77)


def fixture(*names):
    return os.path.join(FIXTURES, *names)


def run(*args, **kw):
    """The finished process of one call of the binary."""
    p = subprocess.run([BINARY, *args], capture_output=True, encoding="utf-8", errors="surrogateescape", timeout=120, **kw)
    assert p.returncode >= 0 and not SANITIZER.search(p.stderr), f"{args}: exit {p.returncode}: {p.stderr}"
    return p


def options(*opts):
    return [x for o in opts for x in ("-o", o)]


def unmount(directory):
    """Unmounts, waits until the daemon is gone from the table, and lazily in the end."""
    command = ["umount"] if os.geteuid() == 0 else ["fusermount3", "-u"]
    for i in range(100):
        if not os.path.ismount(directory) and subprocess.run(["mountpoint", "-q", directory], capture_output=True).returncode:
            return
        subprocess.run([*command, *(["-l" if len(command) == 1 else "-z"] if i > 80 else []), directory], capture_output=True)
        time.sleep(0.05)


class Mount:
    """with Mount(source, "layout=torch") as m: m is the mounted directory. What was said on stderr is kept."""

    def __init__(self, source, *opts):
        self.source, self.opts = source, opts

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="ckpt-test.")
        p = run(self.source, self.dir, *options(*self.opts))
        if p.returncode or not os.path.ismount(self.dir):
            unmount(self.dir)
            os.rmdir(self.dir)
            raise AssertionError(f"mount of {self.source}: exit {p.returncode}: {p.stderr.strip()}")
        assert p.stdout == "", f"a mount prints nothing on stdout: {p.stdout!r}"
        self.said = p.stderr
        return self.dir

    def __exit__(self, *_):
        unmount(self.dir)
        os.rmdir(self.dir)


def daemon_of(directory):
    """The process that serves a mount point: the one that has it as its last argument."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            args = read("/proc", pid, "cmdline").split(b"\0")
        except OSError:
            continue
        if directory.encode() in args and b"mount.ckpt" in args[0]:
            return int(pid)
    raise AssertionError("no daemon found")


def wait(condition, what, seconds=20):
    for _ in range(seconds * 20):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


def read(*parts):
    with open(os.path.join(*parts), "rb") as f:
        return f.read()


def read_json(*parts):
    def no_constant(x):
        raise ValueError(f"{x} is not JSON")
    return json.loads(read(*parts).decode("utf-8"), parse_constant=no_constant)


def safetensors(path):
    """{key: (dtype, shape, bytes)} of a safetensors file, in the header's order; and its metadata."""
    data = read(path)
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + n])
    meta = header.pop("__metadata__", {})
    out = {k: (t["dtype"], t["shape"], data[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]]) for k, t in header.items()}
    assert max([t["data_offsets"][1] for t in header.values()], default=0) == len(data) - 8 - n
    return out, meta


def write_safetensors(path, tensors, metadata=None):
    """{key: (dtype, shape, bytes)} to a file."""
    header, body = {"__metadata__": metadata} if metadata else {}, b""
    for k, (dtype, shape, data) in tensors.items():
        header[k] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def transposed(data, rows, columns, size):
    """The bytes of a [rows, columns] matrix of elements of so many bytes, as [columns, rows]."""
    return b"".join(data[(r * columns + c) * size : (r * columns + c + 1) * size] for c in range(columns) for r in range(rows))


def main(module_name):
    """Runs every function of the module whose name begins with test_; prints each; exit 1 if one fails."""
    import traceback
    need_fuse()
    failed = 0
    tests = [(n, f) for n, f in vars(sys.modules[module_name]).items() if n.startswith("test_") and callable(f)]
    for name, f in tests:
        try:
            f()
            print(f"ok   {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)
    print(f"{len(tests) - failed} of {len(tests)} passed")
    sys.exit(1 if failed or not tests else 0)
