#!/usr/bin/env python3
"""Whatever a file holds, opening, --inspect and --verify end within 5 s of CPU and 256 MiB.

    test_limits_memory.py [NAME...]    only the cases with these words in their names

The inputs stand at the limits of formats/limits.h, or beyond them: most tensors, longest keys, most levels, most dimensions,
most metadata, most pickled objects, most archive entries, most shards; of stores, msgpack and burnpack in limits_stores.py. Each is either opened or refused with one sentence.
Peak memory is the process's own (wait4), without what a parent had. A sanitizer's shadow memory is none of ours to bound: under
one this test is skipped.
"""
import json, os, resource, struct, sys, tempfile

sys.dont_write_bytecode = True
import limits_files, limits_stores, orbax_file
from mounted import BINARY, sanitizer

MIB = 256
SECONDS = 5
MOST_TENSORS = 170_000
cases = []


def case(f):
    cases.append(f)
    return f


def safetensors(path, entries, metadata="", nbytes=0):
    """entries: the text of each member of the header."""
    header = ("{" + ",".join(([f'"__metadata__":{{{metadata}}}'] if metadata else []) + entries) + "}").encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(8 + len(header) + nbytes)


def entry(key, begin, end, shape="1", dtype="U8"):
    return f'"{key}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{begin},{end}]}}'


@case
def safetensors_most_tensors(path, n=MOST_TENSORS):
    safetensors(path, [entry(f"layers.{i // 10}.part{i % 10}", i, i + 1) for i in range(n)], nbytes=n)


@case
def safetensors_most_linears(path, n=MOST_TENSORS):
    """Each in a module of its own, each transposed."""
    safetensors(path, [entry(f"layers.{i}.fc.weight", 24 * i, 24 * i + 24, "2,3", "F32") for i in range(n)], nbytes=24 * n)


@case
def safetensors_most_modules(path, n=MOST_TENSORS):
    safetensors(path, [entry(f"m{i}.weight", 24 * i, 24 * i + 24, "2,3", "F32") for i in range(n)], nbytes=24 * n)


@case
def safetensors_longest_keys(path, n=MOST_TENSORS):
    safetensors(path, [entry(f"{i:0110}.{i:06}.weight", i, i + 1) for i in range(n)], nbytes=n)


@case
def safetensors_huge_keys(path, n=512):
    safetensors(path, [entry(f"{i:065530}", i, i + 1) for i in range(n)], nbytes=n)


@case
def safetensors_most_levels(path, n=MOST_TENSORS):
    safetensors(path, [entry(f"a.b.c.d.{i % 1000}.{i // 1000}.{i}.g.h.w", i, i + 1) for i in range(n)], nbytes=n)


@case
def safetensors_most_dimensions(path, n=MOST_TENSORS):
    safetensors(path, [entry(f"t{i}", i, i + 1, ",".join(["1"] * 64)) for i in range(n)], nbytes=n)


@case
def safetensors_one_metadata(path):
    safetensors(path, [entry("t", 0, 1)], '"a":"' + "x" * 90_000_000 + '"', nbytes=1)


@case
def safetensors_escaped_metadata(path):
    safetensors(path, [entry("t", 0, 1)], '"a":"' + "\\\\" * 45_000_000 + '"', nbytes=1)


@case
def safetensors_most_metadata(path):
    safetensors(path, [entry("t", 0, 1)], ",".join(f'"{i:x}":""' for i in range(7_500_000)), nbytes=1)


@case
def safetensors_most_members(path):
    safetensors(path, ['"t":{' + ",".join(f'"{i:x}":0' for i in range(8_000_000)) + "}"])


def pickled(path, *body, entries=()):
    pickle = b"\x80\2" + b"".join(body) + b"."
    limits_files.write_zip(path, [("a/data.pkl", len(pickle), pickle, None), *entries])


def number(i):
    return b"J" + struct.pack("<i", i)


def in_batches(items, n=1000, end=b"u"):
    """As a pickler writes them: a mark, n items, SETITEMS or APPENDS."""
    items = list(items)
    return b"".join(b"(" + b"".join(items[i:i + n]) + end for i in range(0, len(items), n))


@case
def pickle_most_tensors(path, n=100_000):
    pickle = limits_files.state_dict({f"layers.{i // 10}.part{i % 10}": 4 for i in range(n)})
    limits_files.write_zip(path, [("a/data.pkl", len(pickle), pickle, None)] + [(f"a/data/{i}", 16, b"\0" * 16, None) for i in range(n)])


