#!/usr/bin/env python3
"""--inspect --explain KEY: what is said of a tensor, by which names it is found, and what happens where there is none or
the model cannot be built."""
import json
import os
import re
import tempfile

from mounted import fixture, options, run

A1 = fixture("a1", "a1.safetensors")


def explain(source, key, *opts):
    p = run("--inspect", "--explain", key, *options(*opts), source)
    assert p.returncode == 0, p.stderr
    return p.stdout


def explain_json(source, key, *opts):
    p = run("--explain", key, "--json", *options(*opts), source)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)["tensors"]


def write_rules(folder, *rules, **more):
    path = os.path.join(folder, "my.json")
    with open(path, "w") as f:
        json.dump({"rules": rules, **more}, f)
    return path


def rules_of(explained):
    return {r["rule"]: (r["takes"], r["why"]) for r in explained["rules"]}


def test_text(folder):
    rules = write_rules(folder, {"match": "(.*)weight", "rank": 1}, {"match": "nothing"})
    text = explain(A1, "fc1.weight", "rules=" + rules, "map=^fc=>lin")
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "fc1.weight  F32 [8, 4]"
    for line in ("module         fc1: linear, by structure", "graph        there is no graph", "map='^fc' -> lin1.weight",
                 "my.json: rule 1     the rank is 2, the rule wants 1",
                 "my.json: rule 2     its match does not fit: nothing", "burn-store: rule 1  it takes it: transpose",
                 "burn-store: rule 2  the module is linear, the rule wants norm or batch_norm",
                 "lin1.weight  F32 [4, 8]: rename, transpose"):
        assert line in lines, f"{line!r} is missing in\n{text}"


def test_names():
    """Old names, new names, modules, and what holds modules."""
    for key in ("fc1.weight", "lin1.weight"):
        assert [x["source"]["key"] for x in explain_json(A1, key, "map=^fc=>lin")] == ["fc1.weight"]
    assert [x["source"]["key"] for x in explain_json(A1, "fc1")] == ["fc1.bias", "fc1.weight"]
    sequential = fixture("a1", "a1_seq_full.pt")
    all_of_it = explain_json(sequential, "net")
    assert len(all_of_it) == 4
    last = explain_json(sequential, "net.1.weight")[0]
    assert last["source"]["key"] == "net.2.weight" and last["names"] == [{"by": "contiguous", "key": "net.1.weight"}]
    assert last["module"]["decided_by"] == "class"
    assert last["module"]["evidence"][-1] == {"by": "class", "said": "torch.nn.modules.linear.Linear: linear"}
    assert last["becomes"] == [{"key": "net.1.weight", "dtype": "F32", "shape": [8, 3], "ops": ["renumber", "transpose"]}]


def test_reasons(folder):
    rules = write_rules(folder, {"match": "fc1.weight", "kind": "norm"}, {"match": "(.*).weight", "when": {"exists": "$1.x"}},
                        {"match": "(.*).weight", "when": {"absent": "$1.bias"}}, {"match": "fc1.weight"},
                        {"match": "fc1.weight", "name": "x"},
                        {"match": "fc1.bias", "name": "biases", "ops": [["concat", 0, ["fc2.bias"]]]})
    said = rules_of(explain_json(A1, "fc1.weight", "rules=" + rules)[0])
    assert said["my.json: rule 1"] == (False, "the module is linear, the rule wants norm")
    assert said["my.json: rule 2"] == (False, "when: there is no tensor fc1.x")
    assert said["my.json: rule 3"] == (False, "when: there is a tensor fc1.bias")
    assert said["my.json: rule 4"] == (True, "it takes it and leaves it as it is")
    assert said["my.json: rule 5"] == (False, "it would fit, but my.json: rule 4 has taken it")
    assert said["burn-store: rule 1"] == (False, "it would fit, but my.json: rule 4 has taken it")
    joined = explain_json(A1, "fc2.bias", "rules=" + rules)[0]
    assert joined["joined_by"] == "my.json: rule 6" and [t["key"] for t in joined["becomes"]] == ["biases"]


