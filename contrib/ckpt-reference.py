#!/usr/bin/env python3
"""Runs a PyTorch model once and writes what `mount.ckpt --verify` compares with.

    ckpt-reference.py mypackage.models:make_model -o model        a callable that gives the model, or (model, args[, kwargs])
    ckpt-reference.py model_full.pt --trust                       torch.save(model), its class importable; --trust: see below
    ckpt-reference.py torchvision:resnet18 --weights              an architecture of a library, with seeded weights
    ckpt-reference.py timm:mixer_b16_224
    ckpt-reference.py transformers:Qwen2MoeForCausalLM:num_hidden_layers=2,num_experts=16

writes, beside one another:

    STEM.pt2                      the graph, by torch.export; where that refuses, STEM.torchscript.pt by torch.jit.trace
    STEM.reference.safetensors    input.0, input.1, ...; output.0, ...; "inputs" in its metadata: which input is which argument
    STEM.safetensors              the weights, with --weights
    STEM.pt                       the state dict, with --state

mount.ckpt finds the first two by themselves beside a source of the same STEM. The model runs in eval mode without gradients.

A .pt that holds a whole module is a program: loading it executes what it says. Without --trust it is refused.
Nothing is downloaded. Needs torch and safetensors; torchvision, timm or transformers only where the model is named so.
Exit 0: all is written. 1: the model can't be built, run or exported. 2: wrong arguments. Nothing is ever half written.
"""
import argparse
import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import warnings


class Refusal(Exception):
    """One sentence for the user."""


class Misuse(Refusal):
    """The arguments are wrong: exit 2."""


def first_line(e):
    return (str(e).strip().splitlines() or [""])[0][:300] or type(e).__name__


# ---- models ---------------------------------------------------------------------------------------------------------------

# Published sizes under short names; options in the model's name override.
TRANSFORMERS = {
    "switch_base_8": ("SwitchTransformersForConditionalGeneration", {}),
    "qwen_moe": ("Qwen2MoeForCausalLM", {"experts_implementation": "batched_mm"}),
}


def library(name):
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise Refusal(f"{name} can't be imported: {first_line(e)}") from e


def option_value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def parse_options(text):
    out = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise Misuse(f"{part!r} is not KEY=VALUE")
        out[key] = option_value(value)
    return out


def stir(model, torch):
    """An untrained model's norms are ones and zeros, which would hide a swap: seeded values that are all different."""
    with torch.no_grad():
        for name, t in [*model.named_parameters(), *model.named_buffers()]:
            if not t.is_floating_point() or t.numel() < 2:
                continue
            if name.endswith("running_var"):
                t.uniform_(0.5, 1.5)
            elif name.endswith("running_mean") or (isinstance(t, torch.nn.Parameter) and t.min() == t.max()):
                t.add_(torch.randn_like(t), alpha=0.1)


def of_torchvision(name, options, torch):
    models = library("torchvision.models")
    try:
        model = models.get_model(name, weights=None, **options)
    except ValueError as e:
        raise Refusal(f"torchvision: {first_line(e)}") from e
    size = 299 if name.startswith("inception") else 224
    return model, (torch.randn(1, 3, size, size),), {}


def of_timm(name, options, torch):
    model = library("timm").create_model(name, pretrained=False, **options)
    return model, (torch.randn(1, *model.default_cfg["input_size"]),), {}


def of_transformers(name, options, torch):
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    transformers = library("transformers")
    name, preset = TRANSFORMERS.get(name, (name, {}))
    cls = getattr(transformers, name, None)
    if not hasattr(cls, "config_class"):
        raise Refusal(f"transformers has no model class {name}; besides its classes there are {', '.join(TRANSFORMERS)}")
    config = cls.config_class(**{"use_cache": False, **preset, **options})
    model = cls(config)
    ids = {"input_ids": torch.randint(1, config.get_text_config().vocab_size, (1, 16))} if hasattr(config, "vocab_size") else {}
    if ids and config.is_encoder_decoder:
        ids["decoder_input_ids"] = torch.randint(1, config.vocab_size, (1, 8))
    return model, (), ids


LIBRARIES = {"torchvision": of_torchvision, "timm": of_timm, "transformers": of_transformers}


