"""verify.json as its readers see it: Python's strict json, docs/verify.schema.json, and jq where it is installed.

The part of JSON Schema that our schema uses is checked by the few lines below, so that no package is
needed; a keyword that they don't know is an error, not a silent pass.
"""
import json
import os
import pathlib
import shutil
import subprocess

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs" / "verify.schema.json").read_text())
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


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def parse_report(text):
    """The report, which all of its readers accept."""
    report = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    broken = list(complaints(report, SCHEMA, "report"))
    assert not broken, "\n".join(broken)
    if shutil.which("jq"):
        read = subprocess.run(["jq", "-e", ".status"], input=text, capture_output=True, text=True, check=False)
        assert read.returncode == 0 and json.loads(read.stdout) == report["status"], read.stderr
    return report
