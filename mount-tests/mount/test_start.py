"""What starting costs: no library that only a check needs, little address space. And that commands say when they can't print."""
import os
from mounted import *

A1 = fixture("a1", "a1_full.pt")
ADDRESS_SPACE = 100_000  # KiB, as `ulimit -v` takes it


def maps_of_the_daemon(directory):
    """/proc/PID/maps of who serves the directory, found by the command line that ends with it."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if read("/proc", pid, "cmdline").split(b"\0")[-2:-1] == [directory.encode()]:
                return read("/proc", pid, "maps").decode()
        except OSError:
            pass  # it has ended
    raise AssertionError(f"no process serves {directory}")


def test_blas_is_loaded_when_a_check_begins():
    with Mount(A1) as m:
        read(m, "model.safetensors")
        assert "libopenblas" not in maps_of_the_daemon(m)
        assert read_json(m, "verify.json")["blas"]["threads"] == 1
        assert "libopenblas" in maps_of_the_daemon(m)


def in_little_address_space(*args):
    return subprocess.run(["sh", "-c", f'ulimit -v {ADDRESS_SPACE}; exec "$@"', "sh", BINARY, *args],
                          capture_output=True, timeout=30)


def test_little_address_space():
    if sanitizer():
        return print("skipped: sanitizers take terabytes of address space")
    for args in (["--help"], ["--version"], ["--inspect", A1], ["--cat", "model.safetensors", A1]):
        p = in_little_address_space(*args)
        assert p.returncode == 0 and p.stdout, (args, p)
    p = in_little_address_space("--verify", A1)
    assert p.returncode == 2 and b"address space" in p.stderr, p
    with tempfile.TemporaryDirectory() as d:
        p = in_little_address_space(A1, d)
        assert p.returncode == 0, p
        try:
            assert safetensors(os.path.join(d, "model.safetensors"))[0]
        finally:
            unmount(d)


def test_what_cannot_be_printed_is_an_error():
    for args in (["--help"], ["--version"], ["--inspect", A1], ["--inspect", "--explain", "fc1.weight", A1], ["--cat", "model.safetensors", A1], ["--verify", A1]):
        with open("/dev/full", "w") as full:
            p = subprocess.run([BINARY, *args], stdout=full, stderr=subprocess.PIPE, encoding="utf-8", timeout=60)
        assert p.returncode == 2 and p.stderr.count("\n") == 1 and p.stderr.endswith("No space left on device\n"), (args, p)


if __name__ == "__main__":
    main(__name__)
