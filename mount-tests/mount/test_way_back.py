"""Weights that were trained in burn, for PyTorch: layout=torch on what layout=burn wrote gives PyTorch's tensors again, to
the bit, for every checkpoint among the fixtures; and a burn-saved file without any option stays as it is."""
import glob
from mounted import *

# What a fixture loses on the way to burn, and so cannot have again. Nothing else may differ.
WEIGHT_NORM = re.compile(r"(.*\.)?(weight_[gv]|parametrizations\.weight\.original[01])$")


def export(out, source, *opts):
    return run("--export", out, *options(*opts), source)


def there_and_back(d, source, *opts):
    """The tensors in PyTorch's layout as the source has them, and as they come back from burn's; None: it has none."""
    torch, burn, back = (os.path.join(d, n + ".safetensors") for n in ("torch", "burn", "back"))
    if export(torch, source, "layout=torch", "prefix=keep").returncode:
        return None
    p = export(burn, source, "contiguous=off", "prefix=keep", *opts)
    assert p.returncode == 0, (source, p.stderr)
    p = export(back, burn, "layout=torch", "prefix=keep")
    assert p.returncode == 0, (source, p.stderr)
    return safetensors(torch)[0], safetensors(back)[0]


def differences(a, b):
    """Keys, as PyTorch has them, that are missing, new or not the same."""
    lost = {k for k in a if k not in b}
    fused = {k for k in lost if WEIGHT_NORM.match(k)}
    made = {WEIGHT_NORM.match(k).group(1) or "" for k in fused}
    new = {k for k in b if k not in a and k[: k.rfind(".") + 1] not in made}
    return sorted((lost - fused) | new | {k for k in a if k in b and a[k] != b[k]})


def sources(folder):
    names = sorted(glob.glob(fixture(folder, "*")))
    huge = "bad_dims_giant_expand.pt"  # a broadcast to terabytes
    return [n for n in names if not n.endswith((".json", ".py", ".md", ".reference.safetensors", huge))]


def check(folder, least, *opts):
    seen, bad = 0, []
    with tempfile.TemporaryDirectory() as d:
        for source in sources(folder):
            both = there_and_back(d, source, *opts)
            if both:
                seen += 1
                bad += [f"{source}: {k}" for k in differences(*both)]
    assert not bad, "\n".join(bad)
    assert seen >= least, f"only {seen} of the checkpoints in {folder} have tensors"


def test_a1():
    check("a1", 15)


def test_burn_nn():
    check("burn-nn", 2)


def test_pt():
    check("pt", 80)


def test_safetensors():
    check("safetensors", 10)


def test_as_burn_stores_adapter_leaves_it():
    for folder in ("a1", "burn-nn"):
        check(folder, 2, "modules=store")


def floats(*shapes):
    """Tensors "KEY 2,3" whose elements are all different."""
    count, out = 0, {}
    for line in shapes:
        key, _, shape = line.partition(" ")
        shape = [int(n) for n in shape.split(",")]
        n = 1
        for d in shape:
            n *= d
        out[key] = ("F32", shape, struct.pack(f"<{n}f", *range(count, count + n)))
        count += n
    return out


def linear(path, n):
    return [f"{path}.weight {n},{n}", f"{path}.bias {n}"]


# Names and shapes that mean another thing on the way back than on the way there: the file says which.
TRAPS = [
    (["tok.weight 5,4"], ["kind=^tok$=>embedding"]),
    (["wte.weight 5,4"], ["kind=^wte$=>linear"]),
    (["c.weight 4,8", "c.bias 8"], []),  # Hugging Face's Conv1D
    (linear("c", 4), ["kind=^c$=>conv1d_hf"]),
    (linear("c", 4), ["kind=^c$=>other"]),
    (["block.gamma 4"], []),
    (["block.gamma 4", "block.beta 4"], []),
    (["snake.alpha 4"], []),
    ([*linear("a.query", 4), *linear("a.key", 4), *linear("a.value", 4), *linear("a.output", 4)], []),
    ([f"r.{k}.{w}_{x}_l0 {n}" for k in "01" for w, n in (("weight", "8,2"), ("bias", "8")) for x in ("ih", "hh")], []),
    ([f"r.{w}_{x}_l{k} {n}" for k in "01" for w, n in (("weight", "8,2"), ("bias", "8")) for x in ("ih", "hh")], []),
]


def test_traps():
    for shapes, opts in TRAPS:
        with tempfile.TemporaryDirectory() as d:
            source = os.path.join(d, "source.safetensors")
            write_safetensors(source, floats(*shapes))
            want, got = there_and_back(d, source, *opts)
            assert want == floats(*shapes)
            assert got == want, (shapes, opts, [(k, t[1]) for k, t in got.items()])


