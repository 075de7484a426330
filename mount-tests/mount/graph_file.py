"""Writes what torch.export writes, node by node, so that a test can get any of it wrong. Standard library only."""
import io, json, struct, zipfile


def tensor(name):
    return {"as_tensor": {"name": name}}


def tensors(*names):
    return {"as_tensors": [{"name": n} for n in names]}


def integer(i):
    return {"as_int": i}


def integers(*items):
    return {"as_ints": list(items)}


def node(target, out, **args):
    """node("relu.default", "y", self=tensor("x")); a target with two colons stands as it is."""
    return {"target": target[2:] if target.startswith("::") else "torch.ops.aten." + target,
            "inputs": [{"name": name, "arg": arg, "kind": 1} for name, arg in args.items()],
            "outputs": [tensor(o) for o in ([out] if isinstance(out, str) else out)],
            "metadata": {}, "is_hop_single_tensor_return": None, "name": None}


def sizes(shape, dtype=7):
    return {"dtype": dtype, "sizes": [integer(d) for d in shape], "requires_grad": False,
            "device": {"type": "cpu", "index": None}, "strides": [integer(0) for _ in shape], "storage_offset": integer(0), "layout": 7}


def graph(nodes, outputs, inputs, parameters=(), kinds=None):
    """inputs and parameters are {name: shape}; a parameter's value is called p_ and its name with underscores."""
    values = {"p_" + name.replace(".", "_"): name for name in parameters}
    shapes = {v: parameters[name] for v, name in values.items()} | dict(inputs)
    specs = [{"parameter": {"arg": {"name": v}, "parameter_name": name}} for v, name in values.items()]
    specs += [{"user_input": {"arg": tensor(name)}} for name in inputs]
    return {"graph_module": {
        "graph": {"inputs": [tensor(n) for n in shapes], "outputs": [tensor(n) for n in outputs], "nodes": nodes,
                  "tensor_values": {n: sizes(s) if isinstance(s, (list, tuple)) else s for n, s in shapes.items()},
                  "sym_int_values": {}, "sym_bool_values": {}, "is_single_tensor_return": False, "custom_obj_values": {}, "sym_float_values": {}},
        "signature": {"input_specs": specs, "output_specs": [(kinds or {}).get(n, {"user_output": {"arg": tensor(n)}}) for n in outputs]},
        "module_call_graph": [], "metadata": {}, "treespec_namedtuple_fields": {}},
        "opset_version": {"aten": 10}, "range_constraints": {}, "schema_version": {"major": 8, "minor": 20}, "verifiers": [],
        "torch_version": "2.15.0", "guards_code": []}


def archive(content, entries=()):
    """A .pt2: the graph, and more entries as {path: bytes}."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("m/archive_format", "pt2")
        z.writestr("m/archive_version", "0")
        z.writestr("m/byteorder", "little")
        z.writestr("m/models/model.json", content if isinstance(content, str) else json.dumps(content))
        for path, data in dict(entries).items():
            z.writestr("m/" + path, data)
    return out.getvalue()


def safetensors(values, metadata=None):
    """{key: (dtype, shape, bytes)}."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for key, (dtype, shape, data) in values.items():
        header[key] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in values.values())


def floats(shape, *values):
    """One entry for safetensors(): the values, repeated until the shape is full."""
    count = 1
    for d in shape:
        count *= d
    return "F32", shape, struct.pack(f"<{count}f", *((list(values or [0.5]) * count)[:count]))
