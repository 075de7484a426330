"""Users who are not root: through fusermount3 and in a user namespace; what they see, what they are told, and auto_unmount,
whose mounts vanish with their daemon, of root and of others, in a mount namespace, too."""
import signal
from private import *
from mounted import *
from kernel_requests import count, fetch

WORK = enter()
install()
SOURCE = copy_of("a1", "a1_full.pt")


def told(code, *arguments, words=(), command=(HELPER,), **kw):
    """Somebody's mount that fails with one line of ours."""
    p = as_user(*command, *arguments, **kw)
    lines = p.stderr.splitlines()
    assert p.returncode == code and len(lines) == 1 and lines[0].startswith("mount.ckpt: "), p
    for w in words:
        assert w in lines[0], f"no {w!r} in {lines[0]!r}"
    assert not mounts(), [m.target for m in mounts()]


def test_mount_read_unmount():
    with Point(NOBODY) as d:
        p = as_user(HELPER, SOURCE, d)
        assert (p.returncode, p.stdout, p.stderr) == (0, "", ""), p
        (m,) = mounted_on(d)
        assert m.source == SOURCE and {"ro", "nosuid", "nodev", f"user_id={NOBODY}"} <= set(m.options), vars(m)
        expected = safetensors(fixture("a1", "a1.safetensors"))[0]["fc1.bias"][2]
        assert as_user("cat", f"{d}/fc1/bias", encoding=None, errors=None).stdout == expected
        assert as_user("stat", "-c", "%u %g %a", f"{d}/fc1", f"{d}/fc1/bias").stdout == f"{NOBODY} {NOBODY} 555\n{NOBODY} {NOBODY} 444\n"
        for other in (0, 1000):
            p = as_user("cat", f"{d}/fc1/bias", user=other)
            assert p.returncode and "Permission denied" in p.stderr, "without allow_other it is the user's own"
        assert as_user("fusermount3", "-u", d, user=1000).returncode, "somebody else unmounted it"
        assert as_user("fusermount3", "-u", d).returncode == 0 and not mounted_on(d)
        wait(lambda: not processes(), "the daemon to end")


def test_passthrough_is_for_root():
    """Who may not have it is told in one line, and gets the same files."""
    with Point() as d:
        assert run("--export", d + "/own.safetensors", SOURCE).returncode == 0
        os.chmod(d + "/own.safetensors", 0o644)
        with Point(NOBODY) as m:
            p = as_user(HELPER, d + "/own.safetensors", m, "-o", "passthrough")
            assert p.returncode == 0 and p.stderr.count("\n") == 1, p
            assert "passthrough" in p.stderr and ("only root" in p.stderr or "kernel" in p.stderr), p.stderr
            want = read(d, "own.safetensors")
            assert as_user("cat", f"{m}/model.safetensors", encoding=None, errors=None).stdout == want
        os.unlink(d + "/own.safetensors")


def test_passthrough_from_a_stacked_filesystem():
    """/var is an overlay here, which the kernel does not pass through: the daemon serves what lies there."""
    with tempfile.TemporaryDirectory(dir="/var") as d, Point() as m:
        assert run("--export", d + "/own.safetensors", SOURCE).returncode == 0
        p = run(d + "/own.safetensors", m, "-o", "passthrough")
        assert p.returncode == 0, p
        assert count(m, fetch, f"{m}/model.safetensors") > 2, "OPEN, READ, RELEASE"
        assert read(m, "model.safetensors") == read(d, "own.safetensors")


def test_other_ways_to_unmount():
    with Point(NOBODY) as d:
        for how in (lambda: as_user("umount", d).returncode == 0, lambda: as_user("kill", str(processes()[0])).returncode == 0):
            assert as_user(HELPER, SOURCE, d).returncode == 0
            assert how()
            wait(lambda: not mounted_on(d) and not processes(), "the mount and the daemon to go")


def test_a_mount_point_that_is_not_theirs():
    with Point() as d:
        told(1, SOURCE, d, words=[d, "may write"])


def test_a_device_that_is_not_theirs():
    os.chmod("/dev/fuse", 0o600)
    try:
        with Point(NOBODY) as d:
            told(1, SOURCE, d, words=["/dev/fuse", "Permission denied", "--export"])
    finally:
        os.chmod("/dev/fuse", 0o666)


def test_a_source_that_is_not_theirs():
    secret = os.path.join(WORK, "secret.pt")
    shutil.copy(SOURCE, secret)
    os.chmod(secret, 0o600)
    with Point(NOBODY) as d:
        told(1, secret, d, words=["secret.pt", "ermission denied"])


def test_too_many():
    write("/etc/fuse.conf", "mount_max = 1\n")
    try:
        with Point(NOBODY) as a, Point(NOBODY) as b:
            assert as_user(HELPER, SOURCE, a).returncode == 0
            p = as_user(HELPER, SOURCE, b)
            assert p.returncode == 1 and "mount_max" in p.stderr and "/etc/fuse.conf" in p.stderr and not mounted_on(b), p
    finally:
        write("/etc/fuse.conf", "")