def as_model(found, torch):
    """A model, or (model, args[, kwargs])."""
    args, kwargs = (), {}
    if isinstance(found, (tuple, list)) and 2 <= len(found) <= 3:
        found, args, kwargs = (*found, {})[:3]
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if not isinstance(found, torch.nn.Module):
        raise Refusal(f"{type(found).__name__} is neither a torch.nn.Module nor (model, args)")
    return found, args, kwargs


def of_module(name, attribute, torch):
    try:
        if name.endswith(".py"):
            spec = importlib.util.spec_from_file_location(os.path.basename(name)[:-3], name)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(name)
    except (ImportError, OSError) as e:
        raise Refusal(f"{name} can't be imported: {first_line(e)}") from e
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Refusal(f"{name} has no {attribute}")
        found = getattr(found, part)
    return as_model(found if isinstance(found, torch.nn.Module) else found(), torch)


def of_file(path, trust, torch):
    if not trust:
        raise Misuse(f"{path}: loading a whole module executes code that the file names; if you trust it, say --trust")
    try:
        found = torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ImportError) as e:
        raise Refusal(f"{path}: its class can't be imported: {first_line(e)}; --path FOLDER says where it is") from e
    if not isinstance(found, torch.nn.Module):
        raise Refusal(f"{path} holds a {type(found).__name__}, no whole module: name a callable that makes the model, "
                      f"and --load {path}")
    return found, (), {}


def make_model(o, torch):
    """The model in eval mode, its default arguments, and the stem that its name suggests."""
    head, colon, rest = o.model.partition(":")
    if colon and head in LIBRARIES:
        name, _, options = rest.partition(":")
        model, args, kwargs = LIBRARIES[head](name, parse_options(options), torch)
        if not o.load:
            stir(model, torch)
    elif colon:
        model, args, kwargs = of_module(head, rest, torch)
    elif os.path.exists(o.model):
        model, args, kwargs = of_file(o.model, o.trust, torch)
    else:
        raise Misuse(f"{o.model} is neither a file nor MODULE:CALLABLE, torchvision:NAME, timm:NAME or transformers:NAME")
    if o.load:
        load_state(model, o.load, torch)
    return model.eval(), args, kwargs


def stem_of(name):
    head, colon, rest = name.partition(":")
    if not colon:
        return os.path.splitext(name)[0]
    return rest.partition(":")[0] if head in LIBRARIES else rest.split(".")[-1]


def load_state(model, path, torch):
    """Weights alone, from a file that executes nothing."""
    try:
        if path.endswith(".safetensors"):
            state = library("safetensors.torch").load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state)
    except Exception as e:
        raise Refusal(f"{path} can't be loaded into the model: {' '.join(str(e).split())[:300]}") from e


# ---- inputs ---------------------------------------------------------------------------------------------------------------

