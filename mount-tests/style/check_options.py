#!/usr/bin/env python3
"""check_options.py ROOT: whoever tells users of options knows all of them and no others: the manual, --help and the
completions of three shells say what the tables of fs/options.c and fs/command.c say, choices included."""
import re
import sys

import sources

OPTIONS, COMMAND, MANUAL = "fs/options.c", "fs/command.c", "docs/mount.ckpt.8"
BASH, ZSH, FISH = ("contrib/completions/" + name for name in ("mount.ckpt.bash", "_mount.ckpt", "mount.ckpt.fish"))
SILENT = {"set_nothing", "set_missing", "set_remount"}  # accepted or refused, but of no use to anybody
DIALECTS = {"auto", "torch", "flax", "openpi", "burn"}  # found by adapters/, not in a table of options.c


def options_of(text):
    """{name: set of choices, or None} of the table's useful rows."""
    choices = {table: set(re.findall(r'\{"(\w+)"', body)) for table, body in re.findall(r"struct choice (\w+)\[\] = \{(.*?)\};", text, re.S)}
    rows = re.findall(r'^ {4}\{"(\w+)", \w+, (\w+), [^}]*?, (\w+)\}', text, re.M)
    found = {name: choices.get(table) for name, setter, table in rows if setter not in SILENT}
    if "dialect" in found:
        found["dialect"] = DIALECTS
    return found


def flags_of(text):
    return set(re.findall(r'\{"(\w+)", \w+_argument', text))


def in_manual(text):
    section = re.search(r"^\.Sh OPTIONS$.*?^\.Sh ", text, re.M | re.S)[0]
    items = " , ".join(re.findall(r"^\.It (Cm .*)$", section, re.M))
    found = {name: None for name in re.findall(r"^\.Cm (nofail)$", section, re.M)}  # told of in a paragraph
    for item in items.split(" , "):
        name = re.match(r"(?:Cm )?(\w+)( Ns = Ns Cm (.*))?", item)
        if name:
            found[name[1]] = set(re.findall(r"\w+", name[3])) if name[3] else None
    return found


def in_help(text):
    start = text.index('"options:')
    return set(re.findall(r"(?<![\w|=>])([a-z]\w+)", " ".join(re.findall(r'^ *"(.*?)(?:\\n)?"', text[start:text.index("See mount.ckpt(8)")], re.M))))


def in_bash(text):
    names = re.search(r"_mount_ckpt_options='([^']*)'", text)[1].split()
    choices = {name: set(words.split()) for name, words in re.findall(r"^ +(\w+)\) compgen -W '([^']*)'", text, re.M)}
    return {name.rstrip("="): choices.get(name.rstrip("=")) for name in names}


def in_zsh(text):
    rows = re.findall(r"^ {8}'(\w+)\[[^]]*\](?::[^:']*(?:\\:[^:']*)*:(?:\(([^)]*)\))?)?", text, re.M)
    return {name: set(words.split()) if words else None for name, words in rows}


def in_fish(text):
    body = text[text.index("\\n\" \\") : text.index("\nend")]
    found = {}
    for name, value in re.findall(r'(?:^| )(\w+)(?:=(\w*))? "', body, re.M):
        found.setdefault(name, set()).add(value)
    return {name: values - {""} or None for name, values in found.items()}


def differences(path, expected, found):
    for name in sorted(expected.keys() - found.keys()):
        yield f"{path}: {name} is missing"
    for name in sorted(found.keys() - expected.keys()):
        yield f"{path}: there is no option {name}"
    for name in sorted(expected.keys() & found.keys()):
        want, has = expected[name] or set(), found[name] or set()
        if want != has:
            yield f"{path}: {name} takes {', '.join(sorted(want)) or 'any value'}, not {', '.join(sorted(has)) or 'any value'}"


def complaints(root):
    options, flags = options_of(sources.read(root, OPTIONS)), flags_of(sources.read(root, COMMAND))
    texts = {path: sources.read(root, path) for path in (MANUAL, COMMAND, BASH, ZSH, FISH)}
    yield from differences(MANUAL, options, in_manual(texts[MANUAL]))
    yield from (f"{COMMAND}: --help is silent on {name}" for name in sorted(options.keys() - in_help(texts[COMMAND])))
    for path, read in ((BASH, in_bash), (ZSH, in_zsh), (FISH, in_fish)):
        yield from differences(path, options, read(texts[path]))
        known = set(re.findall(r"--(\w+)|-l (\w+)|\{-v,--(\w+)\}", texts[path]))
        yield from (f"{path}: --{flag} is missing" for flag in sorted(flags - {word for match in known for word in match}))
    yield from (f"{MANUAL}: --{flag} is missing" for flag in sorted(flags) if not re.search(rf"Fl -{flag}\b", texts[MANUAL]))


def main():
    found = list(complaints(sys.argv[1]))
    print("\n".join(found))
    print(f"{len(found)} complaints")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
