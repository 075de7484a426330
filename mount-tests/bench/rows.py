"""Every row of the benchmark, by group. A new row is one entry here; its cases are functions of cases.py, peers.py, opening_cases.py and orbax_cases.py.

A row's value is the median of what its rounds gave. `speed` is how many times as fast as the peer (more is better), `cost` what part
of the peer's seconds or MiB (less is better), `beyond` what is taken on top of the peer, `alone` our own figure.
"""
import dataclasses

import cases
import data
import opening_cases as opening
import orbax_cases as orbax
import peers
from table import Row, case

GROUPS = {
    "floors": "Floors and goals",
    "readers": "Readers of a file whose bytes are the source's",
    "limits": "Limits of FUSE",
    "today": "What people do today",
    "archives": "Filesystems for archives",
    "opening": "Opening",
    "orbax": "Orbax",
}


def reading(group, what, reader, source, *, direct=False, again=False, limits=(None, None), short=False):
    """A reader on model.safetensors of an unadapted mount, against the same reader on the file itself; bounded by a bare server."""
    options = ("direct_io",) if direct else ()
    ours = case(cases.again if again else cases.through, reader, source, "model.safetensors", "layout=source", *options)
    bound = case(cases.bare, reader, source, again, *(("direct",) if direct else ())) if limits[0] else None
    return Row(group, "speed", what, ours, "wall", "the file itself", case(cases.raw, reader, source), "", *limits, short, bound)


def transposed(source, key, what, cached, direct):
    """(floor, goal) by default and with direct_io, of one tensor through the mount against numpy, which finds it mapped."""
    numpy = case(peers.python, "numpy ascontiguousarray(x.T)", source, key)
    for name, options, limits in ((what, (), cached), (what + ", `direct_io`", ("direct_io",), direct)):
        ours = case(cases.through, "cat", source, cases.tensor_path(key), *options)
        yield Row("floors", "speed", name, ours, "wall", "numpy `ascontiguousarray(x.T)` alone, in process", numpy, "own_wall", *limits, True)


def floors(untouched, model, short):
    """The rows that must hold. `untouched` is the safetensors file that is served as it is, `model` the one of float32."""
    down = cases.tensor_path(cases.DOWN)
    turned = "`cp model.safetensors`, f16, every Linear transposed, CPU"
    copied = case(cases.through, "cp", "llama_f16.pt", "model.safetensors")
    byte = "numpy.memmap, the process"
    for reader, to, cached, direct in (("cat", "", (0.22, 0.4), (0.45, 0.9)), ("cp", " to a tmpfs", (0.50, 0.7), (0.65, 0.9))):
        what = f"`{reader} model.safetensors`{to}, cold mount"
        yield reading("floors", what, reader, untouched, limits=cached, short=True)
        yield reading("floors", what + ", `direct_io`", reader, untouched, direct=True, limits=direct, short=True)
    yield reading("floors", "`cat model.safetensors`, second time", "cat", untouched, again=True, limits=(0.40, 0.6), short=True)
    if not short:
        yield Row("floors", "speed", "`cat model.safetensors`, cold mount, `passthrough`", case(cases.passed_through, "cat", untouched), "wall", "the file itself",
                  case(cases.raw, "cat", untouched))
    yield from transposed(model + ".safetensors", cases.GATE, "`cat` of a Linear served transposed as [4096, 11008] f32", (3, 5), (5, 8))
    yield from transposed(model + ".safetensors", cases.DOWN, "`cat` of a Linear served transposed as [11008, 4096] f32", (None, 5), (None, 8))
    yield Row("floors", "speed", "fused bf16 → f32 transposition in process, one thread, CPU", case(cases.gather, "[4096,11008] T bf16->f32"), "cpu",
              "torch `.t().contiguous().float()`", case(peers.torch_transpose), floor=2, goal=4)
    yield Row("floors", "cost", turned, copied, "cpu", "torch.load(mmap), `.t().contiguous()`, save_file",
              case(peers.python, "torch.load(mmap), transpose, save_file", "llama_f16.pt"), floor=0.7, goal=0.4)
    yield Row("floors", "cost", turned, copied, "cpu", "burn-store's reading of it", case(peers.burn, "llama_f16.pt"), floor=0.4, goal=0.25)
    yield Row("floors", "cost", "first byte of the last tensor, mounting included", case(cases.first_byte, model + ".safetensors", "model/norm/gamma"), "wall", byte,
              case(peers.python, "numpy memmap, first byte", model + ".safetensors", "model.norm.weight"), floor=0.3, goal=0.1, short=True)
    yield Row("floors", "cost", "first byte of the last Linear, transposed, mounting included", case(cases.first_byte, model + ".safetensors", down), "wall", byte,
              case(peers.python, "numpy memmap, first byte", model + ".safetensors", cases.DOWN), goal=0.1, short=True)
    many = case(cases.mount, "many.pt")
    yield Row("floors", "beyond", "mounting a `.pt` of 10,000 tensors, without the archive's index", many, "wall", "libzip's reading of the index",
              case(cases.archive_index, "many.pt"), floor=0.050, short=True)
    yield Row("floors", "alone", "the same in all", many, "wall", goal=0.030, short=True)
    yield Row("floors", "alone", "mounting a `.safetensors` of 10,000 tensors", case(cases.mount, "many.safetensors"), "wall", floor=0.050, goal=0.030, short=True)
    source = model + ".pt" if short else "llama_f16.pt"
    yield Row("floors", "alone", "anonymous memory after everything was read, `cache=64M`", case(cases.read_everything, source, "cache=64M"), "anon",
              floor=96, goal=64, short=True)
    yield Row("floors", "alone", "the same of a deflated `.pt`", case(cases.read_everything, "deflated.pt", "cache=64M"), "anon", floor=96, goal=64, short=True)


