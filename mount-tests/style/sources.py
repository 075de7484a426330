"""Which files the style checks look at, and C text without its comments and strings."""
import os
import re

CODE_FOLDERS = ("base", "formats", "adapters", "verify", "fs", "mount-tests")
IGNORED_FOLDERS = re.compile(r"^(build.*|\.git|target|__pycache__|\.cache|\.venv)$")


def walk(root, folders=("",)):
    """Every file below root/folder, as a path relative to root, in a stable order."""
    for folder in folders:
        for where, dirs, names in os.walk(os.path.join(root, folder)):
            dirs[:] = sorted(d for d in dirs if not IGNORED_FOLDERS.match(d))
            for name in sorted(names):
                yield os.path.relpath(os.path.join(where, name), root)


def c_files(root):
    """The C sources and headers of the project."""
    return [p for p in walk(root, CODE_FOLDERS) if p.endswith((".c", ".h"))]


def read(root, path):
    """The text of a file; bytes that aren't UTF-8 are kept as surrogates."""
    with open(os.path.join(root, path), encoding="utf-8", errors="surrogateescape") as f:
        return f.read()


_BLANKED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def without_comments_and_strings(text):
    """The same text with those blanked, line by line, so that line numbers still hold."""
    return _BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
