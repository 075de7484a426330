"""-o passthrough: files that are a source file byte for byte are read by the kernel itself, and no others. Where that cannot
be had, all of this is skipped; what is said then: test_unprivileged.py, test_init_flags.c."""
import errno, os, subprocess, threading
from mounted import *
from kernel_requests import *


def own_export(d):
    """Mounted again, it changes nothing."""
    path = os.path.join(d, "own.safetensors")
    assert run("--export", path, large(d)).returncode == 0
    return path


class Passed(Mount):
    """A mount with passthrough. Where that cannot be, the test ends."""

    def __init__(self, source, *opts):
        super().__init__(source, "passthrough", *opts)

    def __enter__(self):
        m = super().__enter__()
        if self.said:
            super().__exit__()
            assert self.said.count("\n") == 1 and "passthrough" in self.said, self.said
            print(f"skipped: {self.said.strip()}")
            sys.exit(77)
        return m


def is_passed(directory, path):
    """Nothing but OPEN and RELEASE reaches the daemon, though nobody has read it before."""
    os.stat(path)
    return count(directory, fetch, path, least=2) == 2


def test_our_own_export():
    with tempfile.TemporaryDirectory() as d:
        source = own_export(d)
        with Passed(source) as m:
            path = os.path.join(m, "model.safetensors")
            assert is_passed(m, path)
            assert read(path) == read(source) == mapped(path)
            tensor = os.path.join(m, "t1")
            assert not is_passed(m, tensor), "it begins in the middle of the source"
            assert read(tensor) == mapped(tensor) == read(source)[-8 * MIB :]


def test_our_own_burnpack():
    """Header, padding and tensors, laid out when it is first looked at."""
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "own.bpk")
        assert run("--export", source, large(d)).returncode == 0
        with Passed(source) as m:
            path = os.path.join(m, "model.bpk")
            assert is_passed(m, path)
            assert read(path) == read(source)
            assert not is_passed(m, os.path.join(m, "model.safetensors"))


def test_ways_to_read():
    with tempfile.TemporaryDirectory() as d:
        source = own_export(d)
        want = read(source)
        with Passed(source) as m, open(os.path.join(m, "model.safetensors"), "rb") as f, open(d + "/copy", "w+b") as copy:
            n = len(want)
            assert os.preadv(f.fileno(), [bytearray(5)], 7) == 5
            assert os.pread(f.fileno(), n, 0) == want and os.pread(f.fileno(), 9, n) == b""
            sent = 0
            while sent < n:
                sent += os.sendfile(copy.fileno(), f.fileno(), sent, n - sent)
            assert read(d, "copy") == want
            subprocess.run(["cp", "--reflink=auto", os.path.join(m, "model.safetensors"), d + "/copy"], check=True)
            assert read(d, "copy") == want


def test_what_is_not_the_source():
    """Our header is not the source's, and one that lies elsewhere or differs in a byte is another file."""
    with tempfile.TemporaryDirectory() as d:
        source = own_export(d)
        data = read(source)
        padded = os.path.join(d, "padded.safetensors")
        header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
        text = json.dumps(header, separators=(",", ":")).encode()
        same_length = text[:1] + text[1:].replace(b'"format":"pt"', b'"format":"np"') + b" " * (len(data) - 16 * MIB - 8 - len(text))
        with open(padded, "wb") as f:
            f.write(struct.pack("<Q", len(same_length)) + same_length + data[-16 * MIB :])
        assert os.path.getsize(padded) == len(data)
        for other in large(d), padded:
            with Passed(other) as m:
                path = os.path.join(m, "model.safetensors")
                want, _ = safetensors(other)
                assert safetensors(path)[0] == want
                assert os.path.getsize(path) != os.path.getsize(other) or read(path) != read(other), "it is no test then"
                assert not is_passed(m, os.path.join(m, "t0"))


def directory(d):
    """A directory with shards and plain files."""
    folder = os.path.join(d, "model")
    os.mkdir(folder)
    write_safetensors(os.path.join(folder, "model-00001-of-00001.safetensors"), {"a": ("U8", [4], b"abcd")})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"weight_map": {"a": "model-00001-of-00001.safetensors"}}, f)
    for name, nbytes in (("tokenizer.json", 3 * MIB), ("empty.txt", 0)):
        with open(os.path.join(folder, name), "wb") as f:
            f.write(os.urandom(nbytes))
    return folder


def test_plain_files():
    with tempfile.TemporaryDirectory() as d:
        folder = directory(d)
        with Passed(folder) as m:
            path = os.path.join(m, "tokenizer.json")
            assert is_passed(m, path)
            assert is_passed(m, path), "opened again after the last has closed"
            want = read(folder, "tokenizer.json")
            with open(path, "rb") as one, open(path, "rb") as two:
                assert one.read(MIB) == two.read(MIB) == want[:MIB]
                one.close()
                assert two.read() == want[MIB:] and read(path) == want == mapped(path)
            assert read(m, "empty.txt") == b""


def test_with_direct_io():
    """Each file goes the shortest way that it can."""
    with tempfile.TemporaryDirectory() as d:
        folder = directory(d)
        with Passed(folder, "direct_io") as m:
            assert is_passed(m, os.path.join(m, "tokenizer.json"))
            assert read(m, "a") == b"abcd"


def test_a_source_that_changes():
    """Who opens it afterwards gets ESTALE, as always. Who has it open sees the source as it is now: shorter."""
    with tempfile.TemporaryDirectory() as d:
        source = own_export(d)
        with Passed(source) as m:
            path = os.path.join(m, "model.safetensors")
            with open(path, "rb") as f:
                first = f.read(MIB)
                os.truncate(source, 2 * MIB)
                f.seek(0)
                assert len(f.read()) == 2 * MIB and read(source)[:MIB] == first
            try:
                open(path, "rb").close()
            except OSError as e:
                assert e.errno == errno.ESTALE
            else:
                raise AssertionError("a changed source was opened")


def test_many_threads_open_and_close():
    """Whoever is the first or the last of those that have a file open, all read the same."""
    with tempfile.TemporaryDirectory() as d:
        folder = directory(d)
        with Passed(folder, "threads=6") as m:
            path, want, wrong = os.path.join(m, "tokenizer.json"), read(folder, "tokenizer.json"), []

            def work(n):
                for i in range(40):
                    at = (n * 40 + i) * 9000
                    with open(path, "rb") as f:
                        f.seek(at)
                        if f.read(70000) != want[at : at + 70000] or read(m, "a") != b"abcd":
                            wrong.append(at)
            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            assert not wrong, wrong[:5]


if __name__ == "__main__":
    main(__name__)
