#!/usr/bin/env python3
"""contrib/ckpt-matrix: a table of many checks that survives interruption, failing checkpoints and hostile names."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
MATRIX = HERE.parent.parent / "contrib" / "ckpt-matrix"
VERIFY = pathlib.Path(os.environ["FIXTURES"]) / "verify"
SLOW = """#!{python}
import os, pathlib, subprocess, sys, time
if sys.argv[-1].endswith("slow.safetensors") and not os.path.exists({flag!r}):
    pathlib.Path({pid!r}).write_text(str(os.getpid()))
    print('{{"half": ', flush=True)
    time.sleep(600)
sys.exit(subprocess.run([{real!r}, *sys.argv[1:]]).returncode)
"""


def start(folder, *words, **more):
    return subprocess.Popen([sys.executable, MATRIX, "--out", folder, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **more)


def matrix(folder, *words, **more):
    p = start(folder, *words, **more)
    out, err = p.communicate(timeout=300)
    assert "Traceback" not in err, err
    return p.returncode, out, err


def result(folder, name):
    def no_constant(x):
        raise ValueError(f"{x} is not JSON")
    return json.loads((pathlib.Path(folder) / "results" / f"{name}.json").read_text(), parse_constant=no_constant)


def table(folder):
    """{id: {column: cell}} of matrix.md."""
    lines = (pathlib.Path(folder) / "matrix.md").read_text().splitlines()
    rows = [[c.strip() for c in line.strip("|").replace("\\|", "\0").split("|")] for line in lines if line.startswith("|")]
    assert len({len(r) for r in rows}) == 1, rows
    return {r[0]: dict(zip(rows[0], r)) for r in rows[2:]}


def test_models():
    with tempfile.TemporaryDirectory() as out:
        sources = [VERIFY / f"{m}.safetensors" for m in ("mlp", "cnn_bn", "llama_tiny")]
        code, said, err = matrix(out, *sources)
        assert code == 0, (said, err)
        rows = table(out)
        assert [r["status"] for r in rows.values()] == ["PASS"] * 3, rows
        assert float(rows["cnn_bn"]["torch"]) <= 1e-5 and float(rows["cnn_bn"]["burn"]) <= 1e-5 and float(rows["cnn_bn"]["between"]) <= 1e-5
        assert rows["mlp"]["nodes/ops"] == "3/2" and rows["mlp"]["parameters"] == "67" and rows["mlp"]["layers"] == "2/2", rows["mlp"]
        assert "causal" in rows["llama_tiny"]["properties"]
        assert result(out, "mlp")["report"]["format"] == "mount.ckpt verify"
        assert sorted(os.listdir(out)) == ["matrix.md", "results"]


def test_resume():
    """What has a result is kept; what changed since, or failed, is repeated."""
    with tempfile.TemporaryDirectory() as out:
        source = pathlib.Path(out) / "m.safetensors"
        shutil.copy(VERIFY / "mlp.safetensors", source)
        assert matrix(out, source)[0] == 0
        first = result(out, "m")
        assert "from before" in matrix(out, source)[1] and result(out, "m") == first
        assert "from before" not in matrix(out, source, "--again", "all")[1]
        assert "from before" not in matrix(out, source, "-o", "atol=1e-3")[1]
        shutil.copy(VERIFY / "mlp.pt2", pathlib.Path(out) / "m.pt2")  # a sidecar is new
        assert "from before" not in matrix(out, source)[1] and result(out, "m")["report"]["graph"]["nodes"] == 3
        (pathlib.Path(out) / "results" / "m.json").write_text('{"format": "ckpt-matrix res')  # not ours, or torn by another
        assert matrix(out, source)[0] == 0 and result(out, "m")["status"] == "PASS"


def test_failing():
    """One that can't be read, one that differs: each has its row, its reason and its exit code."""
    with tempfile.TemporaryDirectory() as out:
        (pathlib.Path(out) / "torn.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{\"a\":|`<b")
        shutil.copy(VERIFY / "neg" / "mlp.bitflip_w.safetensors" if (VERIFY / "neg" / "mlp.bitflip_w.safetensors").exists()
                    else next((VERIFY / "neg").glob("mlp.*flip*.safetensors")), pathlib.Path(out) / "bad.safetensors")
        listed = pathlib.Path(out) / "list"
        listed.write_text(f"# three\nfine {VERIFY}/mlp.safetensors\n\n'differs' bad.safetensors graph={VERIFY}/mlp.pt2 "
                          f"reference={VERIFY}/mlp.reference.safetensors\n")
        assert matrix(out, "--list", listed)[0] == 1
        assert table(out)["differs"]["status"] == "DIFF" and float(table(out)["differs"]["torch"]) > 1e-4
        listed.write_text(listed.read_text() + "torn torn.safetensors\ngone nowhere.pt # lost\n")
        code, said, _ = matrix(out, "--list", listed)
        assert code == 2 and said.count("from before") == 2, said
        rows = table(out)
        assert rows["torn"]["status"] == rows["gone"]["status"] == "LOAD_FAIL" and "no such file" in rows["gone"]["reason"], rows
        assert result(out, "gone")["report"] is None and result(out, "gone")["exit"] == 2
        assert matrix(out, "--list", listed, "--again", "failed")[1].count("from before") == 1


