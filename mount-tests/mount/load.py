"""What the tests of many readers share: a daemon whose process is known, and readers that are processes. Standard library only."""
import json, os, signal, struct, subprocess, sys, tempfile, time
from mounted import *
from faulty import wait

SANITIZED = bool(sanitizer())


class Served:
    """with Served(source, "cache=64M") as d: d.dir is mounted by the process d.pid."""

    def __init__(self, source, *opts):
        self.source, self.opts = source, opts

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="ckpt-test.")
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape")
        self.process = subprocess.Popen([BINARY, "--foreground", self.source, self.dir, *options(*self.opts)], stdout=self.log, stderr=self.log)
        self.pid = self.process.pid
        try:
            wait(lambda: self.process.poll() is not None or os.path.ismount(self.dir), "the mount to be there", 60)
            assert self.process.poll() is None, self.said()
        except AssertionError:
            self.__exit__()
            raise
        return self

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def status(self, key):
        """A figure of /proc/PID/status: KiB, or a number."""
        with open(f"/proc/{self.pid}/status") as f:
            return int(next(line.split()[1] for line in f if line.startswith(key + ":")))

    def cpu(self):
        """Seconds of CPU so far."""
        with open(f"/proc/{self.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_idle(self):
        before = self.cpu()
        time.sleep(0.2)
        return self.cpu() - before < 0.05

    def __exit__(self, *_):
        unmount(self.dir)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the daemon did not end after its unmount")
        finally:
            os.rmdir(self.dir)
            said = self.said()
            self.log.close()
        assert not SANITIZER.search(said), said


def waits(pid):
    """Whether the process sleeps in the kernel: with its file open, in a read or a page fault of it."""
    try:
        with open(f"/proc/{pid}/wchan") as f:
            where = f.read()
    except OSError:
        return False
    return "wait" in where or "fuse" in where or "folio" in where


class Readers:
    """Processes that read; all that are left are killed at the end."""

    def __init__(self):
        self.all = []

    def __enter__(self):
        return self

    def cat(self, path):
        return self.run("cat", path)

    def run(self, *command, **kw):
        self.all.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **kw))
        return self.all[-1]

    def alive(self):
        return [p for p in self.all if p.poll() is None]

    def kill(self):
        for p in self.all:
            p.send_signal(signal.SIGKILL)

    def __exit__(self, *_):
        self.kill()
        for p in self.all:
            p.wait()


def sparse(path, tensors):
    """A safetensors file of {key: (dtype, shape, bytes each)} that is one hole behind its header; where each tensor lies."""
    header, at, where = {}, 0, {}
    for key, (dtype, shape, size) in tensors.items():
        n = size
        for d in shape:
            n *= d
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        where[key] = (at, n)
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    return {k: (8 + len(text) + a, n) for k, (a, n) in where.items()}
