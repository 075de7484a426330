"""What goes wrong below a mount, and what is seen of it. Standard library only.

A disk that fails when it is told to (mount-tests/inject/faultfs.c):

    with FaultFs() as disk:                          disk.below: the folder that it shows, disk.dir: where it fails
        shutil.copy("a.safetensors", disk.below)
        with Mount(disk.path("a.safetensors")) as m:
            disk.fail("a.safetensors", "read EIO 4096 512")
            ...
            disk.heal("a.safetensors")

Who hangs is let go, and what is mounted is unmounted, however the test ends.
"""
import errno, json, os, signal, subprocess, sys, tempfile, time
from mounted import BINARY, options, unmount, write_safetensors

FAULTFS = os.environ.get("FAULTFS")


def wait(condition, what, seconds=30):
    """Until condition() holds; its value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")


def error_of(call, *args):
    try:
        call(*args)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


def in_foreground(source, body, *opts):
    """What the daemon logs while body(mount) runs."""
    with tempfile.TemporaryDirectory(prefix="ckpt-test.") as m, tempfile.TemporaryFile("w+") as log:
        p = subprocess.Popen([BINARY, "--foreground", source, m, *options(*opts)], stderr=log)
        try:
            while not os.path.ismount(m):
                assert p.poll() is None
                time.sleep(0.01)
            body(m)
        finally:
            unmount(m)
            p.wait(30)
        log.seek(0)
        return log.read().splitlines()


def sharded(folder, *shards):
    """A directory of shards, each {key: (dtype, shape, bytes)}; their paths."""
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, tensors in zip(names, shards):
        write_safetensors(os.path.join(folder, name), tensors)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"weight_map": {k: name for name, tensors in zip(names, shards) for k in tensors}}, f)
    return [os.path.join(folder, n) for n in names]


class FaultFs:
    def __enter__(self):
        if not FAULTFS:
            print("skipped: FAULTFS does not name the fault injector")
            sys.exit(77)
        self.folder = tempfile.TemporaryDirectory(prefix="ckpt-faults.")
        self.below, self.dir = (os.path.join(self.folder.name, n) for n in ("below", "disk"))
        os.mkdir(self.below), os.mkdir(self.dir)
        self.faulty = set()
        self.process = subprocess.Popen([FAULTFS, self.below, self.dir], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if not self.process.stdout.readline():
            why = self.process.communicate()[1].decode(errors="replace")
            self.folder.cleanup()
            raise AssertionError(f"faultfs: {why}")
        return self

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def fail(self, name, *rules):
        """The rules of faultfs_rules.h for a file, or for all with "" as its name."""
        self.faulty.add(name)
        os.setxattr(self.path(name), "user.fault", "\n".join(rules).encode())

    def heal(self, *names):
        for name in names or list(self.faulty):
            os.removexattr(self.path(name), "user.fault")
            self.faulty.discard(name)

    def waiting(self, name):
        """How many calls hang."""
        return int(os.getxattr(self.path(name), "user.fault.waiting"))

    def wait_for_waiting(self, name, at_least=1):
        wait(lambda: self.waiting(name) >= at_least, f"{at_least} calls to hang in {name!r}")

    def pull_out(self):
        """The disk is gone: all calls fail, those that hang too."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.faulty.clear()

    def __exit__(self, *_):
        try:
            self.heal()
        except OSError:
            self.pull_out()
        unmount(self.dir)
        if self.process.poll() is not None:  # then it is dead, but mounted
            subprocess.run(["umount", "-l", self.dir] if os.geteuid() == 0 else ["fusermount3", "-uz", self.dir], capture_output=True)
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()
