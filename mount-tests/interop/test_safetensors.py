#!/usr/bin/env python3
"""Python's safetensors and numpy on a mounted model: lazily, whole, mapped, by eight processes at once; also past the page cache."""
import subprocess
import sys

import peer
from mounted import Mount, fixture, need_fuse

SOURCES = ["a1.safetensors", "a1_state.pt", "a1_full.pt", "a1_ckpt.pt", "a1_full_legacy.pt"]
READERS = 8
RUNS = [(s,) for s in SOURCES] + [(s, "direct_io") for s in SOURCES[1:3]]


def main():
    need_fuse()
    python = peer.python_with(["numpy==2.2.6", "safetensors==0.8.0"])
    failed = 0
    for source, *options in RUNS:
        mount = Mount(fixture("a1", source), *options)
        with mount as m:
            if mount.said:
                print(f"skipped: {mount.said.strip()}")
                continue
            command = [python, peer.HERE + "/read_safetensors.py", m, fixture("a1", "reference.json"),
                       "model_state_dict" if "ckpt" in source else ""]
            readers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                       for _ in range(READERS)]
            for reader in readers:
                said, _ = reader.communicate(timeout=300)
                if reader.returncode != 0:
                    failed += 1
                    print(f"FAIL {source}: {said}")
        print(f"{' '.join([source, *options])}: {READERS} processes", flush=True)
    print(f"{len(RUNS) * READERS - failed} of {len(RUNS) * READERS} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
