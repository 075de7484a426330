"""A disk with bad sectors below the source: EIO for who reads them, one line in the log, everything else goes on, and nothing
is wrong once the sectors can be read again. Never a signal, zeros, other numbers, or a file that only looks whole.

What is right is what the same source shows where nothing is bad.
"""
import os, random, shutil, subprocess
from mounted import *
from faulty import FaultFs, error_of, in_foreground, sharded
import torch_file

ROWS, COLUMNS = 256, 2048
noise = random.Random(5)


def floats(n):
    return struct.pack(f"<{n}f", *(noise.uniform(-2, 2) for _ in range(n)))


def the_injector_fails_as_told(disk):
    data = noise.randbytes(100_000)
    with open(os.path.join(disk.below, "a"), "wb") as f:
        f.write(data)
    assert read(disk.path("a")) == data
    with open(disk.path("a"), "rb") as f:
        disk.fail("a", "read EIO 50000 10")
        for off, fails in ((0, False), (50000, True), (90000, False)):
            assert error_of(os.pread, f.fileno(), 100, off) == ("EIO" if fails else None)
        disk.heal("a")
        assert os.pread(f.fileno(), 100_000, 0) == data
    disk.fail("a", "read hang 0")
    p = subprocess.Popen(["cat", disk.path("a")], stdout=subprocess.PIPE)
    disk.wait_for_waiting("a")
    assert p.poll() is None
    disk.heal("a")
    assert p.communicate()[0] == data


def test_the_injector():
    with FaultFs() as disk:
        the_injector_fails_as_told(disk)


# Each puts a source into a folder: its name there, the file that goes bad, the rule, the key of a tensor in the bad part, options.

def plain(folder):
    tensors = {"fc.bias": ("F32", [ROWS], floats(ROWS)), "fc.weight": ("F32", [ROWS, COLUMNS], floats(ROWS * COLUMNS))}
    write_safetensors(os.path.join(folder, "m.safetensors"), tensors)
    return "m.safetensors", "m.safetensors", f"read EIO {1 << 20} 4096", "fc.weight"


def untouched(folder):
    return *plain(folder), "layout=torch"


def permuted(folder):
    return plain(folder)


def cast(folder):
    return *plain(folder), "cast=bf16", "layout=torch"


def sliced(folder):
    with open(os.path.join(folder, "rules.json"), "w") as f:
        json.dump({"rules": [{"match": "^fc\\.weight$", "name": "fc.weight", "ops": [["slice", 1, 100, 1900]]}]}, f)
    return *plain(folder), "rules=" + os.path.join(folder, "rules.json")


def weight_norm(folder):
    columns = 65536
    sharded(folder, {"fc.weight_v": ("F32", [8, columns], floats(8 * columns)), "fc.bias": ("F32", [8], floats(8))}, {"fc.weight_g": ("F32", [8, 1], floats(8))})
    return "", "model-00001-of-00002.safetensors", f"read EIO {1 << 20} 4096", "fc.weight"


def tensors_of_a_checkpoint():
    pickle = torch_file.pickle(torch_file.state_dict({"fc.weight": torch_file.tensor("0", [ROWS, COLUMNS]), "fc.bias": torch_file.tensor("1", [ROWS])}))
    return pickle, {"0": floats(ROWS * COLUMNS), "1": floats(ROWS)}


def stored_entry(folder):
    with open(os.path.join(folder, "m.pt"), "wb") as f:
        f.write(torch_file.checkpoint(*tensors_of_a_checkpoint()))
    return "m.pt", "m.pt", f"read EIO {1 << 20} 4096", "fc.weight"


def deflated_entry(folder):
    with open(os.path.join(folder, "m.pt"), "wb") as f:
        f.write(torch_file.checkpoint(*tensors_of_a_checkpoint(), deflated=True))
    return "m.pt", "m.pt", f"read EIO {1 << 20} 4096", "fc.weight"


def chunk(array, name):
    def put(folder):
        shutil.copytree(fixture("orbax", "e_edge_zarr2_dirs"), os.path.join(folder, "c"))
        return "c", f"c/{array}/{name}", "read EIO 0", array, "layout=source"
    put.__name__ = array
    return put


def database(folder):
    """Values of an OCDBT database, of which the first lie in one of its data files."""
    shutil.copytree(fixture("orbax", "pi0_lora"), os.path.join(folder, "c"))
    below = os.path.join(folder, "c")
    data = max((os.path.join(w, n) for w, _, names in os.walk(below) if os.path.basename(w) == "d" for n in names), key=os.path.getsize)
    return "c", os.path.relpath(data, folder), f"read EIO 0 {os.path.getsize(data) // 2}", None, "layout=torch"


def burnpack(folder):
    plain(folder)
    p = run("--export", os.path.join(folder, "m.bpk"), os.path.join(folder, "m.safetensors"))
    assert p.returncode == 0, p.stderr
    os.unlink(os.path.join(folder, "m.safetensors"))
    return "m.bpk", "m.bpk", f"read EIO {1 << 20} 4096", "fc.weight"


