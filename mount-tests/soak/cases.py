"""What the soak mounts: every fixture and some larger sources made here, each with many sets of options; and what their files hold.

What a file of a case holds is known from `--cat`, run once for each in a process of its own. That in turn is held against what
others say, where they do: PyTorch's hashes of fixtures/pt/expected.tsv, and for sources made here, what they were made of.
"""
import array, hashlib, json, os, random, re, subprocess, sys, threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
sys.dont_write_bytecode = True
import torch_file
from mounted import BINARY, FIXTURES, fixture, options, sanitizer, write_safetensors

OPTIONS = [[], ["layout=torch"], ["layout=source"], ["cast=f16"], ["cast=f32", "layout=torch"], ["cast=bf16", "direct_io"], ["cache=1M"],
           ["direct_io"], ["nomt"], ["list=all"], ["list=all", "threads=2"], ["list=all", "cache=1M", "direct_io"], ["prefix=keep", "contiguous=off"],
           ["list=all", "layout=source", "nomt"], ["passthrough"], ["modules=store", "cache=16M"]]


def fixtures():
    """Every file or folder of the fixtures that might be a source; many are not, and mounting those must fail."""
    folders = {"pt": r"\.(pt|pth|bin|pkl|ckpt|tar|pt2)$|^(dcp_two|dcp_ckpt|hf_sharded)$", "safetensors": r"\.safetensors$|^sharded$", "a1": r"\.(pt|safetensors)$",
               "pt2": r"\.pt2$", "torchscript": r"\.pt$", "verify": r"\.(pt|pt2|safetensors)$", "burnpack": r"\.bpk$", "weight_norm": r"^state\.pt$",
               "burn-nn": r"\.(pt|safetensors)$", "orbax": r"^[a-gx]_\w+$|^pi", "flax": r"\.(msgpack|bpk)$|^[a-z_]+$"}
    found = []
    for folder, pattern in folders.items():
        for name in sorted(os.listdir(fixture(folder))):
            if re.search(pattern, name) and not name.endswith((".reference.safetensors", ".py")):
                found.append(fixture(folder, name))
    return found


# --- larger ones, made here ---


