"""Deflated storages: read in random order by threads with room for all of them, for some, and for none (then they are
decoded into temporary files); no room for such a file; a read that is interrupted while it inflates. CKPT_SEED repeats a run."""
import random, threading
from mounted import *
import torch_file as t

SEED = int(os.environ.get("CKPT_SEED", random.SystemRandom().getrandbits(32)))
SHAPES = {"a.weight": [300, 517], "a.bias": [300], "b.weight": [129, 1000], "c.weight": [7, 7], "d.weight": [64, 3, 3, 3], "e": [70000], "f.weight": [1, 50000]}


def build(path, rng):
    """A deflated .pt; the bytes as layout=torch shows them."""
    want = {k: b"".join(struct.pack("<f", rng.randrange(100)) for _ in range(count(s))) for k, s in SHAPES.items()}
    with open(path, "wb") as f:
        f.write(t.checkpoint(t.state_dict({k: t.tensor(str(i), s) for i, (k, s) in enumerate(SHAPES.items())}),
                             {str(i): want[k] for i, k in enumerate(want)}, deflated=True))
    return want


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def adapted(want):
    return {k: transposed(v, *SHAPES[k], 4) if k.endswith("weight") and len(SHAPES[k]) == 2 else v for k, v in want.items()}


def read_at_random(path, data, rng, errors):
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(20):
            at, n = rng.randrange(len(data)), rng.choice([1, 4096, 100000])
            if os.pread(fd, n, at) != data[at : at + n]:
                errors.append(f"{path}: pread({n}, {at}) differs")
    except OSError as e:
        errors.append(f"{path}: {e}")
    finally:
        os.close(fd)


def random_order(*opts):
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as d:
        os.environ["TMPDIR"] = d + "/tmp"
        os.mkdir(d + "/tmp")
        want = adapted(build(d + "/deflated.pt", rng))
        with Mount(d + "/deflated.pt", "layout=burn", "direct_io", *opts) as m:
            errors = []

            def work(seed):
                mine = random.Random(seed)
                for key, data in mine.sample(sorted(want.items()), len(want)):
                    read_at_random(os.path.join(m, *key.split(".")), data, mine, errors)
            threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(8)]
            [x.start() for x in threads]
            [x.join() for x in threads]
            assert not errors, errors[:5]
            model, _ = safetensors(os.path.join(m, "model.safetensors"))
            assert {k: v[2] for k, v in model.items()} == want
            assert not os.listdir(d + "/tmp"), "temporary files have no name"
        del os.environ["TMPDIR"]


def test_room_for_all():
    random_order()


def test_room_for_some():
    random_order("cache=1M")


def test_room_for_none():
    random_order("cache=1K")


def test_checked():
    """The checker reads the same storages, and their checksums."""
    with tempfile.TemporaryDirectory() as d:
        build(d + "/deflated.pt", random.Random(SEED))
        for cache in "cache=256M", "cache=1K":
            p = run("--verify", "-o", cache, d + "/deflated.pt")
            assert p.returncode == 0 and json.loads(p.stdout)["bytes"]["status"] == "PASS", p.stdout[:2000]


def test_interrupted():
    """Nearly 4 GiB take seconds to inflate; whoever wants them no longer is gone at once."""
    stream, size = t.repeated_deflate(bytes(1 << 24), 255)
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/large.pt", "wb") as f:
            f.write(t.raw_archive([{"name": "a/data.pkl", "data": t.state_dict({"w": t.tensor("0", [size // 4])})},
                                   {"name": "a/data/0", "data": stream, "method": 8, "size": size}]))
        with Mount(d + "/large.pt", "cache=8G", "direct_io") as m:  # a page cache would let the reader go while it is filled
            p = subprocess.Popen(["cat", m + "/w"], stdout=subprocess.DEVNULL)
            time.sleep(0.3)
            assert p.poll() is None, "it was too fast for this test"
            start = time.monotonic()
            p.kill()
            p.wait()
            assert time.monotonic() - start < 1, "the reader waited for the inflation"


if __name__ == "__main__":
    print(f"CKPT_SEED={SEED}")
    main(__name__)
