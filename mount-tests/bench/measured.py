"""What the measurements share: a mount whose CPU time and memory can be read, and commands that are timed."""
import contextlib
import os
import re
import resource
import subprocess
import tempfile
import threading
import time


def unmount(directory):
    subprocess.run(["umount", directory] if os.geteuid() == 0 else ["fusermount3", "-u", directory], check=True)
    os.rmdir(directory)


class Daemon:
    """A filesystem in the foreground: our child, so that its CPU time and memory can be read. The command lacks its last word, the mountpoint."""

    def __init__(self, *command):
        self.dir = tempfile.mkdtemp(prefix="ckpt-bench.")
        start = time.monotonic()
        self.process = subprocess.Popen([*command, self.dir], stdout=subprocess.DEVNULL)
        while not os.path.ismount(self.dir):
            if self.process.poll() is not None:
                os.rmdir(self.dir)
                raise RuntimeError(f"{' '.join(command)}: exit {self.process.returncode}")
            time.sleep(0.001)
        self.wall = time.monotonic() - start  # until it was mounted

    def status(self, field):
        """A kB field of /proc/PID/status, in MiB."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return int(re.search(rf"^{field}:\s+(\d+)", f.read(), re.M)[1]) / 1024

    def cpu(self):
        """User and system seconds of all its threads so far, by its CPU-time clock (clock_getcpuclockid)."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def close(self):
        unmount(self.dir)
        self.process.wait()


@contextlib.contextmanager
def serving(*command):
    d = Daemon(*command)
    try:
        yield d
    finally:
        d.close()


def mounted(binary, source, *options):
    return serving(binary, "--foreground", *options, source)


class Peak:
    """The most anonymous memory that a daemon is seen to have while this is entered, looked at every 10 ms."""

    def __init__(self, daemon):
        self.daemon, self.mib, self.done = daemon, 0.0, threading.Event()
        self.watcher = threading.Thread(target=self.watch)

    def watch(self):
        while not self.done.wait(0.01):
            self.mib = max(self.mib, self.daemon.status("RssAnon"))

    def __enter__(self):
        self.watcher.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.watcher.join()


def children_cpu():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def timed(*command, env=None, stdout=subprocess.PIPE):
    """(wall, CPU, stdout) of a command that must succeed."""
    t, c = time.monotonic(), children_cpu()
    p = subprocess.run(command, check=True, stdout=stdout, env=env)
    return time.monotonic() - t, children_cpu() - c, p.stdout
