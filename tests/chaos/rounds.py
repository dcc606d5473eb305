"""The rounds of chaos: who is killed and when, drawn from a seed; how each went; the table of all."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from tests.system.clusters import WORKERS

TASKS = 16
HEAD = "executor  victim  rounds inside identical again       repeated seconds"


@dataclass(frozen=True)
class Round:
    """A kill: of whom, when (from 0, the first commit, to 1, the last), and whether inside a write."""

    executor: str
    victim: str
    moment: float
    inside: bool

    @property
    def task(self) -> str:
        """The task inside whose write it happens."""
        return f"part-{WORKERS + int(self.moment * (TASKS - WORKERS)):05}"


@dataclass(frozen=True)
class Outcome:
    """How a round went.

    Parameters
    ----------
    round : Round
    committed : int
        Tasks with a record when the kill came.
    repeated : int
        Starts of tasks beyond their first.
    runs : int
        1 when the run went on to its end, 2 when it was run again.
    seconds : float
    differences : tuple of str
        From the run that nobody disturbed; none, if all is well.
    """

    round: Round
    committed: int
    repeated: int
    runs: int
    seconds: float
    differences: tuple[str, ...]

    def __str__(self) -> str:
        told, verdict = self.round, "; ".join(self.differences) or "byte-identical"
        where = f"inside {told.task}" if told.inside else f"at {told.moment:.2f}"
        run = "went on" if self.runs == 1 else "run again"
        return (
            f"{told.executor:6} {told.victim:7} {where:17} {self.committed:2} committed, {run:9}, "
            f"{self.repeated} repeated, {self.seconds:5.1f} s: {verdict}"
        )


def planned(executor: str, victims: tuple[str, ...], kills: int, seed: int) -> list[Round]:
    """Rounds on one executor: victims in turn, moments spread evenly, every other kill inside a write."""
    dice = random.Random(f"{seed} {executor}")
    moments = [(number + dice.random()) / kills for number in range(kills)]
    dice.shuffle(moments)
    return [
        Round(executor, victims[number % len(victims)], moment, number // len(victims) % 2 == 0)
        for number, moment in enumerate(moments)
    ]


def table(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """A line for each executor and victim."""
    yield HEAD
    for (executor, victim), some in groupby(sorted(outcomes, key=_whom), key=_whom):
        group = list(some)
        repeated, seconds = [one.repeated for one in group], [one.seconds for one in group]
        mean = f"{sum(repeated) / len(group):.2f}, at most {max(repeated)}"
        yield (
            f"{executor:9} {victim:7} {len(group):6} {sum(one.round.inside for one in group):6} "
            f"{sum(not one.differences for one in group):9} {sum(one.runs > 1 for one in group):5} "
            f"{mean:>14} {sum(seconds) / len(group):7.1f}"
        )


def _whom(outcome: Outcome) -> tuple[str, str]:
    return outcome.round.executor, outcome.round.victim
