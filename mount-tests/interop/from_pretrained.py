"""from_pretrained.py make FOLDER: model directories of two small models, in each form that the hub has, and their state.
from_pretrained.py load MOUNT NAME FOLDER: loads NAME's model from a mount and compares it with that state.
Needs torch and transformers; run by test_transformers.py."""
import json, os, shutil, sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import AutoModel, BertConfig, GPT2Config


def make_cache(folder, source):
    """snapshots/REVISION/NAME is a link to ../../blobs/HASH."""
    snapshot = os.path.join(folder, "models--x", "snapshots", "1")
    os.makedirs(snapshot), os.makedirs(os.path.join(folder, "models--x", "blobs"))
    for i, name in enumerate(os.listdir(source)):
        shutil.copy(os.path.join(source, name), os.path.join(folder, "models--x", "blobs", f"{i:040x}"))
        os.symlink(f"../../blobs/{i:040x}", os.path.join(snapshot, name))
    return snapshot


def make_pickles(folder, source, state, n):
    os.mkdir(folder)
    shutil.copy(os.path.join(source, "config.json"), folder)
    keys, weight_map = list(state), {}
    for i in range(n):
        name = f"pytorch_model-{i + 1:05}-of-{n:05}.bin" if n > 1 else "pytorch_model.bin"
        part = keys[i * len(keys) // n : (i + 1) * len(keys) // n]
        torch.save({k: state[k] for k in part}, os.path.join(folder, name))
        weight_map.update(dict.fromkeys(part, name))
    if n > 1:
        with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w") as f:
            json.dump({"metadata": {}, "weight_map": weight_map}, f)
    return folder


def make(folder):
    """Prints {name: {form: directory}}."""
    torch.manual_seed(0)
    configs = {"bert": BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100),
               "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=64, bos_token_id=0, eos_token_id=0)}
    found = {}
    for name, config in configs.items():
        model, at = AutoModel.from_config(config), os.path.join(folder, name)
        torch.save(model.state_dict(), at + ".state")
        model.save_pretrained(at), model.save_pretrained(at + "-shards", max_shard_size="40KB")
        found[name] = {"one file": at, "shards": at + "-shards", "a hub's cache": make_cache(at + "-cache", at),
                       "one pickle": make_pickles(at + "-pickle", at, model.state_dict(), 1), "pickles": make_pickles(at + "-pickles", at, model.state_dict(), 2)}
    print(json.dumps(found))


def load(mount, name, folder):
    model, info = AutoModel.from_pretrained(mount, output_loading_info=True)
    want, got = torch.load(os.path.join(folder, name + ".state")), model.state_dict()
    problems = [f"{k}: {v}" for k, v in info.items() if v] + [k for k in want if k not in got or not torch.equal(want[k], got[k])]
    sys.exit("\n".join(problems) if problems or set(want) != set(got) else 0)


if __name__ == "__main__":
    {"make": make, "load": load}[sys.argv[1]](*sys.argv[2:])
