"""How many requests the kernel sends to a daemon, seen from outside: each is one read(2) of /dev/fuse, and while it serves the
daemon reads nothing else. /proc counts those."""
import mmap, os, re, sys, time
from mounted import *

MIB = 1 << 20


def calls(pid):
    return int(re.search(rb"syscr: (\d+)", read("/proc", str(pid), "io"))[1])


class Requests:
    """with Requests(directory) as r: ...; then r.n is their number. Those that come after the call that caused them (RELEASE)
    are waited for: until there are as many as must come at least, and none has come for a while."""

    def __init__(self, directory, least=0):
        self.pid, self.least = daemon_of(directory), least
        try:
            calls(self.pid)
        except (OSError, TypeError):
            print("skipped: this kernel does not count what a process reads (/proc/PID/io)")
            sys.exit(77)

    def settled(self):
        last, since = calls(self.pid), time.monotonic()
        while time.monotonic() - since < 0.3:
            time.sleep(0.02)
            if calls(self.pid) != last:
                last, since = calls(self.pid), time.monotonic()
        return last

    def __enter__(self):
        self.before = self.settled()
        return self

    def __exit__(self, *_):
        wait(lambda: calls(self.pid) - self.before >= self.least, f"{self.least} requests")
        self.n = self.settled() - self.before


def count(directory, call, *args, least=0):
    with Requests(directory, least) as r:
        call(*args)
    return r.n


def fetch(path):
    """Reads it all, without asking whether it is a terminal as open() does, which is a request each time."""
    fd = os.open(path, os.O_RDONLY)
    try:
        while os.read(fd, MIB // 4):
            pass
    finally:
        os.close(fd)


def mapped(path):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as view:
        return bytes(view)


def large(d, tensors=2, nbytes=8 * MIB):
    """A source whose model.safetensors has other bytes than itself: our header is longer."""
    path = os.path.join(d, "large.safetensors")
    write_safetensors(path, {f"t{i}": ("U8", [nbytes], os.urandom(nbytes)) for i in range(tensors)})
    return path
