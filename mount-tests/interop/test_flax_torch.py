#!/usr/bin/env python3
"""PyTorch as the judge of dialect=flax with layout=torch: the models of fixtures/flax load by load_state_dict and compute what flax
recorded. Needs a Python with torch and safetensors: python3 itself, or the one that CKPT_TORCH_PYTHON names."""
import math
import os
import sys
import tempfile

import peer
from mounted import fixture, options, run

try:
    import torch
    from safetensors.torch import load_file
    from torch import nn
except ImportError as missing:
    if os.environ.get("CKPT_TORCH_PYTHON"):
        python = os.environ.pop("CKPT_TORCH_PYTHON")
        os.execv(python, [python, *sys.argv])
    peer.skip(f"{missing}; CKPT_TORCH_PYTHON=PATH names a Python that has torch and safetensors")

TOLERANCE = 1e-5
CHANNEL_FIRST = ("conv", "up", "group_norm", "batch_norm")
LINEN = {"DenseGeneral_0": "project", "ConvTranspose_0": "up1", "ConvTranspose_1": "up2", "ConvTranspose_2": "up3", "ConvTranspose_3": "up4"}
# As in test_burn_flax.py.
CASES = [("model", "expected", [f"map=^{old}\\.=>{new}." for old, new in LINEN.items()], "mgu"),
         ("nnx", "expected_nnx", [r"map=^(lstm|fast|gru|simple)\.cell\.=>$1.", "kind=^up[123]$=>conv_transpose", "kind=^project$=>dense:1"], "lora")]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        return x + self.norm(self.fc(x))


def build(more):
    of_one = {"mgu": lambda: nn.GRU(8, 6, batch_first=True), "lora": lambda: nn.Linear(8, 6)}
    return nn.ModuleDict({
        "dense": nn.Linear(8, 6), "bare": nn.Linear(8, 4, bias=False), "heads": nn.Linear(8, 6), "project": nn.Linear(6, 4),
        "general": nn.Linear(6, 4), more: of_one[more](),
        "conv1": nn.Conv1d(8, 4, 3, padding=1), "conv2": nn.Conv2d(4, 6, (3, 2), groups=2), "conv3": nn.Conv3d(2, 2, 2),
        "up1": nn.ConvTranspose1d(8, 3, 3, 2), "up2": nn.ConvTranspose2d(4, 5, (2, 3), 2),
        "up3": nn.ConvTranspose3d(3, 2, (2, 3, 2), (1, 2, 1)), "up4": nn.ConvTranspose2d(4, 5, (2, 3), 2),
        "embed": nn.Embedding(10, 6), "layer_norm": nn.LayerNorm(8), "group_norm": nn.GroupNorm(2, 8), "rms_norm": nn.RMSNorm(8, eps=1e-5),
        "batch_norm": nn.BatchNorm1d(8), "attention": nn.MultiheadAttention(8, 2, batch_first=True),
        "lstm": nn.LSTM(8, 6, batch_first=True), "fast": nn.LSTM(8, 6, batch_first=True),
        "gru": nn.GRU(8, 6, batch_first=True), "simple": nn.RNN(8, 6, batch_first=True), "prelu": nn.PReLU(), "layers": nn.Sequential(Block(), Block(), Block())})


def ramp(*shape):
    return torch.sin(0.37 * torch.arange(math.prod(shape), dtype=torch.float64)).float().reshape(shape)


def output(model, name):
    """What the layer gives, as flax has it."""
    x, image = ramp(2, 5, 8), ramp(2, 3, 4, 4)
    own = {"conv2": ramp(2, 5, 4, 4), "conv3": ramp(1, 3, 3, 3, 2), "up2": image, "up4": image,
           "up3": ramp(1, 2, 2, 3, 3), "embed": 3 * torch.arange(10).reshape(2, 5) % 10}
    x = model["heads"](x) if name in ("project", "general") else own.get(name, x)
    if name.startswith(CHANNEL_FIRST):
        return model[name](x.movedim(-1, 1)).movedim(1, -1)
    y = model[name](x, x, x) if name == "attention" else model[name](x)
    return y[0] if isinstance(y, tuple) else y


def check(source, expected, opts, more):
    """The names of the layers that are off."""
    model, failed = build(more).eval(), []
    recorded = {LINEN.get(k[: -len(".output")], k[: -len(".output")]): v for k, v in load_file(fixture("flax", expected + ".safetensors")).items()
                if k.endswith(".output")}
    assert sorted(recorded) == sorted(model), sorted(set(recorded) ^ set(model))
    with tempfile.TemporaryDirectory() as d, torch.no_grad():
        out = os.path.join(d, "model.safetensors")
        p = run("--export", out, *options("layout=torch", "strict", *opts), fixture("flax", source))
        assert p.returncode == 0, p.stderr
        model.load_state_dict(load_file(out))
        for name in model:
            off = (output(model, name) - recorded[name]).abs().max().item()
            failed += [name] * (not off <= TOLERANCE)
            print(f"{'ok  ' if off <= TOLERANCE else 'FAIL'} {source} {name} off by {off:.1e}", flush=True)
    return failed


def main():
    sys.exit(1 if [check(*case) for case in CASES] != [[], []] else 0)


main()
