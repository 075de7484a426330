"""What a process holds, and what is left behind.

    a daemon that lives long    Footprint: descriptors, threads, mappings, anonymous memory, sampled after each round of the same work
    the whole soak, at its end  leftovers(): processes, mounts, files in the temporary folder, shared memory
"""
import os, re, subprocess

SLACK = {"descriptors": 2, "threads": 2,  # of pools that are filled when they are needed
          "mappings": 8, "shared memory": 0, "anonymous KiB": 2048}
WARM_UP = 0.15  # of the samples: not compared


def text(*parts):
    with open(os.path.join("/proc", *map(str, parts)), encoding="utf-8", errors="surrogateescape") as f:
        return f.read()


def measure(pid):
    status, maps = text(pid, "status"), text(pid, "maps")
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(re.search(r"^Threads:\s+(\d+)", status, re.M)[1]),
            "mappings": maps.count("\n"), "shared memory": len(re.findall(r" (?:/dev/shm/|/SYSV|/memfd:)", maps)),
            "anonymous KiB": int(re.search(r"^RssAnon:\s+(\d+)", status, re.M)[1])}


class Footprint:
    """Samples of one process. Growth is what all of the last quarter's samples have over the most of the first half's: an unsteady
    figure crosses that of before, a leak doesn't."""

    def __init__(self, name, pid, without=()):
        self.name, self.pid, self.without, self.samples = name, pid, without, []

    def sample(self):
        self.samples.append(measure(self.pid))

    def windows(self):
        n = len(self.samples)
        return self.samples[int(n * WARM_UP) : (n + 1) // 2], self.samples[-max(n // 4, 1):]

    def enough(self):
        return len(self.samples) >= 6

    def growth(self):
        """Sentences."""
        early, late = self.windows()
        for what, slack in SLACK.items():
            before, now = max(s[what] for s in early), min(s[what] for s in late)
            if what not in self.without and now > before + slack:
                yield f"{self.name}: {what} grew from {before} to {now} in {len(self.samples)} rounds of the same work"

    def summary(self):
        early, late = self.windows()
        return ", ".join(f"{what} {max(s[what] for s in early)} -> {min(s[what] for s in late)}" for what in SLACK if what not in self.without)


# --- left behind ---


def shared_memory():
    """Names that would be ours; the machine may run others' programs."""
    return {n for n in (os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []) if n.startswith("mount.ckpt")}


def children():
    """{pid: command} of all below this process, zombies too. It is a subreaper, so daemons are among them."""
    out = subprocess.run(["ps", "-eo", "pid=,ppid=,stat=,args="], capture_output=True, text=True, errors="replace", check=True).stdout
    rows = [line.split(None, 3) for line in out.splitlines()]
    below, found = {os.getpid()}, {}
    for _ in rows:
        more = {int(r[0]): f"{r[2]} {r[3] if len(r) > 3 else ''}" for r in rows if int(r[1]) in below and int(r[0]) not in found}
        if not more:
            break
        found |= more
        below |= set(more)
    return {pid: command for pid, command in found.items() if not re.search(r"\bps -eo pid=", command)}


def mounts(folder):
    """Mount points below a folder."""
    points = [line.split()[4] for line in text("self", "mountinfo").splitlines()]
    return [p for p in points if p.startswith(os.path.realpath(folder) + "/")]


def leftovers(folder, temporary, shm_before):
    """Sentences. `temporary` is what TMPDIR names; `folder` is where all is mounted."""
    for pid, command in children().items():
        yield f"a process is left: {pid} {command}"
    for point in mounts(folder):
        yield f"a mount is left: {point}"
    for name in sorted(os.listdir(temporary)):
        yield f"a temporary file is left: {name}"
    for name in sorted(shared_memory() - shm_before):
        yield f"shared memory is left: {name}"
