#!/usr/bin/env python3
"""Whole models by their graphs: what PyTorch recorded is computed twice more, from the source's tensors and from what is
served, and damaged weights give the verdicts and numbers that an independent interpreter gave (fixtures/verify)."""
import json
import math
import os
import pathlib
import shutil
import subprocess
import tempfile

from report_schema import parse_report

MOUNT_CKPT = os.environ["MOUNT_CKPT"]
FIXTURES = pathlib.Path(os.environ["FIXTURES"])
VERIFY = FIXTURES / "verify"
PAIRS = ((1e-4, 1e-3), (1e-6, 0.0), (5e-3, 1e-2))
RUNS = ("torch-vs-recorded", "burn-vs-recorded", "torch-vs-burn")
EXIT = {"PASS": 0, "DIFF": 1}


def verify(source, *more, **options):
    words = [*more, *(f"{k}={v}" for k, v in options.items() if v is not None)]
    done = subprocess.run([MOUNT_CKPT, "--verify", *(x for w in words for x in ("-o", w)), source],
                          capture_output=True, text=True, timeout=300)
    assert done.stdout, f"{source}: {done.stderr}"
    report = parse_report(done.stdout)  # strict JSON, the schema, jq
    assert done.returncode == EXIT.get(report["status"], 2), f"{source}: {report['status']} and exit {done.returncode}"
    return report


def number(x):
    return float(x) if not isinstance(x, str) else {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}[x]


def must_pass(source, **options):
    report = verify(source, **options)
    where = f"{pathlib.Path(source).name} {options}"
    assert report["status"] == "PASS", f"{where}: {report['status']}, {report['graph']}, {report['runs']}"
    names = [r["name"] for r in report["runs"]]  # of all outputs; the record may have only the first
    assert names[:3] == list(RUNS) and names.count(RUNS[2]) == len({r["output"] for r in report["runs"]}), f"{where}: {names}"
    for run in report["runs"]:
        assert number(run["diff"]["max_abs"]) <= 1e-5, f"{where}: {run['name']} {run['diff']['max_abs']}"
    assert report["params"]["missing"] == report["params"]["shape_mismatch"] == [], where
    return report


def graph_of(stem):
    for ending in (".pt2", ".graph.json", ".torchscript.pt"):
        if (VERIFY / (stem + ending)).exists():
            return VERIFY / (stem + ending)
    return None


def test_models():
    """Each model in every form that is there, with the graph and the outputs of each way of calling it."""
    n = 0
    for reference in sorted(VERIFY.glob("*.reference.safetensors")):
        stem = reference.name.split(".reference")[0]
        model, graph = stem.split(".")[0], graph_of(stem)
        if graph and stem == model and (VERIFY / f"{model}.safetensors").exists():
            must_pass(VERIFY / f"{model}.safetensors")  # its sidecars are found
        for ending in (".safetensors", "_state.pt", "_full.pt"):
            if graph and (VERIFY / (model + ending)).exists():
                must_pass(VERIFY / (model + ending), graph=graph, reference=reference)
                n += 1
        for ending in (".pt2", ".core.pt2", ".torchscript.pt"):
            if (VERIFY / (stem + ending)).exists():
                must_pass(VERIFY / (stem + ending), reference=reference)
                n += 1
        if (VERIFY / f"{stem}.core.pt2").exists():
            must_pass(VERIFY / f"{model}.safetensors", graph=VERIFY / f"{stem}.core.pt2", reference=reference)
    assert n >= 25, n
    print(n, "forms of models")


def test_layers_of_burn():
    names = sorted(p for p in (FIXTURES / "burn-nn").glob("*.safetensors") if ".reference." not in p.name)
    for path in names:
        must_pass(path)
    assert len(names) >= 20
    print(len(names), "layers that burn has")


def test_training_checkpoint():
    must_pass(VERIFY / "mlp_training_checkpoint.pt", graph=VERIFY / "mlp.pt2",
              reference=VERIFY / "mlp_training_checkpoint.reference.safetensors")


