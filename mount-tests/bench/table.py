"""A benchmark as a table: what a row is, how the cases that rows name are run, and what a row's value is."""
import dataclasses
import random
import statistics
import sys
import traceback
from typing import Callable, Optional


class Skip(Exception):
    """A case can't run here; the message says why."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One measurement: function(bench, *args) gives {figure: number}. Equal cases are run once a round, however many rows name them."""

    function: Callable
    args: tuple = ()

    def __str__(self):
        return " ".join([self.function.__name__, *map(str, self.args)])


def case(function, *args):
    return Case(function, args)


NEAR = 0.8  # of the bound's speed
HARDLY = 1.1  # times a floor: a bound below that leaves no room for noise

# How a row's value comes from one round's figures of both sides; the first three are ratios.
KINDS = {
    "speed": lambda ours, theirs: theirs / ours,  # how many times as fast as the peer: more is better
    "cost": lambda ours, theirs: ours / theirs,  # what part of the peer's cost: less is better
    "beyond": lambda ours, theirs: ours - theirs,  # what we take on top of the peer: less is better
    "alone": lambda ours, theirs: ours,  # our figure itself: less is better
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the result. `figure` names what is compared: wall or cpu seconds, MiB. Without a floor it can't fail."""

    group: str
    kind: str
    what: str
    ours: Case
    figure: str = "wall"
    against: str = ""
    theirs: Optional[Case] = None
    their_figure: str = ""  # where it isn't `figure`
    floor: Optional[float] = None
    goal: Optional[float] = None
    short: bool = False  # part of the short form: needs no more than numpy
    bound: Optional[Case] = None  # the same for a server that does nothing else

    def cases(self):
        return [c for c in (self.ours, self.theirs, self.bound) if c]

    def is_ratio(self):
        return self.kind in ("speed", "cost")

    def met(self, value, limit):
        return value >= limit if self.kind == "speed" else value <= limit


@dataclasses.dataclass
class Result:
    """What came of a row: its value, the value that the bound would have, the medians of both sides' figures, or why there is none."""

    row: Row
    value: Optional[float] = None
    bound: Optional[float] = None
    ours: dict = dataclasses.field(default_factory=dict)
    theirs: dict = dataclasses.field(default_factory=dict)
    missing: str = ""  # why it was skipped
    failed: str = ""

    def below_floor(self):
        return self.row.floor is not None and self.value is not None and not self.row.met(self.value, self.row.floor)

    def out_of_reach(self):
        """The bound misses the floor, too, or hardly reaches it, in the same rounds, and we are near the bound."""
        return self.below_floor() and self.bound is not None and not self.row.met(self.bound, HARDLY * self.row.floor) and self.value >= NEAR * self.bound

    def misses_floor(self):
        return bool(self.failed) or self.below_floor() and not self.out_of_reach()


def clusters(rows):
    """The rows' cases, in lists: those that are compared with one another, however indirectly, stand together."""
    found = []
    for row in rows:
        joined = list(dict.fromkeys(row.cases()))
        for other in [c for c in found if set(c) & set(joined)]:
            found.remove(other)
            joined = list(dict.fromkeys(other + joined))
        found.append(joined)
    return found


def medians(figures):
    """Of a list of {figure: number}."""
    return {name: statistics.median(f[name] for f in figures) for name in (figures[0] if figures else ())}


def value_of(row, ours, theirs):
    """The median over the rounds."""
    peers = [t[row.their_figure or row.figure] for t in theirs] if row.theirs else [None] * len(ours)
    return statistics.median(KINDS[row.kind](o[row.figure], t) for o, t in zip(ours, peers, strict=True)) if ours else None


class Table:
    """Rows, and what was measured for them so far."""

    def __init__(self, bench, rows, seed):
        self.bench, self.rows, self.random = bench, rows, random.Random(seed)
        self.rounds, self.skipped, self.failed = [], {}, {}  # a round: {case: figures}

    def run(self, rounds, rows=None):
        """Measures all rows, or some anew, with all that they are compared with. In each round each case runs once: what is compared, one right
        after the other, in a random order."""
        asked = {c for row in (self.rows if rows is None else rows) for c in row.cases()}
        wanted = [cluster for cluster in clusters(self.rows) if asked & set(cluster)]
        cases = {c for cluster in wanted for c in cluster}
        for done in self.rounds:
            for c in cases & done.keys():
                del done[c]
        for number in range(rounds):
            self.rounds.append(got := {})
            self.random.shuffle(wanted)
            for cluster in wanted:
                for c in self.random.sample(cluster, len(cluster)):
                    self.run_case(c, got, number)

    def run_case(self, c, got, number):
        if c in self.skipped or c in self.failed:
            return
        try:
            got[c] = c.function(self.bench, *c.args)
            print(number, c, {k: round(v, 4) for k, v in got[c].items()}, file=sys.stderr, flush=True)
        except Skip as e:
            self.skipped[c] = str(e)
            print(f"{number} {c}: skipped: {e}", file=sys.stderr, flush=True)
        except Exception as e:  # one case that fails is no reason to lose the others
            traceback.print_exc()
            self.failed[c] = f"{type(e).__name__}: {e}"

    def result(self, row):
        for c in row.cases():
            if c in self.failed:
                return Result(row, failed=f"{c}: {self.failed[c]}")
            if c in self.skipped:
                return Result(row, missing=self.skipped[c])
        both = [done for done in self.rounds if all(c in done for c in row.cases())]
        ours = [done[row.ours] for done in both]
        theirs = [done[row.theirs] for done in both] if row.theirs else []
        bounds = [done[row.bound] for done in both] if row.bound else []
        return Result(row, value_of(row, ours, theirs), value_of(row, bounds, theirs), medians(ours), medians(theirs))

    def results(self):
        return [self.result(row) for row in self.rows]
