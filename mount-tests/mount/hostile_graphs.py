"""Graphs and references that a stranger may have written, for test_hostile_graphs.py: each a folder with m.safetensors, m.graph.json or
m.pt2, and m.reference.safetensors."""
import json, os, struct
from graph_file import *

X = {"x": (2, 3)}
WEIGHTS = {"fc.weight": (3, 3), "fc.bias": (3,)}
MANY = 130_000  # of our nodes, in the bytes that a graph may have


class Case:
    """files: {ending: bytes, str or a graph}, or what makes them; status: one that the whole may have, or None for any but PASS; word: in some reason."""

    def __init__(self, name, files, status=None, word="", weights=WEIGHTS, options="", source=None):
        self.name, self.files, self.status, self.word, self.weights, self.options, self.source = name, files, status, word, weights, options, source

    def make(self, folder):
        made = self.files() if callable(self.files) else self.files
        files = {".safetensors": self.source or safetensors({k: floats(s) for k, s in self.weights.items()}), **made}
        for ending, content in files.items():
            if isinstance(content, dict):
                content = json.dumps(content)
            with open(os.path.join(folder, "m" + ending), "wb") as f:
                f.write(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
        return os.path.join(folder, "m.safetensors")


def of(nodes, out="y", inputs=X, kinds=None, reference=True, parameters=WEIGHTS):
    files = {".graph.json": graph(nodes, [out], inputs, parameters, kinds)}
    if reference:
        files[".reference.safetensors"] = safetensors({f"input.{i}": floats(s) for i, s in enumerate(inputs.values())}
                                                       | {"output.0": floats((2, 3), 1.0)})
    return files


def one(target, out="y", **args):
    return of([node(target, out, **args)])


def linear(out="y"):
    return node("linear.default", out, input=tensor("x"), weight=tensor("p_fc_weight"), bias=tensor("p_fc_bias"))


def sizes_and_bombs():
    yield Case("full of 2^40", one("full.default", size=integers(2**40), fill_value={"as_float": 1.0}), word="verify_memory")
    yield Case("full of a product beyond 2^64", one("full.default", size=integers(2**40, 2**40), fill_value=integer(1)), word="large")
    yield Case("nothing, in huge dimensions", of([node("full.default", "a", size=integers(0, 2**62, 2**62), fill_value={"as_float": 1.0}), node("relu.default", "b", self=tensor("a")),
                                                  node("repeat_interleave.self_int", "c", self=tensor("b"), repeats=integer(2**62), dim=integer(0)),
                                                  node("permute.default", "d", self=tensor("c"), dims=integers(2, 0, 1)), node("sum.default", "y", self=tensor("d"))]))
    yield Case("a negative dimension", one("full.default", size=integers(-2, 3), fill_value=integer(1)))
    yield Case("a view of negative dimensions", one("view.default", self=tensor("x"), size=integers(-2, -3)))
    yield Case("expand to 2^60", of([node("sum.default", "s", self=tensor("x")), node("expand.default", "e", self=tensor("s"), size=integers(2**30, 2**30)),
                                     node("contiguous.default", "y", self=tensor("e"))]), word="beyond verify_memory")
    yield Case("expand within memory, summed a thousand times", of(
        [node("sum.default", "s0", self=tensor("x")), node("expand.default", "e", self=tensor("s0"), size=integers(2048, 2048))]
        + [node("sum.default", f"s{i + 1}", self=tensor("e")) for i in range(100)] + [node("add.Tensor", "y", self=tensor("s1"), other=tensor("x"))]), status="DIFF")
    yield Case("repeat_interleave by 2^50", one("repeat_interleave.self_int", self=tensor("x"), repeats=integer(2**50)), word="verify_memory")
    yield Case("repeat by 2^40 and 2^40", one("repeat.default", self=tensor("x"), repeats=integers(2**40, 2**40)))
    yield Case("arange to 2^62", one("arange.default", end=integer(2**62)))
    yield Case("arange with a step of nearly nothing", one("arange.start_step", start=integer(0), end=integer(2**53), step={"as_float": 1e-300}))
    yield Case("linspace of 2^62", one("linspace.default", start=integer(0), end=integer(1), steps=integer(2**62)))
    yield Case("one_hot of 2^50 classes", of([node("arange.default", "a", end=integer(4)), node("one_hot.default", "y", self=tensor("a"), num_classes=integer(2**50))]))
    yield Case("cat that doubles forty times", of([node("cat.default", f"v{i + 1}", tensors=tensors(*[f"v{i}" if i else "x"] * 2), dim=integer(0)) for i in range(40)],
                                                  "v40"), word="verify_memory")
    yield Case("as_strided beyond its memory", one("as_strided.default", self=tensor("x"), size=integers(2**31, 4), stride=integers(4, 1)))
    yield Case("as_strided with negative strides", one("as_strided.default", self=tensor("x"), size=integers(2, 2), stride=integers(-1, 1)))
    yield Case("pad by 2^61", one("constant_pad_nd.default", self=tensor("x"), pad=integers(2**61, 2**61)))
    yield Case("a convolution whose output is 2^60", of([node("view.default", "v", self=tensor("x"), size=integers(1, 1, 6)),
                                                        node("ones.default", "w", size=integers(1, 1, 1)),
                                                        node("conv1d.default", "y", input=tensor("v"), weight=tensor("w"), padding=integers(2**60))]))
    yield Case("upsampled to 2^31 by 2^31", of([node("view.default", "v", self=tensor("x"), size=integers(1, 1, 2, 3)),
                                                node("upsample_nearest2d.vec", "y", input=tensor("v"), output_size=integers(2**31, 2**31))]))
    yield Case("seventeen dimensions", one("view.default", self=tensor("x"), size=integers(2, 3, *[1] * 15)))


def shapes_and_kinds():
    yield Case("a text where a tensor belongs", one("relu.default", self={"as_string": "x"}))
    yield Case("a number where a tensor belongs", one("relu.default", self=integer(3)))
    yield Case("a tensor where a number belongs", one("softmax.int", self=tensor("x"), dim=tensor("x")))
    yield Case("a list where a tensor belongs", one("relu.default", self=tensors("x", "x")))
    yield Case("none where a tensor belongs", one("relu.default", self={"as_none": True}))
    yield Case("no arguments", one("linear.default"))
    yield Case("an assertion in place", one("_assert_tensor_metadata_.default", a=tensor("x")), word="nothing that could be written")
    yield Case("an argument twice", {".graph.json": graph([{**node("relu.default", "y"), "inputs": [{"name": "self", "arg": tensor("x"), "kind": 1}] * 2}], ["y"], X, WEIGHTS)})
    yield Case("a thousand arguments", {".graph.json": graph([{**node("relu.default", "y"), "inputs": [{"name": f"a{i}", "arg": tensor("x"), "kind": 1} for i in range(1000)]}],
                                                             ["y"], X, WEIGHTS)})
    yield Case("split into pieces of nothing", of([node("split.Tensor", ["y"], self=tensor("x"), split_size=integer(0))]))
    yield Case("a value that is used before it is made", of([node("relu.default", "y", self=tensor("z")), node("relu.default", "z", self=tensor("y"))]), word="does not exist")
    yield Case("a node that uses itself", one("relu.default", self=tensor("y")), word="does not exist")
    yield Case("a value that nobody makes", one("relu.default", self=tensor("nowhere")), word="does not exist")
    yield Case("a value that is made twice", of([node("relu.default", "y", self=tensor("x")), node("relu.default", "y", self=tensor("x"))]), word="before")
    yield Case("an output that nobody makes", of([node("relu.default", "z", self=tensor("x"))]), word="does not exist")
    yield Case("metadata of sixty dimensions", of([node("relu.default", "y", self=tensor("x"))], inputs={"x": [1] * 60}) | {
        ".reference.safetensors": safetensors({"input.0": floats((2, 3)), "output.0": floats((2, 3))})}, word="shape")
    yield Case("metadata of a negative size", of([node("relu.default", "y", self=tensor("x"))], inputs={"x": sizes([-5, 3])}, reference=False))
    yield Case("metadata of an input of 2^50", of([node("relu.default", "y", self=tensor("x"))], inputs={"x": [2**50]}, reference=False), word="verify_memory")


def operations():
    yield Case("an operation of somebody's own", one("::torch.ops.evil.run.default", x=tensor("x")), "TEST_SKIP", "evil.run")
    yield Case("thousands of operations that nobody has", of([node(f"::torch.ops.evil{i}.f.default", f"y{i}", x=tensor("x")) for i in range(5000)], "y4999"), "TEST_SKIP", "and more")
    yield Case("a while loop", one("::torch.ops.higher_order.while_loop", cond_fn={"as_graph": {"name": "c", "graph": {}}}, x=tensor("x")))
    yield Case("a branch", one("::torch.ops.higher_order.cond", pred={"as_bool": True}, true_fn={"as_graph": {"name": "c", "graph": {}}}))
    yield Case("batch_norm in training mode", of([node("batch_norm.default", "y", input=tensor("x"), weight=tensor("p_fc_bias"), bias=tensor("p_fc_bias"),
                                                       running_mean=tensor("p_fc_bias"), running_var=tensor("p_fc_bias"), training={"as_bool": True},
                                                       momentum={"as_float": 0.1}, eps={"as_float": 1e-5}, cudnn_enabled={"as_bool": False})]), "TEST_SKIP", "training mode")
    yield Case("dropout in training mode", one("dropout.default", input=tensor("x"), p={"as_float": 0.5}, train={"as_bool": True}), "TEST_SKIP", "training mode")
    yield Case("an output that changes a buffer", of([linear()], kinds={"y": {"buffer_mutation": {"arg": {"name": "y"}, "buffer_name": "b"}}}), "TEST_SKIP", "training mode")
    yield Case("an output that is a gradient", of([linear()], kinds={"y": {"gradient_to_parameter": {"arg": {"name": "y"}, "parameter_name": "fc.weight"}}}), "TEST_SKIP")
    yield Case("an input changed in place", of([node("mul_.Tensor", "a", self=tensor("x"), other=tensor("x")), linear()]), status="DIFF")
    yield Case("a parameter changed in place", of([node("mul_.Tensor", "y", self=tensor("p_fc_weight"), other=tensor("p_fc_weight"))]), "TEST_SKIP", "changes a parameter")
    yield Case("an expanded view changed in place", of([node("sum.default", "s", self=tensor("x")), node("expand.default", "e", self=tensor("s"), size=integers(2, 3)),
                                                        node("add_.Tensor", "y", self=tensor("e"), other=tensor("x"))]), status="DIFF")
    yield Case("overlapping views changed in place", of([
        node("as_strided.default", "a", self=tensor("x"), size=integers(4, 3), stride=integers(1, 1)), node("mul_.Tensor", "b", self=tensor("a"), other=tensor("a")),
        node("slice.Tensor", "c", self=tensor("x"), dim=integer(1), start=integer(0), end=integer(2)),
        node("slice.Tensor", "d", self=tensor("x"), dim=integer(1), start=integer(1), end=integer(3)), node("copy_.default", "e", self=tensor("c"), src=tensor("d")),
        node("relu.default", "y", self=tensor("x"))]), status="DIFF")


def much():
    def steps(begin, end, op):
        return [node(op, f"v{i + 1}", self=tensor(f"v{i}" if i else "x")) for i in range(begin, end)]
    yield Case("many nodes", lambda: of(steps(0, MANY, "relu.default"), f"v{MANY}"), status="DIFF")
    yield Case("many nodes, and then many of another operation",
               lambda: of(steps(0, MANY // 2, "relu.default") + steps(MANY // 2, MANY, "neg.default"), f"v{MANY}"), status="DIFF")
    yield Case("a million nodes", lambda: {".graph.json": '{"graph_module": {"graph": {"inputs": [], "outputs": [], "nodes": ['
               + ",".join(['{"target":"torch.ops.aten.relu.default","inputs":[],"outputs":[],"metadata":{}}'] * 1_000_000) + "]}}}"})
    names = {f"m{i}.weight": (1,) for i in range(20_000)}
    yield Case("parameters that the checkpoint lacks, with a graph's own file", lambda: {".pt2": archive(graph([node("relu.default", "y", self=tensor(f"p_m{i}_weight")) if i == 19_999
                                    else node("relu.default", f"r{i}", self=tensor(f"p_m{i}_weight")) for i in range(20_000)], ["y"], X, names))}, "TEST_FAIL", "lacks")
    yield Case("parameters with odd and endless names", of([node("relu.default", "y", self=tensor("x"))], parameters={
        **{"\x01\x02\x1f" * 100 + str(i): (1,) for i in range(1500)}, "\u00e9" * 5000: (1,), "q\"\\" * 3000: (2,)}), None, "")
    yield Case("used parameters with odd names, all missing", of([node("stack.default", "y", tensors=tensors(*["p_" + "\x01\n" * 300 + str(i) for i in range(1500)]))],
                                                                 parameters={"\x01\n" * 300 + str(i): (1,) for i in range(1500)}), "TEST_FAIL", "lacks")
    yield Case("a checkpoint with odd names, none of them the graph's", of([node("relu.default", "y", self=tensor("x"))]), None, "",
               weights={"\x01\x7f" * 200 + f".{i}.weight": (2, 2) for i in range(1500)})
    outputs = [f"y{i}" for i in range(100)]
    yield Case("a hundred outputs of sixteen dimensions, all wrong", {
        ".graph.json": graph([node("view.default", o, self=tensor("x"), size=integers(*[1] * 14, 2, 3)) for o in outputs], outputs, X, WEIGHTS),
        ".reference.safetensors": safetensors({"input.0": floats((2, 3))} | {f"output.{i}": floats((1,) * 14 + (2, 3), -1e38, 3.3e-38, float("nan")) for i in range(100)})}, "DIFF")
    yield Case("a graph for another model", of([node("linear.default", "y", input=tensor("x"), weight=tensor("p_other_weight"))], parameters={"other.weight": (3, 3)}), "TEST_FAIL", "lacks")
    yield Case("a graph for a larger model", of([node("linear.default", "y", input=tensor("x"), weight=tensor("p_fc_weight"))], parameters={"fc.weight": (4, 3)}), "TEST_FAIL", "other shapes")


def references():
    def with_reference(name, values, *args, metadata=None, **kw):
        return Case(name, of([linear()]) | {".reference.safetensors": safetensors(values, metadata)}, *args, **kw)
    nan, inf = float("nan"), float("inf")
    good = floats((2, 3))
    yield with_reference("a reference of another input shape", {"input.0": floats((5, 7)), "output.0": good}, "TEST_FAIL", "the graph takes [2, 3]")
    yield with_reference("a reference of another output shape", {"input.0": good, "output.0": floats((9, 9))}, "DIFF")
    yield with_reference("a reference of no elements", {"input.0": ("F32", (0, 3), b""), "output.0": ("F32", (0,), b"")})
    yield with_reference("an output of no elements", {"input.0": good, "output.0": ("F32", (0, 3), b"")}, "DIFF")
    yield with_reference("an input of another dtype", {"input.0": ("I64", (2, 3), struct.pack("<6q", *range(6))), "output.0": good}, "DIFF")
    yield with_reference("inputs of packed elements", {"input.0": ("F4", (2, 3), b"\0\0\0"), "output.0": good})
    yield with_reference("NaN and infinities", {"input.0": floats((2, 3), nan, inf, -inf), "output.0": floats((2, 3), nan, inf, -inf, 0.0)}, "DIFF")
    yield with_reference("infinities where numbers belong", {"input.0": good, "output.0": floats((2, 3), inf, -inf)}, "DIFF")
    yield with_reference("no input", {"output.0": good}, "TEST_FAIL", "without input.0")
    yield with_reference("nothing that is known", {"hello": good}, "TEST_FAIL", "called")
    yield with_reference("a list of inputs that is no list", {"input.0": good, "output.0": good}, "TEST_FAIL", "list of inputs", metadata={"inputs": "{\"a\": 1}"})
    yield with_reference("a list of inputs that is no JSON", {"input.0": good, "output.0": good}, metadata={"inputs": "[" * 5000})
    yield with_reference("a list of inputs that are numbers", {"input.0": good, "output.0": good}, metadata={"inputs": "[1, 2]"})
    yield with_reference("a list of inputs that are not there", {"input.0": good, "output.0": good}, "TEST_FAIL", "lacks it", metadata={"inputs": "[\"\\u0001nowhere\"]"})
    yield with_reference("a list of a thousand inputs", {"input.0": good, "output.0": good}, metadata={"inputs": json.dumps(["input.0"] * 1000)})
    yield Case("a reference that is cut off", of([linear()]) | {".reference.safetensors": safetensors({"input.0": good})[:-5]}, "TEST_FAIL", "cannot be read")


def archives(marker):
    evil = b"cos\nsystem\n(S'touch " + marker.encode() + b"'\ntR."
    sound = graph([linear()], ["y"], X, WEIGHTS)
    yield Case("sample inputs that are code", {".pt2": archive(sound, {"data/sample_inputs/model.pt": evil})}, "PASS")
    yield Case("sample inputs that are an archive of code", {".pt2": archive(sound, {"data/sample_inputs/model.pt": archive("{}", {"data.pkl": evil})})}, "PASS")
    yield Case("weights that lie elsewhere", {".pt2": archive(sound, {"data/weights/model_weights_config.json": json.dumps({"config": {"fc.weight": {
        "path_name": "../../etc/passwd", "is_param": True, "use_pickle": False, "tensor_meta": sizes([3, 3])}}})})})
    yield Case("a graph that is cut off", {".graph.json": json.dumps(sound)[:-400]}, "TEST_SKIP")
    yield Case("a graph that is a list", {".graph.json": "[]"}, "TEST_SKIP")
    yield Case("a graph of nothing", {".graph.json": ""}, "TEST_SKIP")
    yield Case("a graph nested without end", {".graph.json": "[" * 100_000}, "TEST_SKIP")
    yield Case("an archive without a graph", {".pt2": archive("{}")}, "TEST_SKIP")
    yield Case("an archive that is none", {".pt2": b"PK\3\4 and no more"}, "TEST_SKIP")


def cases(marker):
    for family in sizes_and_bombs, shapes_and_kinds, operations, much, references:
        yield from family()
    yield from archives(marker)