def close(expected, got, relative=1e-5, absolute=2e-6):
    e, g = number(expected), number(got)
    return e == g if math.isinf(e) or math.isinf(g) else abs(e - g) <= absolute + relative * abs(e)


def compare_metrics(where, e, g):
    for key in ("size", "ref_size", "out_size", "size_match", "ref_shape", "out_shape", "shape_match", "n_invalid", "allclose"):
        assert e[key] == g[key], f"{where}: {key} {g[key]}, expected {e[key]}"
    for key in ("max_abs", "mean_abs", "p50", "p95", "p99"):
        assert close(e[key], g[key]), f"{where}: {key} {g[key]}, expected {e[key]}"
    # a quotient of two small numbers: 1 %, and where it is small, 1e-5; where PyTorch was compared with itself (exactly 0),
    # our rounding stands alone, divided by the smallest output
    if number(e["max_abs"]) == 0 and number(g["max_rel"]) > 1e-5:
        print(f"{where}: max_rel {g['max_rel']} is not compared: the record differs from itself by 0, we by {g['max_abs']}")
    else:
        assert close(e["max_rel"], g["max_rel"], 1e-2, 1e-5), f"{where}: max_rel {g['max_rel']}, expected {e['max_rel']}"
    errors = [number(x[1]) for x in e["top_mismatch"]]
    for i, (index, error) in enumerate(e["top_mismatch"]):
        near = [k for k in (i - 1, i + 1) if 0 <= k < len(errors)]
        apart = all(math.isinf(errors[i]) or abs(errors[k] - errors[i]) > 4e-6 for k in near)
        if apart:
            assert index == g["top_mismatch"][i][0], f"{where}: mismatch {i} at {g['top_mismatch'][i]}, expected {index}"
        assert close(error, g["top_mismatch"][i][1]), f"{where}: mismatch {i} is {g['top_mismatch'][i]}, expected {error}"


def test_damaged_weights():
    n = 0
    for case in json.loads((VERIFY / "expected_diff.json").read_text())["negative"]:
        source, model = VERIFY / case["file"], case["model"]
        for k, (atol, rtol) in enumerate(PAIRS):
            report = verify(source, graph=graph_of(model), reference=VERIFY / f"{model}.reference.safetensors", atol=atol, rtol=rtol)
            where = f"{source.name} at {atol}, {rtol}"
            wanted = case["results"][k]["status"] if case["results"] else case["status"]
            got = report["graph"]["status"]
            assert got == wanted, f"{where}: {got}, expected {wanted}: {report['graph']}"
            if case["results"]:
                compare_metrics(where, case["results"][k]["diff"], report["runs"][0]["diff"])
                # what is served agrees with a damaged source: only the record tells
                assert number(report["runs"][2]["diff"]["max_abs"]) <= 1e-5 or report["runs"][2]["diff"]["n_invalid"], where
            for key in ("missing", "unexpected", "shape_mismatch"):
                if key in case:
                    expected = [x[0] if isinstance(x, list) else x for x in case[key]]
                    assert sorted(report["params"][key]) == sorted(expected), f"{where}: {key} {report['params'][key]}"
            n += 1
    assert n == 96, n
    print(n, "verdicts on damaged weights")


def test_what_no_forward_can_see():
    """An embedding row that no input reaches, a dead channel: the graph's own weights tell."""
    for name, model in (("minimal_transformer.bitflip_unused", "minimal_transformer"), ("tiny_resnet.bitflip_dead", "tiny_resnet")):
        report = verify(VERIFY / "neg" / f"{name}.safetensors", graph=VERIFY / f"{model}.pt2",
                        reference=VERIFY / f"{model}.reference.safetensors")
        assert report["status"] == "PASS" and len(report["params"]["differs"]) == 1, report["params"]
    report = verify(VERIFY / "mlp.safetensors")
    assert report["params"]["differs"] == []


