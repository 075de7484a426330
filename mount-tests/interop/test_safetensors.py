#!/usr/bin/env python3
"""Python's safetensors and numpy on a mounted model: lazily, whole, mapped, by eight processes at once."""
import subprocess
import sys

import peer
from mounted import Mount, fixture, need_fuse

SOURCES = ["a1.safetensors", "a1_state.pt", "a1_full.pt", "a1_ckpt.pt", "a1_full_legacy.pt"]
READERS = 8


def main():
    need_fuse()
    python = peer.python_with(["numpy==2.2.6", "safetensors==0.8.0"])
    failed = 0
    for source in SOURCES:
        with Mount(fixture("a1", source)) as m:
            command = [python, peer.HERE + "/read_safetensors.py", m, fixture("a1", "reference.json"),
                       "model_state_dict" if "ckpt" in source else ""]
            readers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                       for _ in range(READERS)]
            for reader in readers:
                said, _ = reader.communicate(timeout=300)
                if reader.returncode != 0:
                    failed += 1
                    print(f"FAIL {source}: {said}")
        print(f"{source}: {READERS} processes", flush=True)
    print(f"{len(SOURCES) * READERS - failed} of {len(SOURCES) * READERS} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
