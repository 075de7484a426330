"""What a hostile source is, for the files hostile_*.py, which make them."""
import os


class Case:
    """A name; what make(folder) puts into the folder, giving the source's path; and whether it must be accepted (None: either)."""

    def __init__(self, name, content, expect=None, file="x.pt"):
        self.name, self.content, self.expect, self.file = name, content, expect, file

    def make(self, folder):
        path = os.path.join(folder, self.file)
        if callable(self.content):
            return self.content(folder) or path
        if isinstance(self.content, dict):
            return write_tree(path, self.content)
        with open(path, "wb") as f:
            f.write(self.content)
        return path


def write_tree(path, files):
    """A directory of {name: bytes, or the target of a link as str}."""
    os.mkdir(path)
    for name, data in files.items():
        full = os.path.join(path, name)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if isinstance(data, str):
            os.symlink(data, full)
        else:
            with open(full, "wb") as f:
                f.write(data)
    return path


def damaged(name, data, rng, file="x.pt", cuts=12, flips=24):
    """Cut at many places, and with bits flipped."""
    for i in range(cuts):
        yield Case(f"{name}, cut {i}", data[: rng.randrange(len(data))], file=file)
    for i in range(flips):
        copy = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            copy[rng.randrange(len(copy))] ^= 1 << rng.randrange(8)
        yield Case(f"{name}, bits {i}", bytes(copy), file=file)
