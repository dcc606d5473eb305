"""Files that are not what they were, and whether anybody is misled by them:

python -m tests.fuzz [--seconds 60] [--seed 0] [--cases N] [--case NUMBER]

Each case changes one file of a small world (tests/fuzz/world.py) and asks something of it, in a process of
its own. Right are the right answer, or an error of locdist that says what was expected, what was given and
what to do; wrong are any other answer or exception, a process that dies or hangs, a file outside that
changed, and code that ran. A case is named by the seed and its number.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.fuzz.play import Outcome, played


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--case", type=int, help="this one alone")
    given = parser.parse_args(arguments)
    numbers = range(given.cases) if given.case is None else [given.case]
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for outcome in played(Path(folder), given.seed, numbers, given.seconds):
            outcomes.append(outcome)
            if outcome.wrong:
                print(outcome, flush=True)
    counts = Counter(outcome.outcome for outcome in outcomes)
    print(
        f"{len(outcomes)} cases, seed {given.seed}: "
        + ", ".join(f"{n} {name}" for name, n in counts.most_common())
    )
    wrong = sum(bool(outcome.wrong) for outcome in outcomes)
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
