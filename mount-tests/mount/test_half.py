"""Networks in float16 and bfloat16 are PASS at the defaults of their dtype, which the report names: results are rounded where PyTorch
rounds them. Two exchanged rows are not. What the user gives always holds."""
import report_schema
from mounted import *

STEPS = {"F16": 2.0**-10, "BF16": 2.0**-7}  # between two numbers from 1 on
MODELS = [(f"{name}_{dtype.lower()}", dtype) for name in ("conv", "decoder", "lstm") for dtype in STEPS]


def verified(stem, weights, *opts):
    p = run("--verify", *options(f"graph={fixture('half', stem + '.pt2')}", f"reference={fixture('half', stem + '.reference.safetensors')}", *opts),
            fixture("half", weights + ".safetensors"))
    report = report_schema.parse_report(p.stdout)
    assert report["graph"]["status"] in ("PASS", "DIFF"), (stem, report["graph"])
    assert len(report["runs"]) == 3
    return report


def test_defaults():
    for stem, dtype in MODELS:
        report = verified(stem, stem)
        assert report["status"] == "PASS", (stem, report["runs"])
        for r in report["runs"]:
            assert r["tolerance_of"] == dtype and r["diff"]["atol"] > 1e-4, (stem, r)
            assert r["diff"]["max_abs"] <= STEPS[dtype], (stem, r["name"], r["diff"]["max_abs"])


def test_exchanged_rows():
    for stem, dtype in MODELS:
        report = verified(stem, stem + "_exchanged")
        status = {r["name"]: r["status"] for r in report["runs"]}
        assert status == {"torch-vs-recorded": "DIFF", "burn-vs-recorded": "DIFF", "torch-vs-burn": "PASS"}, (stem, status)


def test_given_tolerance():
    """Even where it is the default of all other models."""
    for given in (["atol=1e-4"], ["rtol=1e-3"], ["atol=0", "rtol=0"]):
        for stem, _ in MODELS:
            for r in verified(stem, stem, *given)["runs"]:
                d = r["diff"]
                assert "tolerance_of" not in r and d["atol"] <= 1e-4 and d["rtol"] <= 1e-3, (stem, r)


def test_plain_models():
    report = json.loads(run("--verify", fixture("verify", "mlp.safetensors")).stdout)
    assert all("tolerance_of" not in r and r["diff"]["atol"] == 1e-4 for r in report["runs"]) and report["runs"]


if __name__ == "__main__":
    main(__name__)
