"""The benchmark's own arithmetic: what is run together, what a row's value is, when a floor is missed, and what is written where."""
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import data
import report
from rows import rows
from table import Case, Row, Skip, Table, case, clusters


def steady(bench, seconds):
    bench.append(seconds)
    return {"wall": seconds, "cpu": seconds / 2}


def growing(bench):
    """1, 2, 3, ... seconds: the median of three rounds is 2."""
    bench.append("growing")
    return {"wall": float(bench.count("growing"))}


def absent(bench):
    raise Skip("no such peer")


def broken(bench):
    raise ValueError("out of order")


def row(kind, ours, theirs=None, **more):
    return Row("floors", kind, "a row", ours, "wall", "a peer", theirs, **more)


def result(r, rounds=3):
    table = Table([], [r], seed=1)
    table.run(rounds)
    return table.results()[0]


def test_values():
    two, eight = case(steady, 2.0), case(steady, 8.0)
    assert result(row("speed", two, eight)).value == 4
    assert result(row("cost", two, eight)).value == 0.25
    assert result(row("beyond", eight, two)).value == 6
    assert result(row("alone", eight)).value == 8
    assert result(row("alone", case(growing))).value == 2
    assert result(row("speed", two, eight)).ours == {"wall": 2.0, "cpu": 1.0}


def test_floors():
    two, eight = case(steady, 2.0), case(steady, 8.0)
    assert not result(row("speed", two, eight, floor=4)).misses_floor()
    assert result(row("speed", two, eight, floor=4.1)).misses_floor()
    assert not result(row("cost", two, eight, floor=0.25)).misses_floor()
    assert result(row("cost", two, eight, floor=0.24)).misses_floor()
    assert result(row("alone", case(broken), floor=1)).misses_floor()
    assert not result(row("alone", case(absent), floor=1)).misses_floor()
    assert not result(row("speed", two, eight)).misses_floor()


def test_a_floor_is_out_of_reach_only_near_the_bound():
    raw = case(steady, 1.0)
    near, far, able, hardly = case(steady, 9.0), case(steady, 5.0), case(steady, 2.0), case(steady, 2.4)
    assert result(row("speed", case(steady, 10.0), raw, floor=0.4, bound=near)).out_of_reach()
    assert not result(row("speed", case(steady, 10.0), raw, floor=0.4, bound=near)).misses_floor()
    assert result(row("speed", case(steady, 10.0), raw, floor=0.4, bound=far)).misses_floor()
    assert result(row("speed", case(steady, 2.6), raw, floor=0.4, bound=able)).misses_floor()
    assert result(row("speed", case(steady, 2.6), raw, floor=0.4, bound=hardly)).out_of_reach()
    assert result(row("speed", case(steady, 3.1), raw, floor=0.4, bound=hardly)).misses_floor()


def test_what_is_compared_stands_together():
    a, b, c, d = (case(steady, float(n)) for n in range(1, 5))
    found = clusters([row("cost", a, b), row("alone", d), row("cost", c, b)])
    assert sorted(map(len, found)) == [1, 3]
    bench = []
    table = Table(bench, [row("cost", a, b), row("alone", d), row("cost", c, b)], seed=3)
    table.run(2)
    assert len(bench) == 8  # each case once a round, however many rows name it
    for one in (bench[:4], bench[4:]):
        assert sorted(one) == [1, 2, 3, 4] and one.index(4) in (0, 3)


def test_only_what_is_asked_for_is_measured_anew():
    fine, slow = row("alone", case(steady, 1.0), floor=2), row("alone", case(growing), floor=2)
    bench = []
    table = Table(bench, [fine, slow], seed=1)
    table.run(1)
    table.run(2, [slow])
    assert bench.count(1.0) == 1 and bench.count("growing") == 3
    assert [r.value for r in table.results()] == [1, 2.5]


def test_what_shares_a_peer_is_measured_anew_with_it():
    peer = case(steady, 8.0)
    one, other = row("speed", case(steady, 1.0), peer), row("speed", case(steady, 2.0), peer)
    table = Table([], [one, other], seed=1)
    table.run(2)
    table.run(1, [one])
    assert [r.value for r in table.results()] == [8, 4]


def test_report():
    good, bad = row("speed", case(steady, 2.0), case(steady, 8.0), floor=3, goal=5), row("alone", case(steady, 8.0), floor=4)
    table = Table([], [good, bad, row("alone", case(absent), floor=1)], seed=1)
    table.run(1)
    said = list(report.floors(table.results()))
    assert "met, goal ≥ 5 open" in said[0] and "MISSED" in said[1] and "no such peer" in said[2], said
    assert said[-1] == "1 of 2 floors met, 1 not measured", said[-1]
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.md")
        with open(page, "w", encoding="utf-8") as f:
            f.write("above\n<!-- bench:floors -->\nold\n<!-- /bench:floors -->\nbelow\n")
        for _ in range(2):
            report.write(page, table.results(), "1 round")
        with open(page, encoding="utf-8") as f:
            text = f.read()
    assert text.startswith("above\n<!-- bench:floors -->\n") and text.endswith("<!-- /bench:floors -->\nbelow\n") and "old" not in text
    assert text.count("| 4 × |") == 1, text


def test_every_row_can_be_shown():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../../docs/performance.md"), encoding="utf-8") as f:
        page = f.read()
    for short in (False, True):
        for r in rows(short):
            assert f"<!-- bench:{r.group} -->" in page, r.group
            assert all(isinstance(c, Case) for c in r.cases())


def test_data_is_what_torch_writes():
    entry = data.state_dict({"fc1.weight": (8, 4), "fc1.bias": (8,)})[0]
    body = entry[2][0]
    assert entry[0] == "a/data.pkl" and body.startswith(b"\x80\x02}q\x00(X\x0a\x00\x00\x00fc1.weightq\x01ctorch._utils\n_rebuild_tensor_v2\n"), body[:80]
    assert body.count(b"ctorch\nFloatStorage\n") == 1 and body.count(b"Q") >= 2 and "torch" not in sys.modules
    assert b"".join(data.repeated(b"abc", 7)) == b"abcabca"


if __name__ == "__main__":
    tests = [f for name, f in list(globals().items()) if name.startswith("test_")]
    for test in tests:
        test()
        print(f"ok   {test.__name__}")
    print(f"{len(tests)} passed, 0 failed")
