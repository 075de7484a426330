"""Shows that the soak finds what it looks for: each kind of leak is made on purpose, by a process of our own, and must be named."""
import os, subprocess, sys, tempfile, types

from footprint import Footprint, children, leftovers, shared_memory
from worker import READER, Mounted, Wrong

ROUNDS = 16

LEAKING = """
import ctypes, mmap, os, sys, threading, time
what, kept = sys.argv[1], []
def leak(): # of a round
    if what == "descriptors": kept.append(os.dup(0))
    if what == "threads": (t := threading.Thread(target=time.sleep, args=(3600,), daemon=True)).start()
    if what == "mappings": kept.append([mmap.mmap(-1, 4096, prot=mmap.PROT_READ if i % 2 else mmap.PROT_READ | mmap.PROT_WRITE) for i in range(6)])
    if what == "shared memory": fd = os.memfd_create("ckpt"); os.ftruncate(fd, 4096); kept.append(mmap.mmap(fd, 4096)); os.close(fd)
    if what == "anonymous KiB": kept.append(bytearray(b"x" * 700_000))
for line in sys.stdin:
    leak()
    print("done", flush=True)
"""


def footprint_of(what):
    """That of a process which leaks something in each round."""
    with subprocess.Popen([sys.executable, "-c", LEAKING, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
        footprint = Footprint("it", p.pid)
        for _ in range(ROUNDS):
            p.stdin.write("round\n")
            p.stdin.flush()
            p.stdout.readline()
            footprint.sample()
        p.kill()
    return footprint


def test_growth():
    assert not list(footprint_of("nothing").growth()), "growth where there is none"
    for what in ("descriptors", "threads", "mappings", "shared memory", "anonymous KiB"):
        found = list(footprint_of(what).growth())
        assert any(what in f for f in found), (what, found)


def only(word, folder, temporary, before):
    found = list(leftovers(folder, temporary, before))
    assert len(found) == 1 and word in found[0], (word, found)


def test_leftovers():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as temporary:
        before = shared_memory()
        assert not list(leftovers(folder, temporary, before))
        with subprocess.Popen(["sleep", "3600"]) as p:
            only("sleep 3600", folder, temporary, before)
            p.kill()
        zombie = os.posix_spawn("/bin/true", ["true"], os.environ)
        os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
        only("Z", folder, temporary, before)
        os.waitpid(zombie, 0)
        with tempfile.NamedTemporaryFile(dir=temporary):
            only("temporary file", folder, temporary, before)
        with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="mount.ckpt-"):
            only("shared memory", folder, temporary, before)
        os.mkdir(point := os.path.join(folder, "m"))
        if subprocess.run(["mount", "-t", "tmpfs", "none", point], capture_output=True).returncode == 0:
            only(point, folder, temporary, before)
            subprocess.run(["umount", point], check=True)
        assert not list(leftovers(folder, temporary, before)) and not children()


def test_other_bytes():
    """One bit of a file."""
    with tempfile.TemporaryDirectory() as d:
        right, served = os.path.join(d, "right"), os.path.join(d, "served")
        data = bytearray(os.urandom(200_000))
        for path in (right, served):
            with open(path, "wb") as f:
                f.write(data)
            data[70_000] ^= 1
        for how in ("pread", "preadv", "mmap", "sendfile"):
            assert subprocess.run([*READER, how, "1", "300", served, served]).returncode == 0, how
            assert subprocess.run([*READER, how, "1", "300", served, right], capture_output=True).returncode == 1, how
        case = types.SimpleNamespace(holds=lambda path: ("0" * 64, right))
        mounted = types.SimpleNamespace(case=case, worker=None)
        try:
            Mounted.check_hashes(mounted, d, ["served"])
            raise AssertionError("other bytes are taken for right")
        except Wrong:
            pass


def main():
    for test in (test_growth, test_leftovers, test_other_bytes):
        test()
        print(f"ok   {test.__name__}", flush=True)
