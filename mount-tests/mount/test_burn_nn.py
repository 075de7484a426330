"""Every torch.nn layer that burn has: what is shown of it is what burn itself holds, name by name and byte by byte
(fixtures/burn-nn/expected_burn.json), from the whole module, from its state dict with the graph beside it, and from the
state dict with -o kind=. A state dict alone does not say everything: then a warning does."""
import hashlib
import shutil
from mounted import *

EXPECTED = read_json(fixture("burn-nn"), "expected_burn.json")
STATES = [name for name in EXPECTED if ":" not in name]

# What a state dict can't say, and the option that says it.
KINDS = {"norms": ["kind=^2$=>prelu", "kind=^8$=>norm", "kind=^10$=>linear"]}
for layer in ("encoder", "decoder"):
    for norm in ("pre", "post"):
        for act in ("relu", "gelu"):
            KINDS[f"{layer}_{norm}_{act}"] = [rf"kind=^layers\.\d+$=>{layer}_layer:{norm}"]


def export(source, *opts):
    """{key: {dtype, shape, sha256}} of the exported file."""
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "out.safetensors")
        p = run("--export", out, *options(*opts), source)
        assert p.returncode == 0, f"{source}: {p.stderr}"
        tensors, _ = safetensors(out)
    return {key: {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(data).hexdigest()}
            for key, (dtype, shape, data) in tensors.items()}


def inspect(source, *opts):
    p = run("--inspect", "--json", *options(*opts), source)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


def check_warnings(name, got):
    """None, but for what burn has no layer for."""
    if name == "mha_kv":
        assert len(got) == 1 and "kdim and vdim differ" in got[0], got
    else:
        assert got == [], (name, got)


class Alone:
    """A copy of the state dict, without the graph and the reference that lie beside it."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory()
        return shutil.copy(fixture("burn-nn", self.name + ".safetensors"), self.dir.name)

    def __exit__(self, *_):
        self.dir.cleanup()


def check(got, want, what):
    assert got.keys() == want.keys(), f"{what}: {sorted(got.keys() ^ want.keys())}"
    for key in want:
        assert got[key] == want[key], f"{what}: {key}: {got[key]}, burn has {want[key]}"


def test_whole_module():
    for entry, want in EXPECTED.items():
        name, *opts = entry.split(":")
        source = fixture("burn-nn", name + "_full.pt")
        check(export(source, *opts), want, entry)
        shown = inspect(source, *opts)
        check_warnings(name, shown["warnings"])
        assert {t["module"]["decided_by"] for t in shown["tensors"]} <= {"class", "graph"}, entry


def test_whole_module_without_graph():
    for name in STATES:
        with tempfile.TemporaryDirectory() as d:
            source = shutil.copy(fixture("burn-nn", name + "_full.pt"), d)
            check(export(source), EXPECTED[name], name)
            shown = inspect(source)
            check_warnings(name, shown["warnings"])
            assert {t["module"]["decided_by"] for t in shown["tensors"]} == {"class"}, name


def test_state_dict_with_graph():
    for name in STATES:
        source = fixture("burn-nn", name + ".safetensors")
        check(export(source, "contiguous=on"), EXPECTED[name], name)
        shown = inspect(source, "contiguous=on")
        check_warnings(name, shown["warnings"])
        assert {t["module"]["decided_by"] for t in shown["tensors"]} == {"graph"}, name
    check(export(fixture("burn-nn", "norms.safetensors")), EXPECTED["norms:contiguous=off"], "norms with torch's indices")


def test_what_holds_a_module():
    """index.json tells the layers, too, that gave a tensor its name, and who says so."""
    shown = inspect(fixture("burn-nn", "encoder_pre_relu.safetensors"))
    by_key = {t["key"]: t["module"] for t in shown["tensors"]}
    layer = {"path": "layers.0", "kind": "encoder_layer:pre", "decided_by": "graph"}
    assert by_key["layers.0.norm_2.gamma"] == {"path": "layers.0.norm1", "kind": "norm", "decided_by": "graph", "within": [layer]}
    attention = {"path": "layers.0.self_attn", "kind": "mha", "decided_by": "graph"}
    assert by_key["layers.0.mha.query.bias"] == {**attention, "within": [layer]}
    assert by_key["layers.0.mha.output.bias"]["within"] == [attention, layer], by_key


def test_graph_by_option():
    with Alone("decoder_pre_gelu") as source:
        graph = "graph=" + fixture("burn-nn", "decoder_pre_gelu.graph.json")
        check(export(source, graph), EXPECTED["decoder_pre_gelu"], "graph=")


def test_state_dict_with_kind():
    for name in STATES:
        opts = [*KINDS.get(name, []), "contiguous=on"]
        with Alone(name) as source:
            check(export(source, *opts), EXPECTED[name], name)
            check_warnings(name, inspect(source, *opts)["warnings"])


def test_the_option_wins():
    """A norm_first=True model told to be the other: its norms are numbered the other way."""
    source, pre = fixture("burn-nn", "encoder_pre_relu_full.pt"), EXPECTED["encoder_pre_relu"]
    got = export(source, *KINDS["encoder_post_relu"])
    swapped = {"1": "2", "2": "1"}
    want = {re.sub(r"(?<=\.norm_)[12]", lambda m: swapped[m[0]], key): tensor for key, tensor in pre.items()}
    check(got, want, "told otherwise")


def test_norm_first_unknown():
    """Everything but the norms is as burn wants it; they keep their names, and the warning says what decides."""
    for name in (n for n in STATES if n.endswith(("coder_pre_relu", "coder_post_gelu"))):
        with Alone(name) as source:
            got, warnings = export(source), inspect(source)["warnings"]
        layer = name.split("_")[0]
        assert len(warnings) == 1 and "kind=REGEX=>encoder_layer:pre" in warnings[0], warnings
        assert "layers.0, layers.1" in warnings[0], warnings
        want = {k: v for k, v in EXPECTED[name].items() if ".norm_" not in k}
        norms = {k for k in got if k not in want}
        check({k: got[k] for k in want}, want, name)
        numbers = "123" if layer == "decoder" else "12"
        assert norms == {f"layers.{i}.norm{n}.{p}" for i in range(2) for n in numbers for p in ("gamma", "beta")}, norms


def test_lone_vectors_keep_their_name():
    with Alone("norms") as source:
        got, warnings = export(source), inspect(source)["warnings"]
    assert "2.weight" in got and "8.weight" in got, got.keys()
    assert any("2, 8;" in w and "or prelu decides" in w for w in warnings), warnings


def test_modules_store():
    """burn-store's own adapter: no splitting, no alpha; InstanceNorm keeps weight and bias."""
    got = export(fixture("burn-nn", "norms_full.pt"), "modules=store")
    assert "1.weight" in got and "2.weight" in got and "3.gamma" in got and "alpha" not in str(got.keys())
    got = export(fixture("burn-nn", "encoder_pre_relu_full.pt"), "modules=store")
    assert "layers.0.self_attn.in_proj_weight" in got and "layers.0.norm1.gamma" in got
    assert any("modules=nn" in w for w in inspect(fixture("burn-nn", "mha_full.pt"), "modules=store")["warnings"])


if __name__ == "__main__":
    main(__name__)
