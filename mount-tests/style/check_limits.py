#!/usr/bin/env python3
"""check_limits.py ROOT: the table of limits in docs/formats.md says what the headers say: each name of
formats/limits.h is in it, each name in it is defined, with that value."""
import re
import sys

import sources

HEADER, PAGE = "formats/limits.h", "docs/formats.md"
DEFINE = re.compile(r"^#define (CKPT_\w+) +([^/\n]+?) *(?:/\*.*)?$", re.M)
ROW = re.compile(r"^\| (`CKPT_[^|]*) \| ([^|]*) \| [^|]*\|$", re.M)
NUMBER = re.compile(r"\(uint64_t\)|(\d[0-9A-Fa-fx]*)[uUlL]*")
UNITS = {"": 1, "MB": 10**6, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def defined(text):
    """{name: value} of the macros; None: it is no number."""
    out = {}
    for name, value in DEFINE.findall(text):
        value = NUMBER.sub(lambda m: m[1] or "", value)
        out[name] = eval(value) if re.fullmatch(r"[\d()<* +-]+", value) else None
    return out


def number(text):
    """1,048,576 or 16 MiB; None: neither."""
    m = re.fullmatch(r"([\d,]+) ?(\w*)", text)
    return int(m[1].replace(",", "")) * UNITS[m[2]] if m and m[2] in UNITS else None


def documented(text):
    """(names, values) of each row of the table."""
    for names, values in ROW.findall(text):
        yield re.findall(r"`(\w+)`", names), [number(v) for v in values.split("; ")]


def complaints(limits, everything, page):
    """limits, everything: {name: value}, of the one header and of all."""
    seen = set()
    for names, values in documented(page):
        if len(names) != len(values):
            yield f"{PAGE}: {len(names)} names and {len(values)} values: {', '.join(names)}"
            continue
        for name, value in zip(names, values):
            if name in seen:
                yield f"{PAGE}: {name} is there twice"
            seen.add(name)
            if name not in everything:
                yield f"{PAGE}: {name} is not defined in any header"
            elif value is None or everything[name] != value:
                yield f"{PAGE}: {name} is {value}, but {everything[name]} where it is defined"
    for name in limits:
        if name not in seen:
            yield f"{HEADER}: {name} ({limits[name]}) is not in the table of {PAGE}"


def main():
    root = sys.argv[1]
    everything = {}
    for path in sources.c_files(root):
        if path.endswith(".h"):
            everything.update(defined(sources.read(root, path)))
    found = list(complaints(defined(sources.read(root, HEADER)), everything, sources.read(root, PAGE)))
    print("\n".join(found))
    print(f"{len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