def readers(untouched):
    for reader in ("tar", "sha256sum", "dd bs=8k", "open().read()", "safetensors.numpy load_file", "safetensors.torch load_file", "safe_open, every tensor",
                   "np.memmap, every byte"):
        yield reading("readers", f"`{reader}`", reader, untouched)
        yield reading("readers", f"`{reader}`, `direct_io`", reader, untouched, direct=True)


def limits(untouched):
    """What reading costs beside a server that does nothing but serve."""
    for reader in ("cat", "cp"):
        for how, ours, second, options, theirs in ((", cold mount", cases.through, False, (), ()), (", `direct_io`", cases.through, False, ("direct_io",), ("direct",)),
                                                   (", second time", cases.again, True, (), ())):
            mine = case(ours, reader, untouched, "model.safetensors", "layout=source", *options)
            bare, same = (case(cases.bare, reader, untouched, second, *theirs, *more) for more in ((), ("same",)))
            yield Row("limits", "speed", f"`{reader}`{how}", mine, "wall", "a bare FUSE server", bare)
            yield Row("limits", "cost", "the same, CPU", mine, "cpu", "the same", bare)
            yield Row("limits", "cost", "the same, CPU", mine, "cpu", "the same, of one MiB over and over", same)


def from_disk():
    """The same file as the untouched one, but for what the kernel keeps it in."""
    for how, more in ((", cold mount", {}), (", `direct_io`", {"direct": True}), (", second time", {"again": True})):
        ours = reading("limits", f"`cat`{how}, the source read from the disk", "cat", data.FROM_DISK, **more)
        yield ours
        yield dataclasses.replace(ours, what="the same by a bare FUSE server", ours=case(cases.bare, "cat", data.FROM_DISK, bool(more.get("again")), *(("direct",) if "direct" in more else ())))


def today(kind):
    st, pt = f"llama_{kind}.safetensors", f"llama_{kind}.pt"
    copied = case(cases.through, "cp", pt, "model.safetensors")
    one = case(cases.through, "cp", st, cases.tensor_path(cases.GATE))
    yield Row("today", "cost", f"{kind}: mount + `ls -lR`, wall", case(cases.mount_and_list, pt), "wall", "torch.load(mmap), list", case(peers.python, "torch.load(mmap), list", pt))
    yield Row("today", "cost", "the same", case(cases.mount_and_list, pt), "wall", "safe_open, list", case(peers.python, "safe_open, list", st))
    for body, source in (("torch.load, transpose, save_file", pt), ("torch.load(mmap), transpose, save_file", pt), ("safetensors.torch, transpose, save_file", st),
                         ("safetensors.numpy, transpose, save_file", st), ("numpy, one tensor at a time", st)):
        yield Row("today", "cost", f"{kind}: `cp model.safetensors`, CPU", copied, "cpu", body, case(peers.python, body, source))
    yield Row("today", "cost", f"{kind}: `--export`, CPU", case(cases.export, pt), "cpu", "numpy, one tensor at a time", case(peers.python, "numpy, one tensor at a time", st))
    for body, source in (("numpy memmap, one tensor", st), ("safe_open numpy, one tensor", st), ("torch.load(mmap), one tensor", pt)):
        yield Row("today", "cost", f"{kind}: `cp` of one transposed tensor, CPU", one, "cpu", body, case(peers.python, body, source))