def columns(matrix):
    dtype, (n, m), data = matrix
    at = struct.unpack(f"<{n * m}f", data)
    return dtype, [m, n], struct.pack(f"<{n * m}f", *(at[i * m + k] for k in range(m) for i in range(n)))


def test_rules_of_the_users_see_what_came_back():
    rule = {"match": r"a\.in_proj_weight", "targets": [
        {"name": "whole"}, {"name": "second", "ops": [["slice", 0, 4, 8]]}, {"name": "columns", "ops": [["permute", [1, 0]]]},
        {"name": "row", "ops": [["slice", 0, 5]]}]}
    with tempfile.TemporaryDirectory() as d:
        source, rules, out = (os.path.join(d, n) for n in ("source.safetensors", "rules.json", "out.safetensors"))
        burn = floats(*linear("a.query", 4), *linear("a.key", 4), *linear("a.value", 4), *linear("a.output", 4))
        write_safetensors(source, burn, {"producer": "burn"})
        with open(rules, "w") as f:
            json.dump({"rules": [rule]}, f)
        p = export(out, source, "layout=torch", "rules=" + rules)
        assert p.returncode == 0, p.stderr
        got = safetensors(out)[0]
        q, k, v = (columns(burn[f"a.{n}.weight"]) for n in ("query", "key", "value"))
        assert got["whole"] == ("F32", [12, 4], q[2] + k[2] + v[2])
        assert got["second"] == k
        assert got["row"] == ("F32", [4], k[2][16:32])
        assert got["columns"] == columns(got["whole"])
        v = json.loads(run("--verify", *options("layout=torch", "rules=" + rules), source).stdout)
        assert v["bytes"]["status"] == "PASS", v["bytes"]


def test_burn_to_torch_and_back():
    with tempfile.TemporaryDirectory() as d:
        saved, torch, again = (os.path.join(d, n + ".safetensors") for n in ("saved", "torch", "again"))
        tensors = floats(*linear("fc", 4), "norm.gamma 4", "norm.beta 4", *linear("a.query", 4), *linear("a.key", 4),
                         *linear("a.value", 4), *linear("a.output", 4))
        write_safetensors(saved, tensors, {"format": "safetensors", "producer": "burn", "version": "0.22.1"})
        assert export(again, saved).returncode == 0 and safetensors(again)[0] == tensors, "it mounts as itself"
        assert export(torch, saved, "layout=torch").returncode == 0
        assert set(safetensors(torch)[0]) == {"fc.weight", "fc.bias", "norm.weight", "norm.bias", "a.in_proj_weight", "a.in_proj_bias",
                                              "a.out_proj.weight", "a.out_proj.bias"}
        assert export(again, torch).returncode == 0, "what was turned back is PyTorch's from then on"
        assert safetensors(again)[0] == tensors


def test_the_record_is_small_and_ours():
    with tempfile.TemporaryDirectory() as d:
        out, again = os.path.join(d, "out.safetensors"), os.path.join(d, "again.safetensors")
        for folder, name, kinds in (("a1", "a1_full.pt", None), ("burn-nn", "norms_full.pt", None),
                                    ("burn-nn", "encoder_pre_relu_full.pt", ["encoder_layer:pre"] * 2)):
            export(out, fixture(folder, name))
            record = safetensors(out)[1].get("mount.ckpt.kinds")
            assert (record and list(json.loads(record).values())) == kinds, record
            export(again, out)
            assert read(again) == read(out), "from burn to burn nothing changes"
            export(again, out, "layout=torch")
            assert "mount.ckpt.kinds" not in safetensors(again)[1]


def test_a_record_that_makes_no_sense():
    with tempfile.TemporaryDirectory() as d:
        source = os.path.join(d, "source.safetensors")
        for record in ("", "[", "{}x", "[]", '{"fc":1}', '{"fc":"liner"}', '{"fc":"mha"}', '{"no":"linear"}', '{"fc":"linear"'):
            write_safetensors(source, floats(*linear("fc", 4)), {"producer": "burn", "mount.ckpt.kinds": record})
            p = run("--inspect", "--json", *options("layout=torch"), source)
            assert p.returncode == 0, (record, p.stderr)
            index = json.loads(p.stdout)
            assert index["tensors"][0]["ops"] == ["transpose"], record
            warned = any("mount.ckpt.kinds" in w for w in index["warnings"])
            assert warned == (record not in ('{"fc":"mha"}', '{"no":"linear"}')), (record, index["warnings"])


if __name__ == "__main__":
    main(__name__)
