"""A tie that the graph has and the checkpoint has not: DIFF, naming both, even where all runs agree, since the graph reads one name."""
from mounted import *

GRAPH = fixture("pt2", "tied.pt2")


def tensors():
    p = run("--inspect", "--json", "-o", "layout=torch", GRAPH)
    return {t["key"]: (t["dtype"], t["shape"], subprocess.run([BINARY, "--cat", t["path"], "-o", "layout=torch", GRAPH], capture_output=True, check=True).stdout)
            for t in json.loads(p.stdout)["tensors"]}


def verified(**changed):
    with tempfile.TemporaryDirectory() as d:
        path, recorded = os.path.join(d, "m.safetensors"), os.path.join(d, "r.safetensors")
        write_safetensors(path, tensors() | changed)
        write_safetensors(recorded, {"input.0": ("I64", [3], struct.pack("<3q", 4, 0, 2))})
        return json.loads(run("--verify", *options(f"graph={GRAPH}", f"reference={recorded}"), path).stdout)


def test_whole_tie():
    assert verified()["graph"]["status"] == "PASS"


def test_broken_tie():
    dtype, shape, data = tensors()["head.weight"]
    for key in ("head.weight", "embed.weight"):
        report = verified(**{key: (dtype, shape, data[:-4] + struct.pack("<f", 9))})
        assert report["status"] == report["graph"]["status"] == "DIFF", report["graph"]
        assert all(name in report["graph"]["reason"] for name in ("head.weight", "embed.weight", "tied")), report["graph"]


if __name__ == "__main__":
    main(__name__)
