#!/usr/bin/env python3
"""--verify of every layer that burn has, against what PyTorch recorded; and that it notices each rule that is broken.

A rule of burn-nn.json is broken by giving the whole file, changed, as -o rules= with modules=store, so that none of the
built-in ones act; a rule of burn-store.json by a rule of our own that takes its keys first. The changes are made from
the rule files, so a new rule is covered as soon as it is there:

    off        the rule is gone                            names or layout stay PyTorch's
    flat       its operations lose their permutation       a weight stays [out, in]
    swapped    two of its names change places              gates, query and key
    exchanged  it and a rule like it change names          norm_1 and norm_2, gamma and beta
"""
import array
import copy
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from mounted import write_safetensors

MOUNT_CKPT = os.environ["MOUNT_CKPT"]
FIXTURES = pathlib.Path(os.environ["FIXTURES"])
RULES = FIXTURES.parent.parent / "adapters" / "rules"
FOLDER = FIXTURES / "burn-nn"
LAYERS = {"MultiheadAttention", "TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoder",
          "TransformerDecoderLayer", "LSTM", "GRU", "RNN", "PReLU"}
TOLERANCE = 1e-5
# Rules that are for nothing that burn has a layer for, or that other tests break.
ELSEWHERE = ("torch.nn.utils.weight_norm", "torch.nn.utils.parametrizations.weight_norm", "proj_size")


def run(*args):
    done = subprocess.run([MOUNT_CKPT, *map(str, args)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1, 2, 32), (args, done.returncode, done.stderr)
    return done


def verify(source, *options):
    done = run("--verify", *(x for o in options for x in ("-o", o)), source)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"status": "no report: " + done.stderr.strip()}


def shown(source, *options):
    """What the model is: {key: (shape, operations, source)}; or why there is none."""
    done = run("--inspect", "--json", *(x for o in options for x in ("-o", o)), source)
    if done.returncode:
        return done.stderr
    return {t["key"]: (t["shape"], t["ops"], t["source"]["key"]) for t in json.loads(done.stdout)["tensors"]}


def reference(name):
    return f"reference={FOLDER}/{name}.reference.safetensors"


def check_layers():
    """Every file passes, in both layouts, and both runs give what PyTorch gave."""
    names = sorted(p.name[:-len("_full.pt")] for p in FOLDER.glob("*_full.pt"))
    assert len(names) == 20, names
    for name, layout in itertools.product(names, ("burn", "torch")):
        options = [f"layout={layout}", reference(name)]
        if name == "norms":
            options.append("chain=" + ":".join(str(i) for i in range(11)))
        code, report = verify(FOLDER / f"{name}_full.pt", *options)
        assert code == 0, (name, layout, json.dumps(report, indent=1))
        worst = [run["diff"]["max_abs"] for run in report["runs"]]
        for layer in report["layers"]:
            assert layer["status"] == "PASS", (name, layer)
            assert layer["max_abs"] <= TOLERANCE, (name, layer)
            if "recorded" in layer:
                worst += [layer["recorded"]["torch_max_abs"], layer["recorded"]["burn_max_abs"]]
        kinds = {layer["type"] for layer in report["layers"]}
        assert kinds & LAYERS and worst and max(worst) <= TOLERANCE, (name, kinds, worst)
        print(f"ok {name} layout={layout}: {sorted(kinds & LAYERS)}, {max(worst):.1e} off PyTorch", flush=True)


def check_variants():
    """Sequences first, alone, without biases, stacked in both directions, final norms: as PyTorch recorded them."""
    folder = FIXTURES / "verify"
    code, report = verify(folder / "more_layers_full.pt", f"reference={folder}/more_layers.reference.safetensors")
    assert code == 0 and "reason" not in report["reference"], (code, report["reference"])
    recorded = [layer for layer in report["layers"] if "recorded" in layer]
    assert len(recorded) == 23, [layer["path"] for layer in recorded]
    for layer in report["layers"]:
        assert layer["status"] == "PASS" and layer["max_abs"] <= TOLERANCE and "assumed" not in layer, layer
    for layer in recorded:
        assert max(layer["recorded"][k] for k in ("torch_max_abs", "burn_max_abs")) <= TOLERANCE, layer
    print(f"ok {len(recorded)} variants", flush=True)

    code, report = verify(folder / "layers_burn_lacks_full.pt", f"reference={folder}/layers_burn_lacks.reference.safetensors")
    layers = {layer["path"]: layer for layer in report["layers"]}
    assert code == 1, (code, report)
    for name, word in (("mha_bias_kv", "add_"), ("mha_zero_attn", "add_"), ("instance_norm_tracked", "running statistics")):  # burn loads them
        recorded = layers[name]["recorded"]
        assert word in layers[name]["reason"], layers[name]
        assert layers[name]["status"] == "DIFF" and recorded["torch_max_abs"] <= TOLERANCE < recorded["burn_max_abs"]
    for name, word in (("lstm_proj", "proj_size"), ("encoder_layer_softmax", "activation")):
        assert layers[name]["status"] == "SKIP" and word in layers[name]["reason"], layers[name]
    print("ok what burn lacks", flush=True)