def archives(source):
    for program in peers.ARCHIVE_FILESYSTEMS:
        for figure in ("cpu", "wall"):
            yield Row("archives", "cost", f"`.pt` of 1 GB: mount, read all, {figure}", case(cases.mount_and_read, source, "model.safetensors", "layout=source"), figure,
                      f"{program}: mount, read all entries", case(peers.archive, program, source))


def opened(source, what, unit, target, memory=40):
    """Held to three times what was aimed at: wall times are what other work on the machine makes them."""
    yield Row("opening", "alone", f"open {what}" + (", CPU" if unit == "cpu" else ""), case(opening.opened, source), unit, floor=3 * target, goal=target, short=True)
    if memory:
        yield Row("opening", "alone", "the same, peak memory", case(opening.open_memory, source), "peak", floor=3 * memory, goal=memory, short=True)


def openings():
    yield Row("opening", "alone", "mount of a sparse 4.3 GB zip64 `.pt`, its end read right", case(opening.mount_huge), "wall", floor=0.150, goal=0.050, short=True)
    yield from opened("many.pt", "a `.pt` of 10,000 tensors", "wall", 0.150)
    yield from opened("header.safetensors", "a safetensors header of 100,000 tensors", "wall", 0.500, memory=None)
    yield from opened("database.orbax", "an Orbax checkpoint of 10,000 arrays in a database", "cpu", 0.150)
    yield from opened("folders.orbax", "an Orbax checkpoint of 10,000 arrays in a folder each", "cpu", 0.350)
    yield Row("opening", "alone", "read one tensor of 1,500 shards with a soft limit of 256 open files", case(opening.one_of_many_shards), "wall",
              floor=1.5, goal=0.5, short=True)
    yield Row("opening", "cost", "read a deflated tensor of 64 MiB forwards", case(opening.read_deflated), "wall", "an inflation by Python's zlib",
              case(opening.zlib_inflates), floor=6, goal=2, short=True)


def orbaxes():
    listed = "Orbax' `metadata()` in process"
    for name, what in (("many.orbax", "10,000 arrays, OCDBT"), ("many_plain.orbax", "10,000 arrays, folders")):
        ours = case(orbax.mount, name)
        yield Row("orbax", "alone", f"{what}: mount, wall", ours, "wall", goal=0.5)
        yield Row("orbax", "cost", "the same, CPU", ours, "cpu", listed, case(orbax.peer, "metadata()", name), "own_cpu")
        yield Row("orbax", "alone", "its anonymous memory", ours, "anon", goal=64)
    llama = "llama_f16.orbax"
    as_it_is, turned = case(orbax.copy, llama, "layout=source"), case(orbax.copy, llama)
    restore = case(orbax.peer, "restore + save_file", llama)
    yield Row("orbax", "cost", "1 GB: `cp model.safetensors`, `layout=source`, CPU", as_it_is, "cpu", "Orbax' restore + save_file", restore, goal=0.6)
    yield Row("orbax", "cost", "the same", as_it_is, "cpu", "the same in process", restore, "own_cpu")
    yield Row("orbax", "cost", "the same, wall", as_it_is, "wall", "the same in process", restore, "own_wall")
    yield Row("orbax", "cost", "1 GB: the same, transposed for burn, CPU", turned, "cpu", "restore + save_file, nothing transposed", restore)
    for what, options, body, did in (("", ("layout=source",), "read", "tensorstore's read"), (", transposed", (), "read, transpose", "read + `ascontiguousarray(x.T)`")):
        one = case(orbax.cat, llama, *options)
        yield Row("orbax", "cost", f"1 GB: `cat` of one array of 90 MB{what}, CPU", one, "cpu", did, case(orbax.peer, body, llama), goal=0.5)
        yield Row("orbax", "cost", "the same", one, "cpu", "the same in process", case(orbax.peer, body, llama), "own_cpu")
    yield Row("orbax", "alone", "1 GB: peak of anonymous memory, `cp`", turned, "peak", goal=256 + 64)
    yield Row("orbax", "alone", "the same, reading everything", case(orbax.everything, llama), "peak", goal=256 + 64)
    yield Row("orbax", "alone", "the same, `cache=64M`", case(orbax.everything, llama, "cache=64M"), "peak", goal=64 + 64)


def rows(short):
    """All of them, or those of the short form, on less data."""
    if short:
        everything = [*floors("short_f32.safetensors", "short_f32", True), *openings()]
        return [row for row in everything if row.short]
    return [*floors("llama_f16.safetensors", "llama_f32", False), *readers("llama_f16.safetensors"), *limits("llama_f16.safetensors"), *from_disk(), *today("f16"), *today("f32"), *archives("llama_f16.pt"),
            *openings(), *orbaxes()]