def test_fusermount3_is_missing_or_not_setuid():
    program = shutil.which("fusermount3")
    with Point(NOBODY) as d:
        mode = os.stat(program).st_mode & 0o7777
        os.chmod(program, 0o755)
        told(1, SOURCE, d, words=["fusermount3", "setuid"])
        os.rename(program, program + ".away")
        told(2, SOURCE, d, words=["fusermount3", "fuse3"])
        with Point() as roots:
            assert run(SOURCE, roots).returncode == 0, "root needs no fusermount3"
        os.rename(program + ".away", program)
        os.chmod(program, mode)
        assert as_user(HELPER, SOURCE, d).returncode == 0


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def need_user_namespaces():
    if as_user(*NAMESPACE, "true").returncode:
        print("     not tried: users may not make user namespaces here")
        return False
    return True


def test_in_a_user_namespace():
    script = """set -e
        mount.ckpt "$1" "$2"
        grep -q " $2 fuse.ckpt ro," /proc/mounts
        stat -c '%u %g %a' "$2/fc1/bias"
        wc -c < "$2/fc1/weight"
        umount "$2"
        mount -t ckpt "$1" "$2" -o layout=torch
        wc -c < "$2/fc1/bias"
        umount "$2"
        ! grep -q " $2 fuse.ckpt" /proc/mounts"""
    if not need_user_namespaces():
        return
    with Point(NOBODY) as d:
        p = as_user(*NAMESPACE, "sh", "-c", script, "sh", SOURCE, d)
        assert (p.returncode, p.stdout, p.stderr) == (0, "0 0 444\n128\n32\n", ""), p
        assert not mounted_on(d), "it was seen outside"
        wait(lambda: not processes(), "the daemon to end")


def test_in_a_user_namespace_without_root():
    if need_user_namespaces():
        with Point(NOBODY) as d:
            told(1, SOURCE, d, command=["unshare", "--user", "--mount", HELPER], words=["user namespace", "unshare -Urm"])


def vanishes(d, user, *opts, command=(), killed=signal.SIGKILL):
    """A mount with auto_unmount is gone once its daemon was killed; in a namespace of its own the script looks."""
    assert as_user(*command, HELPER, SOURCE, d, "-o", ",".join(["auto_unmount", *opts]), user=user).returncode == 0
    assert mounted_on(d)
    (daemon,) = processes()
    (watcher,) = processes("ckpt-watcher")
    fds = {os.readlink(f"/proc/{watcher}/fd/{n}").split(":")[0] for n in os.listdir(f"/proc/{watcher}/fd")}
    assert fds == {"pipe", "/dev/null"}, f"the watcher keeps {fds} open"
    os.kill(daemon, killed)
    wait(lambda: not mounted_on(d), "the dead mount to go")
    wait(lambda: not processes("ckpt-watcher"), "the watcher to end")


def test_auto_unmount():
    for user in (0, NOBODY):
        with Point(user) as d:
            vanishes(d, user)
            vanishes(d, user, "fsname=other")
            vanishes(d, user, killed=signal.SIGTERM)


def test_auto_unmount_while_a_file_is_open():
    with Point() as d:
        assert run(SOURCE, d, "-o", "auto_unmount").returncode == 0
        with open(os.path.join(d, "fc1", "weight"), "rb") as f:
            os.kill(processes()[0], signal.SIGKILL)
            wait(lambda: not mounted_on(d), "the dead mount to go")
            try:
                f.read()
                raise AssertionError("a dead daemon's file was read")
            except OSError:
                pass


def test_auto_unmount_in_a_mount_namespace():
    script = """set -e
        mount.ckpt "$1" "$2" -o auto_unmount
        kill -9 $(for p in /proc/[0-9]*; do [ "$(cat $p/comm)" != mount.ckpt ] || grep -q '^State:.Z' $p/status || echo ${p#/proc/}; done)
        for i in $(seq 200); do grep -q " $2 fuse.ckpt" /proc/mounts || exit 0; sleep 0.05; done
        exit 9"""
    with Point(NOBODY) as d:
        spaces = [(0, ["unshare", "--mount"])] + ([(NOBODY, NAMESPACE)] if need_user_namespaces() else [])
        for user, space in spaces:
            p = as_user(*space, "sh", "-c", script, "sh", SOURCE, d, user=user)
            assert (p.returncode, p.stderr) == (0, ""), (user, p)
            wait(lambda: not processes("ckpt-watcher"), "the watcher to end")


def test_auto_unmount_leaves_others_alone():
    """Unmounted by hand and mounted again by another: the first one's watcher must not touch that."""
    with Point() as d:
        assert run(SOURCE, d, "-o", "auto_unmount").returncode == 0
        must("umount", d)
        assert run(SOURCE, d).returncode == 0
        wait(lambda: not processes("ckpt-watcher"), "the watcher to end")
        assert read(d, "index.json")


if __name__ == "__main__":
    main(__name__)
