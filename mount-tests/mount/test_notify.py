"""Readiness as systemd's Type=notify understands it: this test is the manager, a datagram socket that $NOTIFY_SOCKET names."""
import contextlib, signal, socket, struct
from mounted import *

A1 = fixture("a1", "a1_full.pt")
SECONDS = 30


class Manager:
    """Receives (sender's process, {NAME: value}) a message, in order."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.settimeout(SECONDS)
        self.socket.bind(address)
        self.name = "@" + address[1:] if address[0] == "\0" else address

    def next(self):
        data, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(12))
        (pid,) = struct.unpack("i", ancillary[0][2][:4])
        return pid, dict(line.split("=", 1) for line in data.decode().split("\n"))

    def is_quiet(self):
        self.socket.setblocking(False)
        try:
            return not self.socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(SECONDS)


@contextlib.contextmanager
def managed(address_in):
    with tempfile.TemporaryDirectory() as d:
        m = os.path.join(d, "m")
        os.mkdir(m)
        manager = Manager(address_in(d))
        yield manager, m
        unmount(m)
        manager.socket.close()


def path_in(d):
    return os.path.join(d, "notify.socket")


def abstract_in(d):
    return "\0" + os.path.join(d, "notify")


def start(manager, directory, *args, **kw):
    return subprocess.Popen([BINARY, *args, A1, directory], env={**os.environ, "NOTIFY_SOCKET": manager.name}, stderr=subprocess.PIPE, encoding="utf-8", **kw)


def ready_then_stopping(address_in, stop):
    with managed(address_in) as (manager, m):
        p = start(manager, m, "--foreground")
        pid, message = manager.next()
        assert pid == p.pid and message["READY"] == "1", (pid, message)
        assert "a1_full.pt" in message["STATUS"] and "4 tensors" in message["STATUS"] and m in message["STATUS"], message
        assert os.path.ismount(m) and read(m, "fc1", "weight"), "it was not ready"
        stop(p, m)
        pid, message = manager.next()
        assert pid == p.pid and message == {"STOPPING": "1"}, message
        assert p.wait(SECONDS) == 0 and p.stderr.read() == ""
        assert not os.path.ismount(m) and manager.is_quiet()


def test_foreground():
    for address_in in (path_in, abstract_in):
        ready_then_stopping(address_in, lambda p, m: p.terminate())
        ready_then_stopping(address_in, lambda p, m: p.send_signal(signal.SIGINT))
        ready_then_stopping(address_in, lambda p, m: unmount(m))


def test_stopping_is_said_while_readers_finish():
    with managed(path_in) as (manager, m):
        p = start(manager, m, "--foreground")
        manager.next()
        with open(os.path.join(m, "fc1", "weight"), "rb") as f:
            p.terminate()
            assert manager.next()[1] == {"STOPPING": "1"}
            assert p.poll() is None and len(f.read()) == 128
        assert p.wait(SECONDS) == 0


def test_background_names_who_serves():
    """The process that the manager started says which one is to be watched now, and ends with 0."""
    with managed(path_in) as (manager, m):
        p = start(manager, m)
        pid, message = manager.next()
        assert pid == p.pid and message["READY"] == "1", (pid, message)
        assert p.wait(SECONDS) == 0 and os.path.ismount(m)
        daemon = int(message["MAINPID"])
        assert daemon != p.pid and daemon == daemon_of(m), message
        os.kill(daemon, signal.SIGTERM)
        assert manager.next() == (daemon, {"STOPPING": "1"})


def test_a_failure_is_never_ready():
    with managed(path_in) as (manager, m):
        for args in (["--foreground"], []):
            p = start(manager, os.path.join(m, "missing"), *args)
            assert p.wait(SECONDS) == 32 and "does not exist" in p.stderr.read()
            assert manager.is_quiet()


def test_other_commands_say_nothing():
    with managed(path_in) as (manager, m):
        assert run("--inspect", A1, env={**os.environ, "NOTIFY_SOCKET": manager.name}).returncode == 0
        assert run("-f", A1, m, env={**os.environ, "NOTIFY_SOCKET": manager.name}).returncode == 0
        assert manager.is_quiet()


def test_a_manager_that_is_not_there():
    with managed(path_in) as (manager, m):
        for name in ("", "/", "@", "relative", "/no/such/socket", "/" + "x" * 200, "vsock:2:1234"):
            p = run(A1, m, env={**os.environ, "NOTIFY_SOCKET": name})
            assert (p.returncode, p.stdout, p.stderr) == (0, "", ""), (name, p)
            unmount(m)
        assert manager.is_quiet()


if __name__ == "__main__":
    main(__name__)