SOURCES = [untouched, permuted, cast, sliced, weight_norm, stored_entry, deflated_entry, chunk("edge.zstd", "1.0"), chunk("edge.big_zstd", "0.0"),
           chunk("edge.blosc_lz4", "0.0"), chunk("edge.none", "2.0"), database, burnpack]


def shown(m):
    """{key: path} of all tensors."""
    return {t["key"]: os.path.join(m, t["path"]) for t in read_json(m, "index.json")["tensors"]}


def contents(source, opts):
    with Mount(source, *opts) as m:
        return {key: read(path) for key, path in shown(m).items()}


def check_readers(m, right):
    """What each tensor gives: its bytes, or EIO. The keys of those that failed."""
    failed = set()
    for k, path in shown(m).items():
        what = error_of(read, path)
        assert what in (None, "EIO"), (k, what)
        failed |= {k} if what else set()
        assert what or read(path) == right[k], k
    return failed


def after_a_fault(put):
    with FaultFs() as disk:
        source, bad, rule, key, *opts = put(disk.below)
        right = contents(os.path.join(disk.below, source), opts)

        def body(m):
            disk.fail(bad, rule)
            failed = check_readers(m, right)
            assert failed == check_readers(m, right)
            assert failed == {key} if key else failed and len(failed) < len(right), failed
            assert error_of(read, m, "model.safetensors") == "EIO"
            report = read_json(m, "verify.json")
            assert report["status"] == "LOAD_FAIL" and report["bytes"]["status"] != "PASS", report["status"]
            disk.heal()
            assert check_readers(m, right) == set(), "after the fault"

        log = in_foreground(disk.path(source), body, *opts)
        assert len(log) == 1 if key else log, log
        assert all("cannot be read" in line or "cannot read" in line for line in log), log


def of_each(check):
    for put in SOURCES:
        try:
            check(put)
        except AssertionError as e:
            raise AssertionError(f"{put.__name__}: {e}") from e


def test_mounts():
    of_each(after_a_fault)


def in_one_line(p, *words):
    assert p.returncode not in (0, 1) and p.stderr.count("\n") == 1 and all(w in p.stderr for w in words), (p.args, p.returncode, p.stderr)


def commands(put):
    """Those that need no mount: exit code, one line, nothing half done."""
    with FaultFs() as disk, tempfile.TemporaryDirectory() as d:
        source, bad, rule, key, *opts = put(disk.below)
        args = [*options(*opts), disk.path(source)]
        disk.fail(bad, rule)
        for name in ("out.safetensors", "out.bpk"):
            in_one_line(run("--export", os.path.join(d, name), *args), os.path.basename(bad), *([key] if key else []))
            assert os.listdir(d) == [], os.listdir(d)
        in_one_line(run("--cat", "model.safetensors", *args))
        p = run("--verify", *args)
        report = json.loads(p.stdout)
        assert p.returncode == 2 and report["status"] == "LOAD_FAIL" and report["bytes"]["status"] != "PASS", (p.returncode, report["status"])
        assert run("--inspect", *args).returncode == 0
        disk.heal()
        assert run("--export", os.path.join(d, "out.safetensors"), *args).returncode == 0
        assert run("--verify", *args).returncode == 0


def test_commands():
    of_each(commands)


def heads():
    """(source, file, rule): what is read when a source is opened."""
    yield "m.safetensors", "m.safetensors", "read EIO 0 1"
    yield "m.safetensors", "m.safetensors", "read EIO 4096 1"
    yield "m.pt", "m.pt", "read EIO 0 1"
    yield "m.pt", "m.pt", "read EIO END 100"
    yield "m.bpk", "m.bpk", "read EIO 0 1"
    yield "legacy.pt", "legacy.pt", "read EIO 0 1"
    yield "tar.pt", "tar.pt", "read EIO 0 1"
    yield "c", "c/manifest.ocdbt", "read EIO 0"
    yield "c", "c/_METADATA", "read EIO 0"


def put_all(folder):
    write_safetensors(os.path.join(folder, "m.safetensors"), {f"some.long.name.of.a.tensor.{i}": ("F32", [1], floats(1)) for i in range(100)})
    with open(os.path.join(folder, "m.pt"), "wb") as f:
        f.write(torch_file.checkpoint(*tensors_of_a_checkpoint()))
    assert run("--export", os.path.join(folder, "m.bpk"), os.path.join(folder, "m.safetensors")).returncode == 0
    shutil.copytree(fixture("orbax", "e_edge_zarr2"), os.path.join(folder, "c"))
    shutil.copy(fixture("a1", "a1_state_legacy.pt"), os.path.join(folder, "legacy.pt"))
    shutil.copy(fixture("pt", "tar_v010.pt"), os.path.join(folder, "tar.pt"))


def test_opening():
    with FaultFs() as disk:
        put_all(disk.below)
        for source, bad, rule in heads():
            disk.fail(bad, rule.replace("END", str(os.path.getsize(disk.path(bad)) - 100)))
            for command in (["--inspect"], ["--verify"], ["--cat", "summary.txt"]):
                in_one_line(run(*command, disk.path(source)), "cannot")
            disk.heal()
            assert run("--inspect", disk.path(source)).returncode == 0, (source, bad)


if __name__ == "__main__":
    main(__name__)
