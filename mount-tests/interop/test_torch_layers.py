#!/usr/bin/env python3
"""Random recurrent, attention and Transformer layers, as PyTorch itself makes and saves them, against their conversion to burn
written down here as plainly as can be: from the whole module, from its state dict, and from its state dict beside a graph.

Needs a Python with torch, safetensors and numpy: python3 itself, or the one that CKPT_TORCH_PYTHON names.
"""
import os
import random
import re
import sys
import tempfile
import warnings

import peer
from mounted import options, run, safetensors

try:
    import torch
    from safetensors.torch import save_file
    from torch import nn

    warnings.filterwarnings("ignore")  # the exporter's, of its own doing
except ImportError as missing:
    if os.environ.get("CKPT_TORCH_PYTHON"):
        python = os.environ.pop("CKPT_TORCH_PYTHON")
        os.execv(python, [python, *sys.argv])
    peer.skip(f"{missing}; CKPT_TORCH_PYTHON=PATH names a Python that has torch and safetensors")

ROUNDS = int(os.environ.get("CKPT_ROUNDS", "60"))
GATES = {nn.LSTM: ["input_gate", "forget_gate", "cell_gate", "output_gate"], nn.GRU: ["reset_gate", "update_gate", "new_gate"],
         nn.RNN: ["gate"]}
NORM_NAMES = {(nn.TransformerEncoderLayer, False): ("norm_1", "norm_2"), (nn.TransformerEncoderLayer, True): ("norm_2", "norm_1"),
              (nn.TransformerDecoderLayer, False): ("norm_1", "norm_2", "norm_3"),
              (nn.TransformerDecoderLayer, True): ("norm_3", "norm_1", "norm_2")}


# ---- what burn has of a module: {key: tensor} -----------------------------------------------------------------------------

def linear(out, name, weight, bias):
    out[name + ".weight"] = weight.T
    if bias is not None:
        out[name + ".bias"] = bias


def recurrent(m, at, out):
    if m.proj_size:  # burn's Lstm has no projection: PyTorch's tensors stay
        out.update({at + k: v for k, v in m.state_dict().items()})
        return
    for layer in range(m.num_layers):
        for reverse in (False, True)[: 1 + m.bidirectional]:
            place = at + (f"{layer}." if m.num_layers > 1 else "") + (("reverse." if reverse else "forward.") if m.bidirectional else "")
            for what, name in (("ih", "input_transform"), ("hh", "hidden_transform")):
                end = f"_{what}_l{layer}" + ("_reverse" if reverse else "")
                weights = getattr(m, "weight" + end).chunk(len(GATES[type(m)]))
                biases = getattr(m, "bias" + end).chunk(len(weights)) if m.bias else [None] * len(weights)
                for gate, weight, bias in zip(GATES[type(m)], weights, biases):
                    linear(out, f"{place}{gate}.{name}", weight, bias)


def attention(m, at, out):
    weights = m.in_proj_weight.chunk(3) if m.in_proj_weight is not None else (m.q_proj_weight, m.k_proj_weight, m.v_proj_weight)
    biases = m.in_proj_bias.chunk(3) if m.in_proj_bias is not None else [None] * 3
    for name, weight, bias in zip(("query", "key", "value"), weights, biases):
        linear(out, at + name, weight, bias)
    linear(out, at + "output", m.out_proj.weight, m.out_proj.bias)
    if m.bias_k is not None:
        out[at + "bias_k"], out[at + "bias_v"] = m.bias_k, m.bias_v


def norm(out, name, m):
    out[name + ".gamma"] = m.weight
    if m.bias is not None:
        out[name + ".beta"] = m.bias


def layer(m, at, out):
    decoder = isinstance(m, nn.TransformerDecoderLayer)
    attention(m.self_attn, at + ("self_attn." if decoder else "mha."), out)
    if decoder:
        attention(m.multihead_attn, at + "cross_attn.", out)
    linear(out, at + "pwff.linear_inner", m.linear1.weight, m.linear1.bias)
    linear(out, at + "pwff.linear_outer", m.linear2.weight, m.linear2.bias)
    for number, name in enumerate(NORM_NAMES[type(m), m.norm_first], 1):
        norm(out, at + name, getattr(m, f"norm{number}"))


