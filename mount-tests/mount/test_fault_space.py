"""No room: on the disk that is exported to, on the one for temporary files, or in memory. Whoever needs it is told so in one line,
nothing half done is left, others go on, and so does he once there is room."""
import os, random, resource, shutil, subprocess, threading
from mounted import *
from faulty import FaultFs, error_of, in_foreground
from test_signals import daemon_of
import torch_file

noise = random.Random(7)
LARGE = 8 << 20


def put(path, deflated=True):
    """A .pt of one large and some small tensors; {name: bytes}."""
    data = {"large": noise.randbytes(LARGE // 2) + bytes(LARGE // 2), **{f"small{i}": noise.randbytes(4096) for i in range(8)}}
    pickle = torch_file.pickle(torch_file.state_dict({k: torch_file.tensor(str(i), [len(v) // 4]) for i, (k, v) in enumerate(data.items())}))
    with open(path, "wb") as f:
        f.write(torch_file.checkpoint(pickle, {str(i): v for i, v in enumerate(data.values())}, deflated=deflated))
    return data


class Tmpdir:
    """$TMPDIR of so many bytes; without any it is absent."""

    def __init__(self, size=None):
        self.size = size

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="ckpt-test.")
        if not self.size:
            os.rmdir(self.folder)
        elif subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.folder], capture_output=True).returncode:
            os.rmdir(self.folder)
            return None
        self.before, os.environ["TMPDIR"] = os.environ.get("TMPDIR"), self.folder
        return self

    def resize(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=True)

    def __exit__(self, *_):
        if not os.path.isdir(self.folder) and self.size:
            return
        os.environ.pop("TMPDIR", None)
        if self.before is not None:
            os.environ["TMPDIR"] = self.before
        if self.size and os.path.ismount(self.folder):
            subprocess.run(["umount", self.folder], check=True)
            os.rmdir(self.folder)


def test_full_disk_for_temporary_files():
    with tempfile.TemporaryDirectory() as d:
        data = put(d + "/m.pt")
        with Tmpdir("1m") as tmp:
            if not tmp:
                print("     skipped: no tmpfs can be mounted here")
                return

            def body(m):
                for _ in range(3):
                    assert error_of(read, m, "large") == "EIO"
                assert all(read(m, k) == v for k, v in data.items() if k != "large")
                tmp.resize("64m")
                assert read(m, "large") == data["large"]

            log = in_foreground(d + "/m.pt", body, "cache=64K")
            assert len(log) == 1 and all(w in log[0] for w in (tmp.folder, "No space left", "cache=")), log
            tmp.resize("1m")
            p = run("--cat", "large", "-o", "cache=64K", d + "/m.pt")
            assert p.returncode == 2 and p.stderr.count("\n") == 1 and tmp.folder in p.stderr, (p.returncode, p.stderr)


def test_absent_folder_for_temporary_files():
    with tempfile.TemporaryDirectory() as d:
        data = put(d + "/m.pt")
        with Tmpdir() as tmp:
            def body(m):
                assert all(read(m, k) == v for k, v in data.items())

            log = in_foreground(d + "/m.pt", body, "cache=64K")
            assert len(log) == 1 and tmp.folder in log[0], log


def refuse_export(disk, *rules, code=(2,)):
    out = disk.path("out.safetensors")
    disk.fail("", *rules)
    p = run("--export", out, os.path.join(disk.below, "m.pt"))
    assert p.returncode in code and p.stderr.count("\n") == 1 and out in p.stderr, (rules, p.returncode, p.stderr)
    disk.heal("")
    assert sorted(os.listdir(disk.dir)) == ["m.pt"], (rules, os.listdir(disk.dir))


def test_export_onto_a_failing_disk():
    with FaultFs() as disk:
        put(os.path.join(disk.below, "m.pt"))
        refuse_export(disk, "write ENOSPC 100000")
        refuse_export(disk, "write EDQUOT 5000000", code=(2, 32))
        refuse_export(disk, "write EIO 100000", code=(2, 32))
        refuse_export(disk, "sync EIO", code=(2, 32))
        refuse_export(disk, "rename EACCES", code=(1,))
        p = run("--export", disk.path("out.safetensors"), os.path.join(disk.below, "m.pt"))
        assert p.returncode == 0 and len(safetensors(disk.path("out.safetensors"))[0]) == 9, p.stderr


def test_export_onto_a_full_disk():
    with tempfile.TemporaryDirectory() as d, Tmpdir("1m") as tmp:
        if not tmp:
            print("     skipped: no tmpfs can be mounted here")
            return
        put(d + "/m.pt")
        p = run("--export", tmp.folder + "/out.safetensors", d + "/m.pt")
        assert p.returncode == 2 and "has room for" in p.stderr and p.stderr.count("\n") == 1, p.stderr
        assert os.listdir(tmp.folder) == []


def address_space(pid):
    return int(re.search(rb"VmSize:\s*(\d+) kB", read("/proc", str(pid), "status"))[1]) << 10


def read_all(m, data, outcomes):
    for k in data:
        what = error_of(read, m, k)
        outcomes.append(what or ("right" if read(m, k) == data[k] else "WRONG"))


def test_out_of_memory():
    """Memory runs out under the mount: ENOMEM or EIO for who needs some, a line or two, and all is right again when it is back."""
    if sanitizer():
        print("     skipped: a sanitizer needs all of the address space")
        return
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as m, tempfile.TemporaryFile("w+") as log:
        data, seen = put(d + "/m.pt"), set()
        p = subprocess.Popen([BINARY, "--foreground", "-v", "-o", "cache=256M,direct_io", d + "/m.pt", m], stdout=subprocess.PIPE, stderr=log)
        try:
            assert b"9 tensors" in p.stdout.readline(), "that it serves"
            for room in (0, 1 << 20, 6 << 20):
                resource.prlimit(p.pid, resource.RLIMIT_AS, (address_space(p.pid) + room, resource.RLIM_INFINITY))
                outcomes = []
                threads = [threading.Thread(target=read_all, args=(m, data, outcomes)) for _ in range(8)]
                [t.start() for t in threads]
                while any(t.is_alive() for t in threads):
                    [t.join(0.5) for t in threads]
                    assert p.poll() is None, "the daemon has ended"
                    # a daemon without any thread yet waits for memory: give it some
                    resource.prlimit(p.pid, resource.RLIMIT_AS, (address_space(p.pid) + (room := room + (1 << 20)), resource.RLIM_INFINITY))
                seen |= set(outcomes)
            resource.prlimit(p.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert all(read(m, k) == v for k, v in data.items())
        finally:
            unmount(m)
            code = p.wait(30)
            log.seek(0)
            lines = log.read().splitlines()
            assert code == 0, (code, lines)
        assert all(line.startswith("mount.ckpt: ") for line in lines) and len(lines) <= 4, lines
        # libfuse drops what its threads have just taken when it ends them for lack of a buffer, and the kernel tells the reader
        dropped = {"ECONNABORTED"} if any("serving goes on with one" in line for line in lines) else set()
        assert seen <= {"right", "ENOMEM", "EIO"} | dropped, (seen, lines)


def test_little_memory_from_the_start():
    """Works, or says so before the mount: never a mount that ends."""
    if sanitizer():
        print("     skipped: a sanitizer needs all of the address space")
        return
    outcomes = set()
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as m:
        data = put(d + "/m.pt")
        for mib in range(20, 260, 15):
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, resource.RLIM_INFINITY))
            p = subprocess.run([BINARY, "-o", "cache=16M", d + "/m.pt", m], capture_output=True, encoding="utf-8", timeout=60, preexec_fn=limit)
            if p.returncode:
                assert p.returncode > 0 and p.stderr.count("\n") == 1, (mib, p.returncode, p.stderr)
                assert not os.path.ismount(m), mib
                outcomes.add("refused")
                continue
            try:
                for name in ("large", "small0", "large"):
                    assert error_of(read, m, name) in (None, "ENOMEM", "EIO"), (mib, name)
                resource.prlimit(daemon_of(m), resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                assert all(read(m, k) == v for k, v in data.items()), mib
                outcomes.add("mounted")
            finally:
                unmount(m)
    assert outcomes == {"refused", "mounted"}, outcomes


if __name__ == "__main__":
    main(__name__)
