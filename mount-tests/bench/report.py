"""The benchmark's result as text: Markdown tables, put between markers of a page, and what became of the floors."""
import os
import platform
import re

COLUMNS = ("what", "mount.ckpt", "CPU", "memory", "compared with", "", "CPU", "value", "floor", "goal", "bare FUSE")
MEMORY = ("anon", "peak")


def number(x):
    return f"{x:.3g}" if x < 1000 else f"{x:.0f}"


def quantity(figure, x):
    if x is None:
        return ""
    if figure in MEMORY:
        return f"{number(x)} MiB"
    return f"{number(x * 1000)} ms" if abs(x) < 0.1 else f"{number(x)} s"


def value(row, x):
    """A ratio or a quantity."""
    if x is None:
        return ""
    return number(x) + (" ×" if row.kind == "speed" else "") if row.is_ratio() else quantity(row.figure, x)


def limit(row, x):
    return "" if x is None else ("≥ " if row.kind == "speed" else "≤ ") + value(row, x).removesuffix(" ×")


def cells(result):
    """Of its line, in the order of COLUMNS."""
    row, ours, theirs = result.row, result.ours, result.theirs
    limits = [limit(row, row.floor), limit(row, row.goal), value(row, result.bound)]
    if result.value is None:
        return [row.what, result.failed and "failed" or f"not measured: {result.missing}", "", "", row.against, "", "", "", *limits]
    their_figure = row.their_figure or row.figure
    their_cpu = theirs.get("own_cpu" if their_figure.startswith("own") else "cpu")
    memory = next((quantity("anon", ours[m]) for m in MEMORY if m in ours), "")
    return [row.what, quantity(row.figure, ours[row.figure]), quantity("cpu", ours.get("cpu")), memory, row.against,
            quantity(row.figure, theirs.get(their_figure)), quantity("cpu", their_cpu), value(row, result.value), *limits]


def table(results):
    """Without the columns that hold nothing."""
    lines = [cells(r) for r in results]
    used = [i for i in range(len(COLUMNS)) if any(line[i] for line in lines)]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *lines]
    return "".join("| " + " | ".join(line[i] for i in used) + " |\n" for line in lines)


def tables(results):
    """{group: table}"""
    groups = dict.fromkeys(r.row.group for r in results)
    return {group: table([r for r in results if r.row.group == group]) for group in groups}


def machine():
    """What the figures were measured on; no names, no dates."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        model = re.search(r"^model name\s*:\s*(.*)", f.read(), re.M)
    with open("/proc/meminfo", encoding="ascii") as f:
        memory = int(re.search(r"MemTotal:\s*(\d+)", f.read())[1]) / (1 << 20)
    return f"{os.cpu_count()} cores of {model[1] if model else platform.machine()}, {memory:.0f} GiB, Linux {platform.release().split('-')[0]}"


def write(path, results, how):
    """Replaces what stands in the page between <!-- bench:NAME --> and <!-- /bench:NAME -->; a group of which nothing was measured stays."""
    measured = {r.row.group for r in results if r.value is not None}
    results = [r for r in results if r.row.group in measured]
    with open(path, encoding="utf-8") as f:
        page = f.read()
    texts = {f"{group}": table for group, table in tables(results).items()}
    texts = {name: f"Measured on {machine()}; {how}.\n\n{text}" for name, text in texts.items()}
    for name, text in texts.items():
        page, found = re.subn(rf"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", lambda m: m[1] + text + m[2], page, flags=re.S)
        assert found == 1, f"{path} has no place for the table of {name}"
    with open(path, "w", encoding="utf-8") as f:
        f.write(page)


def floors(results):
    """Lines on the rows that have one, and whether all hold."""
    held = missed = out = open_ = 0
    subject = ""
    for result in results:
        row = result.row
        same = row.what.startswith("the same")
        subject, what = (subject, subject + row.what.removeprefix("the same")) if same else (row.what, row.what)
        if row.floor is None:
            continue
        if result.missing:
            open_ += 1
            verdict = f"not measured: {result.missing}"
        elif result.failed:
            missed += 1
            verdict = f"FAILED: {result.failed}"
        else:
            fine, beyond = not result.below_floor(), result.out_of_reach()
            held += fine
            out += beyond
            missed += not fine and not beyond
            goal = "" if row.goal is None else f", goal {limit(row, row.goal)} {'met' if row.met(result.value, row.goal) else 'open'}"
            word = "met" if fine else "out of reach" if beyond else "MISSED"
            bound = f"; a bare FUSE server: {value(row, result.bound)}" if result.bound is not None else ""
            verdict = f"{value(row, result.value)} (floor {limit(row, row.floor)} {word}{goal}{bound})"
        yield f"{what}{' / ' + row.against if row.against else ''}: {verdict}"
    yield (f"{held} of {held + missed + out} floors met" + (f", {out} out of reach of a bare FUSE server, too" if out else "")
           + (f", {open_} not measured" if open_ else ""))
