"""dialect=flax: every tensor of fixtures/flax, linen and nnx, in PyTorch's layout and in burn's, element by element against the source's, by
definitions written down here as plainly as can be; the forward check; and what the shapes alone do not tell."""
import itertools, json, math, re, struct, tempfile
from mounted import *


class Array:
    def __init__(self, shape, values):
        self.shape, self.values = list(shape), list(values)

    def __getitem__(self, index):
        at = 0
        for i, n in zip(index, self.shape):
            at = at * n + i
        return self.values[at]


def made(shape, element):
    return Array(shape, (element(*index) for index in itertools.product(*map(range, shape))))


def reshaped(a, *shape):
    return Array(shape, a.values)


def turned(a):
    return made(a.shape[::-1], lambda i, j: a[j, i])


def joined(*arrays):
    return Array([sum(a.shape[0] for a in arrays), *arrays[0].shape[1:]], (v for a in arrays for v in a.values))


def layer(a, i):
    n = math.prod(a.shape[1:])
    return Array(a.shape[1:], a.values[i * n : (i + 1) * n])


def zeros(*shape):
    return Array(shape, [0.0] * math.prod(shape))


def conv(a):
    *k, i, o = a.shape
    return made([o, i, *k], lambda o, i, *k: a[(*k, i, o)])


def conv_transpose(a):
    *k, i, o = a.shape
    return made([i, o, *k], lambda i, o, *at: a[(*(n - 1 - x for n, x in zip(k, at)), i, o)])


def conv_transpose_kernel(a):
    *k, o, i = a.shape
    return made([i, o, *k], lambda i, o, *at: a[(*at, o, i)])


def floats(path):
    return {k: Array(shape, struct.unpack(f"<{len(data) // 4}f", data)) for k, (_, shape, data) in safetensors(path)[0].items()}


NAMES = {"DenseGeneral_0": "project", "ConvTranspose_0": "up1", "ConvTranspose_1": "up2", "ConvTranspose_2": "up3", "ConvTranspose_3": "up4"}
LINEN = [rf"map=^{old}\.=>{new}." for old, new in NAMES.items()]
NNX = [r"map=^(lstm|fast|gru|simple)\.cell\.=>$1.", "kind=^up[123]$=>conv_transpose", "kind=^project$=>dense:1"]


def source(nnx):
    """{name: leaf}; linen's and nnx's under the same names where they are the same arrays."""
    out = {}
    for key, leaf in floats(fixture("flax", "expected_nnx.safetensors" if nnx else "expected.safetensors")).items():
        if not key.startswith("source."):
            continue
        path = [NAMES.get(x, x) for x in key.split(".")[1:] if x not in ("params", "batch_stats", "cell")]
        out[".".join(path[:-1] if nnx else path)] = leaf
    return out


def sum_of_product(w, a, b):
    """w + a b, in float32 at the end."""
    n = a.shape[1]
    near = lambda v: struct.unpack("<f", struct.pack("<f", v))[0]
    return made(w.shape, lambda i, j: near(w[i, j] + sum(a[i, k] * b[k, j] for k in range(n))))


def cells(p, nnx):
    """name: ([gates of x], [gates of h], bias of x, bias of h), as PyTorch orders them."""
    gates = lambda name, side, letters: [turned(p[f"{name}.{side}{g}.kernel"]) for g in letters]
    biases = lambda name, side, letters: joined(*(p[f"{name}.{side}{g}.bias"] for g in letters))
    dense = lambda name: [[turned(p[f"{name}.dense_{side}.kernel"])] for side in "ih"]
    lstm = lambda name, forget: (gates(name, "i", ["i", forget, "g", "o"]), gates(name, "h", "ifgo"), zeros(24), biases(name, "h", "ifgo"))
    if nnx:
        return {"lstm": lstm("lstm", "f_"), "fast": (*dense("fast"), zeros(24), p["fast.dense_h.bias"]),
                "gru": (*dense("gru"), p["gru.dense_i.bias"], zeros(18)), "simple": (*dense("simple"), p["simple.dense_i.bias"], zeros(6))}
    return {"lstm": lstm("lstm", "f"), "fast": lstm("fast", "f"),
            "gru": (gates("gru", "i", "rzn"), gates("gru", "h", "rzn"), biases("gru", "i", "rzn"), joined(zeros(12), p["gru.hn.bias"])),
            "mgu": (gates("mgu", "i", "ffn"), gates("mgu", "h", "ffn"), biases("mgu", "i", "ffn"), joined(zeros(12), p["mgu.hn.bias"])),
            "simple": ([turned(p["simple.i.kernel"])], [turned(p["simple.h.kernel"])], p["simple.i.bias"], zeros(6))}