def test_trace_beside():
    """STEM.torchscript.pt beside a source is its graph, unless an export is there, too."""
    with tempfile.TemporaryDirectory() as folder:
        for ending in (".safetensors", ".torchscript.pt", ".reference.safetensors"):
            shutil.copy(VERIFY / f"cnn_bn{ending}", folder)
        report = must_pass(pathlib.Path(folder) / "cnn_bn.safetensors")
        assert report["graph"]["file"] == "cnn_bn.torchscript.pt", report["graph"]
        shutil.copy(VERIFY / "cnn_bn.pt2", folder)
        assert must_pass(pathlib.Path(folder) / "cnn_bn.safetensors")["graph"]["file"] == "cnn_bn.pt2"


def test_sequential():
    """An nn.Sequential says its own order; which input it takes, only a record says."""
    recorded = verify(FIXTURES / "burn-nn" / "norms_full.pt", graph=None, reference=FIXTURES / "burn-nn" / "norms.reference.safetensors")
    assert recorded["status"] == "PASS", recorded["graph"]
    with tempfile.TemporaryDirectory() as folder:
        for source, status in ((FIXTURES / "burn-nn" / "norms_full.pt", "SKIP"), (VERIFY / "cnn_bn_full.pt", None)):
            alone = pathlib.Path(folder) / "alone.pt"
            shutil.copy(source, alone)
            report = verify(alone)
            assert report["status"] == "PASS" and report["graph"]["kind"] == "sequential", report["graph"]
            assert report["graph"]["status"] == (status or report["graph"]["status"]), report["graph"]
        shutil.copy(FIXTURES / "burn-nn" / "norms_full.pt", alone)
        report = verify(alone, reference=FIXTURES / "burn-nn" / "norms.reference.safetensors")
        assert report["graph"]["status"] == "PASS" and len(report["runs"]) == 3, report["graph"]


def test_misfits():
    """What does not belong together ends in a status and one sentence."""
    mlp = dict(graph=VERIFY / "mlp.pt2", reference=VERIFY / "mlp.reference.safetensors")
    other = verify(VERIFY / "lstm.safetensors", **mlp)
    assert other["status"] == "TEST_FAIL" and "fc1.weight" in other["graph"]["reason"], other["graph"]
    wrong = verify(VERIFY / "mlp.safetensors", graph=VERIFY / "mlp.pt2", reference=VERIFY / "cnn_bn.reference.safetensors")
    assert wrong["status"] == "TEST_FAIL" and "input.0" in wrong["graph"]["reason"], wrong["graph"]
    with tempfile.TemporaryDirectory() as folder:
        graph = pathlib.Path(folder) / "mlp.graph.json"
        graph.write_text("{}")
        bad = verify(VERIFY / "mlp.safetensors", graph=graph)
        assert bad["status"] == "TEST_SKIP" and bad["graph"]["reason"], bad["graph"]
        shutil.copy(VERIFY / "mlp.safetensors", pathlib.Path(folder) / "m.safetensors")
        shutil.copy(VERIFY / "mlp.pt2", pathlib.Path(folder) / "m.pt2")
        alone = verify(pathlib.Path(folder) / "m.safetensors")  # no record: what the export recorded as its arguments
        assert alone["status"] == "PASS" and alone["graph"]["inputs"] == "sample", alone["graph"]
        assert [r["name"] for r in alone["runs"]] == ["torch-vs-burn"]


def test_memory():
    """What needs more than it may have is skipped, with the figure."""
    report = verify(VERIFY / "minimal_transformer.safetensors", verify_memory=4096)
    assert report["graph"]["status"] in ("SKIP", "TEST_SKIP") and "verify_memory" in report["graph"]["reason"], report["graph"]
    must_pass(VERIFY / "picked.safetensors", verify_memory=300_000)  # all that are picked take 800,000 bytes


