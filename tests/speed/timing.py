"""Contenders measured in turns, so that a busy moment of the machine meets all of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

REPETITIONS = 3


@dataclass(frozen=True)
class Time:
    """Seconds on the clock, and of all cores of this process together."""

    wall: float
    cpu: float

    @property
    def told(self) -> str:
        return f"{self.wall:.2f} s"


def timed(call: Callable[[], object]) -> Time:
    """How long one call takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Time(time.perf_counter() - wall, time.process_time() - cpu)


def interleaved(contenders: Mapping[str, Callable[[], object]]) -> dict[str, Time]:
    """The medians of three rounds in which each contender runs once, after one that does not count: it loads
    modules, starts processes and takes memory.
    """
    rounds = [{name: timed(call) for name, call in contenders.items()} for _ in range(1 + REPETITIONS)][1:]
    return {
        name: Time(median(one[name].wall for one in rounds), median(one[name].cpu for one in rounds))
        for name in contenders
    }
