"""Random reads by 8 threads (pread, mmap, O_DIRECT where allowed) of every kind of view, against a reference computed
here. Prints its seed; CKPT_SEED repeats a run."""
import mmap, os, random, threading
from mounted import *

SEED = int(os.environ.get("CKPT_SEED", random.SystemRandom().getrandbits(32)))
ROUNDS = int(os.environ.get("CKPT_READS", 400))
THREADS = 8


def build(path, rng):
    """A file with square, long, tiny and empty tensors of several element sizes; the adapted bytes."""
    tensors, want = {}, {}
    for i, (dtype, size, shape) in enumerate([("F32", 4, [300, 517]), ("F16", 2, [513, 129]), ("F64", 8, [64, 200]), ("BF16", 2, [1, 7]), ("F32", 4, [900, 3]),
                                              ("F32", 4, [2, 3, 5, 7]), ("I64", 8, [11]), ("F32", 4, [0, 8]), ("F32", 4, [1024, 1024])]):
        n = size
        for d in shape:
            n *= d
        data = rng.randbytes(n)
        key = f"layer{i}.weight"
        tensors[key] = (dtype, shape, data)
        if len(shape) == 2:
            tensors[f"layer{i}.bias"] = (dtype, [shape[0]], rng.randbytes(size * shape[0]))
            want[f"layer{i}.bias"] = tensors[f"layer{i}.bias"][2]
            data = transposed(data, *shape, size)
        want[key] = data
    write_safetensors(path, tensors)
    return want


def check(path, data, rng, rounds, errors):
    fd = os.open(path, os.O_RDONLY)
    try:
        for _ in range(rounds):
            a = rng.randrange(len(data) + 1)
            n = rng.choice([1, 3, 64, 4096, 65536, 1 << 20, len(data)])
            if os.pread(fd, n, a) != data[a : a + n]:
                errors.append(f"{path}: pread({n}, {a}) differs")
        if data:
            with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
                for _ in range(rounds // 4):
                    a = rng.randrange(len(data))
                    n = rng.randrange(1, 5000)
                    if view[a : a + n] != data[a : a + n]:
                        errors.append(f"{path}: mapped [{a}, {a + n}) differs")
    except OSError as e:
        errors.append(f"{path}: {e}")
    finally:
        os.close(fd)


def many_readers(*opts):
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "random.safetensors")
        want = build(source, rng)
        with Mount(source, *opts) as m:
            model = read(m, "model.safetensors")
            files = [(os.path.join(m, *k.split(".")), v) for k, v in want.items()] + [(os.path.join(m, "model.safetensors"), model)]
            for t in read_json(m, "index.json")["tensors"]:
                assert model[t["offset"] : t["offset"] + t["nbytes"]] == want[t["key"]], t["key"]
            errors = []

            def work(seed):
                mine = random.Random(seed)
                for path, data in mine.sample(files, len(files)):
                    check(path, data, mine, ROUNDS // len(files), errors)
            threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(THREADS)]
            [t.start() for t in threads]
            [t.join() for t in threads]
            assert not errors, errors[:5]


def test_default():
    many_readers()


def test_single_threaded():
    many_readers("nomt")


def test_direct_io():
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "random.safetensors")
        want = build(source, rng)
        with Mount(source, "direct_io") as m:
            for k, v in want.items():
                assert read(m, *k.split(".")) == v, k


if __name__ == "__main__":
    print(f"CKPT_SEED={SEED}")
    main(__name__)
