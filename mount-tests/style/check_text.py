#!/usr/bin/env python3
"""check_text.py ROOT: what no file may hold: paths of one machine, lock files, tabs or blanks at a
line's end, a missing last newline."""
import os
import re
import sys

import sources

TEXT = (".c", ".h", ".py", ".sh", ".cmake", ".txt", ".md", ".json", ".toml", ".rs", ".8", ".yml", "")
NO_TRAILING_CHECK = ("mount-tests/fixtures/", "mount-tests/fuzz/corpus/")
# Home folders and mount points of somebody's machine, put together so that this file may be checked.
MACHINE = re.compile(r"(?<![\w.~$}/-])/(?:%s)/[\w.]" % "|".join(["root", "work", "opt", "Users"]))


def is_text(path):
    """By its ending; a file without one only in contrib/ and .ci/, where it's a script."""
    ending = os.path.splitext(path)[1]
    return ending in TEXT and (ending or path.startswith((".ci/", "contrib/")))


def check_file(root, path):
    """Complaints about one file."""
    if os.path.basename(path) in ("Cargo.lock", "CMakeUserPresets.json"):
        # Made by tools on this machine and ignored by git: nothing that would be committed.
        return
    if path.startswith(NO_TRAILING_CHECK) or not is_text(path):
        return
    text = sources.read(root, path)
    if text and not text.endswith("\n"):
        yield f"{path}: no newline at its end"
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield f"{path}:{number}: blanks at the line's end"
        if MACHINE.search(line):
            yield f"{path}:{number}: a path of one machine: {MACHINE.search(line)[0]}"


def main():
    root = sys.argv[1]
    found = [line for path in sources.walk(root) for line in check_file(root, path)]
    print("\n".join(found))
    print(f"{len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
