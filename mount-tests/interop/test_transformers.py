#!/usr/bin/env python3
"""transformers' from_pretrained loads a mounted model directory (layout=torch) in each form that the hub has.

Runs where CKPT_TRANSFORMERS names a Python interpreter that has torch and transformers.
"""
import json
import os
import subprocess
import sys
import tempfile

import peer
from mounted import Mount, need_fuse


def main():
    python = os.environ.get("CKPT_TRANSFORMERS")
    if not python:
        peer.skip("CKPT_TRANSFORMERS names no Python that has torch and transformers")
    need_fuse()
    script, failed, n = os.path.join(peer.HERE, "from_pretrained.py"), 0, 0
    with tempfile.TemporaryDirectory(prefix="ckpt-test.") as folder:
        made = subprocess.run([python, script, "make", folder], stdout=subprocess.PIPE, check=True)
        for name, forms in json.loads(made.stdout.splitlines()[-1]).items():
            for form, directory in forms.items():
                with Mount(directory, "layout=torch") as mount:
                    p = subprocess.run([python, script, "load", mount, name, folder], capture_output=True, text=True)
                n += 1
                failed += p.returncode != 0
                print(f"{'FAIL' if p.returncode else 'ok  '} {name} as {form}" + (f": {p.stderr[-2000:]}" if p.returncode else ""), flush=True)
    print(f"{n - failed} of {n} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