def dtypes(torch):
    return {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
            "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}


def parse_input(text, torch):
    """[NAME=]DTYPE:SHAPE[:LIMIT] or [NAME=]none; (name or None, value)."""
    name, equals, spec = text.rpartition("=")
    if spec == "none":
        return name or None, None
    dtype, _, rest = spec.partition(":")
    shape, _, limit = rest.partition(":")
    try:
        sizes = [int(s) for s in shape.split(",") if s]
        below = int(limit) if limit else 2
    except ValueError:
        raise Misuse(f"--input {text}: the shape is 1,3,224,224, the limit of integers a number") from None
    if dtype not in dtypes(torch) or min(sizes, default=1) < 0 or below < 1:
        raise Misuse(f"--input {text}: expected DTYPE:SHAPE[:LIMIT] or none, DTYPE one of {' '.join(dtypes(torch))}")
    kind = dtypes(torch)[dtype]
    if kind.is_floating_point:
        return name or None, torch.randn(sizes).to(kind)
    return name or None, torch.randint(0, below, sizes).to(kind)


def read_inputs(path, torch):
    """input.0, input.1, ... are positional, in the order of the metadata "inputs" if there is one, the last of them the "keywords"
    of the metadata; other names are keywords."""
    try:
        with library("safetensors").safe_open(path, "pt") as f:
            tensors = {k: f.get_tensor(k) for k in f.keys()}
            order, last = (json.loads((f.metadata() or {}).get(key, default)) for key, default in (("inputs", "null"), ("keywords", "[]")))
    except Exception as e:
        raise Refusal(f"{path} can't be read: {first_line(e)}") from e
    tensors = {k: v for k, v in tensors.items() if not k.startswith("output.") and not k.endswith((".input", ".output"))}
    if order is None:
        n = sum(k.startswith("input.") for k in tensors)
        order = [f"input.{i}" for i in range(n)]
    missing = [k for k in order if k is not None and k not in tensors]
    if missing:
        raise Refusal(f"{path} lacks {', '.join(missing)}")
    values = [None if k is None else tensors[k] for k in order]
    split = len(values) - len(last)
    named = {k: v for k, v in tensors.items() if not k.startswith("input.")}
    return tuple(values[:split]), {**dict(zip(last, values[split:])), **named}


def guess_inputs(model, torch):
    """By the first layer that has weights and says what it takes."""
    nn = torch.nn
    for m in model.modules():
        if isinstance(m, nn.Linear):
            return (torch.randn(2, m.in_features),)
        if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            axes = m.weight.dim() - 2
            return (torch.randn(1, m.in_channels, *[(64, 224, 16)[axes - 1]] * axes),)
        if isinstance(m, nn.Embedding):
            return (torch.randint(0, m.num_embeddings, (2, 16)),)
        if isinstance(m, (nn.LSTM, nn.GRU, nn.RNN)):
            return (torch.randn(2, 5, m.input_size),)
        if isinstance(m, nn.TransformerEncoderLayer):
            return (torch.randn(2, 5, m.linear1.in_features),)
    raise Misuse("no layer of the model says what it takes: give --input")


def choose_inputs(o, model, args, kwargs, torch):
    if o.inputs:
        return read_inputs(o.inputs, torch)
    if o.input:
        pairs = [parse_input(text, torch) for text in o.input]
        return tuple(v for k, v in pairs if k is None), {k: v for k, v in pairs if k is not None}
    if args or kwargs:
        return args, kwargs
    args = guess_inputs(model, torch)
    print("no inputs were given; taken: " + ", ".join(f"{str(a.dtype)[6:]} {list(a.shape)}" for a in args), file=sys.stderr)
    return args, {}


# ---- running and exporting ------------------------------------------------------------------------------------------------

def run(model, args, kwargs, torch):
    """The tensors among its outputs, in the order in which an export lists them."""
    try:
        out = model(*args, **kwargs)
    except Exception as e:
        raise Refusal(f"the model doesn't run on these inputs: {type(e).__name__}: {first_line(e)}") from e
    tensors = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    if not tensors:
        raise Refusal(f"the model gives no tensor but {type(out).__name__}")
    return tensors


@contextlib.contextmanager
def silence():
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def export(model, args, kwargs, path, torch):
    with silence():
        program = torch.export.export(model, args, kwargs, strict=False)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # paths of this machine
        torch.export.save(program, path)


def flat_forward(model, args, kwargs, torch):
    """The forward of tensors alone that a trace wants, and those tensors: what is no tensor is fixed, outputs are flat."""
    pytree = torch.utils._pytree
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    forward = model.forward

    def flat(*tensors):
        filled = list(leaves)
        for i, t in zip(places, tensors):
            filled[i] = t
        given, named = pytree.tree_unflatten(filled, spec)
        out = [t for t in pytree.tree_leaves(forward(*given, **named)) if isinstance(t, torch.Tensor)]
        return out[0] if len(out) == 1 else tuple(out)
    return flat, [leaves[i] for i in places]


def without_paths(data, path, torch):
    """The archive but for .debug_pkl, which names files of this machine; the writer adds the other records left out."""
    reader = torch._C.PyTorchFileReader(io.BytesIO(data))
    writer = torch._C.PyTorchFileWriter(path)
    for name in reader.get_all_records():
        if name.endswith(".debug_pkl") or name in ("version", ".data/version", ".data/serialization_id", "byteorder"):
            continue
        record = reader.get_record(name)
        writer.write_record(name, record, len(record))
    writer.write_end_of_file()


def trace(model, args, kwargs, path, torch):
    flat, tensors = flat_forward(model, args, kwargs, torch)
    model.forward = flat  # and not a module around it: the names of parameters stay
    buffer = io.BytesIO()
    try:
        with silence():
            torch.jit.save(torch.jit.trace(model, tuple(tensors), check_trace=False, strict=False), buffer)
    finally:
        del model.forward
    without_paths(buffer.getvalue(), path, torch)


def make_graph(o, model, args, kwargs, folder, stem, torch):
    """(the file's ending, how it was made)"""
    refused = None
    if o.graph in ("auto", "export"):
        try:
            export(model, args, kwargs, os.path.join(folder, stem + ".pt2"), torch)
            return ".pt2", "torch.export"
        except Exception as e:
            refused = f"torch.export refuses: {type(e).__name__}: {first_line(e)}"
            if o.graph == "export":
                raise Refusal(refused) from e
        with contextlib.suppress(OSError):
            os.remove(os.path.join(folder, stem + ".pt2"))
        print(f"{refused}\nrecording a trace instead: it holds for inputs that take the same branches", file=sys.stderr)
    try:
        trace(model, args, kwargs, os.path.join(folder, stem + ".torchscript.pt"), torch)
    except Exception as e:
        raise Refusal(f"torch.jit.trace refuses: {type(e).__name__}: {first_line(e)}"
                      + (f"; {refused}" if refused else "")) from e
    return ".torchscript.pt", "torch.jit.trace"


# ---- files ----------------------------------------------------------------------------------------------------------------

def own(tensor):
    return tensor.detach().cpu().clone().contiguous()


def reference_tensors(args, kwargs, outputs, traced, torch):
    """What goes into the reference, and the names of the arguments in the order in which the graph takes them."""
    leaves = torch.utils._pytree.tree_leaves((args, kwargs))
    if traced:
        leaves = [a for a in leaves if isinstance(a, torch.Tensor)]
    names = [f"input.{i}" if isinstance(a, torch.Tensor) else None for i, a in enumerate(leaves)]
    tensors = {name: own(a) for name, a in zip(names, leaves) if name}
    tensors.update({f"output.{i}": own(t) for i, t in enumerate(outputs)})
    return tensors, names


def write_reference(path, tensors, names, keywords, seed, torch):
    meta = {"producer": f"torch {torch.__version__.split('+')[0]} cpu eval", "inputs": json.dumps(names), "seed": str(seed)}
    if keywords:  # for --inputs; the checker knows the order
        meta["keywords"] = json.dumps(keywords)
    library("safetensors.torch").save_file(tensors, path, metadata=meta)


def write_weights(path, model):
    """Each name has its own copy, also of what is tied: both keys are there."""
    library("safetensors.torch").save_file({k: own(v) for k, v in model.state_dict().items()}, path, metadata={"format": "pt"})


ENDINGS = {"graph": (".pt2", ".torchscript.pt"), "reference": (".reference.safetensors",), "weights": (".safetensors",),
           "state": (".pt",)}


def refuse_to_overwrite(o):
    kinds = [k for k in ENDINGS if k in ("graph", "reference") or getattr(o, k)]
    there = [o.stem + e for k in kinds for e in ENDINGS[k] if os.path.lexists(o.stem + e)]
    if there and not o.force:
        raise Misuse(f"{', '.join(there)} exists; --force replaces it, -o STEM writes elsewhere")


def make_files(o, folder, torch):
    """All files, under their final names, in a folder of their own; the endings that were written."""
    stem = os.path.basename(o.stem)
    at = os.path.join(folder, stem)
    torch.manual_seed(o.seed)
    model, args, kwargs = make_model(o, torch)
    torch.manual_seed(o.seed + 1)  # the inputs don't depend on how many weights were drawn
    args, kwargs = choose_inputs(o, model, args, kwargs, torch)
    kwargs = in_order(model, kwargs)
    with torch.no_grad():
        outputs = [own(t) for t in run(model, args, kwargs, torch)]
        ending, how = make_graph(o, model, args, kwargs, folder, stem, torch)
    tensors, names = reference_tensors(args, kwargs, outputs, ending == ".torchscript.pt", torch)
    write_reference(at + ".reference.safetensors", tensors, names, list(kwargs), o.seed, torch)
    written = [ending, ".reference.safetensors"]
    if o.weights:
        write_weights(at + ".safetensors", model)
        written.append(".safetensors")
    if o.state:
        torch.save(model.state_dict(), at + ".pt")
        written.append(".pt")
    return written, how


def in_order(model, kwargs):
    """Keywords in the order of the signature, as an export takes them."""
    known = list(inspect.signature(model.forward).parameters)
    return dict(sorted(kwargs.items(), key=lambda item: known.index(item[0]) if item[0] in known else len(known)))


def put(o, folder, written):
    """Each file appears whole or not at all. A graph of the other kind that an earlier call left would be found first."""
    mask = os.umask(0)
    os.umask(mask)
    for ending in written:
        os.chmod(os.path.join(folder, os.path.basename(o.stem) + ending), 0o666 & ~mask)
        os.replace(os.path.join(folder, os.path.basename(o.stem) + ending), o.stem + ending)
    for ending in ENDINGS["graph"]:
        if ending not in written:
            with contextlib.suppress(FileNotFoundError):
                os.remove(o.stem + ending)


def parse_command(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", metavar="MODEL", help="MODULE:CALLABLE, FILE.py:CALLABLE, FILE.pt, torchvision:NAME, timm:NAME, transformers:NAME")
    p.add_argument("-o", "--output", dest="stem", metavar="STEM", help="where to write (default: beside FILE.pt, else the name)")
    given = p.add_mutually_exclusive_group()
    given.add_argument("--input", action="append", default=[], metavar="[NAME=]SPEC",
                   help="an argument, in order, or a keyword: f32:1,3,224,224, i64:2,16:1000 (integers below 1000), bool:2,16, none")
    given.add_argument("--inputs", metavar="FILE.safetensors", help="arguments input.0, input.1, ..., other names are keywords")
    p.add_argument("--load", metavar="FILE", help="weights for the model: a state dict (.pt, .safetensors)")
    p.add_argument("--graph", choices=("auto", "export", "trace"), default="auto", help="how to record the graph (default: auto)")
    p.add_argument("--weights", action="store_true", help="write STEM.safetensors, too")
    p.add_argument("--state", action="store_true", help="write STEM.pt, a state dict, too")
    p.add_argument("--seed", type=int, default=0, help="of untrained weights and of inputs (default: 0)")
    p.add_argument("--path", action="append", default=[], metavar="FOLDER", help="where Python finds modules, besides the current folder")
    p.add_argument("--trust", action="store_true", help="load a whole module from FILE.pt, which executes code that it names")
    p.add_argument("--force", action="store_true", help="replace files that exist")
    o = p.parse_args(argv)
    o.stem = o.stem or stem_of(o.model)
    return o


def work(o):
    refuse_to_overwrite(o)
    sys.path[:0] = [*o.path, os.getcwd()]
    torch = library("torch")
    library("safetensors.torch")
    torch.utils._pytree = importlib.import_module("torch.utils._pytree")
    target = os.path.dirname(os.path.abspath(o.stem))
    try:
        folder = tempfile.mkdtemp(prefix=".ckpt-reference.", dir=target)
    except OSError as e:
        raise Refusal(f"{target}: {e.strerror}") from e
    try:
        written, how = make_files(o, folder, torch)
        put(o, folder, written)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for ending in written:
        print(o.stem + ending + (f"  ({how})" if ending in ENDINGS["graph"] else ""))


def stop(number, _frame):
    raise KeyboardInterrupt(number)


def main(argv):
    o = parse_command(argv)
    signal.signal(signal.SIGTERM, stop)
    try:
        work(o)
    except Refusal as e:
        print(f"ckpt-reference.py: {e}", file=sys.stderr)
        return 2 if isinstance(e, Misuse) else 1
    except KeyboardInterrupt:
        print("ckpt-reference.py: interrupted, nothing was written", file=sys.stderr)
        return 130
    except Exception as e:
        print(f"ckpt-reference.py: {type(e).__name__}: {first_line(e)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