def floats(rng, n):
    """Some random megabyte, again and again with its place in it, as float32."""
    piece = array.array("f", [rng.uniform(-1, 1) for _ in range(4096)])
    data = array.array("f")
    for i in range(n // len(piece)):
        piece[0] = i
        data += piece
    return data


def transposed(data, rows, columns):
    out = array.array("f")
    for c in range(columns):
        out += data[c::columns]
    return out


def sha(data):
    return hashlib.sha256(data).hexdigest()


def make_linears(folder, rng, side):
    """A square matrix that is transposed for burn."""
    path, data = os.path.join(folder, "linears.safetensors"), floats(rng, side * side)
    write_safetensors(path, {"fc.weight": ("F32", [side, side], data.tobytes()), "fc.bias": ("F32", [side], bytes(4 * side))})
    return path, {"burn": {"fc/weight": sha(transposed(data, side, side).tobytes()), "fc/bias": sha(bytes(4 * side))}, "torch": {"fc/weight": sha(data.tobytes())}}


def make_pt(folder, rng, side, deflated):
    path = os.path.join(folder, "deflated.pt" if deflated else "stored.pt")
    layers = {f"l{i}": floats(rng, side * side // 4) for i in range(4)}
    pickle = torch_file.state_dict({f"{k}.weight": torch_file.tensor(k, [side // 2, side // 2]) for k in layers})
    with open(path, "wb") as f:
        f.write(torch_file.checkpoint(pickle, {k: v.tobytes() for k, v in layers.items()}, deflated=deflated))
    return path, {"burn": {f"{k}/weight": sha(transposed(v, side // 2, side // 2).tobytes()) for k, v in layers.items()},
                  "torch": {f"{k}/weight": sha(v.tobytes()) for k, v in layers.items()}}


def make_weight_norm(folder, rng, side):
    """A weight that is computed: its rows have the norm 2, so that g = 3 makes it 1.5 v."""
    path = os.path.join(folder, "weight_norm.safetensors")
    columns = side - side % 4
    v = array.array("f", [1.0, -1.0, 1.0, 1.0] + [0.0] * (columns - 4)) * side
    w = array.array("f", [1.5, -1.5, 1.5, 1.5] + [0.0] * (columns - 4)) * side
    write_safetensors(path, {"fc.weight_g": ("F32", [side, 1], array.array("f", [3.0] * side).tobytes()), "fc.weight_v": ("F32", [side, columns], v.tobytes()),
                             "fc.bias": ("F32", [side], bytes(4 * side))})
    return path, {"burn": {"fc/weight": sha(transposed(w, side, columns).tobytes())}}


def make_shards(folder, rng, side):
    path = os.path.join(folder, "shards")
    os.mkdir(path)
    names, burn, torch = {}, {}, {}
    for i in range(8):
        name, data = f"model-{i}.safetensors", floats(rng, side * side // 8)
        write_safetensors(os.path.join(path, name), {f"l{i}.weight": ("F32", [side // 8, side], data.tobytes())})
        names[f"l{i}.weight"] = name
        torch[f"l{i}/weight"], burn[f"l{i}/weight"] = sha(data.tobytes()), sha(transposed(data, side // 8, side).tobytes())
    with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
        json.dump({"weight_map": names}, f)
    with open(os.path.join(path, "config.json"), "w") as f:
        f.write("{}\n")
    return path, {"burn": burn, "torch": torch}


def make_all(folder, rng, side):
    """[(path, {layout: {file: SHA-256}})]"""
    return [make_linears(folder, rng, side), make_pt(folder, rng, side, False), make_pt(folder, rng, side, True), make_weight_norm(folder, rng, side),
            make_shards(folder, rng, side)]


# --- what files hold ---


def expected_of_pytorch():
    """{file: {(key, dtype, shape): SHA-256}} of fixtures/pt."""
    out, file = {}, None
    with open(fixture("pt", "expected.tsv"), encoding="utf-8") as f:
        for row in (line.rstrip("\n").split("\t") for line in f):
            if row[0] == "file":
                file = out.setdefault(row[1], {})
            elif row[0] == "tensor" and len(row) == 5 and re.fullmatch("[0-9a-f]{64}", row[3]):
                file[json.loads(row[4]), row[1], row[2]] = row[3]
    return out


class Wrong(Exception):
    """Something that must not be."""


class Case:
    """A source and options."""

    def __init__(self, source, opts, expected, folder, number):
        """expected: {layout: {file: SHA-256}}, or {(key, dtype, shape): SHA-256} as they lie in the source."""
        self.source, self.opts, self.expected = source, opts, expected
        self.folder = os.path.join(folder, str(number))
        self.lock, self.known, self.inspected = threading.Lock(), {}, None

    def __str__(self):
        source = os.path.relpath(self.source, FIXTURES) if self.source.startswith(FIXTURES) else os.path.basename(self.source)
        return " ".join([source, *options(*self.opts)])

    def run(self, *args, **kw):
        """A call of the binary on this source; killed by no signal."""
        p = subprocess.run([BINARY, *args, *options(*self.opts), self.source], stderr=subprocess.PIPE, timeout=300, **kw)
        if p.returncode < 0 or p.returncode > 32:
            raise Wrong(f"{args} ends with {p.returncode}: {p.stderr.decode(errors='replace')[-2000:]}")
        return p

    def usable(self):
        """Whether it may be mounted."""
        with self.lock:
            if self.inspected is None:
                p = self.run("--inspect", "--json", stdout=subprocess.PIPE)
                self.inspected = json.loads(p.stdout.decode("utf-8", "surrogateescape")) if p.returncode == 0 else False
        return bool(self.inspected)

    def layout(self):
        return next((o.split("=")[1] for o in self.opts if o.startswith("layout=")), "burn")

    def holds(self, path):
        """(SHA-256, name of a file with the same bytes) of a file of the tree; None: it can't be read."""
        with self.lock:
            if path not in self.known:
                self.known[path] = self.cat(path)
        return self.known[path]

    def cat(self, path):
        os.makedirs(self.folder, exist_ok=True)
        name = os.path.join(self.folder, str(len(self.known)))
        with open(name, "wb") as out:
            if self.run("--cat", path, stdout=out).returncode:
                return None
        with open(name, "rb") as f:
            found = hashlib.file_digest(f, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else sha(f.read())
        wanted = self.others_say(path)
        if wanted and found != wanted:
            raise Wrong(f"{path} has SHA-256 {found}, not {wanted} as others say")
        self.checked += bool(wanted)
        return found, name

    def others_say(self, path):
        """The SHA-256 that a file ought to have; None: nobody says."""
        if any(o.startswith("cast") for o in self.opts):
            return None
        if self.layout() == "source" and self.inspected:
            for t in self.inspected["tensors"]:
                if t["path"] == path:
                    return self.expected.get((t.get("source", t).get("key"), t["dtype"], ",".join(map(str, t["shape"]))))
        return self.expected.get(self.layout(), {}).get(path)

    checked = 0  # files that were held against what others say


def usable_options():
    """ThreadSanitizer puts a signal off until its thread calls something that it knows, which splice is not: with one thread, never."""
    return [o for o in OPTIONS if not (sanitizer() == "thread" and "nomt" in o)]


def make_cases(folder, rng, side):
    sets = usable_options()
    os.mkdir(made := os.path.join(folder, "made"))
    os.mkdir(store := os.path.join(folder, "store"))
    torch = expected_of_pytorch()
    sources = [(path, torch.get(os.path.basename(path), {}) if os.path.dirname(path) == fixture("pt") else {}) for path in fixtures()]
    sources += 8 * make_all(made, random.Random(rng.random()), side)  # as often as all that
    cases = {}
    for path, expected in sources:
        for opts in rng.sample(sets, 4):
            cases.setdefault((path, *opts), Case(path, opts, expected, store, len(cases)))
    return list(cases.values())