@case
def pickle_of_one_storage(path, n=120_000):
    """Views by the memo: what a tensor costs least."""
    storage = b"(" + limits_files.text("storage") + b"ctorch\nFloatStorage\n" + limits_files.text("0") + limits_files.text("cpu") + b"K\4tQq\0"
    head = b"ctorch._utils\n_rebuild_tensor_v2\nq\1" + b"(K\4tq\2" + b"(K\1tq\3" + b"ccollections\nOrderedDict\n)Rq\4"
    one = b"h\1(h\0K\0h\2h\3\x89h\4tR"
    pickled(path, head, storage, b"}(", *(limits_files.text(f"{i:x}.weight") + one for i in range(n)), b"u",
            entries=[("a/data/0", 16, b"\0" * 16, None)])


@case
def pickle_giant_keys(path, n=500):
    one = limits_files.tensor("0", 4)
    pickled(path, b"}(", *(limits_files.text(f"{i:065000}") + one for i in range(n)), b"u", entries=[("a/data/0", 16, b"\0" * 16, None)])


@case
def pickle_giant_parents(path, n=1000):
    """A long key above many tensors."""
    one = limits_files.tensor("0", 4)
    pickled(path, b"}", limits_files.text("k" * 60_000), b"}(", *(limits_files.text(f"{i}") + one for i in range(n)), b"us",
            entries=[("a/data/0", 16, b"\0" * 16, None)])


@case
def pickle_object_of_5_million_keys(path, n=5_000_000):
    pickled(path, b"c__main__\nThing\n)R}", in_batches(number(i) + b"N" for i in range(n)), b"b")


@case
def pickle_most_numbers(path, n=1_400_000):
    pickled(path, b"}(", limits_files.text("w"), limits_files.tensor("0", 4), limits_files.text("list"), b"]", in_batches((number(i + 1000) for i in range(n)), end=b"e"), b"u", entries=[("a/data/0", 16, b"\0" * 16, None)])


@case
def pickle_most_values(path, n=700_000):
    """Beside a tensor, each is a file of its own."""
    pickled(path, b"}", limits_files.text("w"), limits_files.tensor("0", 4), b"s", in_batches(limits_files.text(f"{i:x}") + b"K\1" for i in range(n)),
            entries=[("a/data/0", 16, b"\0" * 16, None)])


@case
def pickle_most_objects(path, n=200_000):
    pickled(path, b"}(", limits_files.text("w"), limits_files.tensor("0", 4), *(limits_files.text(f"{i:x}") + b"c__main__\nA\n)R}K\1K\2sb" for i in range(n)), b"u",
            entries=[("a/data/0", 16, b"\0" * 16, None)])


@case
def pickle_most_lists(path, n=1_400_000):
    pickled(path, b"](", b"]" * n, b"e")


@case
def pickle_most_dicts(path, n=140_000):
    pickled(path, b"](", b"}(K\1K\1K\2K\2K\3K\3K\4K\4u" * n, b"e")


@case
def pickle_longest_text(path):
    pickled(path, b"}(", limits_files.text("w"), limits_files.tensor("0", 4), limits_files.text("text"), limits_files.text("\n" * 90_000_000), b"u",
            entries=[("a/data/0", 16, b"\0" * 16, None)])


@case
def pickle_most_memo(path, n=1_400_000):
    pickled(path, b"]", *(b"r" + struct.pack("<I", 2 * i + 1) for i in range(n)))


@case
def pickle_most_marks(path):
    pickled(path, b"(" * 90_000_000)


@case
def pickle_deflated(path):
    import zlib
    pickle = b"\x80\2](" + b"K\1N\x88\x89" * 19_000_000 + b"e."
    c = zlib.compressobj(1, zlib.DEFLATED, -15)
    deflated = c.compress(pickle) + c.flush()
    limits_files.write_zip(path, [("a/data.pkl", len(pickle), pickle, deflated)])


@case
def zip_most_entries(path, n=300_000):
    pickle = limits_files.state_dict({"w": 4})
    limits_files.write_zip(path, [("a/data.pkl", len(pickle), pickle, None)] + [(f"a/data/{i}", 16, b"\0" * 16, None) for i in range(n - 1)])


@case
def zip_longest_names(path, n=1_500):
    pickle = limits_files.state_dict({"w": 4})
    limits_files.write_zip(path, [("a/data.pkl", len(pickle), pickle, None), ("a/data/0", 16, b"\0" * 16, None)]
                      + [(f"a/data/{i:060000}", 0, b"", None) for i in range(n - 2)])


@case
def shards_1500(folder):
    limits_files.make_shards(folder, 1500)


