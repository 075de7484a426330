"""A source that changes under the mount: EIO for who reads, ESTALE for who opens; never a signal, zeros or other bytes. One
that is replaced by rename or unlinked goes on as it was."""
import os, shutil
from mounted import *
from faulty import error_of, in_foreground, sharded

A1 = fixture("a1", "a1_full.pt")
ROWS, COLUMNS = 256, 2048


def shrink(source):
    os.truncate(source, 1 << 19)


def cut_inside_the_last_page(source):
    os.truncate(source, os.path.getsize(source) - 4)


def become_zeros(source):
    size = os.path.getsize(source)
    os.truncate(source, 0)
    os.truncate(source, size)


def rewrite(source):
    with open(source, "r+b") as f:
        f.write(b"\xff" * os.path.getsize(source))


CHANGES = [shrink, cut_inside_the_last_page, become_zeros, rewrite]


def after(change, *opts):
    """Changes the source between open and read."""
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "big.safetensors")
        write_safetensors(source, {"fc.bias": ("F32", [ROWS], bytes(4 * ROWS)), "fc.weight": ("F32", [ROWS, COLUMNS], b"\x3f" * (4 * ROWS * COLUMNS))})
        with Mount(source, *opts) as m:
            f = os.open(os.path.join(m, "fc", "weight"), os.O_RDONLY)
            size = os.fstat(f).st_size
            change(source)
            for off in (size - 4096, 0, size // 2):
                assert error_of(os.pread, f, 4096, off) == "EIO", (change, opts, off)
            os.close(f)
            assert error_of(os.open, os.path.join(m, "fc", "bias"), os.O_RDONLY) == "ESTALE"
            report = read_json(m, "verify.json")
            assert report["status"] == "LOAD_FAIL" and report["bytes"]["reason"], report["status"]
            assert os.stat(os.path.join(m, "index.json")).st_size == len(read(m, "index.json"))


def test_untouched():
    for change in CHANGES:
        after(change, "layout=torch")


def test_transposed():
    for change in CHANGES:
        after(change)


def test_cast():
    for change in CHANGES:
        after(change, "cast=bf16,layout=torch")


def test_computed_from_two_files():
    """A weight norm's g lies in another file than its v: either may change."""
    columns = 4096
    v, g = struct.pack("<f", 1) * (8 * columns), struct.pack("<8f", *range(1, 9))
    for changed in (0, 1):
        for change in (cut_inside_the_last_page, become_zeros, rewrite):
            with tempfile.TemporaryDirectory() as d:
                paths = sharded(d, {"fc.weight_v": ("F32", [8, columns], v), "fc.bias": ("F32", [8], g)}, {"fc.weight_g": ("F32", [8, 1], g)})
                with Mount(d, "layout=burn", "modules=nn") as m:
                    weight = os.path.join(m, "fc", "weight")
                    f = os.open(weight, os.O_RDONLY)
                    change(paths[changed])
                    assert error_of(os.pread, f, 4096, 0) == "EIO", (changed, change)
                    os.close(f)
                    assert error_of(read, weight) == "ESTALE", (changed, change)
                    assert error_of(read, m, "model.safetensors") == "ESTALE", (changed, change)


def gone(source):
    os.unlink(source)


def replace_by_a_copy(source):
    shutil.copy(source, source + ".new")
    os.rename(source + ".new", source)


def read_all(path):
    with open(path, "rb") as f:
        return f.read()


def change_one_chunk(array, chunk, change):
    """A chunk's file changes: its array can't be opened, nor read beyond what has been read; all others are as they were."""
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "c")
        shutil.copytree(fixture("orbax", "e_edge_zarr2_dirs"), source)

        def body(m):
            paths = {t["path"]: os.path.join(m, t["path"]) for t in read_json(m, "index.json")["tensors"]}
            path = next(p for p in paths if p.replace("/", ".") == array)
            f = os.open(paths[path], os.O_RDONLY)
            change(os.path.join(source, array, chunk))
            for _ in range(3):
                assert error_of(os.pread, f, 1 << 20, 0) == "EIO", (array, change)
            os.close(f)
            assert error_of(os.open, paths[path], os.O_RDONLY) == "ESTALE", (array, change)
            assert error_of(os.open, os.path.join(m, "model.safetensors"), os.O_RDONLY) == "ESTALE", (array, change)
            for other in paths:
                assert other == path or read_all(paths[other]) is not None

        log = in_foreground(source, body, "layout=source")
        assert sum(f'array "{array}"' in line for line in log) == 1, (array, change, log)
        assert all("has changed since the mount" in line or "cannot open" in line for line in log), (array, change, log)


def test_chunks_of_arrays():
    for array, chunk in (("edge.zstd", "1.0"), ("edge.big_zstd", "0.0"), ("edge.blosc_lz4", "0.0")):
        for change in CHANGES + [gone, replace_by_a_copy]:
            change_one_chunk(array, chunk, small(change))


def test_plain_chunks_of_arrays():
    """Those lie in a mapping, which a replaced file does not touch."""
    for change in CHANGES:
        change_one_chunk("edge.none", "2.0", small(change))


def small(change):
    """These files are smaller than what the others are cut to."""
    return (lambda source: os.truncate(source, 10)) if change is shrink else change


def test_plain_file_of_a_directory():
    with tempfile.TemporaryDirectory() as d:
        shutil.copy(fixture("a1", "a1.safetensors"), os.path.join(d, "model-00001-of-00001.safetensors"))
        keys = list(safetensors(os.path.join(d, "model-00001-of-00001.safetensors"))[0])
        with open(os.path.join(d, "model.safetensors.index.json"), "w") as f:
            json.dump({"weight_map": {k: "model-00001-of-00001.safetensors" for k in keys}}, f)
        plain = os.path.join(d, "notes.bin")
        for change in (cut_inside_the_last_page, rewrite):
            with open(plain, "wb") as f:
                f.write(b"x" * 5000)
            with Mount(d) as m:
                f = os.open(os.path.join(m, "notes.bin"), os.O_RDONLY)
                change(plain)
                assert error_of(os.pread, f, 100, 4096) == "EIO", change
                os.close(f)


def test_source_replaced_by_rename_is_harmless():
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "a1.pt")
        shutil.copy(A1, source)
        with Mount(source) as m:
            with open(os.path.join(m, "fc1", "weight"), "rb") as f:
                first = f.read()
                os.rename(shutil.copy(fixture("a1", "a1_f64.pt"), source + ".new"), source)
                f.seek(0)
                assert len(first) == 128 and f.read() == first


def test_unlinked_source_goes_on():
    with tempfile.TemporaryDirectory() as d:
        source = shutil.copy(A1, os.path.join(d, "a1.pt"))
        with Mount(source) as m:
            os.unlink(source)
            assert len(read(m, "fc1", "weight")) == 128


if __name__ == "__main__":
    main(__name__)