def test_computed():
    state = fixture("weight_norm", "state.pt")
    for key in ("conv1d.weight_g", "conv1d.weight_v"):
        found = explain_json(state, key)[0]
        assert [t["key"] for t in found["becomes"]] == ["conv1d.weight"], found
    assert rules_of(found)["burn-nn: rule 1"] == (True, "it takes it: weight_norm")
    assert {x["source"]["key"] for x in explain_json(state, "conv1d.weight")} == {"conv1d.weight_g", "conv1d.weight_v"}


def test_switched_off(folder):
    """A rule that does nothing keeps ours from a key, computing ones included."""
    rules = write_rules(folder, {"match": "conv1d.weight_v"}, {"match": ".*original1"})
    found = explain_json(fixture("weight_norm", "state.pt"), "conv1d.weight_v", "rules=" + rules)[0]
    assert rules_of(found)["burn-nn: rule 1"] == (False, "it would fit, but my.json: rule 1 has taken it")
    assert [t["key"] for t in found["becomes"]] == ["conv1d.weight_v"]


def test_within():
    """Each rule for the inside of a module is told once, and what holds the tensor."""
    for leaf in ("weight", "bias"):
        found = explain_json(fixture("pt", "mha_full.pt"), f"out_proj.{leaf}")[0]
        names = [r["rule"] for r in found["rules"]]
        assert len(names) == len(set(names)), names
        taken = [r["why"] for r in found["rules"] if r["takes"]]
        assert taken[0] == f"it names what is inside the module: output.{leaf}", taken
        assert found["module"]["inside"] == ["the model: mha, by class"], found["module"]


def test_outside_and_left_out():
    checkpoint = fixture("pt", "ckpt_model_state_dict.pt")
    outside = next(x for x in explain_json(checkpoint, "optimizer_state_dict") if not x["in_model"])
    assert not outside["rules"] and len(outside["becomes"]) == 1
    assert "outside" in explain(checkpoint, outside["source"]["key"])
    assert "nothing: include= or exclude= leaves it out" in explain(A1, "fc1.bias", "exclude=bias")


def test_broken_model(folder):
    """What a closed adapter has forgotten is explained, and then the error is told."""
    rules = write_rules(folder, {"match": "fc1.*"}, closed=True)
    p = run("--inspect", "--explain", "fc2.bias", "-o", "rules=" + rules, A1)
    assert p.returncode == 32 and "has no rule for 'fc2." in p.stderr, p
    assert re.search(r"^    my.json: rule 1 +its match does not fit: fc1\.\*$", p.stdout, re.M), p.stdout
    assert "the model cannot be built: see the error" in p.stdout
    rules = write_rules(folder, {"match": "fc1.weight", "ops": [["split", 0, 3]], "name": ["a", "b", "c"]})
    p = run("--inspect", "--explain", "fc1.weight", "-o", "rules=" + rules, A1)
    assert p.returncode == 32 and "my.json: rule 1: 'fc1.weight': split" in p.stderr
    assert re.search(r"^    my.json: rule 1 +it takes it, for 3 tensors: split$", p.stdout, re.M), p.stdout


def test_unknown():
    p = run("--inspect", "--explain", "fc1.wieght", A1)
    assert p.returncode == 32 and p.stdout == "" and "did you mean 'fc1.weight'?" in p.stderr, p
    p = run("--inspect", "--explain", "something.else", A1)
    assert p.returncode == 32 and "--inspect lists them" in p.stderr
    assert run("--explain", "", A1).returncode == 1
    assert run("--cat", "x", "--explain", "a", A1).returncode == 1


with tempfile.TemporaryDirectory(prefix="ckpt-test.") as folder:
    test_text(folder)
    test_names()
    test_reasons(folder)
    test_computed()
    test_switched_off(folder)
    test_within()
    test_outside_and_left_out()
    test_broken_model(folder)
    test_unknown()
print("ok")