@case
def shards_most(folder, n=4_000, tensors=30):
    os.mkdir(folder)
    names = {}
    for i in range(n):
        name = f"m-{i:05}.safetensors"
        safetensors(f"{folder}/{name}", [entry(f"layers.{i}.{k}.weight", k, k + 1) for k in range(tensors)], nbytes=tensors)
        names |= {f"layers.{i}.{k}.weight": name for k in range(tensors)}
    with open(f"{folder}/model.safetensors.index.json", "w") as f:
        json.dump({"weight_map": names}, f)


@case
def shards_of_one_index(folder, n=3_000_000):
    os.mkdir(folder)
    safetensors(f"{folder}/m", [entry("t", 0, 1)], nbytes=1)
    with open(f"{folder}/model.safetensors.index.json", "w") as f:
        f.write('{"weight_map":{"t":"m",' + ",".join(f'"{i:x}":"m"' for i in range(n)) + "}}")


@case
def orbax_most_arrays(folder, n=100_000):
    """Of a hundred kinds, each array a chunk."""
    arrays = {("l", str(i // 10), f"part_{i % 10}"): ((i % 100 + 1,), bytes(4 * (i % 100 + 1))) for i in range(n)}
    limits_files.write_files(folder, limits_files.orbax_files(arrays))


@case
def orbax_most_kinds(folder, n=100_000):
    """No two arrays have the same metadata."""
    limits_files.write_files(folder, limits_files.orbax_files({("l", str(i // 10), f"part_{i % 10}"): ((i + 1,), None) for i in range(n)}))


@case
def orbax_most_keys(folder, n=1_000_000):
    limits_files.write_files(folder, orbax_file.store({b"%x" % i: b"" for i in range(n)}))


@case
def orbax_largest_values(folder, n=24):
    """96 MiB in one node."""
    limits_files.write_files(folder, orbax_file.store({b"%02x" % i: bytes(4 << 20) for i in range(n)}, inline=4 << 20))


@case
def orbax_largest_description(folder, n=37_000):
    """100 MB of paths of empty names."""
    path = ",".join(['{"key":""}'] * 250)
    leaves = ",".join(f'"{i}":{{"key_metadata":[{path}]}}' for i in range(n))
    limits_files.write_files(folder, limits_files.orbax_files({("a",): ((1,), None)}) | {"_METADATA": f'{{"tree_metadata":{{{leaves}}}}}'.encode()})


@case
def orbax_most_strings(folder, n=8_000_000):
    strings = "{" + ",".join(f'"{i:x}":""' for i in range(n)) + "}"
    limits_files.write_files(folder, limits_files.orbax_files({("a",): ((1,), None)}) | {"_strings.json": strings.encode()})


def measure(arguments):
    """Seconds of CPU, MiB at most, exit code and standard error; the parent is a small process, whose memory does not count."""
    script = ("import os, sys; n = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]; "
              "p = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=n); s, u = os.wait4(p, 0)[1:]; "
              "print(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024, os.waitstatus_to_exitcode(s))")
    import subprocess
    p = subprocess.run([sys.executable, "-ISc", script, BINARY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    seconds, mib, code = p.stdout.split(b"\n")[-2].split()
    return float(seconds), float(mib), int(code), p.stderr.decode(errors="replace").strip()


def check(name, path):
    worst = []
    for arguments in (["--cat", "summary.txt", path], ["--inspect", "--json", path], ["--verify", path]):
        seconds, mib, code, said = measure(arguments)
        if code and (arguments[0] != "--verify" or code > 3):
            assert code > 0 and said.count("\n") == 0 and said, f"{name} {arguments[0]}: exit {code}: {said[:500]}"
        worst.append((mib, seconds, code))
        if code and arguments[0] == "--cat":
            break  # refused: all three read the source in the same way
    mib, seconds, code = (max(x[i] for x in worst) for i in range(3))
    bad = mib > MIB or seconds > SECONDS
    print(f"{'TOO MUCH' if bad else 'ok':8} {mib:6.1f} MiB {seconds:5.2f} s  {name}{': ' + said[:150] if worst[0][2] else ''}", flush=True)
    return bad


def main():
    if sanitizer():
        print("skipped: a sanitizer's own memory cannot be told from the program's")
        sys.exit(77)
    wanted = sys.argv[1:]
    bad = 0
    for make in cases + limits_stores.cases:
        if wanted and not any(w in make.__name__ for w in wanted):
            continue
        with tempfile.TemporaryDirectory(prefix="ckpt-memory.") as folder:
            path = f"{folder}/source"
            make(path)
            bad += check(make.__name__, path)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
