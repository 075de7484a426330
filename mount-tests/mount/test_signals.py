"""The daemon ends cleanly on SIGTERM and SIGINT, also while files are open; a killed daemon leaves a mount point that
umount clears; a reader may be killed at any time."""
import errno, os, signal, subprocess
from mounted import *

A1 = fixture("a1", "a1_full.pt")


def gone(pid):
    try:
        return read("/proc", str(pid), "stat").rsplit(b")", 1)[1].split()[0] == b"Z"
    except (OSError, IndexError):
        return True


def ends_on(sig):
    with Mount(A1) as m:
        pid = daemon_of(m)
        os.kill(pid, sig)
        wait(lambda: gone(pid), "the daemon to end")
        assert not os.path.ismount(m)


def test_sigterm():
    ends_on(signal.SIGTERM)


def test_sigint():
    ends_on(signal.SIGINT)


def ends_in_the_foreground_on(sig, seconds):
    """However early the signal comes, no dead mount is left."""
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.Popen([BINARY, "--foreground", A1, d], stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        p.send_signal(sig)
        p.wait(20)
        assert os.stat(d).st_ino and not os.path.ismount(d), f"{sig} after {seconds} s"


def test_foreground():
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for i in range(12):
            ends_in_the_foreground_on(sig, 0.004 * i)
        ends_in_the_foreground_on(sig, 0.5)


def test_busy_mount_can_be_terminated():
    with Mount(A1) as m:
        pid = daemon_of(m)
        with open(os.path.join(m, "fc1", "weight"), "rb") as f:
            assert subprocess.run(["umount", m], capture_output=True).returncode != 0, "a busy mount was unmounted"
            assert len(f.read(16)) == 16
            os.kill(pid, signal.SIGTERM)
            wait(lambda: not os.path.ismount(m), "the mount to go")
        wait(lambda: gone(pid), "the daemon to end after the last file was closed")


def test_killed_daemon():
    with Mount(A1) as m:
        os.kill(daemon_of(m), signal.SIGKILL)
        try:
            wait(lambda: not os.path.exists(os.path.join(m, "index.json")), "ENOTCONN")
            os.stat(m)
        except OSError as e:
            assert e.errno == errno.ENOTCONN, e
        assert subprocess.run(["umount", m], capture_output=True).returncode == 0
        assert run(A1, m).returncode == 0 and read(m, "fc1", "weight"), "remounting after a crash"


def test_reader_killed_inside_a_read():
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "big.safetensors")
        write_safetensors(source, {"fc.weight": ("F32", [4096, 4096], bytes(4 << 24)), "fc.bias": ("F32", [4096], bytes(4 * 4096))})
        with Mount(source) as m:
            for _ in range(5):
                p = subprocess.Popen(["cat", os.path.join(m, "fc", "weight")], stdout=subprocess.DEVNULL)
                time.sleep(0.02)
                p.kill()
                p.wait()
            assert len(read(m, "fc", "weight")) == 4 << 24


if __name__ == "__main__":
    main(__name__)
