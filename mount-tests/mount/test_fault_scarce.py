"""Whatever a program asks for is refused once, or from some time on (mount-tests/inject/scarce.c): each command either does what it
does, or fails with one line; never a signal, a hang, other bytes, or a file that only looks whole.

    test_fault_scarce.py            a sample of the calls
    CKPT_SCARCE=all ...             each of them; CKPT_SEED=N another sample

A sanitizer has its own malloc: this runs where there is none.
"""
import errno, os, random, struct, subprocess
from mounted import *
from faulty import wait
from test_signals import daemon_of

SCARCE = os.environ.get("SCARCE")
SEED = int(os.environ.get("CKPT_SEED", "1"))
SAMPLE = 10**9 if os.environ.get("CKPT_SCARCE") == "all" else 6
KINDS = "malloc mmap memfd open read write stat thread fallocate sync rename".split()


def can_run():
    if not SCARCE or sanitizer():
        print("skipped: a sanitizer has allocators of its own")
        sys.exit(77)


def start(args, refuse=None, counts=None):
    env = dict(os.environ, LD_PRELOAD=SCARCE, **({"REFUSE": refuse} if refuse else {}), **({"REFUSE_COUNTS": counts} if counts else {}))
    return subprocess.run([BINARY, *args], capture_output=True, env=env, timeout=60)


def count(call):
    """How often what call(counts file) runs asks for each kind."""
    with tempfile.NamedTemporaryFile() as f:
        call(f.name)
        return dict(zip(KINDS, struct.unpack(f"{len(KINDS)}Q", read(f.name))))


def sampled(counts):
    """'malloc 17', 'malloc 17 on', ..."""
    rng = random.Random(SEED)
    for kind, n in counts.items():
        for i in sorted(rng.sample(range(1, n + 1), min(n, SAMPLE))):
            yield f"{kind} {i}"
            yield f"{kind} {i} on"


def is_one_line(p):
    return p.returncode > 0 and p.stderr.count(b"\n") == 1 and p.stderr.startswith(b"mount.ckpt: ")


def command(*args):
    counts = count(lambda f: start(args, counts=f))
    right = start(args)
    assert right.returncode == 0, right.stderr
    for refuse in sampled(counts):
        p = start(args, refuse)
        assert (p.returncode == 0 and p.stdout == right.stdout) or is_one_line(p), (args, refuse, p.returncode, p.stderr[:500])


A1 = fixture("a1", "a1_full.pt")
DEFLATED = fixture("pt", "zip_deflated.pt")
STORE = fixture("orbax", "e_edge_zarr2_dirs")


def test_inspect():
    command("--inspect", A1)
    command("--inspect", STORE)


def test_cat():
    command("--cat", "model.safetensors", DEFLATED)
    command("--cat", "model.safetensors", "-o", "cache=1K", STORE)


def reported(right, p):
    """A check that could not be made says so: never that there is a difference, nor that there is none where some is unchecked."""
    if p.returncode == 0:
        return json.loads(p.stdout)["status"] == "PASS"
    if p.returncode != 2:
        return False
    return is_one_line(p) or json.loads(p.stdout)["status"] not in ("PASS", "DIFF")


def test_verify():
    args = ["--verify", A1]
    counts = count(lambda f: start(args, counts=f))
    right = start(args)
    assert right.returncode == 0
    for refuse in sampled(counts):
        p = start(args, refuse)
        assert reported(right, p), (refuse, p.returncode, p.stderr[:500], p.stdout[:500])


def test_export():
    with tempfile.TemporaryDirectory() as d:
        for name, source in (("a.safetensors", DEFLATED), ("a.bpk", A1)):
            out = os.path.join(d, name)
            args = ["--export", out, source]
            counts = count(lambda f: start(args, counts=f))
            right = read(out)
            for refuse in sampled(counts):
                os.unlink(out) if os.path.exists(out) else None
                p = start(args, refuse)
                assert (p.returncode == 0 and read(out) == right) or is_one_line(p), (refuse, p.returncode, p.stderr[:500])
                if refuse.startswith("sync") and p.returncode == 0:
                    continue
                assert os.listdir(d) == ([name] if p.returncode == 0 else []), (refuse, os.listdir(d))
            os.unlink(out) if os.path.exists(out) else None


def look(m, right, refuse):
    """What a mount shows that came to be: each file its bytes, or an error."""
    for name, data in right.items():
        try:
            got = read(m, name)
            assert got == data, (refuse, name, len(got), len(data), got[:300])
        except OSError as e:
            assert e.errno in (errno.EIO, errno.ENOMEM, errno.ESTALE), (refuse, name, e)


def mount_and_look(m, right, refuse=None, counts=None):
    p = start(["-o", "threads=2", DEFLATED, m], refuse, counts)
    if p.returncode:  # libfuse may have had something to say before
        assert p.returncode > 0 and p.stderr.splitlines()[-1].startswith(b"mount.ckpt: "), (refuse, p.returncode, p.stderr[:500])
        assert not os.path.ismount(m), refuse
        return
    pid = daemon_of(m)
    try:
        look(m, right, refuse)
        assert os.path.ismount(m) and os.stat(m), refuse
    finally:
        unmount(m)
    wait(lambda: not os.path.exists(f"/proc/{pid}"), "the daemon to end")


def test_mount():
    with tempfile.TemporaryDirectory() as m:
        with Mount(DEFLATED) as healthy:
            right = {n: read(healthy, n) for n in ("model.safetensors", "index.json", "summary.txt")}
        counts = count(lambda f: mount_and_look(m, right, counts=f))
        del counts["write"]  # to /dev/fuse and to our own pipe: these do not fail
        for refuse in sampled(counts):
            mount_and_look(m, right, refuse)


if __name__ == "__main__":
    can_run()
    main(__name__)