def check_unknown_class():
    """A layer of a class that nobody knows, though with a norm_first: its norms have no names of burn's."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "own.pt")
        with zipfile.ZipFile(FOLDER / "encoder_pre_relu_full.pt") as old, zipfile.ZipFile(source, "w") as new:
            for entry in old.infolist():
                new.writestr(entry.filename, old.read(entry).replace(b"TransformerEncoderLayer", b"TransformerEncoderMayer"))
        for layout, want in (("burn", "SKIP"), ("torch", "PASS")):
            code, report = verify(source, f"layout={layout}")
            layers = {layer["path"]: layer for layer in report["layers"]}
            assert code == 0 and layers["layers.0"]["status"] == want, (layout, layers["layers.0"])
    print("ok an unknown class", flush=True)


def names_of(rule):
    name = rule.get("name", [])
    return name if isinstance(name, list) else [name]


def only_added(rule):
    """The two biases of an LSTM or RNN: whichever is which, the same is computed."""
    return rule.get("kind") in ("lstm", "rnn") and "bias" in rule["match"]


def alike(a, b):
    """Two rules for the same tensors but for their names."""
    about = ("kind", "within", "rank", "when", "ops")
    return all(a.get(k) == b.get(k) for k in about) and len(names_of(a)) == len(names_of(b)) == 1


def without_permute(rule):
    return dict(rule, ops=[op for op in rule["ops"] if op[0] != "permute"])


def breakages(rules):
    """(what, the rules with that one change)"""
    def changed(i, rule):
        return rules[:i] + ([rule] if rule else []) + rules[i + 1:]

    for i, rule in enumerate(rules):
        yield f"{i + 1} off", rule, changed(i, None)
        if any(op[0] == "permute" for op in rule.get("ops", [])):
            yield f"{i + 1} flat", rule, changed(i, without_permute(rule))
        names = names_of(rule)
        for k in range(len(names) - 1):
            swapped = names[:k] + [names[k + 1], names[k]] + names[k + 2:]
            yield f"{i + 1} swapped {k}", rule, changed(i, dict(rule, name=swapped))
        for j in range(i + 1, len(rules)):
            if alike(rule, rules[j]) and not only_added(rule):
                both = copy.deepcopy(rules)
                both[i]["name"], both[j]["name"] = rules[j]["name"], rule["name"]
                yield f"{i + 1} exchanged with {j + 1}", rule, both


def concerned(rule, kinds):
    """Whether the rule may act in a file that has modules of these kinds."""
    wanted = []
    for key in ("kind", "within"):
        value = rule.get(key, [])
        wanted += value if isinstance(value, list) else [value]
    return not wanted or any(k.split(":")[0] in kinds or k == "instance_norm" and "norm" in kinds for k in wanted)


def kinds_in(source):
    report = json.loads(run("--inspect", "--json", source).stdout)
    kinds = {t["module"]["kind"] for t in report["tensors"] if t.get("module") and t["module"].get("kind")}
    for layer in ("encoder", "decoder"):
        if source.name.startswith(layer):
            kinds.add(layer + "_layer")
    return kinds


def check_breakages(file, options, sources, first):
    """Every change of a rule that changes a model makes --verify fail there; and each changes one somewhere."""
    original = json.loads((RULES / file).read_text())
    missed, quiet, tried = [], {}, 0
    for what, rule, rules in breakages(original["rules"]):
        if first:  # the built-in ones still act: what is off must be taken by a rule that does nothing
            kept = {k: v for k, v in rule.items() if k not in ("name", "ops")}
            rules = [r for r in rules if r not in original["rules"]] or [kept]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump({"rules": rules}, f)
            f.flush()
            noticed = False
            for source, (kinds, normal) in sources.items():
                if not concerned(rule, kinds):
                    continue
                tried += 1
                code, report = verify(source, *options, f"rules={f.name}")
                if code == 0 and shown(source, *options, f"rules={f.name}") != normal:
                    missed.append(f"{file} rule {what} ({rule['match']}): {source.name} is {report['status']}")
                noticed = noticed or code != 0
        quiet[what] = noticed or rule.get("about", "").startswith(ELSEWHERE)
    assert not missed, "not noticed:\n" + "\n".join(missed)
    silent = [what for what, noticed in quiet.items() if not noticed]
    print(f"ok {file}: {len(quiet)} breakages, {tried} runs", flush=True)
    return silent


def layers_of(report, path):
    return {layer["path"]: layer for layer in report["layers"] if layer["path"].startswith(path)}


def check_norm_order(source):
    """Where the file can't tell norm_first, that layer is skipped and says so; once told, it runs."""
    code, report = verify(source, reference("encoder_pre_relu"))
    layer = layers_of(report, "layers.0")["layers.0"]
    assert (code, layer["status"]) == (0, "SKIP") and "norm_first" in layer["reason"], (code, layer)
    assert layers_of(report, "layers.0")["layers.0.self_attn"]["status"] == "PASS"
    code, report = verify(source, r"kind=^layers\.\d$=>encoder_layer:pre")
    layer = layers_of(report, "layers.0")["layers.0"]
    assert (code, layer["status"]) == (0, "PASS") and "num_heads" in layer["assumed"], (code, layer)
    code, report = verify(source, r"map=layers\.=>blocks.deep.", r"kind=^layers\.\d$=>encoder_layer:pre")
    assert code == 0 and layers_of(report, "layers.1")["layers.1"]["status"] == "PASS", report
    print("ok norm_first unknown, told, mapped", flush=True)