def expected_torch(nnx=False):
    p = source(nnx)
    out = {"batch_norm.running_mean": p["batch_norm.mean"], "batch_norm.running_var": p["batch_norm.var"]}
    for name in ("dense", "bare"):
        out[name + ".weight"] = turned(p[name + ".kernel"])
    for name in ("conv1", "conv2", "conv3"):
        out[name + ".weight"] = conv(p[name + ".kernel"])
    for name in ("up1", "up2", "up3"):
        out[name + ".weight"] = conv_transpose(p[name + ".kernel"])
    out["up4.weight"] = conv_transpose_kernel(p["up4.kernel"])
    out["heads.weight"] = turned(reshaped(p["heads.kernel"], 8, 6))
    out["heads.bias"] = reshaped(p["heads.bias"], 6)
    out["project.weight"] = turned(reshaped(p["project.kernel"], 6, 4))
    out["general.weight"] = turned(reshaped(p["general.kernel"], 6, 4))
    out["general.bias"] = reshaped(p["general.bias"], 4)
    out["embed.weight"] = p["embed.embedding"]
    out["prelu.weight"] = reshaped(p["prelu.negative_slope"], 1)
    for name in ("layer_norm", "group_norm", "rms_norm", "batch_norm"):
        out[name + ".weight"] = p[name + ".scale"]
    for name in ("dense", "conv1", "conv2", "conv3", "project", "layer_norm", "group_norm", "batch_norm", "up1", "up2", "up3", "up4"):
        out[name + ".bias"] = p[name + ".bias"]
    parts = ("query", "key", "value")
    out["attention.in_proj_weight"] = joined(*(turned(reshaped(p[f"attention.{x}.kernel"], 8, 8)) for x in parts))
    out["attention.in_proj_bias"] = joined(*(reshaped(p[f"attention.{x}.bias"], 8) for x in parts))
    out["attention.out_proj.weight"] = turned(reshaped(p["attention.out.kernel"], 8, 8))
    out["attention.out_proj.bias"] = p["attention.out.bias"]
    for name, (x, h, bias_x, bias_h) in cells(p, nnx).items():
        out[name + ".weight_ih_l0"], out[name + ".weight_hh_l0"] = joined(*x), joined(*h)
        out[name + ".bias_ih_l0"], out[name + ".bias_hh_l0"] = bias_x, bias_h
    if nnx:
        out["lora.weight"] = turned(sum_of_product(p["lora.kernel"], p["lora.lora.lora_a"], p["lora.lora.lora_b"]))
        out["lora.bias"] = p["lora.bias"]
    for i in range(3):
        out[f"layers.{i}.fc.weight"] = turned(layer(p["layers.fc.kernel"], i))
        out[f"layers.{i}.fc.bias"] = layer(p["layers.fc.bias"], i)
        out[f"layers.{i}.norm.weight"] = layer(p["layers.norm.scale"], i)
        out[f"layers.{i}.norm.bias"] = layer(p["layers.norm.bias"], i)
    return out


