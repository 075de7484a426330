#!/usr/bin/env python3
"""Hostile graphs and references (hostile_graphs.py makes them): --verify ends with a report, which Python's strict json, jq and the schema
accept and which holds a sentence where something is wrong, within 5 s of CPU and verify_memory and 64 MiB; verify.json has room for it;
code in a file never runs. CKPT_HOSTILE=PATTERN runs the cases whose name holds it and shows their reports."""
import json
import shutil
import hostile_graphs
from mounted import *
from report_schema import parse_report
from test_hostile import MARKER, ONLY, SCALE, SECONDS, execute

VERIFY_MEMORY = 64
MIB = VERIFY_MEMORY + 64
CODES = {"PASS": 0, "DIFF": 1}


def reasons(report):
    """Every sentence that says why."""
    parts = [report["graph"], report["reference"], report["bytes"], *report["layers"]]
    return [p["reason"] for p in parts if "reason" in p]


def make(case, folder):
    """In a process of its own: the peak of memory that wait4 tells of a child begins with its parent's."""
    pid = os.fork()
    if pid == 0:
        try:
            case.make(folder)
            os._exit(0)
        except Exception as e:
            print(e, flush=True)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, "it cannot be made"
    return os.path.join(folder, "m.safetensors")


def check(case, folder):
    source = make(case, folder)
    options = ["-o", f"verify_memory={VERIFY_MEMORY}M" + (f",{case.options}" if case.options else "")]
    code, out, err, seconds, mib = execute(["--verify", *options, source], folder)
    assert not SANITIZER.search(err) and code in (0, 1, 2), f"exit {code}: {err[-2000:]}"
    report = parse_report(out.decode("utf-8"))
    assert code == CODES.get(report["status"], 2), (code, report["status"])
    graph, said = report["graph"], reasons(report)
    if case.status:
        assert report["status"] == case.status, (report["status"], said)
    assert graph["status"] in ("PASS", "DIFF") or graph.get("reason"), graph
    assert not case.word or any(case.word in s for s in said), (case.word, said)
    assert seconds <= SECONDS, f"{seconds:.1f} s of CPU"
    assert SCALE > 1 or mib <= MIB, f"{mib:.0f} MiB of memory"
    return report, out, options


def check_room(source, options, report, folder):
    """verify.json's size was fixed before the report was made."""
    code, out, err, _, _ = execute(["--cat", "verify.json", *options, source], folder)
    assert code == 0, f"--cat verify.json: exit {code}: {err}"
    assert parse_report(out.decode("utf-8"))["status"] == report["status"]


def test_all():
    failed, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        marker = os.path.join(folder, MARKER)
        for case in hostile_graphs.cases(marker):
            if ONLY not in case.name:
                continue
            count += 1
            where = os.path.join(folder, "case")
            os.mkdir(where)
            try:
                report, out, options = check(case, where)
                check_room(os.path.join(where, "m.safetensors"), options, report, where)
                if ONLY:
                    print(case.name, "->", report["status"], reasons(report), len(out), "bytes")
            except Exception as e:
                failed.append(f"{case.name}: {type(e).__name__} {str(e)[:1500]}")
            assert not os.path.exists(marker), f"{case.name}: code in the file was run"
            shutil.rmtree(where)
    print(f"{count} graphs")
    assert count and not failed, "\n".join([f"{len(failed)} failed", *failed])


if __name__ == "__main__":
    main(__name__)
