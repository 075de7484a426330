"""Names that are hostile to a file tree: every tensor of odd_keys.pt has a safe path, its own bytes and its true key."""
import hashlib, os
from mounted import *


def text(s):
    return "".join(c if not 0xD800 <= ord(c) < 0xE000 else "".join(f"%{b:02X}" for b in c.encode("utf-8", "surrogatepass")) for c in s)


def test_every_tensor_is_there():
    want = {text(t["key"]): t for t in read_json(fixture("pt", "odd_keys.pt.expected.json"))["tensors"]}
    with Mount(fixture("pt", "odd_keys.pt"), "layout=source") as m:
        index = read_json(m, "index.json")
        assert {t["key"] for t in index["tensors"]} == set(want)
        for t in index["tensors"]:
            segments = t["path"].split("/")
            assert all(s not in ("", ".", "..") and len(s.encode()) <= 255 for s in segments), t["path"]
            f = os.path.join(m, t["path"])
            assert hashlib.sha256(read(f)).hexdigest() == want[t["key"]]["sha256"], t["key"]
            assert os.getxattr(f, "user.ckpt.key").decode("utf-8", "surrogateescape") == t["key"]
        inside = safetensors(os.path.join(m, "model.safetensors"))[0]
        assert list(inside) == [t["key"] for t in index["tensors"]]


def test_listing_finds_them_all():
    with Mount(fixture("pt", "odd_keys.pt"), "layout=source") as m:
        listed = {os.path.relpath(os.path.join(d, f), m) for d, _, fs in os.walk(m) for f in fs}
        assert {t["path"] for t in read_json(m, "index.json")["tensors"]} <= listed


if __name__ == "__main__":
    main(__name__)
