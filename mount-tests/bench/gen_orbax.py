#!/usr/bin/env python3
"""gen_orbax.py DIR: the checkpoints that bench_orbax.py measures, saved by Orbax itself (needs jax and orbax-checkpoint).

    DIR/llama_f16.orbax    20 arrays shaped as a LLaMA of two layers, float16, 1072 MB in one database
    DIR/many.orbax         10,000 arrays in one database
    DIR/many_plain.orbax   the same, a folder each (use_ocdbt=False)

The names and shapes of llama_f16 are those of gen_data.py. 1.3 GB; what is there already is kept.
"""
import logging
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
logging.disable(logging.WARNING)

import numpy as np
import orbax.checkpoint as ocp

HIDDEN, MLP, VOCABULARY, LAYERS, MANY = 4096, 11008, 32000, 2, 10_000


def llama(random):
    def weight(*shape):
        return (random.standard_normal(shape, np.float32) * 0.02).astype(np.float16)

    def norm():
        return {"weight": weight(HIDDEN) + np.float16(1)}

    def layer():
        return {"self_attn": {f"{n}_proj": {"weight": weight(HIDDEN, HIDDEN)} for n in "qkvo"},
                "mlp": {"gate_proj": {"weight": weight(MLP, HIDDEN)}, "up_proj": {"weight": weight(MLP, HIDDEN)},
                        "down_proj": {"weight": weight(HIDDEN, MLP)}},
                "input_layernorm": norm(), "post_attention_layernorm": norm()}

    return {"model": {"embed_tokens": {"weight": weight(VOCABULARY, HIDDEN)},
                      "layers": {str(i): layer() for i in range(LAYERS)}, "norm": norm()}}


def many(random):
    """As networks are: a layer's kernel, and small vectors beside it, which a database keeps in its nodes."""
    def part(i):
        return random.standard_normal((32, 32) if i % 4 == 0 else (32,), np.float32)

    return {"params": {f"layer_{i}": {f"part_{k}": part(k) for k in range(10)} for i in range(MANY // 10)}}


def save(path, make, seed, **options):
    if os.path.exists(path):
        return
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)).save(path, make(np.random.default_rng(seed)))
    files = [os.path.join(folder, f) for folder, _, names in os.walk(path) for f in names]
    print(path, len(files), "files,", sum(map(os.path.getsize, files)), "bytes", flush=True)


def main():
    out = os.path.abspath(sys.argv[1])
    os.makedirs(out, exist_ok=True)
    save(f"{out}/llama_f16.orbax", llama, 1)
    save(f"{out}/many.orbax", many, 2)
    save(f"{out}/many_plain.orbax", many, 2, use_ocdbt=False)


if __name__ == "__main__":
    main()
