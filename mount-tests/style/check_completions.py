#!/usr/bin/env python3
"""check_completions.py ROOT: bash completes as a user expects; zsh and fish, where they are here, can read their files."""
import os
import shutil
import subprocess
import sys
import tempfile

FOLDER = "contrib/completions"
# As readline splits a line: at blanks and at the characters of COMP_WORDBREAKS, which stand alone.
ASK = r"""
source "$1"; shift; line=$1; COMP_LINE=$line; COMP_POINT=${#line}
spaced=${line//=/ = }; read -ra COMP_WORDS <<< "${spaced//:/ : }"
[[ $line == *[=:] || $line != *' ' ]] || COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _mount_ckpt
printf '%s\n' "${COMPREPLY[@]}"
"""
CASES = [
    ("mount.ckpt --in", ["--inspect"]),
    ("mount.ckpt --ex", ["--explain", "--export"]),
    ("mount.ckpt -o lay", ["layout="]),
    ("mount.ckpt -olay", ["-olayout="]),
    ("mount.ckpt -o layout=", ["burn", "torch", "source"]),
    ("mount.ckpt -o layout=t", ["torch"]),
    ("mount.ckpt -o layout=torch,ca", ["torch,cast=", "torch,cache="]),
    ("mount.ckpt -o layout=torch,cast=bf", ["bf16"]),
    ("mount.ckpt -o strict,keep", ["strict,keep_going"]),
    ("mount.ckpt -o strict,list=all,lora=m", ["merge"]),
    ("mount.ckpt -o uid=ro", ["root"]),
    ("mount.ckpt -o rules=ru", ["rules.json"]),
    ("mount.ckpt -o atol=", []),
    ("mount.ckpt mo", ["model.pt"]),
    ("mount.ckpt model.pt ", ["model.pt", "rules.json", "two words.pt"]),
    ("mount.ckpt --cat fc", []),
    ("mount.ckpt --nothing", []),
]


def completed(script, line, folder):
    p = subprocess.run(["bash", "--norc", "-c", ASK, "bash", script, line], cwd=folder, capture_output=True, encoding="utf-8", timeout=30)
    return sorted(filter(None, p.stdout.split("\n"))), p.stderr


def complaints_about_bash(script):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("model.pt", "rules.json", "two words.pt"):
            with open(os.path.join(folder, name), "w", encoding="utf-8"):
                pass
        for line, expected in CASES:
            got, errors = completed(script, line, folder)
            if errors or got != sorted(expected):
                yield f"bash: {line!r} gives {got}, expected {sorted(expected)} {errors}".rstrip()


def complaints(root):
    folder = os.path.abspath(os.path.join(root, FOLDER))
    yield from complaints_about_bash(os.path.join(folder, "mount.ckpt.bash"))
    for shell, name in (("zsh", "_mount.ckpt"), ("fish", "mount.ckpt.fish")):
        if shutil.which(shell):
            p = subprocess.run([shell, "-n", os.path.join(folder, name)], capture_output=True, encoding="utf-8", timeout=30)
            if p.returncode or p.stderr:
                yield f"{shell}: {p.stderr}"
        else:
            print(f"{shell} is not here: not tried")


def main():
    if not shutil.which("bash"):
        print("skipped: no bash here")
        return 77
    found = list(complaints(sys.argv[1]))
    print("\n".join(found))
    print(f"{len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
