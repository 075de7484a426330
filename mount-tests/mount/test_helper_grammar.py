"""mount(8)'s grammar, exit codes and one-line errors; a read-only tree."""
import errno, os, subprocess
from mounted import *

A1 = fixture("a1", "a1_full.pt")


def refused(code, *args, words=()):
    p = run(*args)
    lines = p.stderr.rstrip("\n").split("\n")
    assert p.returncode == code, f"{args}: exit {p.returncode}, expected {code}: {p.stderr}"
    assert p.stdout == "" and len(lines) == 1 and lines[0].startswith("mount.ckpt: "), (args, p.stdout, p.stderr)
    for w in words:
        assert w in lines[0], f"{args}: no {w!r} in {lines[0]!r}"
    return lines[0]


class Point:
    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="ckpt-test.")
        return self.dir

    def __exit__(self, *_):
        unmount(self.dir)
        os.rmdir(self.dir)


def test_helper_flags():
    with Point() as d:
        assert run(A1, d, "-n", "-v", "-o", "rw,nosuid,nodev,nofail,x-systemd.automount,_netdev,user").returncode == 0
        assert os.path.ismount(d)
        try:
            open(os.path.join(d, "new"), "w")
            raise AssertionError("a file could be made")
        except OSError as e:
            assert e.errno == errno.EROFS, e
        for call in (lambda: os.unlink(os.path.join(d, "index.json")), lambda: os.mkdir(os.path.join(d, "x")), lambda: os.truncate(os.path.join(d, "index.json"), 0)):
            try:
                call()
                raise AssertionError("the tree could be changed")
            except OSError as e:
                assert e.errno == errno.EROFS, e


def test_fake_mounts_nothing():
    with Point() as d:
        assert run("-f", A1, d).returncode == 0 and not os.path.ismount(d)
        refused(32, "-f", fixture("safetensors", "m04_truncated.safetensors"), d)


def test_sloppy_ignores_unknown_options():
    with Point() as d:
        refused(1, A1, d, "-o", "layuot=torch", words=["layuot", "layout"])
        assert not os.path.ismount(d)
        assert run("-s", A1, d, "-o", "layuot=torch").returncode == 0 and os.path.ismount(d)


def test_mount_points():
    missing = os.path.join(tempfile.gettempdir(), "ckpt-no-such-directory")
    refused(32, A1, missing, words=[missing])
    with tempfile.NamedTemporaryFile() as f:
        refused(32, A1, f.name, words=[f.name])


def test_bad_checkpoints_mount_nothing():
    names = sorted(n for n in os.listdir(fixture("safetensors")) if n.startswith("m") and n.endswith(".safetensors"))
    assert len(names) > 30
    with Point() as d:
        for n in names:
            refused(32, fixture("safetensors", n), d, words=[n])
            assert not os.path.ismount(d)
        refused(32, "/no/such/file.pt", d, words=["file.pt"])


def test_bad_options():
    with Point() as d:
        line = refused(1, A1, d, "-o", "map=(=>x")
        assert any(c.isdigit() for c in line.split("(=>x")[-1]) or "position" in line or "offset" in line, line
        refused(1, A1, d, "-o", "map=abc", words=["=>"])
        refused(1, A1, d, "-o", "layout=tensorflow", words=["tensorflow", "burn"])
        refused(1, A1, d, "-o", "cast=f12", words=["f12"])
        assert not os.path.ismount(d)
    refused(1)
    refused(1, "--no-such-flag", A1)


def test_values_may_hold_commas_and_backslashes():
    p = run("--inspect", "--json", "-o", r"map=^(fc\d)\.(\w{4\,6})$=>$1.x_$2", A1)
    keys = [t["key"] for t in json.loads(p.stdout)["tensors"]]
    assert keys == ["fc1.x_weight", "fc1.x_bias", "fc2.x_weight", "fc2.x_bias"], keys


def test_cat_and_inspect():
    p = subprocess.run([BINARY, "--cat", "fc1/bias", A1], capture_output=True, timeout=60)
    assert p.returncode == 0 and p.stdout == safetensors(fixture("a1", "a1.safetensors"))[0]["fc1.bias"][2], p.stderr
    assert "fc1.weight" in run("--inspect", A1).stdout
    refused(32, "--cat", "fc1/wieght", A1, words=["fc1/wieght", "did you mean fc1/weight?"])
    refused(32, "--cat", "qqqqqqqqqq", A1, words=["qqqqqqqqqq", "--inspect --json"])
    refused(1, "--json", A1, words=["--json", "--inspect"])


def test_an_unset_variable_is_no_folder():
    refused(1, "--inspect", "", words=["SOURCE is empty"])
    refused(1, A1, "", words=["MOUNTPOINT is empty"])
    refused(1, "--cat", "", A1, words=["--cat"])
    refused(1, "--export", "", A1, words=["--export"])


def test_verify_that_does_not_run_is_no_difference():
    refused(2, "--verify", words=["SOURCE is missing"])
    refused(2, "--verify", "-o", "layuot=torch", A1, words=["layuot"])
    refused(2, "--verify", "-o", "reference=/no/such/file", A1, words=["/no/such/file"])
    refused(2, "--verify", "--inspect", A1)


if __name__ == "__main__":
    main(__name__)
