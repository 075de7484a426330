#!/usr/bin/env python3
"""--inspect as a person sees it: a table as wide as the terminal, colours on a terminal only, names that can't harm it,
and quick with ten thousand tensors."""
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

from mounted import BINARY, fixture, run

SECONDS_MAX = 5  # with sanitizers on a busy machine; a plain build takes 0.1 s
DEEP = "encoder.layers.0.self_attention.query_key_value_projection_of_the_whole_block.weight"


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    return {**kept, "TERM": "xterm", **more}


def piped(source, **env):
    p = run("--inspect", source, env=environment(**env))
    assert p.returncode == 0, p.stderr
    return p.stdout


def on_terminal(source, **env):
    """What the program writes when its stdout is a terminal."""
    master, slave = pty.openpty()
    p = subprocess.Popen([BINARY, "--inspect", source], stdout=slave, stdin=slave, env=environment(**env))
    os.close(slave)
    out = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        out += block
    os.close(master)
    assert p.wait() == 0
    return out.decode()


def columns(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def table(text):
    """The lines above the summary."""
    lines = text.replace("\r", "").split("\n")
    return lines[: next(i for i, line in enumerate(lines) if re.match(r".+: [\w-]+, \d+ tensors?, \d+ values?", line))]


def safetensors(folder, keys):
    header = {k: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, k in enumerate(keys)}
    text = json.dumps(header, ensure_ascii=False).encode()
    path = os.path.join(folder, "model.safetensors")
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + bytes(4 * len(keys)))
    return path


def test_rows(folder):
    text = piped(fixture("pt", "a1_full.pt"))
    assert re.search(r"^NAME +DTYPE +SHAPE +SIZE +FROM$", text, re.M), text
    assert re.search(r"^fc1\n  weight +F32 +\[4, 8\] +128 bytes +transpose$", text, re.M), text
    assert re.search(r"^F32 +4 tensors +268 bytes$", text, re.M), text
    assert re.search(r"^  inert +torch\.nn\.modules\.linear\.Linear +2 calls$", text, re.M), text
    summary = run("--cat", "summary.txt", fixture("pt", "a1_full.pt")).stdout
    assert text.endswith("\n\n" + summary), "the summary is the lower part"


def test_dangers(folder):
    text = piped(fixture("pt", "evil_system_in_dict.pt"))
    assert re.search(r"^  dangerous +os\.system +1 call +runs commands and changes files$", text, re.M), text
    assert "1 suspicious call kept inert, never executed: os.system" in text, text
    shutil.copy(fixture("pt", "evil_system_in_dict.pt"), os.path.join(folder, "part.bin"))
    with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": {"w": "part.bin"}}, f)
    assert piped(folder).count("suspicious") == 1, "the names of all shards count, once"


def test_widths(folder):
    source = safetensors(folder, [DEEP, "中文中文中文中文中文中文中文.weight", "h" * 200 + ".bias", "a\x1b[31mb"])
    for width in (40, 60, 80, 100, 137, 250):
        lines = table(piped(source, COLUMNS=str(width)))
        worst = max(lines, key=columns)
        assert columns(worst) <= width, f"{columns(worst)} columns on {width}: {worst!r}"
    assert max(map(columns, table(piped(source)))) <= 100
    assert "\x1b" not in piped(source), "a name must not reach the terminal as an escape"
    assert "…" in piped(source, COLUMNS="60")
    objects = table(piped(fixture("pt", "object_state.pt"), COLUMNS="60"))
    assert max(map(columns, objects)) <= 60, objects


def test_colours(folder):
    source = fixture("pt", "a1_full.pt")
    assert "\x1b" not in piped(source)
    if not os.path.exists("/dev/pts/ptmx"):
        print("     not tried on a terminal: /dev/pts is not mounted here")
        return
    assert "\x1b[" in on_terminal(source)
    assert "\x1b" not in on_terminal(source, NO_COLOR="1")
    assert "\x1b" not in on_terminal(source, TERM="dumb")
    assert re.sub(r"\x1b\[[\d;]*m", "", on_terminal(source, COLUMNS="100")).replace("\r", "") == piped(source)


def test_many(folder):
    source = safetensors(folder, [f"layers.{i // 4}.{'qkvo'[i % 4]}" for i in range(10000)])
    start = time.monotonic()
    text = piped(source)
    seconds = time.monotonic() - start
    print(f"10,000 tensors in {seconds:.2f} s")
    assert text.count("\n  ") >= 10000
    assert seconds < SECONDS_MAX, f"{seconds} s"


def main():
    for test in (test_rows, test_dangers, test_widths, test_colours, test_many):
        with tempfile.TemporaryDirectory(prefix="ckpt-test.") as folder:
            test(folder)
        print("ok  ", test.__name__, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
