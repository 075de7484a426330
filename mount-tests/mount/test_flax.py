"""dialect=flax: every tensor of fixtures/flax in PyTorch's layout and in burn's, element by element against the source's, by
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


def source():
    return {k[len("source."):]: v for k, v in floats(fixture("flax", "expected.safetensors")).items() if k.startswith("source.")}


def expected_torch():
    s = source()
    p = {k[len("params."):]: v for k, v in s.items() if k.startswith("params.")}
    out = {"batch_norm.running_mean": s["batch_stats.batch_norm.mean"], "batch_norm.running_var": s["batch_stats.batch_norm.var"]}
    for name in ("dense", "bare"):
        out[name + ".weight"] = turned(p[name + ".kernel"])
    for name in ("conv1", "conv2", "conv3"):
        out[name + ".weight"] = conv(p[name + ".kernel"])
    for name in ("ConvTranspose_0", "ConvTranspose_1", "ConvTranspose_2"):
        out[name + ".weight"] = conv_transpose(p[name + ".kernel"])
    out["ConvTranspose_3.weight"] = conv_transpose_kernel(p["ConvTranspose_3.kernel"])
    out["heads.weight"] = turned(reshaped(p["heads.kernel"], 8, 6))
    out["heads.bias"] = reshaped(p["heads.bias"], 6)
    out["DenseGeneral_0.weight"] = turned(reshaped(p["DenseGeneral_0.kernel"], 6, 4))
    out["embed.weight"] = p["embed.embedding"]
    for name in ("layer_norm", "group_norm", "rms_norm", "batch_norm"):
        out[name + ".weight"] = p[name + ".scale"]
    for name in ("dense", "conv1", "conv2", "conv3", "DenseGeneral_0", "layer_norm", "group_norm", "batch_norm",
                 *(f"ConvTranspose_{i}" for i in range(4))):
        out[name + ".bias"] = p[name + ".bias"]
    parts = ("query", "key", "value")
    out["attention.in_proj_weight"] = joined(*(turned(reshaped(p[f"attention.{x}.kernel"], 8, 8)) for x in parts))
    out["attention.in_proj_bias"] = joined(*(reshaped(p[f"attention.{x}.bias"], 8) for x in parts))
    out["attention.out_proj.weight"] = turned(reshaped(p["attention.out.kernel"], 8, 8))
    out["attention.out_proj.bias"] = p["attention.out.bias"]
    for name, gates in (("lstm", "ifgo"), ("gru", "rzn")):
        for side in "ih":
            out[f"{name}.weight_{side}h_l0"] = joined(*(turned(p[f"{name}.{side}{g}.kernel"]) for g in gates))
    out["lstm.bias_ih_l0"] = zeros(24)
    out["lstm.bias_hh_l0"] = joined(*(p[f"lstm.h{g}.bias"] for g in "ifgo"))
    out["gru.bias_ih_l0"] = joined(*(p[f"gru.i{g}.bias"] for g in "rzn"))
    out["gru.bias_hh_l0"] = joined(zeros(12), p["gru.hn.bias"])
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


def expected_burn():
    out = expected_torch()
    for key in list(out):
        module, _, last = key.rpartition(".")
        if "norm" in module and last in ("weight", "bias"):
            out[f"{module}.{'gamma' if last == 'weight' else 'beta'}"] = out.pop(key)
    for key in ("dense", "bare", "heads", "DenseGeneral_0", "attention.out_proj", *(f"layers.{i}.fc" for i in range(3))):
        out[key + ".weight"] = turned(out[key + ".weight"])
    for what in ("weight", "bias"):
        split(out, f"attention.in_proj_{what}", [f"attention.{x}.{what}" for x in ("query", "key", "value")])
        out[f"attention.output.{what}"] = out.pop(f"attention.out_proj.{what}")
        for name, gates in (("lstm", ("input", "forget", "cell", "output")), ("gru", ("reset", "update", "new"))):
            for side, transform in (("ih", "input"), ("hh", "hidden")):
                split(out, f"{name}.{what}_{side}_l0", [f"{name}.{g}_gate.{transform}_transform.{what}" for g in gates])
    return out


def export(name, *opts):
    with tempfile.TemporaryDirectory() as d:
        p = run("--export", os.path.join(d, "out.safetensors"), *options(*opts), name)
        assert p.returncode == 0, p.stderr
        return floats(os.path.join(d, "out.safetensors"))


def check(got, want):
    assert got.keys() == want.keys(), (sorted(want.keys() - got.keys()), sorted(got.keys() - want.keys()))
    for k in want:
        assert (got[k].shape, got[k].values) == (want[k].shape, want[k].values), k


def test_torch():
    for name in ("model", "model.msgpack"):
        check(export(fixture("flax", name), "layout=torch"), expected_torch())


def test_burn():
    for name in ("model", "model.msgpack"):
        check(export(fixture("flax", name)), expected_burn())


def test_burn_is_torch_adapted_again():
    with tempfile.TemporaryDirectory() as d:
        torch = os.path.join(d, "torch.safetensors")
        assert run("--export", torch, "-o", "layout=torch", fixture("flax", "model")).returncode == 0
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
            assert report["coverage"]["layers_probed"] == 26


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
    ambiguous = {"up.kernel": [3, 4, 4], "up.bias": [4]}
    assert adapted(ambiguous)[0]["up.weight"] == ([4, 4, 3], ["rename", "permute"])
    assert adapted(ambiguous, "kind=up=>conv_transpose")[0]["up.weight"] == ([4, 4, 3], ["rename", "permute", "flip"])
    assert adapted(ambiguous, "kind=up=>linear")[0]["up.weight"] == ([4, 12], ["rename", "reshape", "transpose"])
    got, warnings = adapted({"DenseGeneral_0.kernel": [2, 3, 4, 5], "DenseGeneral_0.bias": [4, 5]})
    assert "DenseGeneral_0.kernel" in got and any("stay as they are" in w for w in warnings)


def test_nnx_values():
    """nnx saves each array as NAME.value, and the running statistics beside the scale."""
    got, warnings = adapted({"bn.scale.value": [4], "bn.mean.value": [4], "bn.var.value": [4], "fc.kernel.value": [4, 2]})
    assert list(got) == ["bn.weight", "bn.running_mean", "bn.running_var", "fc.weight"] and not warnings


main(__name__)
