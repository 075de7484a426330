"""Hostile Orbax checkpoints (hostile_orbax.py makes them), held to what test_hostile.py says; and those that are refused are asked for again with
-o keep_going, which is to refuse them in one line, too, or to show what is left of them. CKPT_SEED and CKPT_HOSTILE as there."""
import test_hostile as t
import hostile_orbax
from mounted import *


def check(case, folder, number):
    """As t.check, which takes the source away."""
    code, err = t.check(case, folder, number)
    if code:
        again = f"{folder}/again{number}"
        os.mkdir(again)
        source = case.make(again)
        more, out, _ = t.check_run(["--inspect", "--json", "-o", "keep_going", source], (0, 2, 32), source, again)
        if more == 0:
            t.check_listing(out)
        if more == 0 and number % 4 == 0:
            with Mount(source, "list=all", "keep_going") as m:
                t.read_some(m)
        t.shutil.rmtree(again)
    return code, err


def test_all():
    t.run_all(hostile_orbax.cases, check)


if __name__ == "__main__":
    main(__name__)
