"""pi0 and pi0.5 of openpi, from JAX: what the mount makes of them against what openpi's conversion makes (expected_pi0*)."""
import hashlib
from mounted import *

MODELS = ["pi0", "pi05", "pi0_lora"]
LM = "paligemma_with_expert.paligemma.model.language_model."


def export(source, *opts):
    with tempfile.TemporaryDirectory() as d:
        p = run("--export", os.path.join(d, "x.safetensors"), *options(*opts), source)
        assert p.returncode == 0, p.stderr
        return safetensors(os.path.join(d, "x.safetensors"))


def checkpoint(name):
    return fixture("orbax", name)


def expected(name):
    return safetensors(fixture("orbax", f"expected_{name}.safetensors"))[0]


def plain(name):
    """The arrays as they are saved, named as in openpi's tree without /value."""
    tensors, _ = export(checkpoint(name), "layout=source")
    assert all(k.endswith(".value") for k in tensors) == (name != "pi0")
    return {k.removeprefix("params.").removesuffix(".value"): t for k, t in tensors.items()}


def as_source(tensors, check, suffix=""):
    """check(path) of a safetensors file of these arrays, with a suffix behind each name."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.safetensors")
        write_safetensors(path, {k + suffix: t for k, t in tensors.items()})
        return check(path)


def test_tensors_of_the_converter():
    for name in MODELS:
        assert export(checkpoint(name), "layout=torch,cast=f32")[0] == expected(name), name
        assert export(checkpoint(name), "layout=torch")[0] == expected(name + "_bf16"), name
        native = read_json(fixture("orbax", f"expected_{name}.native.json"))
        got = {k: hashlib.sha256(t[2]).hexdigest() for k, t in export(checkpoint(name), "layout=torch,cast=keep")[0].items()}
        assert got == {k: v["sha256"] for k, v in native.items()}, name


def test_with_and_without_value():
    for name in MODELS:
        for suffix in ("", ".value"):
            got = as_source(plain(name), lambda p: export(p, "layout=torch,cast=f32")[0], suffix)
            assert got == expected(name), (name, suffix)


def test_burn_is_torch_once_more():
    for name in MODELS:
        for cast in ("cast=f32", "cast=bf16", "cast=keep"):
            with tempfile.TemporaryDirectory() as d:
                run("--export", os.path.join(d, "t.safetensors"), "-o", "layout=torch," + cast, checkpoint(name))
                again = export(os.path.join(d, "t.safetensors"))[0]
            assert export(checkpoint(name), cast)[0] == again, (name, cast)


def test_mlp_kernels_are_untouched():
    """JAX and burn have them alike: two transpositions, no byte moved."""
    source = plain("pi0")["PaliGemma.llm.layers.mlp.linear"][2]
    got = [export(checkpoint("pi0"))[0][f"{LM}layers.{i}.mlp.down_proj.weight"][2] for i in range(3)]
    assert b"".join(got) == source


def test_model_directory():
    with Mount(checkpoint("pi0"), "layout=torch") as m:
        assert read_json(m, "config.json") == {"action_dim": 7, "action_horizon": None, "paligemma_variant": None,
                                               "action_expert_variant": None, "precision": "bfloat16"}
        assert "norm_stats" in read_json(m, "assets", "tiny", "norm_stats.json")
        index = read_json(m, "index.json")
        assert index["dialect"] == "openpi" and index["root"] == "params"
        by_key = {t["key"]: t for t in index["tensors"]}
        head, embedding = "paligemma_with_expert.paligemma.lm_head.weight", LM + "embed_tokens.weight"
        assert by_key[head]["offset"] is None and by_key[head]["tied"] == [embedding]
        assert read(m, *by_key[head]["path"].split("/")) == read(m, *by_key[embedding]["path"].split("/"))
        tensors, meta = safetensors(os.path.join(m, "model.safetensors"))
        assert head not in tensors and meta[head] == embedding


def test_lora():
    with Mount(checkpoint("pi0_lora"), "layout=torch,cast=f32") as m:
        q = next(t for t in read_json(m, "index.json")["tensors"] if t["key"] == LM + "layers.0.self_attn.q_proj.weight")
        assert q["ops"][0] == "lora", q
        assert "LoRA's factors are added to 10 weights" in read(m, "summary.txt").decode()
    p = run("--inspect", "-o", "lora=refuse", checkpoint("pi0_lora"))
    assert p.returncode and "lora=refuse" in p.stderr and "attn_vec_einsum.lora_a" in p.stderr, p.stderr
    lone = plain("pi0_lora")
    del lone["PaliGemma.llm.layers.mlp.linear_lora_a"]
    p = as_source(lone, lambda path: run("--inspect", path))
    assert p.returncode and "'PaliGemma.llm.layers.mlp.linear_lora_b'" in p.stderr, p.stderr


def test_others_are_refused():
    """Another model of openpi's, and one with an array too many."""
    fast = {k: t for k, t in plain("pi0").items() if k.startswith("PaliGemma") and not (".llm." in k and "_1." in k)}
    p = as_source(fast, lambda path: run("--inspect", path))
    assert p.returncode and p.stderr.count("\n") == 1, p.stderr
    assert "nearest to pi0 of dialect=openpi" in p.stderr and "it has no 'PaliGemma.llm.layers.attn.q_einsum_1.w'" in p.stderr, p.stderr
    assert as_source(fast, lambda path: run("--inspect", "-o", "dialect=torch", path)).returncode == 0
    more = plain("pi0") | {"PaliGemma.extra.kernel": ("F32", [1], bytes(4))}
    p = as_source(more, lambda path: run("--inspect", path))
    assert p.returncode and "nearest to pi0 of dialect=openpi, but it has a 'PaliGemma.extra.kernel'" in p.stderr and p.stderr.count("\n") == 1, p.stderr
    p = run("--inspect", "-o", "dialect=openpi", fixture("flax", "model"))
    assert p.returncode and "it has no 'PaliGemma.img.embedding.kernel' (50 of its 50 keys differ)" in p.stderr and p.stderr.count("\n") == 1, p.stderr