def test_properties():
    """The minimal transformer under no mask, a causal one, a padding mask and both; and a mask that does not hold."""
    for masks in ("", "causal", "causal_padding"):
        stem = "minimal_transformer" + (f".{masks}" if masks else "")
        report = must_pass(VERIFY / "minimal_transformer.safetensors", graph=graph_of(stem),
                           reference=VERIFY / f"{stem}.reference.safetensors")
        found = {p["name"]: p["status"] for p in report["properties"]}
        assert found == {"eval": "PASS", "repeatable": "PASS", "batch": "PASS", "causal": "PASS" if "causal" in masks else "SKIP",
                         "padding": "PASS" if "padding" in masks else "SKIP"}, (masks, report["properties"])
    llama = {p["name"]: p["status"] for p in verify(VERIFY / "llama_tiny.safetensors")["properties"]}
    assert llama["causal"] == "PASS", llama
    with tempfile.TemporaryDirectory() as folder:  # a graph that forgets its mask
        graph = json.loads((VERIFY / "minimal_transformer.causal.graph.json").read_text())
        for node in graph["graph_module"]["graph"]["nodes"]:
            if "scaled_dot_product_attention" in node["target"]:
                node["inputs"] = [i for i in node["inputs"] if i["name"] != "attn_mask"]
        path = pathlib.Path(folder) / "forgetful.graph.json"
        path.write_text(json.dumps(graph))
        report = verify(VERIFY / "minimal_transformer.safetensors", graph=path,
                        reference=VERIFY / "minimal_transformer.causal.reference.safetensors")
        assert report["status"] == "DIFF", report["graph"]
        causal = next(p for p in report["properties"] if p["name"] == "causal")
        assert causal["status"] == "SKIP" and "changed" in causal["detail"], causal  # its own: the source does so, too


def test_what_was_not_compared():
    """A PASS says so where the record holds no outputs, or others; where a parameter is not served; where weights differ."""
    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "r.safetensors"
        data = (VERIFY / "mlp.reference.safetensors").read_bytes()
        for name, word in (("x_tput.0", "belong to no layer"), ("output.7", "1 of its 1 outputs")):
            record.write_bytes(data.replace(b"output.0", name.encode()))
            report = verify(VERIFY / "mlp.safetensors", graph=VERIFY / "mlp.pt2", reference=record)
            assert report["status"] == "PASS" and word in report["reference"]["reason"], report["reference"]
            assert any("outputs were not recorded" in x for x in report["limits"]), report["limits"]
    left_out = must_pass(VERIFY / "mlp.safetensors", exclude="fc2.bias", graph=VERIFY / "mlp.pt2",
                         reference=VERIFY / "mlp.reference.safetensors")
    assert left_out["params"]["not_served"] == ["fc2.bias"], left_out["params"]
    assert any("not_served" in x for x in left_out["limits"]), left_out["limits"]


def test_meanings():
    """Masks that say where to look, types that are no mask; a table that is a matrix, too; a layer called with a mask."""
    for ending in (".safetensors", "_state.pt"):
        report = must_pass(VERIFY / f"masked_lm{ending}", graph=VERIFY / "masked_lm.pt2", reference=VERIFY / "masked_lm.reference.safetensors")
        found = {p["name"]: p["status"] for p in report["properties"]}
        assert found["padding"] == "PASS" and found["causal"] == "SKIP", report["properties"]
    for ending in (".safetensors", "_full.pt"):
        report = must_pass(VERIFY / f"masked_encoder{ending}", graph=VERIFY / "masked_encoder.pt2",
                           reference=VERIFY / "masked_encoder.reference.safetensors")
        padding = next(p for p in report["properties"] if p["name"] == "padding")
        assert padding["status"] == "SKIP" and "something else" in padding["detail"], padding
    whole = next(x for x in report["layers"] if x["path"] == "")
    assert whole["status"] == "PASS" and "recorded" not in whole and "more inputs" in whole["reason"], whole


def test_broken_numbering():
    """Norms that change their places: burn's layers compute something else."""
    layer = r"(encoder\.layers\.\d+\.)"
    swapped = [f"map={layer}{a}\\.(.*)=>${{1}}{b}.$2" for a, b in (("norm1", "normX"), ("norm2", "norm1"), ("normX", "norm2"))]
    broken = verify(VERIFY / "minimal_transformer.safetensors", *swapped)
    assert broken["status"] == "DIFF", broken["status"]
    assert {x["path"] for x in broken["layers"] if x["status"] == "DIFF"} >= {"encoder.layers.0", "encoder.layers.1"}


if __name__ == "__main__":
    for name, test in sorted(globals().copy().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)