def to_burn(m, at, out):
    if isinstance(m, tuple(GATES)):
        recurrent(m, at, out)
    elif isinstance(m, nn.MultiheadAttention):
        attention(m, at, out)
    elif isinstance(m, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        layer(m, at, out)
    elif isinstance(m, nn.Linear):
        linear(out, at[:-1], m.weight, m.bias)
    elif isinstance(m, nn.LayerNorm):
        norm(out, at[:-1], m)
    else:
        for name, child in m.named_children():
            to_burn(child, at + name + ".", out)
    return out


# ---- random layers --------------------------------------------------------------------------------------------------------

def some_recurrent(r):
    cls = r.choice(list(GATES))
    more = {"proj_size": 1} if cls is nn.LSTM and r.random() < 0.15 else {}
    return cls(r.randint(1, 5), r.randint(2, 6), num_layers=r.randint(1, 3), bias=r.random() < 0.7, batch_first=True,
               bidirectional=r.random() < 0.5, **more)


def some_attention(r):
    heads = r.randint(1, 3)
    width = heads * r.randint(1, 3)
    more = {"kdim": r.randint(1, 5), "vdim": r.randint(1, 5)} if r.random() < 0.3 else {}
    return nn.MultiheadAttention(width, heads, bias=r.random() < 0.7, add_bias_kv=r.random() < 0.2, batch_first=True, **more)


def some_stack(r):
    decoder, heads = r.random() < 0.5, r.randint(1, 2)
    width = heads * r.randint(1, 3)
    cls = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
    one = cls(width, heads, r.randint(1, 7), dropout=0.0, batch_first=True, norm_first=r.random() < 0.5, bias=r.random() < 0.7)
    final = nn.LayerNorm(width) if r.random() < 0.3 else None
    if decoder:
        return nn.TransformerDecoder(one, r.randint(1, 3), norm=final)
    return nn.TransformerEncoder(one, r.randint(1, 3), norm=final, enable_nested_tensor=False)


def some_model(r):
    """One such layer, or some in a module that holds them."""
    make = lambda: r.choice((some_recurrent, some_attention, some_stack))(r)
    model = make() if r.random() < 0.6 else nn.ModuleDict({name: nn.Sequential(make()) for name in r.sample("abcdef", r.randint(1, 3))})
    with torch.no_grad():
        for p in model.parameters():
            p.uniform_(-1, 1)
    return model.eval()


def order_of_norms(model):
    """-o kind= for each Transformer layer: what its state dict does not say."""
    for path, m in model.named_modules():
        if isinstance(m, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            kind = "decoder_layer" if isinstance(m, nn.TransformerDecoderLayer) else "encoder_layer"
            yield f"kind=^{re.escape(path)}$=>{kind}:{'pre' if m.norm_first else 'post'}"


def graph_inputs(model):
    if isinstance(model, nn.MultiheadAttention):
        return torch.rand(2, 4, model.embed_dim), torch.rand(2, 3, model.kdim), torch.rand(2, 3, model.vdim)
    if isinstance(model, (nn.TransformerEncoder, nn.TransformerDecoder)):
        width = model.layers[0].linear1.in_features
        return tuple(torch.rand(2, 4, width) for _ in range(1 + isinstance(model, nn.TransformerDecoder)))
    return (torch.rand(2, 4, model.input_size),) if isinstance(model, tuple(GATES)) else None


# ---- the comparison -------------------------------------------------------------------------------------------------------

def compare(source, want, *opts):
    out = source + ".out.safetensors"
    p = run("--export", out, *options(*opts), source)
    assert p.returncode == 0, p.stderr
    got, _ = safetensors(out)
    assert got.keys() == want.keys(), f"{source}: {sorted(got.keys() ^ want.keys())}"
    for key, (_, shape, data) in got.items():
        t = want[key].detach().contiguous()
        assert shape == list(t.shape) and data == t.numpy().tobytes(), f"{source}: {key}"


def one_round(seed, folder):
    r = random.Random(seed)
    torch.manual_seed(seed)
    model = some_model(r)
    want = to_burn(model, "", {})
    at = lambda name: os.path.join(folder, name)
    torch.save(model, at("full.pt"))
    compare(at("full.pt"), want)
    torch.save(model.state_dict(), at("state.pt"))
    kinds = list(order_of_norms(model))
    compare(at("state.pt"), want, *kinds)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, at("alone.safetensors"))
    compare(at("alone.safetensors"), want, *kinds)
    inputs = graph_inputs(model) if seed % 4 == 0 else None
    if inputs:
        os.replace(at("alone.safetensors"), at("graph.safetensors"))
        torch.export.save(torch.export.export(model, inputs, strict=False), at("graph.pt2"))
        compare(at("graph.safetensors"), want)
    return type(model).__name__ + (" and its graph" if inputs else "")


def main():
    torch.set_num_threads(1)
    first, failed = int(os.environ.get("CKPT_SEED", "1")), 0
    for seed in range(first, first + ROUNDS):
        with tempfile.TemporaryDirectory(prefix="ckpt-test.") as folder:
            try:
                print(f"ok   CKPT_SEED={seed}: {one_round(seed, folder)}", flush=True)
            except AssertionError as e:
                failed += 1
                print(f"FAIL CKPT_SEED={seed} CKPT_ROUNDS=1: {e}", flush=True)
    print(f"{ROUNDS - failed} of {ROUNDS} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