def test_every_byte_is_verified():
    for name in MODELS:
        for layout in ("layout=torch,cast=f32", "layout=burn"):
            p = run("--verify", "-o", layout, checkpoint(name))
            report = json.loads(p.stdout)
            assert p.returncode == 0 and report["status"] == "PASS", (name, report["status"], report.get("reason"))
            assert bool(report["bytes"].get("computed")) == (name == "pi0_lora")
        report = json.loads(run("--verify", "-o", "layout=torch", checkpoint(name)).stdout)
        assert report["status"] == "PASS" and 1e-4 < report["cast"]["max_abs"] < 0.1, (name, report["status"], report["cast"])


def test_kinds_are_known():
    """No guess, so no warning but for what burn's RmsNorm does otherwise, and LoRA's scale; -o kind= still wins."""
    for name in MODELS:
        for layout in ("torch", "burn"):
            report = json.loads(run("--inspect", "--json", "-o", "layout=" + layout, checkpoint(name)).stdout)
            assert {t["module"]["decided_by"] for t in report["tensors"]} == {"dialect"}, name
            warnings = [w for w in report["warnings"] if not w.startswith("LoRA's factors")]
            assert [w[:38] for w in warnings] == (["norms that multiply by 1 + weight, as "] if layout == "burn" else []), warnings
    report = json.loads(run("--inspect", "--json", *options(r"kind=lm_head$=>embedding"), checkpoint("pi0")).stdout)
    head = next(t for t in report["tensors"] if t["key"].endswith("lm_head.weight"))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        f.write('{"rules": [], "modules": [{"match": ".*", "kind": "linear"}]}')
        f.flush()
        p = run("--inspect", "-o", "rules=" + f.name, checkpoint("pi0"))
        assert p.returncode and '"modules" is for dialects; -o kind= says it here' in p.stderr, p.stderr
    assert head["module"]["decided_by"] == "option" and "transpose" not in head["ops"], head


def test_hierarchy_is_printed():
    out = run("--inspect", "-o", "layout=torch", checkpoint("pi0")).stdout
    assert re.search(r"^params\n  paligemma_with_expert\n", out, re.M) and "dialect            openpi" in out, out[:400]
    assert len(re.findall(r"^ +layer_norm1$", out, re.M)) == len(re.findall(r"^ +fc2$", out, re.M)) == 2, "a layer's tensors stand together"
    out = run("--inspect", "-o", "layout=source", checkpoint("pi0")).stdout
    assert re.search(r"^params\n  PaliGemma\n    img\n", out, re.M), out[:400]
    assert re.search(r"^ +kernel +F32 +\[5, 5, 3, 8\]", out, re.M)


if __name__ == "__main__":
    main(__name__)
