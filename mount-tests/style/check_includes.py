#!/usr/bin/env python3
"""check_includes.py ROOT: which folder may include which, and which library belongs to whom.

Includes point one way, fs -> verify -> adapters -> formats -> base, and an outside library is known
to one folder only, so that it can be exchanged and so that everything below fs/fuse_*.c runs
without FUSE. Tests may include anything.
"""
import re
import sys

import sources

LAYERS = ["base", "formats", "adapters", "verify", "fs"]  # each may include itself and those before it

# A header of an outside library -> the files that may include it.
OWNERS = [
    (r"fuse3?/.*|fuse.*\.h", r"fs/fuse_[^/]*\.[ch]"),
    (r"zip\.h|zlib\.h|zstd.*\.h|bzlib\.h|blosc.*\.h", r"formats/.*"),
    (r"pcre2\.h", r"adapters/.*"),
    (r"cjson/.*|cJSON\.h", r"adapters/.*"),
    (r"cblas.*\.h|openblas.*\.h|lapack.*\.h", r"verify/blas\.c"),
    (r"sha.*\.h|md5\.h", r"fs/.*"),
    (r"cmocka\.h", r"mount-tests/.*"),
]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def complaint(path, quote, header):
    """Why `path` may not include `header`, or None."""
    folder = path.split("/")[0]
    target = header.split("/")[0]
    if quote == '"' and target not in LAYERS and folder in LAYERS:
        return 'our headers are included as "FOLDER/NAME.h"'
    if target in LAYERS and folder in LAYERS and LAYERS.index(target) > LAYERS.index(folder):
        return f"{folder}/ may not include {target}/: includes point fs -> verify -> adapters -> formats -> base"
    for library, owner in OWNERS:
        if quote == "<" and re.fullmatch(library, header) and not re.fullmatch(owner, path) \
                and not path.startswith("mount-tests/"):
            return f"only {owner} may include <{header}>"
    return None


def complaints(root):
    """One line for every include that breaks a rule."""
    for path in sources.c_files(root):
        text = sources.read(root, path)
        for match in INCLUDE.finditer(text):
            why = complaint(path, match[1], match[2])
            if why:
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {why}"


def own_header_first(root):
    """NAME.c includes FOLDER/NAME.h first, so that the header is known to stand alone."""
    files = set(sources.c_files(root))
    for path in sorted(files):
        header = path[:-2] + ".h"
        if not path.endswith(".c") or header not in files or path.startswith("mount-tests/"):
            continue
        first = INCLUDE.search(sources.read(root, path))
        if not first or first[2] != header:
            yield f'{path}: its first include must be its own header, "{header}"'


def main():
    root = sys.argv[1]
    found = list(complaints(root)) + list(own_header_first(root))
    print("\n".join(found))
    print(f"{len(sources.c_files(root))} files, {len(found)} wrong includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
