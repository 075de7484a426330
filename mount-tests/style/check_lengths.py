#!/usr/bin/env python3
"""check_lengths.py ROOT: files of at most 700 lines, functions of at most 100, lines of at most 100
columns, and a median function of at most 15 lines. A function's length is its lines from the
signature's last line to the closing brace. Headers of over 250 lines do too much."""
import re
import statistics
import sys

import sources

FILE_MAX, HEADER_MAX, FUNCTION_MAX, MEDIAN_MAX, COLUMNS_MAX = 700, 250, 100, 15, 100


def functions(text):
    """(name, first line, number of lines) of each function body in C text."""
    clean = sources.without_comments_and_strings(text)
    clean = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), clean, flags=re.M)
    depth, start = 0, None
    for match in re.finditer(r"[{}]", clean):
        if match[0] == "{":
            if depth == 0:
                head = re.search(r"(\w+)\s*\([^;{}]*\)\s*$", clean[: match.start()])
                start = (head[1], match.start()) if head else None
            depth += 1
            continue
        depth -= 1
        if depth == 0 and start:
            first, last = (clean.count("\n", 0, at) + 1 for at in (start[1], match.start()))
            yield start[0], first, last - first + 1


def check_file(path, text, lengths):
    """Complaints about one file; the lengths of its functions are added to `lengths`."""
    lines = text.splitlines()
    limit = HEADER_MAX if path.endswith(".h") else FILE_MAX
    if len(lines) > limit:
        yield f"{path}: {len(lines)} lines, at most {limit}"
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX:
            yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS_MAX}"
    for name, first, length in functions(text):
        if not path.startswith("mount-tests/"):
            lengths.append(length)
        if length > FUNCTION_MAX:
            yield f"{path}:{first}: {name} has {length} lines, at most {FUNCTION_MAX}"


def main():
    root = sys.argv[1]
    lengths, found = [], []
    for path in sources.c_files(root):
        found += check_file(path, sources.read(root, path), lengths)
    median = statistics.median(lengths) if lengths else 0
    if median > MEDIAN_MAX:
        found.append(f"the median function has {median} lines, at most {MEDIAN_MAX}")
    print("\n".join(found))
    print(f"{len(lengths)} functions: median {median} lines, longest {max(lengths, default=0)}; {len(found)} too long")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
