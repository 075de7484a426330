"""Directories of torch.distributed.checkpoint: tensors that lie in several chunks, one a rank, are one tensor; the judge is what
PyTorch held before it cut them (dcp_mesh.full.safetensors). Chunks that don't make up a tensor are refused."""
import errno, random, shutil
from mounted import *

MESH, TWO = fixture("pt", "dcp_mesh"), fixture("pt", "dcp_two")
WHOLE = safetensors(fixture("pt", "dcp_mesh.full.safetensors"))[0]
RAGGED = "ragged.weight"  # the last rank's columns are narrower: strides differ
SEED = int(os.environ.get("CKPT_SEED", random.SystemRandom().getrandbits(32)))


def test_joined():
    with Mount(MESH, "layout=torch") as m:
        got = safetensors(os.path.join(m, "model.safetensors"))[0]
        assert set(WHOLE) - set(got) == {RAGGED}
        for key in got:
            assert (got[key][0], list(got[key][1]), got[key][2]) == (WHOLE[key][0], list(WHOLE[key][1]), WHOLE[key][2]), key
        left = read_json(m, "index.json")["unsupported"]
        assert [u["path"] for u in left] == [["model", RAGGED]] and "narrower" in left[0]["reason"], left
        assert read_json(m, "verify.json")["status"] == "PASS"


def test_transposed():
    with Mount(MESH) as m:
        got = safetensors(os.path.join(m, "model.safetensors"))[0]
        for key in ("rows.weight", "columns.weight", "both.weight", "twice.weight"):
            dtype, (rows, columns), data = WHOLE[key]
            size = len(data) // (rows * columns)
            assert got[key][1] == [columns, rows] and got[key][2] == transposed(data, rows, columns, size), key


def test_random_reads():
    print(f"CKPT_SEED={SEED}")
    rng = random.Random(SEED)
    for opts in (["layout=torch"], ["layout=torch", "direct_io"], ["layout=torch", "cache=1M", "nomt"]):
        with Mount(MESH, *opts) as m:
            for key in set(WHOLE) - {RAGGED}:
                data = WHOLE[key][2]
                with open(os.path.join(m, "model", *key.split(".")), "rb", buffering=0) as f:
                    for _ in range(20):
                        at, n = rng.randrange(len(data)), rng.randrange(1, len(data) + 1)
                        assert os.pread(f.fileno(), n, at) == data[at : at + n], (key, at, n)


def pair(a, b):
    """A tuple of two small integers, as a pickle has it."""
    return bytes([ord("K"), a, ord("K"), b]) + b"\x86"


def changed(old, new, times):
    """The checkpoint of two ranks with other metadata; of its w [4, 3], rank 0 holds two rows and rank 1 the rest."""
    d = tempfile.mkdtemp(prefix="ckpt-test.")
    for name in os.listdir(TWO):
        shutil.copy(os.path.join(TWO, name), d)
    path = os.path.join(d, ".metadata")
    data = read(path)
    assert data.count(old) == times, data.count(old)
    with open(path, "wb") as f:
        f.write(data.replace(old, new))
    return d


def test_chunks_that_make_up_no_tensor():
    refused, left_out = "are not those of one tensor", "no regular grid"
    for old, new, times, words in [
        (pair(2, 0), pair(0, 0), 2, [refused, "two are at its origin"]),
        (pair(0, 0), pair(1, 0), 2, [refused, "none is at its origin"]),
        (pair(2, 0), pair(3, 0), 2, [left_out]),
        (pair(2, 0), pair(2, 1), 2, [left_out]),
        (pair(2, 0), pair(9, 0), 2, [left_out]),
        (pair(4, 3), pair(9, 3), 1, [left_out]),
        (pair(4, 3), pair(3, 3), 1, [left_out]),
        (pair(4, 3), pair(4, 2), 1, [left_out]),
    ]:
        d = changed(old, new, times)
        try:
            p = run("--inspect", d)
            said = p.stdout if words == [left_out] else p.stderr
            assert p.returncode == (0 if words == [left_out] else 32), (old, new, p.stderr)
            assert all(w in said for w in ["w", *words]), (old, new, said)
            kept = run("--inspect", "--json", "-o", "keep_going", d)
            assert [t["key"] for t in json.loads(kept.stdout)["tensors"]] == ["b"], (old, new)
        finally:
            shutil.rmtree(d)


def test_a_rank_is_absent():
    with tempfile.TemporaryDirectory() as d:
        source = shutil.copytree(MESH, os.path.join(d, "c"))
        os.unlink(os.path.join(source, "__2_0.distcp"))
        p = run("--inspect", source)
        assert p.returncode == 32 and "__2_0.distcp" in p.stderr, p.stderr


def test_a_rank_changes_under_the_mount():
    with tempfile.TemporaryDirectory() as d:
        source = shutil.copytree(MESH, os.path.join(d, "c"))
        with Mount(source, "layout=torch") as m:
            with open(os.path.join(source, "__1_0.distcp"), "r+b") as f:
                f.write(b"\xff" * os.fstat(f.fileno()).st_size)
            try:
                read(m, "model", "rows", "weight")
                raise AssertionError("a chunk that has changed was served")
            except OSError as e:
                assert e.errno == errno.ESTALE, e


def test_a_damaged_chunk_is_named():
    """A byte of a rank's storage: the report says which file and which tensor."""
    with tempfile.TemporaryDirectory() as d:
        source = shutil.copytree(MESH, os.path.join(d, "c"))
        path, whole = os.path.join(source, "__2_0.distcp"), WHOLE["rows.weight"][2]
        data = read(path)
        at = data.index(whole[4 * 12 : 4 * 15])  # rank 2 has the last of the five rows
        with open(path, "r+b") as f:
            f.seek(at)
            f.write(bytes([data[at] ^ 1]))
        report = json.loads(run("--verify", source).stdout)
        wrong = report["bytes"]["checksums"]["wrong"]
        assert report["status"] == "DIFF" and [(w["file"], w["tensors"]) for w in wrong] == [("__2_0.distcp", ["model.rows.weight"])], wrong


if __name__ == "__main__":
    main(__name__)
