"""Hostile sources of every kind (hostile_*.py make them): each is opened by --inspect --json, and what opens is checked by --verify or
mounted and read in part. Of each: an exit code that the manual knows, no signal, at most 5 s of CPU and 256 MiB, one line that names the source where
it is refused, nothing on standard output then, and the marker that evil pickles would make never appears. CKPT_SEED repeats a run,
CKPT_HOSTILE=PATTERN runs the cases whose name holds it and shows their answers. Standard library only."""
import concurrent.futures, errno, random, resource, shutil, time
import hostile_burnpacks, hostile_files, hostile_pickles, hostile_zips
from mounted import *

SEED = int(os.environ.get("CKPT_SEED", 4))
ONLY = os.environ.get("CKPT_HOSTILE", "")
MARKER = "PT_EVIL_MARKER"
SCALE = 3 if sanitizer() else 1
SECONDS = 5 * SCALE
MIB = 256  # a sanitizer's own memory is none of ours to bound


def execute(args, where):
    """Exit code, the two outputs, CPU seconds and MiB of memory."""
    with tempfile.TemporaryFile(dir=where) as out, tempfile.TemporaryFile(dir=where) as err:
        pid = os.posix_spawn(BINARY, [BINARY, *args], os.environ, file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, err.fileno(), 2)])
        deadline = time.monotonic() + 20 * SECONDS
        while True:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() > deadline:
                os.kill(pid, 9)
                os.wait4(pid, 0)
                raise AssertionError("it hangs")
            time.sleep(0.003)
        out.seek(0), err.seek(0)
        return os.waitstatus_to_exitcode(status), out.read(), err.read().decode("utf-8", "replace"), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def check_run(args, codes, source, where):
    code, out, err, seconds, mib = execute(args, where)
    assert code in codes, f"exit {code}: {err[-2000:]}"
    assert not SANITIZER.search(err), err[-2000:]
    assert seconds <= SECONDS, f"{seconds:.1f} s of CPU"
    # What this process had before the other began counts as the other's.
    assert SCALE > 1 or mib <= max(MIB, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), f"{mib:.0f} MiB of memory"
    if code and not (out and args[0] == "--verify"):  # which prints its report whatever it says
        assert err.count("\n") == 1 and err.startswith("mount.ckpt: ") and os.path.basename(source) in err, f"not one line that names it: {err!r}"
        assert not out, "a refusal prints nothing on standard output"
    return code, out, err


def check_listing(out):
    """What every accepted source keeps."""
    listing = json.loads(out.decode("utf-8"))
    for t in listing["tensors"]:
        assert t["nbytes"] >= 0 and all(d >= 0 for d in t["shape"]), t
        assert not {"..", ".", ""} & set(t["path"].split("/")), t["path"]
    return listing


def read_some(folder):
    """Looks at everything, reads the beginning of every file. Damaged bytes are EIO; a link may lead to what changes, ESTALE; a key of
    a thousand dots is a path too long to be asked for in one piece."""
    folders = [folder]  # no os.walk: before Python 3.12 it calls itself for each level
    while folders:
        directory = folders.pop()
        try:
            entries = list(os.scandir(directory))
            folders += [e.path for e in entries if e.is_dir(follow_symlinks=False)]
            for e in entries:
                if not e.is_dir(follow_symlinks=False):
                    read_beginning(e.path)
        except OSError as e:
            assert e.errno == errno.ENAMETOOLONG, e


def read_beginning(path):
    try:
        with open(path, "rb", buffering=0) as f:
            f.read(4096)
    except OSError as e:
        assert e.errno in (errno.EIO, errno.ESTALE, errno.ENAMETOOLONG), e


def check(case, folder, number):
    """The exit code and the line of a refusal."""
    where = os.path.join(folder, f"{number:03}")
    os.mkdir(where)
    source = case.make(where)
    code, out, err = check_run(["--inspect", "--json", source], (0, 2, 32), source, where)
    assert case.expect is None or (code == 0) == case.expect, f"{'refused' if code else 'accepted'}: {err}"
    if code == 0:
        listing = check_listing(out)
        if number % 4 == 0:
            check_run(["--verify", source], (0, 1, 2), source, where)
        elif number % 4 == 1 and sum(t["nbytes"] for t in listing["tensors"]) < 1 << 40:
            with Mount(source, "list=all") as m:
                read_some(m)
    shutil.rmtree(where)
    return code, err


def cases(marker, rng):
    for module in hostile_zips, hostile_pickles, hostile_files, hostile_burnpacks:
        yield from module.cases(marker, rng)


def run_all(cases, check):
    print(f"CKPT_SEED={SEED}")
    failed, refused = [], 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        marker = os.path.join(folder, MARKER)
        every = [c for c in cases(marker, random.Random(SEED)) if ONLY in c.name]
        assert len({c.name for c in every}) == len(every), "two cases have one name"
        runs = [(c, pool.submit(check, c, folder, i)) for i, c in enumerate(every)]
        for c, r in runs:
            try:
                code, err = r.result()
                refused += code != 0
                if ONLY:
                    print(c.name, "->", code, err.strip())
            except Exception as e:
                failed.append(f"{c.name}: {e}")
            assert not os.path.exists(marker), f"{c.name}: code in the file was run"
    print(f"{len(every)} sources, {refused} refused")
    assert not failed, "\n".join([f"{len(failed)} failed", *failed])


def test_all():
    run_all(cases, check)


if __name__ == "__main__":
    main(__name__)
