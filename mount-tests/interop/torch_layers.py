"""Run by a Python that has torch: each layer of fixtures/burn-nn takes the tensors of FOLDER/NAME.safetensors, all of
them and no other (strict), and computes what reference.json says. One line a layer; exit 1 if one is wrong.

    torch_layers.py FOLDER REFERENCE.json
"""
import json
import math
import os
import sys

import torch
from safetensors.torch import load_file
from torch import nn

TOLERANCE = 1e-5
RECURRENT = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def ramp(*shape):
    n = math.prod(shape)
    return torch.tensor([math.sin(0.37 * i) for i in range(n)], dtype=torch.float64).float().reshape(shape)


def transformer(kind, r):
    layer, stack = {"encoder": (nn.TransformerEncoderLayer, nn.TransformerEncoder),
                    "decoder": (nn.TransformerDecoderLayer, nn.TransformerDecoder)}[kind]
    one = layer(r["d"], r["heads"], r["ff"], dropout=0.0, activation=r["activation"], batch_first=True,
                norm_first=r["norm"] == "pre")
    more = {"enable_nested_tensor": False} if kind == "encoder" else {}
    inputs = [ramp(2, 5, r["d"])] + ([ramp(2, 7, r["d"]).flip(1)] if kind == "decoder" else [])
    return stack(one, r["layers"], **more), inputs


def norms(d):
    return nn.Sequential(nn.Conv1d(5, 4, 3, padding=1), nn.InstanceNorm1d(4, affine=True), nn.PReLU(4), nn.GroupNorm(2, 4),
                         nn.BatchNorm1d(4), nn.ConvTranspose1d(4, 3, 2), nn.Flatten(), nn.Linear(3 * (d + 1), 4),
                         nn.RMSNorm(4), nn.LayerNorm(4), nn.Linear(4, 4))


def layer(name, r):
    """The module as make_burn_nn.py made it, and its inputs."""
    kind, _, form = name.partition("_")
    if kind in ("encoder", "decoder"):
        return transformer(kind, r)
    if kind in RECURRENT:
        return (RECURRENT[kind](r["input"], r["hidden"], num_layers=r.get("layers", 1), batch_first=True,
                                bidirectional=form == "bi"), [ramp(2, 5, r["input"])])
    if name == "mha":
        return nn.MultiheadAttention(r["d"], r["heads"], batch_first=True), [ramp(2, 5, r["d"])] * 3
    if name == "mha_kv":
        return (nn.MultiheadAttention(r["d"], r["heads"], kdim=r["kdim"], vdim=r["vdim"], batch_first=True),
                [ramp(2, 5, r["d"]), ramp(2, 7, r["kdim"]), ramp(2, 7, r["vdim"])])
    assert name == "norms", f"{name}: no such layer here"
    return norms(r["d"]), [ramp(2, 5, r["d"])]


def wrong(path, name, r):
    """None, or what is wrong."""
    module, inputs = layer(name, r)
    try:
        module.load_state_dict(load_file(path), strict=True)
    except RuntimeError as e:
        return str(e)
    module.eval()
    with torch.no_grad():
        y = module(*inputs)
    y = y if isinstance(y, torch.Tensor) else y[0]
    worst = (y.flatten() - torch.tensor(r["y"])).abs().max().item()
    return None if list(y.shape) == r["y_shape"] and worst <= TOLERANCE else f"differs by {worst}"


def main(folder, reference):
    torch.set_num_threads(1)
    with open(reference) as f:
        layers = json.load(f)
    bad = 0
    for name, r in layers.items():
        why = wrong(os.path.join(folder, name + ".safetensors"), name, r)
        bad += why is not None
        print("FAIL" if why else "ok  ", name, why or "")
    print(f"{len(layers) - bad} of {len(layers)} passed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