def check_large_numbers():
    """Where sums of tens of thousands come near 0, what rounding leaves is no difference; a matrix that lies the other way is one."""
    rng = random.Random(8)
    def weight(rows, columns):
        return "F32", [rows, columns], array.array("f", (rng.randrange(100) for _ in range(rows * columns))).tobytes()
    with tempfile.TemporaryDirectory() as folder:
        source, rules = pathlib.Path(folder, "large.safetensors"), pathlib.Path(folder, "rules.json")
        write_safetensors(source, {f"{i}.weight": weight(129, 1000) for i in range(40)} | {"square.weight": weight(300, 300)})
        code, report = verify(source, "kind=.=>linear")
        assert code == 0, [(layer["path"], layer["max_abs"]) for layer in report["layers"] if layer["status"] != "PASS"]
        rules.write_text(json.dumps({"rules": [{"match": "square\\.weight", "name": "square.weight"}]}))
        code, report = verify(source, "kind=.=>linear", f"rules={rules}")
        assert code == 1 and [layer["path"] for layer in report["layers"] if layer["status"] == "DIFF"] == ["square"], (code, report["layers"])
    print("ok large numbers", flush=True)


def check_what_is_left():
    """What is not adapted on purpose is skipped; a name of burn's that is missing is not."""
    code, report = verify(FOLDER / "gru_full.pt", "modules=store")
    assert (code, report["layers"][0]["status"]) == (0, "SKIP"), report["layers"]
    code, report = verify(FOLDER / "lstm_full.pt", "exclude=forget")
    assert code == 2 and "forget_gate" in report["layers"][0]["reason"], report["layers"]
    print("ok modules=store, exclude=", flush=True)


def check_chain():
    """These layers may be steps of a chain; the whole model may not be one, having no name."""
    source = FIXTURES / "verify" / "more_layers_full.pt"
    for steps in ("lstm_no_bias", "encoder_silu:encoder_layer:relu:mha_no_bias"):
        code, report = verify(source, f"chain={steps}")
        errors = [run["diff"]["max_abs"] for run in report["runs"]]
        assert code == 0 and report["graph"]["status"] == "PASS" and max(errors) <= TOLERANCE, (code, report["graph"])
    code, report = verify(source, "chain=decoder_layer")  # its memory is no step's output
    assert code == 0 and report["graph"]["status"] == "PASS", (code, report["graph"])
    code, report = verify(source, "chain=encoder_silu:decoder_layer")
    assert code == 2 and report["graph"]["status"] == "TEST_SKIP", (code, report["graph"])
    print("ok chains", flush=True)


def main():
    check_layers()
    check_variants()
    check_unknown_class()
    files = [p for p in sorted(FOLDER.glob("*_full.pt")) if not re.search("post_gelu|pre_relu", p.name)] + [FIXTURES / "verify" / "probe_layers_full.pt"]
    sources = {p: (kinds_in(p), shown(p)) for p in files}
    silent = check_breakages("burn-nn.json", ["modules=store"], sources, False)
    silent += check_breakages("burn-store.json", [], sources, True)
    assert not silent, f"rules that no file here needs: {silent}"
    check_large_numbers()
    check_what_is_left()
    check_chain()
    with tempfile.TemporaryDirectory() as folder:  # without the graph that lies beside it
        check_norm_order(shutil.copy(FOLDER / "encoder_pre_relu.safetensors", folder))


if __name__ == "__main__":
    sys.exit(main())
