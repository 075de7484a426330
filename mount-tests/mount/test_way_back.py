"""Weights that were trained in burn, for PyTorch: layout=torch on what layout=burn wrote gives PyTorch's tensors again, to
the bit, for every checkpoint among the fixtures; and a burn-saved file without any option stays as it is."""
import glob
from mounted import *

# What a fixture loses on the way to burn, and so cannot have again. Nothing else may differ.
WEIGHT_NORM = re.compile(r"(.*\.)?(weight_[gv]|parametrizations\.weight\.original[01])$")


def export(out, source, *opts):
    return run("--export", out, *options(*opts), source)


def there_and_back(d, source, *opts):
    """The tensors in PyTorch's layout as the source has them, and as they come back from burn's; None: it has none."""
    torch, burn, back = (os.path.join(d, n + ".safetensors") for n in ("torch", "burn", "back"))
    if export(torch, source, "layout=torch", "prefix=keep").returncode:
        return None
    p = export(burn, source, "contiguous=off", "prefix=keep", *opts)
    assert p.returncode == 0, (source, p.stderr)
    p = export(back, burn, "layout=torch", "prefix=keep", *norm_first(source))
    assert p.returncode == 0, (source, p.stderr)
    return safetensors(torch)[0], safetensors(back)[0]


def norm_first(source):
    """What burn's names do not say of a layer with norm_first=True."""
    kind = os.path.basename(source).split("_pre_")[0]
    return [rf"kind=(^|\.)layers\.\d+$=>{kind}_layer:pre"] if kind in ("encoder", "decoder") else []


def differences(a, b):
    """Keys, as PyTorch has them, that are missing, new or not the same."""
    lost = {k for k in a if k not in b}
    fused = {k for k in lost if WEIGHT_NORM.match(k)}
    made = {WEIGHT_NORM.match(k).group(1) or "" for k in fused}
    new = {k for k in b if k not in a and k[: k.rfind(".") + 1] not in made}
    return sorted((lost - fused) | new | {k for k in a if k in b and a[k] != b[k]})


def sources(folder):
    names = sorted(glob.glob(fixture(folder, "*")))
    huge = "bad_dims_giant_expand.pt"  # a broadcast to terabytes
    return [n for n in names if not n.endswith((".json", ".py", ".md", ".reference.safetensors", huge))]


def check(folder, least, *opts):
    seen, bad = 0, []
    with tempfile.TemporaryDirectory() as d:
        for source in sources(folder):
            both = there_and_back(d, source, *opts)
            if both:
                seen += 1
                bad += [f"{source}: {k}" for k in differences(*both)]
    assert not bad, "\n".join(bad)
    assert seen >= least, f"only {seen} of the checkpoints in {folder} have tensors"


def test_a1():
    check("a1", 15)


def test_burn_nn():
    check("burn-nn", 2)


def test_pt():
    check("pt", 80)


def test_safetensors():
    check("safetensors", 10)


def test_as_burn_stores_adapter_leaves_it():
    for folder in ("a1", "burn-nn"):
        check(folder, 2, "modules=store")


if __name__ == "__main__":
    main(__name__)
