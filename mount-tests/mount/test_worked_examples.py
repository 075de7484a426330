#!/usr/bin/env python3
"""The worked examples of docs/adapters.md, as they stand there: rules and options are taken from the page, run on a small
model of the kind, and every element of the result is compared with plain Python."""
import json
import os
import re
import shlex
import struct
import tempfile

from mounted import FIXTURES, run, safetensors, write_safetensors

PAGE = os.path.join(FIXTURES, "..", "..", "docs", "adapters.md")


class Tensor:
    """Elements by their index, nothing clever."""

    def __init__(self, shape, at):
        self.shape, self.at = list(shape), at

    def indices(self, d=0):
        if d == len(self.shape):
            yield ()
        else:
            yield from ((i, *rest) for i in range(self.shape[d]) for rest in self.indices(d + 1))

    def bytes(self):
        return b"".join(struct.pack("<f", self.at(*i)) for i in self.indices())

    def part(self, axis, start, stop):
        def at(*i):
            return self.at(*i[:axis], i[axis] + start, *i[axis + 1:])
        return Tensor([stop - start if d == axis else n for d, n in enumerate(self.shape)], at)

    def moved(self, *order):
        def at(*i):
            source = [0] * len(order)
            for d, axis in enumerate(order):
                source[axis] = i[d]
            return self.at(*source)
        return Tensor([self.shape[axis] for axis in order], at)


def counting(shape, first):
    def at(*i):
        n = 0
        for size, k in zip(shape, i):
            n = n * size + k
        return first + n
    return Tensor(shape, at)


def model(**shapes):
    """Tensors of these shapes ("__" is a dot, "_s_" a slash), whose elements count on from one to the next."""
    tensors, first = {}, 0
    for name, shape in shapes.items():
        key = name.replace("__", ".").replace("_s_", "/")
        tensors[key] = counting(shape, first)
        first += len(list(tensors[key].indices()))
    return tensors


# Of each example: a source, and what must come of it.

def gpt2():
    s = model(wte__weight=[6, 4], h__0__ln_1__weight=[4], h__0__ln_1__bias=[4], h__0__attn__bias=[1, 1, 3, 3],
              h__0__attn__c_attn__weight=[4, 12], h__0__attn__c_attn__bias=[12], h__0__attn__c_proj__weight=[4, 4],
              h__0__attn__c_proj__bias=[4], h__0__mlp__c_fc__weight=[4, 16], h__0__mlp__c_fc__bias=[16],
              h__0__mlp__c_proj__weight=[16, 4], h__0__mlp__c_proj__bias=[4])
    want = {"wte.weight": s["wte.weight"], "blocks.0.ln_1.gamma": s["h.0.ln_1.weight"], "blocks.0.ln_1.beta": s["h.0.ln_1.bias"]}
    for i, name in enumerate(("query", "key", "value")):
        want[f"blocks.0.attn.{name}.weight"] = s["h.0.attn.c_attn.weight"].part(1, 4 * i, 4 * i + 4)
        want[f"blocks.0.attn.{name}.bias"] = s["h.0.attn.c_attn.bias"].part(0, 4 * i, 4 * i + 4)
    for leaf in ("weight", "bias"):
        want[f"blocks.0.attn.output.{leaf}"] = s[f"h.0.attn.c_proj.{leaf}"]
        for name in ("c_fc", "c_proj"):
            want[f"blocks.0.mlp.{name}.{leaf}"] = s[f"h.0.mlp.{name}.{leaf}"]
    return s, want


def attention():
    s = model(layers__0__attn__qkv__weight=[12, 6], layers__0__attn__qkv__bias=[12], layers__0__attn__out=[4, 2, 6])
    want = {"layers.0.attn.out.weight": Tensor([8, 6], lambda i, k: s["layers.0.attn.out"].at(i // 2, i % 2, k))}
    for name, start, stop in (("q", 0, 8), ("k", 8, 10), ("v", 10, 12)):
        want[f"layers.0.attn.{name}.weight"] = s["layers.0.attn.qkv.weight"].part(0, start, stop).moved(1, 0)
        want[f"layers.0.attn.{name}.bias"] = s["layers.0.attn.qkv.bias"].part(0, start, stop)
    return s, want


def many_to_one():
    s = model(a__q_proj__weight=[4, 3], a__q_proj__bias=[4], a__k_proj__weight=[4, 3], a__v_proj__weight=[4, 3], a__v_proj__bias=[4],
              a__out__weight=[5, 4], a__out__bias=[5])
    names = [s[f"a.{n}_proj.weight"] for n in "qkv"]
    biases = [s["a.q_proj.bias"], Tensor([4], lambda i: 0), s["a.v_proj.bias"]]
    return s, {"a.qkv.weight": Tensor([3, 12], lambda i, k: names[k // 4].at(k % 4, i)),
               "a.qkv.bias": Tensor([12], lambda i: biases[i // 4].at(i % 4)),
               "a.out.weight": s["a.out.weight"].moved(1, 0), "a.out.bias": s["a.out.bias"]}


def new_names():
    s = model(dense_1_s_kernel=[4, 3], dense_1_s_bias=[3], norm_s_scale=[3], norm_s_offset=[3], conv_s_kernel=[2, 3, 4, 5])
    return s, {"fc1.weight": s["dense_1/kernel"], "fc1.bias": s["dense_1/bias"], "norm.gamma": s["norm/scale"],
               "norm.beta": s["norm/offset"], "conv.weight": s["conv/kernel"].moved(3, 2, 0, 1)}


EXAMPLES = {"GPT-2": gpt2, "An attention of one's own": attention, "Many to one": many_to_one, "New names for everything": new_names}


def examples_of_page():
    """{title: (rules, options)} of each section below "Worked examples"."""
    with open(PAGE, encoding="utf-8") as f:
        text = f.read().split("\n## Worked examples\n")[1].split("\n## ")[0]
    found = {}
    for section in text.split("\n### ")[1:]:
        title, body = section.split("\n", 1)
        rules = re.search(r"```json\n(.*?)```", body, re.S)[1]
        command = shlex.split(re.search(r"^    (mount\.ckpt .*)$", body, re.M)[1])
        assert command[:3] == ["mount.ckpt", "model.safetensors", "/mnt/m"], command
        found[title] = rules, command[3:]
    return found


def check(folder, title, rules, options):
    path = os.path.join(folder, "my.json")
    with open(path, "w") as f:
        f.write(rules)
    assert "rules=my.json" in options
    options = [o.replace("rules=my.json", "rules=" + path) for o in options]
    tensors, want = EXAMPLES[title]()
    source = os.path.join(folder, "model.safetensors")
    write_safetensors(source, {key: ("F32", t.shape, t.bytes()) for key, t in tensors.items()})
    out = os.path.join(folder, "out.safetensors")
    p = run("--export", out, *options, source)
    assert p.returncode == 0, f"{title}: {p.stderr}"
    got = safetensors(out)[0]
    assert sorted(got) == sorted(want), f"{title}: {sorted(got)}"
    for key, t in want.items():
        assert got[key][1] == t.shape and got[key][2] == t.bytes(), f"{title}: {key}"
    report = json.loads(run("--verify", *options, source).stdout)
    assert report["bytes"]["status"] == "PASS", f"{title}: {report['bytes']}"


page = examples_of_page()
assert page.keys() == EXAMPLES.keys(), page.keys()
for title, (rules, options) in page.items():
    with tempfile.TemporaryDirectory(prefix="ckpt-test.") as folder:
        check(folder, title, rules, options)
print("ok")
