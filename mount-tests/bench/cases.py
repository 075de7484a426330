"""What is measured of mount.ckpt, and of readers on plain files. Each case is function(bench, *args) and gives {figure: number}: wall seconds, cpu
(seconds of the reader and of the daemon, user and system), anon (the daemon's anonymous memory, MiB)."""
import json
import os
import subprocess
import tempfile
import time

from measured import Peak, mounted, serving, timed, unmount
from peers import GATE, python_reader
from table import Skip

DOWN = "model.layers.0.mlp.down_proj.weight"  # GATE is [11008, 4096], served as [4096, 11008]; this is the other way round
MOUNTS = 8  # how often what takes milliseconds is done in one round


def tensor_path(key):
    return os.path.join(*key.split("."))


# --- readers: what somebody does with a file; each takes its path and a path that may be written to ---

COMMANDS = {
    "cat": ["cat", "{path}"],
    "cp": ["cp", "{path}", "{out}"],
    "tar": ["sh", "-c", 'tar cf - "$0" 2>/dev/null | cat >/dev/null', "{path}"],
    "sha256sum": ["sha256sum", "{path}"],
    "dd bs=8k": ["dd", "bs=8k", "status=none", "if={path}", "of=/dev/null"],
}


def read(b, reader, path):
    """Wall and CPU seconds of one reader: a command, or the body of a Python program."""
    if reader not in COMMANDS:
        return python_reader(b, reader, path)
    with tempfile.TemporaryDirectory(prefix="ckpt-bench.", dir=b.out) as folder:
        command = [word.format(path=path, out=folder + "/copy") for word in COMMANDS[reader]]
        wall, cpu, _ = timed(*command, stdout=subprocess.DEVNULL)
    return {"wall": wall, "cpu": cpu}


def raw(b, reader, source):
    """Of the source itself, which is in the page cache."""
    return read(b, reader, b.file(source))


def needs_fuse():
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Skip("/dev/fuse cannot be used here")


def option_words(options):
    return [word for o in options for word in ("-o", o)]


def served(b, source, *options):
    needs_fuse()
    return mounted(b.binary, b.file(source), *option_words(options))


def through(b, reader, source, path, *options):
    """Of a file of a mount of its own, so that no page of it is there yet. The CPU time is that of mounting, too."""
    with served(b, source, *options) as d:
        figures = read(b, reader, os.path.join(d.dir, path))
        return {"wall": figures["wall"], "cpu": figures["cpu"] + d.cpu(), "anon": d.status("RssAnon")}


def again(b, reader, source, path, *options):
    """The same reader a second time: the file is in the kernel's page cache."""
    with served(b, source, *options) as d:
        read(b, reader, os.path.join(d.dir, path))
        before = d.cpu()
        figures = read(b, reader, os.path.join(d.dir, path))
        return {"wall": figures["wall"], "cpu": figures["cpu"] + d.cpu() - before, "anon": d.status("RssAnon")}


def mount_and_read(b, source, path, *options):
    """Mounting and reading one file, as against mounting an archive and reading all of it."""
    start = time.monotonic()
    with served(b, source, *options) as d:
        _, cpu, _ = timed("cat", os.path.join(d.dir, path), stdout=subprocess.DEVNULL)
        return {"wall": time.monotonic() - start, "cpu": cpu + d.cpu(), "anon": d.status("RssAnon")}


def exported(b, source):
    """The path of what --export makes of a source as it is: a file that the mount shows byte for byte."""
    if exported not in b.files:
        b.files[exported] = os.path.join(b.data, "exported." + source)
        subprocess.run([b.binary, "--export", b.files[exported], *option_words(["layout=source"]), b.file(source)], check=True)
        os.sync()
    return b.files[exported]


def passed_through(b, reader, source):
    """With -o passthrough, where the kernel reads the source and the daemon has nothing to do."""
    needs_fuse()
    with mounted(b.binary, exported(b, source), *option_words(["passthrough", "layout=source"])) as d:
        before = d.cpu()
        figures = read(b, reader, d.dir + "/model.safetensors")
        served_cpu = d.cpu() - before
    if served_cpu > figures["cpu"] / 10:
        raise Skip("no passthrough here: needs root and Linux 6.9")
    return {"wall": figures["wall"], "cpu": figures["cpu"] + served_cpu}


def bare(b, reader, source, second, *options):
    """Through a server that does nothing but answer from the source's mapping: the kernel's part of what `through` and `again` cost."""
    needs_fuse()
    with serving(b.program("bench_bare"), *option_words(options), b.file(source)) as d:
        set_readahead(d.dir)
        for _ in range(2 if second else 1):
            before = d.cpu()
            figures = read(b, reader, d.dir + "/file")
        return {"wall": figures["wall"], "cpu": figures["cpu"] + d.cpu() - before}


def set_readahead(directory):
    """As mount.ckpt does it when it may."""
    device = os.stat(directory).st_dev
    try:
        with open(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb", "w", encoding="ascii") as f:
            f.write("1024")
    except OSError:
        pass


# --- mounting ---


def mount_and(b, source, options, look):
    """Wall seconds until mount.ckpt, as a user calls it, returned and `look` came back from the mountpoint."""
    needs_fuse()
    path, directory = b.file(source), tempfile.mkdtemp(prefix="ckpt-bench.")
    start = time.monotonic()
    if subprocess.run([b.binary, path, directory, *option_words(options)]).returncode:
        os.rmdir(directory)
        raise RuntimeError(f"{source} can't be mounted")
    try:
        look(directory)
        return time.monotonic() - start
    finally:
        unmount(directory)


def first_byte(b, source, path, *options):
    def look(directory):
        fd = os.open(os.path.join(directory, path), os.O_RDONLY)
        assert len(os.read(fd, 1)) == 1
        os.close(fd)

    return {"wall": min(mount_and(b, source, options, look) for _ in range(MOUNTS))}


def mount(b, source, *options):
    return {"wall": min(mount_and(b, source, options, lambda directory: None) for _ in range(MOUNTS))}


def mount_and_list(b, source, *options):
    def look(directory):
        assert b"model.safetensors" in subprocess.run(["ls", "-lR", directory], check=True, stdout=subprocess.PIPE).stdout

    return {"wall": min(mount_and(b, source, options, look) for _ in range(MOUNTS))}


def archive_index(b, source):
    """Of libzip's own reading of the archive's directory, every entry looked at."""
    program = b.program("bench_index")
    return {"wall": min(float(timed(program, b.file(source))[2]) for _ in range(MOUNTS))}


# --- memory ---


def read_everything(b, source, *options):
    """The daemon's anonymous memory after every file but verify.json was read, and its peak while they were."""
    with served(b, source, *options) as d, Peak(d) as peak:
        wall, cpu, _ = timed("find", d.dir, "-type", "f", "!", "-name", "verify.json", "-exec", "cat", "{}", "+", stdout=subprocess.DEVNULL)
        return {"wall": wall, "cpu": cpu + d.cpu(), "anon": d.status("RssAnon"), "peak": peak.mib}


# --- in process ---


def gather(b, view):
    """CPU seconds of one thread that gathers all bands of a view."""
    said = json.loads(timed(b.program("bench_gather"), "--json", "5", view)[2])
    return {"wall": said["seconds"], "cpu": said["seconds"]}


def export(b, source, *options):
    with tempfile.TemporaryDirectory(prefix="ckpt-bench.", dir=b.out) as folder:
        wall, cpu, _ = timed(b.binary, "--export", folder + "/model.safetensors", *option_words(options), b.file(source))
    return {"wall": wall, "cpu": cpu}
