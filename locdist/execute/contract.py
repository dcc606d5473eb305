"""The contract of executors: one method, and those that they may leave alone."""

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from locdist.errors import UsageError
from locdist.execute.worker import Finished
from locdist.plan.plan import Attempt, Resources, Stage, Task

Calls = Iterator[tuple[Task, Attempt]]


class Executor(ABC):
    """Where tasks run."""

    _keepers = 0

    @property
    def patience(self) -> float:
        """Seconds to wait for a worker that is large enough: clusters grow."""
        return 0.0

    @abstractmethod
    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        """Run `attempted(stage.function, task, attempt)` for each call and yield how each ended, in any
        order.

        The function is what is large in a stage (it lists the files of a source): send it once to each
        worker, not with each task.

        Takes a call from the iterator only when a worker is free for it (that is how many are in flight, and
        what a stalled run names), yields None at least every second while nothing ends, does not retry, and
        turns a lost worker into a failure of kind "machine" of its task alone. Closing the iterator abandons
        what is in flight.
        """

    def start(self) -> None:  # noqa: B027 - threads and processes of this machine start with their tasks
        """Have workers to ask: connect to a cluster, or start one, if that is not done yet. Called before
        each stage that has something to do; handlers of signals are left as they are.
        """

    def place(self) -> str:
        """Which cluster it is that was started or found, in words, told before the first task; empty for this
        process's own workers.
        """
        return ""

    def capacity(self) -> tuple[Resources, ...] | None:
        """What each worker has at most, () when there is none now; None when that is not known before
        asking.
        """
        return None

    def waiting(self) -> str:
        """Why nothing starts or ends, in the scheduler's own words; empty when it does not say.

        Asked from time to time while nothing ends; it answers soon and never raises.
        """
        return ""

    def close(self) -> None:  # noqa: B027 - most executors keep nothing
        """Free what is kept between stages; the executor can be used again afterwards."""

    @contextmanager
    def kept(self) -> Iterator[Self]:
        """Keep processes, or a cluster that was started, from one run to the next while the body runs."""
        object.__setattr__(self, "_keepers", self._keepers + 1)  # executors are frozen otherwise
        try:
            yield self
        finally:
            object.__setattr__(self, "_keepers", self._keepers - 1)
            if not self._keepers:
                self.close()


def check_workers(workers: object) -> None:
    """UsageError unless it is a number of workers, or None."""
    whole = isinstance(workers, numbers.Integral) and not isinstance(workers, bool)
    if workers is not None and not (whole and int(workers) >= 1):  # type: ignore[call-overload]
        raise UsageError(
            "workers as a whole number >= 1", repr(workers), "Leave it out to use all cores that there are."
        )
