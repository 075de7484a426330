"""Readers are killed with -9 inside long gathers, again and again: they go at once, the daemon stops working for them, and everything
else is answered quickly meanwhile and afterwards. The source is one large hole: a band of it takes a second to gather."""
from load import *

ROWS = COLUMNS = 32768  # 4 GiB, of which a band is 32 columns: a page of each row
READERS = 6
TURNS = int(os.environ.get("CKPT_KILLS", 5))
SOON = 5 if SANITIZED else 2  # seconds; some hundredths where nothing else runs


def serve(folder, *opts):
    sparse(os.path.join(folder, "huge.safetensors"), {"huge.weight": ("F32", [ROWS, COLUMNS], 4), "small.weight": ("F32", [64, 64], 4), "small.bias": ("F32", [1 << 20], 4)})
    return Served(os.path.join(folder, "huge.safetensors"), "layout=burn", "threads=2", *opts)


def timed(what, f, *args):
    began = time.monotonic()
    f(*args)
    took = time.monotonic() - began
    assert took < SOON, f"{what} took {took:.2f} s"
    return took


def drop_pages(path):
    with open(path, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def something_else(d):
    os.listdir(d.path("small"))
    for name in ("weight", "bias"):
        drop_pages(d.path("small", name))
    assert not any(read(d.path("small/bias")))


def killed(*opts):
    worst = {"others": 0.0, "to go": 0.0, "to rest": 0.0}

    def note(what, f, *args):
        worst[what] = max(worst[what], timed(what, f, *args))
    with tempfile.TemporaryDirectory() as folder, serve(folder, *opts) as d:
        size = 4 * ROWS * COLUMNS
        for turn in range(TURNS):
            with Readers() as readers:
                drop_pages(d.path("huge/weight"))
                before = d.cpu()
                for i in range(READERS):
                    readers.run("dd", f"if={d.path('huge/weight')}", "bs=64K", f"skip={(turn * READERS + i) * size // READERS // TURNS // 2 >> 16}")
                wait(lambda: d.cpu() > before + 0.1 and any(waits(p.pid) for p in readers.alive()), "the readers to wait")
                note("others", something_else, d)
                readers.kill()
                note("to go", wait, lambda: not readers.alive(), "the killed to go")
            # What the prefetcher has begun it finishes: it was nobody's.
            assert not any(read(d.path("small/weight")))
            note("others", something_else, d)
        note("to rest", lambda: wait(d.is_idle, "the daemon to rest"))
    print("     " + ", ".join(f"{k} {v * 1000:.0f} ms" for k, v in worst.items()))


def test_default():
    killed()


def test_direct_io():
    killed("direct_io")


if __name__ == "__main__":
    main(__name__)
