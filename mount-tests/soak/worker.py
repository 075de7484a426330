"""One worker of the soak: mounts a case, uses it in several ways at once, ends it in one of several ways, and so on."""
import collections, concurrent.futures, errno, hashlib, os, random, shutil, signal, subprocess, sys, time, traceback

from cases import BINARY, Case, Wrong, options
from footprint import text

HERE = os.path.dirname(os.path.abspath(__file__))
READER = [sys.executable, os.path.join(HERE, "reader.py")]
PATIENCE = 120   # seconds until something hangs
FILES = 6        # of a mount that one action reads
GIANT = 1 << 29  # bytes of a file that is never read to its end: a broadcast tensor may have terabytes


def wait(condition, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Wrong(f"not within {seconds} s: {what}")
        time.sleep(0.005)


def command(*args, **kw):
    """A program that may fail, but not hang."""
    try:
        return subprocess.run(args, stdout=kw.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, timeout=PATIENCE, **kw)
    except subprocess.TimeoutExpired:
        raise Wrong(f"hangs: {args[:6]}") from None


def must(*args, **kw):
    p = command(*args, **kw)
    if p.returncode:
        raise Wrong(f"{args[:6]}: exit {p.returncode}: {p.stderr.decode(errors='replace')[-500:]}")
    return p.stdout


def is_mounted(directory):
    return f" {os.path.realpath(directory)} " in text("self", "mountinfo")


def mount(case, directory):
    """Mounts in the background as people do; the daemon's process. It is our child, since we are a subreaper."""
    p = command(BINARY, case.source, directory, *options(*case.opts))
    if p.returncode:
        raise Wrong(f"mount: exit {p.returncode}: {p.stderr.decode(errors='replace')[-500:]}")
    for pid in children_of(directory):
        return pid
    raise Wrong("the daemon is not to be found")


def children_of(directory):
    """Our own children that have a mount point among their arguments."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if text(pid, "stat").rsplit(")", 1)[1].split()[1] == str(os.getpid()) and directory in text(pid, "cmdline").split("\0"):
                yield int(pid)
        except OSError:
            pass


def mount_in_the_foreground(case, directory):
    """The daemon's process; it writes its log beside the mount point."""
    args = [BINARY, "--foreground", case.source, directory, *options(*case.opts)]
    log = os.open(directory + ".log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    pid = os.posix_spawn(BINARY, args, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, log, 2)])
    os.close(log)
    wait(lambda: is_mounted(directory), f"{args} to mount")
    os.listdir(directory)
    return pid


def ended(pid, directory, wanted=0):
    """Waits for a daemon's end and looks at how it ended."""
    status = []
    wait(lambda: status or (got := os.waitpid(pid, os.WNOHANG))[0] and status.append(got[1]) is None, f"the daemon {pid} to end")
    code = os.waitstatus_to_exitcode(status[0])
    if code != wanted:
        raise Wrong(f"the daemon ended with {code}, not {wanted}: {log_of(directory)}")


def log_of(directory):
    """The last of what a daemon in the foreground wrote."""
    try:
        with open(directory + ".log", encoding="utf-8", errors="replace") as f:
            return f.read()[-1000:]
    except FileNotFoundError:
        return "(it logged to syslog)"


def umount(directory, *how):
    root = os.geteuid() == 0
    return command("umount", *how, directory) if root else command("fusermount3", "-u", *(["-z"] if how else []), directory)


def umount_soon(directory):
    """Killed readers may hold files for a moment."""
    wait(lambda: not is_mounted(directory) or umount(directory).returncode == 0, f"umount {directory}")


class Mounted:
    """A case that is mounted, and what may be done with it."""

    def __init__(self, worker, case, directory, scratch):
        self.worker, self.case, self.dir, self.scratch = worker, case, directory, scratch
        self.rng = random.Random(worker.rng.random())
        found = must("find", directory, "-type", "f", "-print0").split(b"\0")[:-1]
        self.all = sorted(os.fsdecode(f)[len(directory) + 1 :] for f in found)
        self.files = [p for p in self.all if os.stat(self.path(p)).st_size < GIANT]

    def some(self, most=FILES):
        return self.rng.sample(self.files, min(len(self.files), most))

    def readable(self, most=FILES):
        return [(p, known) for p in self.some(most) if (known := self.case.holds(p))]

    def path(self, file):
        return os.path.join(self.dir, file)

    def check_hashes(self, root, files):
        """Each file below a folder has the bytes that it should."""
        files = [(p, self.case.holds(p)) for p in files]
        good = [(p, known[0]) for p, known in files if known]
        for p, known in files:
            if not known and command("cat", os.path.join(root, p), stdout=subprocess.DEVNULL).returncode == 0:
                raise Wrong(f"{p} can be read, but not by --cat")
        if good:
            lines = must("sha256sum", "-z", *(os.path.join(root, p) for p, _ in good)).split(b"\0")
            for (p, sha), line in zip(good, lines):
                if line[:64].decode() != sha:
                    raise Wrong(f"{p} has other bytes than by --cat")
        self.worker.count("files read", len(good))

    # --- actions ---

    def do_cat(self):
        self.check_hashes(self.dir, self.some())

    def do_random(self):
        for p, (_, reference) in self.readable(2):
            how = self.rng.choice(["pread", "preadv", "mmap", "sendfile"])
            if how == "mmap" and ("direct_io" in self.case.opts or p == "verify.json"):  # which is direct_io until it is computed
                how = "pread"
            must(*READER, how, str(self.rng.random()), "40", self.path(p), reference)
            self.worker.count("random readers")

    def do_verify(self):
        status = must("jq", "-r", ".status", self.path("verify.json")).decode().strip()
        if f'"status": "{status}"' not in self.case.run("--verify", stdout=subprocess.PIPE).stdout.decode():
            raise Wrong(f"verify.json says {status}, --verify something else")
        self.worker.count("verify.json read")

    def do_look(self):
        must("find", self.dir, "-printf", "%i %s %m\\n")
        must("ls", "-lR", self.dir)
        must("getfattr", "-R", "-d", "-m", "-", self.dir)
        must("stat", "-f", self.dir)
        self.worker.count("trees listed")

    def do_tar(self):
        with self.worker.folder() as out:
            files = self.some()
            p = command("tar", "-cf", os.path.join(out, "t.tar"), "-C", self.dir, "--", *files)
            if p.returncode == 0:
                must("tar", "-xf", os.path.join(out, "t.tar"), "-C", out)
                self.check_hashes(out, files)

    def do_cp(self):
        with self.worker.folder() as out:
            files = [p for p, _ in self.readable(3)]
            for p in files:
                os.makedirs(os.path.dirname(os.path.join(out, p)), exist_ok=True)
                must("cp", "--", self.path(p), os.path.join(out, p))
            self.check_hashes(out, files)

    def do_kill_reader(self):
        file = max(self.rng.sample(self.all, min(len(self.all), 40)), key=lambda p: os.stat(self.path(p)).st_size)
        p = subprocess.Popen(["cat", self.path(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            p.wait(self.rng.random() * 0.05)
        except subprocess.TimeoutExpired:
            p.kill()
        wait(lambda: p.poll() is not None, "the end of a killed reader")
        self.worker.count("readers killed")

    def do_programs(self):
        """What needs no mount, beside it."""
        if self.files != self.all:
            return
        with self.worker.folder() as out:
            known = self.case.holds("model.safetensors") if "model.safetensors" in self.files else None
            path = os.path.join(out, "m.safetensors")
            if self.case.run("--export", path, stdout=subprocess.DEVNULL).returncode == 0 and known:
                if must("sha256sum", path)[:64].decode() != known[0]:
                    raise Wrong("--export writes other bytes than --cat")
        self.case.run("--inspect", stdout=subprocess.DEVNULL)
        self.worker.count("exports")

    ACTIONS = [do_cat, do_cat, do_cat, do_random, do_random, do_verify, do_look, do_tar, do_cp, do_kill_reader, do_programs]

    # --- ends ---

    def open_one(self):
        """(file, its right bytes, descriptor) of a file that is held open."""
        for p in self.some(20):
            if p != "verify.json" and (known := self.case.holds(p)):
                return p, known[0], os.open(self.path(p), os.O_RDONLY)
        raise Wrong("no file can be opened")

    def still_right(self, file, sha, fd):
        digest = hashlib.sha256()
        while piece := os.read(fd, 1 << 20):
            digest.update(piece)
        if digest.hexdigest() != sha:
            raise Wrong(f"{file}: other bytes through a descriptor held open")

    def end_umount(self, pid):
        umount_soon(self.dir)
        ended(pid, self.dir)

    def end_busy(self, pid):
        held = self.open_one()
        try:
            if umount(self.dir).returncode == 0:
                raise Wrong("a busy mount was unmounted")
            self.still_right(*held)
        finally:
            os.close(held[2])
        self.end_umount(pid)

    def end_lazily(self, pid):
        held = self.open_one()
        try:
            if umount(self.dir, "-l").returncode or is_mounted(self.dir):
                raise Wrong("umount -l leaves the mount")
            self.still_right(*held)
        finally:
            os.close(held[2])
        ended(pid, self.dir)

    def end_terminated(self, pid):
        held = self.open_one()
        try:
            os.kill(pid, signal.SIGTERM)
            wait(lambda: not is_mounted(self.dir), "SIGTERM to detach the mount")
            self.still_right(*held)
        finally:
            os.close(held[2])
        ended(pid, self.dir)

    def end_terminated_idle(self, pid):
        os.kill(pid, self.rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
        ended(pid, self.dir)
        wait(lambda: not is_mounted(self.dir), "the mount to go with its daemon")

    def end_killed(self, pid):
        """As by the out-of-memory killer: what is left of the mount can be cleared, and mounted again."""
        os.kill(pid, signal.SIGKILL)
        ended(pid, self.dir, -signal.SIGKILL)
        try:
            os.stat(self.path("a name that nobody has looked for"))
            raise Wrong("a mount without its daemon knows names")
        except OSError as e:
            if e.errno != errno.ENOTCONN:
                raise
        umount_soon(self.dir)
        pid = mount(self.case, self.dir)
        self.do_cat()
        self.end_umount(pid)

    ENDS = [end_umount, end_umount, end_busy, end_lazily, end_terminated, end_terminated_idle, end_killed]


class Worker:
    """Mounts one case after the other until the time is over."""

    def __init__(self, number, seed, cases, folder, soak):
        self.rng = random.Random(f"{seed}.{number}")
        self.number, self.cases, self.root, self.soak = number, cases, folder, soak
        self.serial = 0
        self.counts = collections.Counter()

    def count(self, what, n=1):
        self.counts[what] += n

    def folder(self):
        import tempfile
        return tempfile.TemporaryDirectory(dir=self.root, prefix="scratch.")

    def run(self):
        while not self.soak.over():
            case = self.rng.choice(self.cases)
            try:
                self.one(case)
            except (Wrong, OSError, ValueError, subprocess.TimeoutExpired) as e:
                self.soak.fail(f"{case}: {e if isinstance(e, Wrong) else traceback.format_exc()}")

    def directory(self):
        self.serial += 1
        path = os.path.join(self.root, f"mount.{self.number}.{self.serial}")
        os.mkdir(path)
        return path

    def one(self, case):
        directory = self.directory()
        try:
            if not case.usable():
                self.refused(case, directory)
            elif os.path.isfile(case.source) and self.rng.random() < 0.1:
                self.replaced(case, directory)
            else:
                self.used(case, directory)
        finally:
            if is_mounted(directory):
                umount(directory, "-l")
            self.reap(directory)
            os.rmdir(directory)
            if os.path.exists(directory + ".log"):
                os.unlink(directory + ".log")

    def reap(self, directory):
        """A daemon that has been left by something that went wrong, which has been told."""
        for pid in list(children_of(directory)):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def refused(self, case, directory):
        p = command(BINARY, case.source, directory, *options(*case.opts))
        if p.returncode in (0, -11, -6) or p.returncode > 64 or is_mounted(directory):
            raise Wrong(f"--inspect refuses it, a mount ends with {p.returncode}: {p.stderr.decode(errors='replace')[-500:]}")
        self.count("mounts refused")

    def used(self, case, directory):
        pid = self.rng.choice([mount, mount_in_the_foreground])(case, directory)
        self.count("mounts")
        m = Mounted(self, case, directory, self.root)
        actions = self.rng.choices(Mounted.ACTIONS, k=self.rng.randrange(1, 6))
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            failed = [f.exception() for f in [pool.submit(a, m) for a in actions]]
        end = self.rng.choice(Mounted.ENDS)
        try:
            end(m, pid)
        except (Wrong, OSError) as e:
            raise Wrong(f"{end.__name__} after {[a.__name__ for a in actions]}: {e}") from e
        finally:
            if os.path.exists(f"/proc/{pid}") and is_mounted(directory):
                umount(directory, "-l")
        self.count(end.__name__.replace("_", " "))
        for e in filter(None, failed):
            raise e

    def replaced(self, case, directory):
        """What is open stays as it was when another file takes the source's name."""
        with self.folder() as d:
            copy = os.path.join(d, os.path.basename(case.source))
            shutil.copy(case.source, copy)
            case = Case(copy, case.opts, {}, d, "store")  # what a copy without its sidecars holds
            pid = mount(case, directory)
            m = Mounted(self, case, directory, self.root)
            held = m.open_one()
            shutil.copy(case.source, copy + ".new")
            os.replace(copy + ".new", copy)
            with os.fdopen(held[2], "rb"):
                m.still_right(*held)
            m.end_umount(pid)
            self.count("sources replaced")