def rows(a, i, n):
    """The i-th of n equal blocks of rows."""
    size = len(a.values) // n
    return Array([a.shape[0] // n, *a.shape[1:]], a.values[i * size : (i + 1) * size])


def split(out, key, names):
    a = out.pop(key)
    for i, name in enumerate(names):
        part = rows(a, i, len(names))
        out[name] = turned(part) if len(a.shape) == 2 else part


CELLS = {"lstm": ("input", "forget", "cell", "output"), "fast": ("input", "forget", "cell", "output"), "gru": ("reset", "update", "new"),
         "mgu": ("reset", "update", "new"), "simple": None}


def expected_burn(nnx=False):
    out = expected_torch(nnx)
    for key in list(out):
        module, _, last = key.rpartition(".")
        if "norm" in module and last in ("weight", "bias"):
            out[f"{module}.{'gamma' if last == 'weight' else 'beta'}"] = out.pop(key)
    for key in ("dense", "bare", "heads", "project", "general", "lora", "attention.out_proj", *(f"layers.{i}.fc" for i in range(3))):
        if key + ".weight" in out:
            out[key + ".weight"] = turned(out[key + ".weight"])
    out["prelu.alpha"] = out.pop("prelu.weight")
    for what in ("weight", "bias"):
        split(out, f"attention.in_proj_{what}", [f"attention.{x}.{what}" for x in ("query", "key", "value")])
        out[f"attention.output.{what}"] = out.pop(f"attention.out_proj.{what}")
        for name, gates in CELLS.items():
            for side, transform in (("ih", "input"), ("hh", "hidden")):
                names = [f"{name}.{g}_gate.{transform}_transform.{what}" for g in gates] if gates else [f"{name}.gate.{transform}_transform.{what}"]
                if f"{name}.{what}_{side}_l0" in out:
                    split(out, f"{name}.{what}_{side}_l0", names)
    return out


def export(name, *opts):
    with tempfile.TemporaryDirectory() as d:
        p = run("--export", os.path.join(d, "out.safetensors"), *options(*opts), name)
        assert p.returncode == 0, p.stderr
        return floats(os.path.join(d, "out.safetensors"))


def check(got, want):
    assert got.keys() == want.keys(), (sorted(want.keys() - got.keys()), sorted(got.keys() - want.keys()))
    for k in want:
        near = k == "lora.weight" and all(abs(a - b) <= 1e-6 for a, b in zip(got[k].values, want[k].values))
        assert got[k].shape == want[k].shape and (near or got[k].values == want[k].values), k


def test_torch():
    for name in ("model", "model.msgpack"):
        check(export(fixture("flax", name), "layout=torch", *LINEN), expected_torch())
    check(export(fixture("flax", "nnx"), "layout=torch", *NNX), expected_torch(nnx=True))


def test_burn():
    for name in ("model", "model.msgpack"):
        check(export(fixture("flax", name), *LINEN), expected_burn())
    check(export(fixture("flax", "nnx"), *NNX), expected_burn(nnx=True))


def test_burn_is_torch_adapted_again():
    with tempfile.TemporaryDirectory() as d:
        torch = os.path.join(d, "torch.safetensors")
        assert run("--export", torch, *options("layout=torch", *LINEN), fixture("flax", "model")).returncode == 0
        kinds = ["kind=^(bare|DenseGeneral_0)$=>linear", "kind=^embed$=>embedding", "kind=^rms_norm$=>norm"]
        plain = os.path.join(d, "plain.safetensors")  # without what we say of ourselves
        tensors, _ = safetensors(torch)
        write_safetensors(plain, tensors)
        check(export(plain, *kinds), expected_burn())


def test_untouched():
    """A Dense kernel, transposed twice, is the source's own bytes; so is a layer's of a stack but for its place."""
    tensors = {t["key"]: t for t in json.loads(run("--inspect", "--json", fixture("flax", "model")).stdout)["tensors"]}
    assert tensors["dense.weight"]["ops"] == ["rename", "transpose", "transpose"]
    assert tensors["layers.1.fc.weight"]["ops"] == ["rename", "unstack", "transpose", "transpose"]


def test_verify():
    for layout in ("burn", "torch"):
        for name in ("model", "model.msgpack"):
            p = run("--verify", "-o", f"layout={layout}", fixture("flax", name))
            report = json.loads(p.stdout)
            assert (p.returncode, report["status"], report["bytes"]["status"]) == (0, "PASS", "PASS"), (layout, name)
            assert report["coverage"]["layers_probed"] == 31
    report = json.loads(run("--verify", *options(*NNX), fixture("flax", "nnx")).stdout)
    assert (report["status"], report["coverage"]["layers_probed"]) == ("PASS", 31) and not [l for l in report["layers"] if l["status"] != "PASS"]


def test_probes_see_wrong_rules():
    """Joined tensors, too: rows of query and key exchanged, gates exchanged. PyTorch's side does not follow."""
    split = {"attention.in_proj_weight": [f"attention.{x}.weight" for x in ("key", "query", "value")],
             "lstm.weight_hh_l0": [f"lstm.{x}_gate.hidden_transform.weight" for x in ("forget", "input", "cell", "output")],
             "gru.weight_ih_l0": [f"gru.{x}_gate.input_transform.weight" for x in ("reset", "new", "update")]}
    for key, names in split.items():
        with tempfile.TemporaryDirectory() as d:
            rules = os.path.join(d, "r.json")
            with open(rules, "w") as f:
                json.dump({"rules": [{"match": re.escape(key), "name": names, "ops": [["split", 0, len(names)], ["permute", [1, 0]]]}]}, f)
            report = json.loads(run("--verify", "-o", "rules=" + rules, fixture("flax", "model")).stdout)
        assert [l["path"] for l in report["layers"] if l["status"] != "PASS"] == [key.split(".")[0]], key
        assert (report["status"], report["bytes"]["status"]) == ("DIFF", "PASS"), key


def test_dialect_is_found():
    for opts, dialect in (([], "flax"), (["dialect=torch"], "torch"), (["layout=source"], "flax")):
        report = json.loads(run("--inspect", "--json", *options(*opts), fixture("flax", "model")).stdout)
        assert report["dialect"] == dialect and report["warnings"] == [], (opts, report["warnings"])
    for name, dialect in (("e_manager_default", "torch"), ("e_dtypes_zarr3", "torch"), ("f_flax_msgpack", "flax")):
        assert json.loads(run("--inspect", "--json", fixture("orbax", name)).stdout)["dialect"] == dialect, name


def adapted(tensors, *opts):
    """{key: (shape, ops)} of a file with tensors of these shapes, and the warnings."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "m.safetensors")
        write_safetensors(path, {k: ("F32", shape, bytes(4 * math.prod(shape))) for k, shape in tensors.items()})
        p = run("--inspect", "--json", *options("dialect=flax", "layout=torch", *opts), path)
        assert p.returncode == 0, p.stderr
        report = json.loads(p.stdout)
        return {t["key"]: (t["shape"], t["ops"]) for t in report["tensors"]}, report["warnings"]


def test_stack_of_anything():
    """A norm's scale of rank 2 proves the stack; the kernels in it are looked at layer by layer."""
    got, warnings = adapted({"blocks.attn.query.kernel": [2, 8, 2, 4], "blocks.attn.key.kernel": [2, 8, 2, 4],
                             "blocks.attn.value.kernel": [2, 8, 2, 4], "blocks.attn.out.kernel": [2, 2, 4, 8],
                             "blocks.conv.kernel": [2, 3, 3, 8, 8], "blocks.norm.scale": [2, 8], "head.kernel": [8, 3]})
    assert not warnings and {k: v[0] for k, v in got.items()} == {
        **{f"blocks.{i}.{k}": v for i in range(2) for k, v in (("attn.in_proj_weight", [24, 8]), ("attn.out_proj.weight", [8, 8]),
                                                               ("conv.weight", [8, 8, 3, 3]), ("norm.weight", [8]))},
        "head.weight": [3, 8]}, (got, warnings)


def test_stack_by_option():
    """Kernels alone do not tell a stack of Dense from a convolution."""
    got, warnings = adapted({"body.fc.kernel": [2, 8, 8]})
    assert got == {"body.fc.weight": ([8, 8, 2], ["rename", "permute"])} and len(warnings) == 1 and "=>stack" in warnings[0]
    got, warnings = adapted({"body.fc.kernel": [2, 8, 8]}, "kind=^body$=>stack")
    assert got == {f"body.{i}.fc.weight": ([8, 8], ["rename", "unstack", "transpose"]) for i in range(2)} and not warnings


def test_attention_that_pytorch_has_not():
    """Heads that are not as wide in all as the model: four Linear. Keys of another width: three weights."""
    wide = {f"a.{x}.kernel": [8, 2, 6] for x in ("query", "key", "value")}
    got, _ = adapted({**wide, "a.out.kernel": [2, 6, 8]})
    assert {k: v[0] for k, v in got.items()} == {"a.query.weight": [12, 8], "a.key.weight": [12, 8], "a.value.weight": [12, 8],
                                                 "a.out.weight": [8, 12]}
    got, _ = adapted({"a.query.kernel": [8, 2, 4], "a.key.kernel": [6, 2, 4], "a.value.kernel": [6, 2, 4], "a.out.kernel": [2, 4, 8]})
    assert {k: v[0] for k, v in got.items()} == {"a.q_proj_weight": [8, 8], "a.k_proj_weight": [8, 6], "a.v_proj_weight": [8, 6],
                                                 "a.out_proj.weight": [8, 8]}


def test_kernels_by_option():
    """Nothing tells these apart; each reading can be asked for, which settles it."""
    for rank, conv, transposed, turned in ((3, [4, 4, 3], ["flip"], ""), (4, [4, 4, 3, 3], ["flip"] * 2, ""), (5, [4, 4, 3, 3, 3], ["flip"] * 3, "")):
        ambiguous = {"up.kernel": [3] * (rank - 2) + [4, 4], "up.bias": [4]}
        got, warnings = adapted(ambiguous)
        assert got["up.weight"] == (conv, ["rename", "permute"]) and len(warnings) == 1, warnings
        assert ": up; " in warnings[0] and "=>conv'" in warnings[0] and "conv_transpose:kernel with transpose_kernel=True" in warnings[0], warnings
        for kind, ops in (("conv", []), ("conv_transpose", transposed), ("conv_transpose:kernel", [])):
            got, warnings = adapted(ambiguous, "kind=up=>" + kind)
            assert got["up.weight"] == (conv, ["rename", "permute", *ops]) and not warnings, (kind, got, warnings)
    ambiguous = {"up.kernel": [3, 4, 4], "up.bias": [4]}
    assert adapted(ambiguous, "kind=up=>linear") == ({"up.weight": ([4, 12], ["rename", "reshape", "transpose"]), "up.bias": ([4], [])}, [])
    bare = {"p.kernel": [2, 3, 4, 5]}
    for kind, shape in (("dense:1", [5, 24]), ("dense:2", [20, 6]), ("dense:3", [60, 2])):
        got, warnings = adapted(bare, "kind=p=>" + kind)
        assert got["p.weight"][0] == shape and not warnings, (kind, got, warnings)
    got, warnings = adapted({"Einsum_0.kernel": [2, 3, 4], "DenseGeneral_0.kernel": [2, 3, 4, 5]})
    assert sorted(got) == ["DenseGeneral_0.kernel", "Einsum_0.kernel"] and any("stay as they are" in w for w in warnings), warnings


def test_transpose_kernel_without_evidence():
    """ConvTranspose by its name: a bias that is as long as in and out, or none, does not tell which comes first."""
    for kernel in ([3, 4, 4], [3, 3, 4, 4], [2, 3, 3, 4, 4]):
        for tensors in ({"ConvTranspose_0.kernel": kernel, "ConvTranspose_0.bias": [4]}, {"ConvTranspose_0.kernel": kernel[:-1] + [5]}):
            got, warnings = adapted(tensors)
            assert "flip" in got["ConvTranspose_0.weight"][1], got
            assert len(warnings) == 1 and "=>conv_transpose'" in warnings[0] and "conv_transpose:kernel" in warnings[0], warnings
            assert "flip" in adapted(tensors, "kind=Conv=>conv_transpose")[0]["ConvTranspose_0.weight"][1]
            got, warnings = adapted(tensors, "kind=Conv=>conv_transpose:kernel")
            assert "flip" not in got["ConvTranspose_0.weight"][1] and not warnings, (got, warnings)
    for bias, flips in ((5, 2), (4, 0)):  # these tell
        got, warnings = adapted({"ConvTranspose_0.kernel": [3, 3, 4, 5], "ConvTranspose_0.bias": [bias]})
        assert got["ConvTranspose_0.weight"][1].count("flip") == flips and not warnings, (bias, got, warnings)


def test_dialect_of_something_else():
    """Asked for, though nothing is flax's: not silently wrong."""
    report = json.loads(run("--inspect", "--json", "-o", "dialect=flax", fixture("a1", "a1_full.pt")).stdout)
    assert any("none of flax's layers is there" in w for w in report["warnings"]), report["warnings"]


def test_kinds_of_flax_only():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "m.safetensors")
        write_safetensors(path, {"fc.weight": ("F32", [2, 2], bytes(16))})
        for kind in ("stack", "dense:2", "conv_transpose:kernel"):
            report = json.loads(run("--inspect", "--json", *options("kind=fc=>" + kind), path).stdout)
            assert any(f"only dialect=flax has the kind {kind}" in w for w in report["warnings"]), report["warnings"]


def test_cells_that_pytorch_has_not():
    """A ConvLSTMCell's two Conv; an MGUCell without its reset gate: each Dense is a Linear of its own."""
    got, warnings = adapted({"c.ih.kernel": [3, 3, 2, 12], "c.ih.bias": [12], "c.hh.kernel": [3, 3, 3, 12], "c.hh.bias": [12]})
    assert {k: v[0] for k, v in got.items()} == {"c.ih.weight": [12, 2, 3, 3], "c.ih.bias": [12], "c.hh.weight": [12, 3, 3, 3], "c.hh.bias": [12]}
    assert not warnings
    got, _ = adapted({"c.if.kernel": [4, 3], "c.if.bias": [3], "c.in.kernel": [4, 3], "c.in.bias": [3], "c.hf.kernel": [3, 3], "c.hn.kernel": [3, 3]})
    assert sorted(got) == ["c.hf.weight", "c.hn.weight", "c.if.bias", "c.if.weight", "c.in.bias", "c.in.weight"], got


def test_factors_of_lora():
    """Of a stack, of a Linear that a LoRA wraps; alone they stay."""
    got, warnings = adapted({"layers.l.kernel": [3, 4, 4], "layers.l.lora.lora_a": [3, 4, 2], "layers.l.lora.lora_b": [3, 2, 4], "layers.n.scale": [3, 4]})
    assert got["layers.2.l.weight"] == ([4, 4], ["lora", "rename", "unstack", "transpose"]) and len(got) == 6 and not warnings, (got, warnings)
    got, warnings = adapted({"w.base_module.kernel": [4, 3], "w.lora_a": [4, 2], "w.lora_b": [2, 3]})
    assert got == {"w.base_module.weight": ([3, 4], ["lora", "rename", "transpose"])} and not warnings, (got, warnings)
    got, warnings = adapted({"w.lora_a": [4, 2], "w.lora_b": [2, 3]})
    assert sorted(got) == ["w.lora_a", "w.lora_b"] and any("LoRA's factors beside no kernel" in w for w in warnings), warnings


def test_weights_that_are_normalised():
    for name in ("WeightNorm_0.Dense_0/kernel/scale", "sn.batch_stats.('kernel', 'u')"):
        _, warnings = adapted({"Dense_0.kernel": [4, 3], name: [3]})
        assert len(warnings) == 1 and f"'{name}'" in warnings[0] and "normalised" in warnings[0], warnings


def test_nnx_values():
    """nnx saves each array as NAME.value, and the running statistics beside the scale; not everything need be a Variable."""
    got, warnings = adapted({"bn.scale.value": [4], "bn.mean.value": [4], "bn.var.value": [4], "fc.kernel.value": [4, 2]})
    assert list(got) == ["bn.weight", "bn.running_mean", "bn.running_var", "fc.weight"] and not warnings
    got, _ = adapted({"bn.scale.value": [4], "bn.bias.value": [4], "fc.kernel.value": [4, 2], "plain": [1]})
    assert list(got) == ["bn.weight", "bn.bias", "fc.weight", "plain"]


def test_random_state_is_no_parameter():
    """Of nnx's Dropout and RNN: files of the tree, but not of the model."""
    with Mount(fixture("flax", "nnx"), *NNX) as m:
        assert not [k for k in safetensors(os.path.join(m, "model.safetensors"))[0] if "rngs" in k]
        assert len(read(m, "drop", "rngs", "key", "value")) == 8


main(__name__)
