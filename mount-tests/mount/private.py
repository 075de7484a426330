"""A machine of the test's own to change: the test runs again in new mount and PID namespaces, where /etc, /usr, /var and /run
are overlays over those of the machine, /dev/fuse may be opened by everybody, and all else is read-only. There it may edit
/etc/fstab and /etc/fuse.conf, install into /usr/sbin and become another user. The namespaces end with the test however it
ends, and all of its daemons, mounts and files with them.

Only what needs that imports this; a test that can't have it ends with code 77 and says why.
"""
import os, shutil, subprocess, sys, tempfile
import mounted

INSIDE = "CKPT_PRIVATE_MACHINE"  # set in there: where its own files are
OVERLAID = ("/etc", "/usr", "/var", "/run")
NAMESPACES = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
NOBODY = 65534
HELPER = "/usr/sbin/mount.ckpt"
HELPER_LINK = "/usr/sbin/mount.fuse.ckpt"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def enter():
    """Returns inside only, with the folder for files that all users may read, which is TMPDIR, too."""
    if INSIDE in os.environ:
        return arrange(os.environ[INSIDE])
    mounted.need_fuse()
    if os.geteuid() != 0:
        skip("needs root, for a mount namespace of its own")
    if not shutil.which("unshare") or not shutil.which("setpriv"):
        skip("there is no unshare or no setpriv here (util-linux)")
    work = tempfile.mkdtemp(prefix="ckpt-private.")
    try:
        if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
            skip("a mount namespace of its own is not allowed here")
        code = subprocess.run([*NAMESPACES, sys.executable, *sys.argv], env={**os.environ, INSIDE: work}).returncode
    finally:
        os.rmdir(work)  # in there a tmpfs was on it, out here it is empty
    sys.exit(code)


def sh(*command, **kw):
    """The finished process; its output is text."""
    return subprocess.run(command, **{"capture_output": True, "encoding": "utf-8", "errors": "surrogateescape", "timeout": 60, **kw})


def must(*command, **kw):
    """What it prints; it must not fail."""
    p = sh(*command, **kw)
    assert p.returncode == 0, f"{command}: exit {p.returncode}: {p.stderr}{p.stdout}"
    return p.stdout


def as_user(*command, user=NOBODY, **kw):
    """The same as sh, run by somebody else, who has no other groups and no capabilities."""
    return sh("setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--inh-caps=-all", *command, **kw)


def mount_or_skip(*args):
    p = sh("mount", "--no-mtab", *args)
    if p.returncode:
        skip(f"mount {' '.join(args)} is not allowed here: {p.stderr.strip()}")


def let_go_of_others():
    """The namespace starts with copies of all mounts; one of what somebody else tests would keep its daemon alive."""
    for m in mounts():
        sh("umount", "--lazy", "--no-mtab", m.target)


def overlay(work, folder):
    own = os.path.join(work, folder.strip("/"))
    for part in ("upper", "work"):
        os.makedirs(os.path.join(own, part))
    mount_or_skip("-t", "overlay", "overlay", "-o", f"lowerdir={folder},upperdir={own}/upper,workdir={own}/work", folder)


def device_for_all(work):
    device = os.path.join(work, "fuse")
    os.mknod(device, 0o020666, os.stat("/dev/fuse").st_rdev)
    os.chmod(device, 0o666)
    mount_or_skip("--bind", device, "/dev/fuse")


def sanitizer_folders():
    """Where sanitizers write what they have to say about daemons."""
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        for option in os.environ.get(name, "").split(":"):
            if option.startswith("log_path=/"):
                yield os.path.dirname(option.removeprefix("log_path="))


def protect(targets):
    """Whatever runs in here by mistake, a package's script or a whole systemd, must not find the machine's /tmp to clean."""
    for folder in set(sanitizer_folders()):
        mount_or_skip("--bind", folder, folder)
    for target in targets:
        if os.path.exists(target):
            mount_or_skip("-o", "remount,bind,ro", target)


def arrange(work):
    let_go_of_others()
    machine = {m.target for m in mounts("") if m.target != "/proc"}
    mount_or_skip("-t", "tmpfs", "-o", "mode=755", "tmpfs", work)
    for folder in OVERLAID:
        overlay(work, folder)
    device_for_all(work)
    protect(machine)
    os.environ["TMPDIR"] = tempfile.tempdir = work
    return work


def install():
    """The binary under test becomes the machine's mount helper, as `cmake --install` does it."""
    for name in (HELPER, HELPER_LINK):
        if os.path.lexists(name):
            os.unlink(name)
    shutil.copy(mounted.BINARY, HELPER)
    os.chmod(HELPER, 0o755)
    os.symlink(os.path.basename(HELPER), HELPER_LINK)
    mounted.BINARY = HELPER


def copy_of(*names):
    """A fixture that all users may read."""
    path = tempfile.mkdtemp()
    os.chmod(path, 0o755)
    path = os.path.join(path, names[-1])
    shutil.copy(mounted.fixture(*names), path)
    os.chmod(path, 0o644)
    return path


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


class MountLine:
    """A line of /proc/mounts."""

    def __init__(self, line):
        def text(field):
            for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\")):
                field = field.replace(escape, char)
            return field
        source, target, self.type, options = line.split()[:4]
        self.source, self.target, self.options = text(source), text(target), options.split(",")


def mounts(kind="fuse."):
    with open("/proc/mounts", encoding="utf-8", errors="surrogateescape") as f:
        return [m for m in map(MountLine, f) if m.type.startswith(kind)]


def mounted_on(directory):
    return [m for m in mounts() if m.target == directory]


class Point:
    """with Point(user) as d: an empty folder that is this user's, unmounted in the end."""

    def __init__(self, user=0):
        self.user = user

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="point.")
        os.chmod(self.dir, 0o755)
        os.chown(self.dir, self.user, self.user)
        return self.dir

    def __exit__(self, *_):
        while mounted_on(self.dir):
            must("umount", "--lazy", self.dir)
        os.rmdir(self.dir)


def processes(name="mount.ckpt"):
    """The process numbers of all that are called so and live."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = mounted.read("/proc", pid, "stat")
        except OSError:
            continue
        comm, rest = text.split(b"(", 1)[1].rsplit(b")", 1)
        if comm == name.encode() and rest.split()[0] != b"Z":
            found.append(int(pid))
    return found
