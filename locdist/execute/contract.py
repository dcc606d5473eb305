"""The contract of executors: one method, and two that they may leave alone."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from locdist.execute.worker import Finished
from locdist.plan.plan import Attempt, Resources, Stage, Task

Calls = Iterator[tuple[Task, Attempt]]


class Executor(ABC):
    """Where tasks run."""

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

    def capacity(self) -> Resources | None:
        """What one worker can have at most, or None when that is not known before asking."""
        return None

    def close(self) -> None:  # noqa: B027 - most executors keep nothing
        """Free what is kept between stages; the executor can be used again afterwards."""
