"""A directory as the source: its other files and folders are there as they are, links are followed, ours win a name."""
import errno, os, shutil
from mounted import *


def make(d):
    """A model directory beside a file that it links to."""
    model = os.path.join(d, "model")
    os.makedirs(os.path.join(model, "assets", "deep"))
    shutil.copy(fixture("a1", "a1.safetensors"), os.path.join(model, "model.safetensors"))
    for name, text in {"config.json": "{}", "assets/deep/x.txt": "deep", "index.json": "not ours", "fc1": "a file"}.items():
        with open(os.path.join(model, name), "w") as f:
            f.write(text)
    with open(os.path.join(d, "blob"), "w") as f:
        f.write("vocabulary")
    os.symlink("../blob", os.path.join(model, "vocab.txt"))
    os.symlink("../model", os.path.join(model, "loop"))
    os.symlink("/no/such/file", os.path.join(model, "broken"))
    return model


def test_plain_files():
    with tempfile.TemporaryDirectory() as d:
        with Mount(make(d), "layout=torch") as m:
            assert read(m, "config.json") == b"{}" and read(m, "assets", "deep", "x.txt") == b"deep"
            assert read(m, "vocab.txt") == b"vocabulary"
            assert len(read(m, "fc1", "weight")) == 128, "the tensor's folder wins the name"
            assert "tensors" in read_json(m, "index.json")
            assert not {"loop", "broken"} & set(os.listdir(m))
            summary = read(m, "summary.txt").decode()
            assert all(f"{n} is left out" in summary for n in ("fc1", "index.json", "loop", "broken")), summary


def make_cache(d):
    """A hub's cache: models--x/snapshots/REVISION/NAME is a link to ../../blobs/HASH; and a link to a file beside the model."""
    model = os.path.join(d, "models--x", "snapshots", "1")
    os.makedirs(model), os.makedirs(os.path.join(d, "models--x", "blobs"))
    shutil.copy(fixture("a1", "a1.safetensors"), os.path.join(d, "models--x", "blobs", "1a"))
    for name, text in {"models--x/blobs/2b": "{}", "secret": "secret", "models--xy": "secret"}.items():
        with open(os.path.join(d, name), "w") as f:
            f.write(text)
    for name, target in {"model.safetensors": "../../blobs/1a", "config.json": "../../blobs/2b", "out.txt": "../../../secret", "near.txt": "../../../models--xy", "all": "/"}.items():
        os.symlink(target, os.path.join(model, name))
    return model


def test_links_and_allow_other():
    """Others may not read through our eyes what a downloaded link leads to."""
    if os.geteuid():
        return print("     allow_other may be forbidden here")
    with tempfile.TemporaryDirectory() as d:
        with Mount(make_cache(d), "allow_other") as m:
            assert read(m, "config.json") == b"{}" and len(read(m, "fc1", "weight")) == 128
            assert not {"out.txt", "near.txt", "all"} & set(os.listdir(m)), os.listdir(m)
            assert read(m, "summary.txt").decode().count("leads out of the directory") == 3
        with Mount(make(d), "allow_other") as m:
            assert read(m, "config.json") == b"{}" and not os.path.exists(os.path.join(m, "vocab.txt"))


def test_changed_file_is_stale():
    with tempfile.TemporaryDirectory() as d:
        with Mount(make(d)) as m:
            assert read(m, "vocab.txt") == b"vocabulary"
            with open(os.path.join(d, "blob"), "a") as f:
                f.write(", longer")
            try:
                read(m, "vocab.txt")
                raise AssertionError("a changed file could be opened")
            except OSError as e:
                assert e.errno == errno.ESTALE, e


def test_mount_point_that_hides_the_source():
    """The source's files below the mount would be asked of the daemon by itself, for good."""
    with tempfile.TemporaryDirectory() as d:
        model = make(d)
        os.mkdir(os.path.join(model, "empty"))
        for over in (model, d, os.path.join(model, "assets")):
            p = run(model, over)
            if not p.returncode:
                subprocess.run(["umount", "-l", over])
            assert p.returncode == 32 and p.stderr.count("\n") == 1 and "would hide files of the source" in p.stderr, (over, p)
        inside = os.path.join(model, "empty")
        p = run(model, inside)
        assert p.returncode == 0, p
        try:
            assert read(inside, "config.json") == b"{}" and os.listdir(os.path.join(inside, "empty")) == []
        finally:
            unmount(inside)


if __name__ == "__main__":
    main(__name__)
