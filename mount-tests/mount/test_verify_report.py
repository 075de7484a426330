#!/usr/bin/env python3
"""mount.ckpt --verify: exit codes, and reports that keep to docs/verify.schema.json.

The part of JSON Schema that our schema uses is checked by the few lines below, so that no package is
needed; a keyword that they don't know is an error, not a silent pass.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

MOUNT_CKPT = os.environ["MOUNT_CKPT"]
FIXTURES = pathlib.Path(os.environ["FIXTURES"])
SCHEMA = json.loads((FIXTURES.parent.parent / "docs" / "verify.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def has_type(value, name):
    return isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ("integer", "number"))


def complaints(value, schema, where):
    """What of value breaks the schema."""
    for word, rule in schema.items():
        if word == "$ref":
            yield from complaints(value, SCHEMA["$defs"][rule.rsplit("/", 1)[1]], where)
        elif word == "type":
            if not has_type(value, rule):
                yield f"{where}: {value!r} is no {rule}"
                return
        elif word == "enum":
            if value not in rule:
                yield f"{where}: {value!r} is not one of {rule}"
        elif word == "const":
            if value != rule:
                yield f"{where}: {value!r} is not {rule!r}"
        elif word == "anyOf":
            if all(list(complaints(value, option, where)) for option in rule):
                yield f"{where}: {value!r} fits none of the alternatives"
        elif word == "required":
            yield from (f"{where}: no {key}" for key in rule if key not in value)
        elif word == "properties":
            yield from (f"{where}: {key} is not in the schema" for key in value if key not in rule)
            for key in rule.keys() & value.keys():
                yield from complaints(value[key], rule[key], f"{where}.{key}")
        elif word == "items":
            for i, item in enumerate(value):
                yield from complaints(item, rule, f"{where}[{i}]")
        elif word == "maxItems":
            if len(value) > rule:
                yield f"{where}: more than {rule} entries"
        elif word not in ("$schema", "$defs", "title"):
            raise ValueError(f"the schema's {word} is not understood")


def unique(pairs):
    assert len(dict(pairs)) == len(pairs), "a key twice"
    return dict(pairs)


def verify(source, options, status, code):
    """Runs --verify; the report must fit the schema and have this status, the exit this code."""
    args = [MOUNT_CKPT, "--verify"] + (["-o", options] if options else []) + [str(source)]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout, object_pairs_hook=unique, parse_constant=lambda c: 1 / 0)
    broken = list(complaints(report, SCHEMA, "report"))
    assert not broken, "\n".join(broken)
    assert report["status"] == status, (args, report["status"], done.stdout)
    assert done.returncode == code, (args, done.returncode)
    print("ok", " ".join(args[1:]).replace(str(FIXTURES), "FIXTURES"), "->", status, code)
    return report


def max_abs(report):
    return {run["name"]: run["diff"]["max_abs"] for run in report["runs"]}


def main():
    a1 = FIXTURES / "a1"
    chain = f"chain=fc1:relu:fc2,reference={a1}/a1.reference.safetensors"
    errors = max_abs(verify(a1 / "a1_full.pt", chain, "PASS", 0))
    assert errors.keys() == {"torch-vs-recorded", "burn-vs-recorded", "torch-vs-burn"}
    assert all(e <= 1e-6 for e in errors.values()), errors
    verify(a1 / "a1_state.pt", None, "PASS", 0)
    verify(a1 / "a1_full.pt", "chain=fc1:relu:fc3", "TEST_FAIL", 2)
    verify(a1 / "a1_full.pt", f"graph={a1}/a1.safetensors", "TEST_SKIP", 2)
    probes = FIXTURES / "verify"
    layers = verify(probes / "probe_layers_full.pt", f"reference={probes}/probe_layers.reference.safetensors", "PASS", 0)
    assert {layer["status"] for layer in layers["layers"]} == {"PASS"}
    verify(probes / "probe_layers.safetensors", None, "PASS", 0)
    verify(probes / "layers_burn_lacks_full.pt", f"reference={probes}/layers_burn_lacks.reference.safetensors", "DIFF", 1)
    burn_nn = FIXTURES / "burn-nn"
    encoder = verify(burn_nn / "encoder_pre_gelu_full.pt", f"reference={burn_nn}/encoder_pre_gelu.reference.safetensors", "PASS", 0)
    assert [layer["path"] for layer in encoder["layers"]][:3] == ["", "layers.0", "layers.0.self_attn"], encoder["layers"]
    assert encoder["layers"][0]["recorded"]["status"] == "PASS", encoder["layers"][0]

    with tempfile.TemporaryDirectory() as folder:
        damaged = pathlib.Path(folder, "damaged.pt")
        shutil.copy(a1 / "a1_full.pt", damaged)
        data = bytearray(damaged.read_bytes())
        plain = (a1 / "a1.safetensors").read_bytes()
        weight = plain[8 + int.from_bytes(plain[:8], "little") + 32:][:32]  # behind fc1.bias
        data[data.index(weight) + 3] ^= 0x40
        damaged.write_bytes(data)
        report = verify(damaged, chain, "DIFF", 1)
        wrong = report["bytes"]["checksums"]["wrong"]
        assert [(w["entry"], w["tensors"]) for w in wrong] == [("data/0", ["fc1.weight"])], wrong
        assert [run["output"] for run in report["runs"] if run["status"] == "DIFF"] == ["output.0"] * 2


if __name__ == "__main__":
    main()
