"""--export writes the same bytes as the mount's model.safetensors, atomically, and never over its source."""
import os, shutil, subprocess
from mounted import *


def test_same_bytes():
    for name in ("a1_full.pt", "a1_ckpt.pt", "a1_f64.pt"):
        with Mount(fixture("a1", name)) as m, tempfile.TemporaryDirectory() as d:
            out = os.path.join(d, "out.safetensors")
            p = run("--export", out, fixture("a1", name))
            assert p.returncode == 0 and p.stdout == "", p.stderr
            assert read(out) == read(m, "model.safetensors") and os.listdir(d) == ["out.safetensors"]


def test_failures_leave_nothing():
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "out.safetensors")
        p = run("--export", out, fixture("safetensors", "m04_truncated.safetensors"))
        assert p.returncode == 32 and os.listdir(d) == [], (p.returncode, p.stderr)
        p = run("--export", os.path.join(d, "no", "such", "dir.safetensors"), fixture("a1", "a1_full.pt"))
        assert p.returncode != 0 and len(p.stderr.strip().split("\n")) == 1, p.stderr


def test_more_than_there_is_room_for():
    with tempfile.TemporaryDirectory() as d:
        p = run("--export", os.path.join(d, "out.safetensors"), fixture("pt", "bad_dims_giant_expand.pt"))
        assert p.returncode == 2 and os.listdir(d) == [], (p.returncode, p.stderr)
        lines = p.stderr.strip().split("\n")
        assert "would have 17592186" in lines[-1] and "has room for" in lines[-1], p.stderr


def test_never_over_the_source():
    with tempfile.TemporaryDirectory() as d:
        source = shutil.copy(fixture("a1", "a1.safetensors"), d)
        before = read(source)
        p = run("--export", source, source)
        assert p.returncode != 0 and read(source) == before and os.listdir(d) == ["a1.safetensors"], p.stderr


def test_exporting_twice_is_the_same_and_stable():
    with tempfile.TemporaryDirectory() as d:
        a, b = os.path.join(d, "a.safetensors"), os.path.join(d, "b.safetensors")
        assert run("--export", a, fixture("a1", "a1_full.pt")).returncode == 0
        assert run("--export", b, a).returncode == 0
        assert safetensors(a)[0] == safetensors(b)[0], "an export is in burn's layout and is known as such"


if __name__ == "__main__":
    main(__name__)
