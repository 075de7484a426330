"""The daemon killed, stopped or told to go while it is in use; and a disk below it that does not answer, or is gone: readers get
an error or their bytes, those that need not wait go on, the mount point can be cleared and used again, nothing is left behind."""
import os, random, resource, signal, subprocess, threading
from mounted import *
from faulty import FaultFs, error_of, in_foreground, sharded, wait
from test_signals import daemon_of, gone

noise = random.Random(11)
ROWS = COLUMNS = 1024


def put(path):
    write_safetensors(path, {"a.weight": ("F32", [ROWS, COLUMNS], noise.randbytes(4 * ROWS * COLUMNS)), "b": ("F32", [64], noise.randbytes(256))})


def is_gone(m):
    return error_of(os.stat, m) == "ENOTCONN"


MAPPED = """import mmap, sys
with open(sys.argv[1], "rb") as f:
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    print("mapped", flush=True)
    while True:
        for i in range(0, len(m), 4096):
            m[i]
"""


def test_killed_while_readers_are_inside():
    with tempfile.TemporaryDirectory() as d, tempfile.TemporaryDirectory() as tmp:
        put(d + "/m.safetensors")
        os.environ["TMPDIR"] = tmp
        with Mount(d + "/m.safetensors") as m:
            pid = daemon_of(m)
            weight = os.path.join(m, "a", "weight")
            reader = subprocess.Popen(["sh", "-c", f"while cat {weight}; do :; done; exit 7"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            mapper = subprocess.Popen([sys.executable, "-c", MAPPED, weight], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert mapper.stdout.readline() == b"mapped\n"
            f = os.open(weight, os.O_RDONLY | os.O_DIRECT)
            os.kill(pid, signal.SIGKILL)
            wait(lambda: error_of(os.open, weight, os.O_RDONLY) == "ENOTCONN", "ENOTCONN")
            assert error_of(os.read, f, 4096) in ("ENOTCONN", "ECONNABORTED")
            os.close(f)
            assert reader.wait(20) == 7
            mapper.kill()  # pages that it has it keeps, one that it lacks is a SIGBUS: the kernel's choice
            mapper.communicate()
            assert subprocess.run(["umount", m], capture_output=True).returncode == 0
            assert run(d + "/m.safetensors", m).returncode == 0 and len(read(weight)) == 4 * ROWS * COLUMNS
        del os.environ["TMPDIR"]
        assert os.listdir(tmp) == []


def test_killed_at_any_moment_of_its_start():
    """However early, umount clears the mount point, and the next mount works."""
    with tempfile.TemporaryDirectory() as d:
        for i in range(25):
            p = subprocess.Popen([BINARY, "--foreground", fixture("a1", "a1_full.pt"), d], stderr=subprocess.DEVNULL)
            time.sleep(0.002 * i)
            p.kill()
            p.wait()
            if os.path.ismount(d) or is_gone(d):
                left = subprocess.run(["umount", d], capture_output=True, encoding="utf-8", timeout=20)
                assert left.returncode == 0, (i, left.stderr)
            assert os.listdir(d) == []
        with Mount(fixture("a1", "a1_full.pt")) as m:
            assert read(m, "index.json")


def test_stopped_and_continued():
    with tempfile.TemporaryDirectory() as d:
        put(d + "/m.safetensors")
        with Mount(d + "/m.safetensors") as m:
            pid, got = daemon_of(m), []
            os.kill(pid, signal.SIGSTOP)
            t = threading.Thread(target=lambda: got.append(read(m, "a", "weight")))
            t.start()
            wait(lambda: b"State:\tT" in read("/proc", str(pid), "status"), "the daemon to stop")
            assert not got
            os.kill(pid, signal.SIGCONT)
            t.join(30)
            assert len(got[0]) == 4 * ROWS * COLUMNS


def test_detached_readers_finish():
    """umount of a busy mount is refused and changes nothing; a lazy one, and SIGTERM, let running readers finish."""
    for lazily in (lambda m, pid: subprocess.run(["umount", "-l", m], check=True), lambda m, pid: os.kill(pid, signal.SIGTERM)):
        with tempfile.TemporaryDirectory() as d:
            put(d + "/m.safetensors")
            with Mount(d + "/m.safetensors", "direct_io") as m:
                pid, weight = daemon_of(m), os.path.join(m, "a", "weight")
                right = read(weight)
                with open(weight, "rb", buffering=0) as f:
                    busy = subprocess.run(["umount", m], capture_output=True)
                    assert busy.returncode != 0 and b"busy" in busy.stderr and f.read(4096) == right[:4096]
                    lazily(m, pid)
                    wait(lambda: not os.path.ismount(m), "the mount to go")
                    rest = b"".join(iter(lambda: f.read(1 << 16), b""))
                    assert rest == right[4096:] and not gone(pid)
                wait(lambda: gone(pid), "the daemon to end after the last file was closed")


def test_told_to_go_while_it_checks():
    """SIGTERM and SIGINT while verify.json is computed: its reader gets an answer, the daemon ends."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        with tempfile.TemporaryDirectory() as d:
            write_safetensors(d + "/m.safetensors", {f"l{i}.weight": ("F32", [ROWS, COLUMNS], noise.randbytes(4 * ROWS * COLUMNS)) for i in range(8)})
            with Mount(d + "/m.safetensors") as m:
                pid = daemon_of(m)
                p = subprocess.Popen(["cat", os.path.join(m, "verify.json")], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                wait(lambda: any(b"verify.json" in os.readlink(f"/proc/{p.pid}/fd/{n}").encode() for n in os.listdir(f"/proc/{p.pid}/fd")) or p.poll() is not None, "the reader")
                os.kill(pid, sig)
                out, err = p.communicate(timeout=60)
                assert p.returncode or json.loads(out)["status"], (sig, out[:100], err)
                wait(lambda: gone(pid), "the daemon to end", 60)


def state(pid):
    return read("/proc", str(pid), "stat").rsplit(b")", 1)[1].split()[0]


def test_hanging_disk():
    """Who reads what the disk does not give waits, and can be killed; who reads other files goes on. (Not so, today, who wants
    something computed while as many wait as there are threads.)"""
    with FaultFs() as disk:
        names = sharded(disk.below, {"a.weight": ("F32", [ROWS, COLUMNS], noise.randbytes(4 * ROWS * COLUMNS))}, {"b.weight": ("F32", [ROWS, COLUMNS], noise.randbytes(4 * ROWS * COLUMNS))})
        bad = os.path.basename(names[0])

        def body(m):
            right = {k: read(disk.below, os.path.basename(n))[-4 * ROWS * COLUMNS :] for k, n in zip("ab", names)}
            disk.fail(bad, f"read hang {1 << 20}")
            for path in ("a/weight", "model.safetensors"):
                p = subprocess.Popen(["cat", os.path.join(m, path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                disk.wait_for_waiting(bad)
                assert p.poll() is None and read(m, "b", "weight") == right["b"] and os.listdir(m)
                p.kill()
                p.wait(20)
            disk.heal()
            assert read(m, "a", "weight") == right["a"]

        assert in_foreground(disk.dir, body, "layout=torch") == []


def test_disk_that_is_gone():
    """Pulled out under the mount: EIO for what was not in memory, and the mount can be ended."""
    with FaultFs() as disk:
        put(disk.below + "/m.safetensors")

        def body(m):
            assert len(read(m, "b")) == 256
            disk.pull_out()
            assert error_of(read, m, "a", "weight") in ("EIO", "ESTALE", "ENOTCONN")
            assert read(m, "summary.txt") and os.listdir(m)

        log = in_foreground(disk.path("m.safetensors"), body)
        assert len(log) == 1 and "m.safetensors" in log[0], log


def few_descriptors(n):
    resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))


def test_few_descriptors():
    """16 to 64 of them: refused with one line, or all can be read; and thousands of open files of the mount need none."""
    with tempfile.TemporaryDirectory() as d:
        sharded(d, *[{f"l{i}.w": ("F32", [4], noise.randbytes(16))} for i in range(1500)])
        for n in (16, 32, 64):
            p = run("--inspect", d, preexec_fn=lambda: few_descriptors(n))
            assert p.returncode == 2 and p.stderr.count("\n") == 1 and "Too many open files" in p.stderr, (n, p.returncode, p.stderr)
    store = fixture("orbax", "e_edge_zarr2_dirs")
    with Mount(store, "layout=source") as m:
        right = {t["path"]: read(m, t["path"]) for t in read_json(m, "index.json")["tensors"]}
    for n in (24, 32, 64):
        with tempfile.TemporaryDirectory() as m:
            p = run("-o", "layout=source", store, m, preexec_fn=lambda: few_descriptors(n))
            if p.returncode:
                assert p.stderr.count("\n") == 1 and p.returncode == 2, (n, p.returncode, p.stderr)
                continue
            try:
                for path, data in right.items():
                    assert error_of(read, m, path) or read(m, path) == data, (n, path)
            finally:
                unmount(m)
    with Mount(fixture("a1", "a1_full.pt")) as m:
        fds = lambda: len(os.listdir(f"/proc/{daemon_of(m)}/fd"))
        read(m, "fc1", "weight")
        before, many = fds(), [os.open(os.path.join(m, "fc1", "weight"), os.O_RDONLY) for _ in range(500)]
        assert fds() <= before + 16, (before, fds())
        [os.close(f) for f in many]


if __name__ == "__main__":
    main(__name__)