def refused(out, *words, expect):
    code, _, err = matrix(out, *words)
    assert code == 2 and expect in err and len(err.splitlines()) == 1, (words, err)
    assert not os.path.exists(os.path.join(out, "matrix.md")), words


def test_names():
    """A name never leaves the folder of results, and two never share a file."""
    with tempfile.TemporaryDirectory() as top:
        out, listed = os.path.join(top, "out"), os.path.join(top, "list")
        for name in ("../x", "/tmp/x", "a/b", "..", ".hidden", "'a b'", "'a|b'", "x" * 300, "''", "'a\x07b'"):
            pathlib.Path(listed).write_text(f"{name} {VERIFY}/mlp.safetensors\n")
            refused(out, "--list", listed, expect="line 1")
        pathlib.Path(listed).write_text(f"one {VERIFY}/mlp.safetensors\nOne {VERIFY}/cnn_bn.safetensors\n")
        refused(out, "--list", listed, expect="same name")
        pathlib.Path(listed).write_text("one\n")
        refused(out, "--list", listed, expect="expected ID PATH")
        pathlib.Path(listed).write_text("one 'x\n")
        refused(out, "--list", listed, expect="line 1")
        refused(out, "--list", os.path.join(top, "none"), expect="No such file")
        refused(out, expect="nothing to check")
        refused(out, VERIFY / "mlp.safetensors", "--mount-ckpt", "/nonexistent", expect="/nonexistent")
        assert os.listdir(top) == ["list"] or sorted(os.listdir(top)) == ["list", "out"]
        shutil.copy(VERIFY / "mlp.safetensors", os.path.join(top, "-o.safetensors"))  # a source that looks like an option
        pathlib.Path(listed).write_text("dash -o.safetensors\n")
        assert matrix(out, "--list", listed)[0] == 0 and table(out)["dash"]["status"] == "PASS"


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def interrupted(number):
    """In the middle of the second of three: the first is kept, no child is left, nothing half written; then it goes on."""
    with tempfile.TemporaryDirectory() as top:
        out, pid, flag, tool = (os.path.join(top, x) for x in ("out", "pid", "flag", "tool"))
        pathlib.Path(tool).write_text(SLOW.format(python=sys.executable, flag=flag, pid=pid, real=os.environ["MOUNT_CKPT"]))
        os.chmod(tool, 0o755)
        for name in ("first", "slow", "third"):
            shutil.copy(VERIFY / "mlp.safetensors", os.path.join(top, f"{name}.safetensors"))
        words = [*(os.path.join(top, f"{n}.safetensors") for n in ("first", "slow", "third")), "--mount-ckpt", tool]
        p = start(out, *words)
        wait_for(lambda: os.path.exists(pid) and pathlib.Path(pid).read_text())
        second = matrix(out, *words)
        assert second[0] == 2 and "another" in second[2], second
        p.send_signal(number)
        _, err = p.communicate(timeout=60)
        assert p.returncode == 2 and "interrupted" in err and "Traceback" not in err, err
        child = int(pathlib.Path(pid).read_text())
        assert not os.path.exists(f"/proc/{child}"), "the child is still there"
        assert os.listdir(os.path.join(out, "results")) == ["first.json"], os.listdir(os.path.join(out, "results"))
        assert [r["status"] for r in table(out).values()] == ["PASS", "PENDING", "PENDING"]
        pathlib.Path(flag).touch()
        code, said, err = matrix(out, *words)
        assert code == 0 and said.count("from before") == 1, (said, err)
        assert [r["status"] for r in table(out).values()] == ["PASS"] * 3
        assert sorted(os.listdir(os.path.join(out, "results"))) == ["first.json", "slow.json", "third.json"]


def test_interrupted():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        interrupted(number)


def test_timeout():
    with tempfile.TemporaryDirectory() as top:
        tool = os.path.join(top, "tool")
        pathlib.Path(tool).write_text(SLOW.format(python=sys.executable, flag=top + "/flag", pid=top + "/pid", real=os.environ["MOUNT_CKPT"]))
        os.chmod(tool, 0o755)
        shutil.copy(VERIFY / "mlp.safetensors", os.path.join(top, "slow.safetensors"))
        code, said, _ = matrix(top, os.path.join(top, "slow.safetensors"), "--mount-ckpt", tool, "--timeout", "2")
        assert code == 2 and table(top)["slow"]["status"] == "TEST_FAIL" and "not done" in table(top)["slow"]["reason"], said


if __name__ == "__main__":
    import mounted
    mounted.need_fuse = lambda: None  # nothing is mounted here
    mounted.main("__main__")
