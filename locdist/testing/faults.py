"""Faults from a table: what goes wrong at which start of which task.

A fault is an action and a moment, "kill inside" say: SIGKILL to the own process when half of the first write
of the task's first output has reached its file. What counts is the start of the task, not the attempt: a
journal keeps it through the death of a worker, of the driver, or of the machine, so the same job can be run
again and again until it is through.
"""

import errno
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import pyarrow as pa

from locdist.errors import DataError, MachineError, UsageError, did_you_mean
from locdist.execute.contract import Calls, Executor
from locdist.execute.worker import Finished, perform
from locdist.plan.plan import Attempt, Function, Resources, Stage, Task
from locdist.plan.records import Record
from locdist.testing.journal import Journal, Start

SLOW = 1.0  # seconds that a slow task loses
MOMENTS = ("before", "inside", "after")  # the function; inside its first write; all written, not committed
ERRORS: Mapping[str, Exception] = {
    "machine": MachineError("a disk", "none", "Insert it."),
    "read": OSError(errno.EIO, "Input/output error"),
    "memory": MemoryError("no more"),
    "full": OSError(errno.ENOSPC, "No space left on device"),
    "read-only": OSError(errno.EROFS, "Read-only file system"),
    "data": DataError("good rows", "bad ones", "Mend them."),
    "usage": UsageError("right use", "wrong use", "Correct it."),
    "bug": ZeroDivisionError("division by zero"),
}
ACTIONS = ("kill", "hang", "slow", "exit", *ERRORS)
TWICE = "twice"  # a twin of the task runs and commits at the same time
PASSING = (
    *(f"{action} {moment}" for action in ("kill", "slow", "machine", "memory") for moment in MOMENTS),
    "read before",
    TWICE,
)
"""Faults after which the same task succeeds, where workers are processes: a thread takes the driver along."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong, task by task.

    Parameters
    ----------
    table : mapping of task to tuple of str
        The faults of its first start, its second, ...; an empty string is none. Each is "twice", or an action
        (kill, hang, slow, exit, machine, read, memory, full, read-only, data, usage, bug) and a moment
        (before, inside, after).

    Examples
    --------
    >>> faults = Faults({"part-00003": ("kill inside", "machine before")})
    >>> print(faults)
    part-00003: kill inside, machine before
    >>> faults.at("part-00003", 3)
    ''
    """

    table: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = ("", TWICE, *(f"{action} {moment}" for action in ACTIONS for moment in MOMENTS))
        for fault in (fault for faults in self.table.values() for fault in faults):
            if fault not in known:
                raise UsageError("a fault like 'kill inside'", repr(fault), did_you_mean(fault, known))

    @staticmethod
    def drawn(
        seed: int, tasks: Iterable[str], share: float = 0.5, most: int = 2, faults: tuple[str, ...] = PASSING
    ) -> "Faults":
        """A table for these tasks, the same for the same seed: about a `share` of them meets one to `most`
        of the `faults` before it succeeds.
        """
        dice = random.Random(seed)
        return Faults(
            {
                task: tuple(dice.choice(faults) for _ in range(dice.randint(1, most)))
                for task in tasks
                if dice.random() < share
            }
        )

    def at(self, task: str, number: int) -> str:
        """The fault of the `number`-th start of a task, 1 for the first."""
        faults = self.table.get(task, ())
        return faults[number - 1] if number <= len(faults) else ""

    def __str__(self) -> str:
        return "\n".join(f"{task}: {', '.join(faults)}" for task, faults in sorted(self.table.items()))


@dataclass(frozen=True)
class Faulty:
    """A stage's function that fails as its table says; picklable when the function is.

    Parameters
    ----------
    function : callable (Task, Attempt) -> Record
    faults : Faults
    journal : Journal
        Where starts are noted and counted.
    delay : float
        Seconds that each start takes besides.
    """

    function: Function
    faults: Faults
    journal: Journal
    delay: float = 0.0

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        start = self.journal.begin(attempt.stage, task.name)
        action, _, moment = self.faults.at(task.name, start.number).partition(" ")
        try:
            time.sleep(self.delay)
            if action == TWICE:
                return _twice(self.function, task, attempt)
            return self._struck(task, attempt, moment, partial(_strike, action, self.journal, start))
        finally:
            self.journal.end(start)

    def _struck(self, task: Task, attempt: Attempt, moment: str, strike: Callable[[], None]) -> Record:
        if moment == "before":
            strike()
        if moment == "inside" and task.outputs:
            attempt = _Struck(**vars(attempt), output=task.outputs[0], strike=strike)
        record = self.function(task, attempt)
        if moment == "after" or (moment == "inside" and not task.outputs):
            strike()
        return record


@dataclass(frozen=True)
class FaultyExecutor(Executor):
    """An executor whose tasks fail as a table says: `predict(..., executor=FaultyExecutor(...))`, any job.

    Parameters
    ----------
    executor : Executor
        Where the tasks run.
    faults, journal, delay
        As of `Faulty`.
    """

    executor: Executor
    faults: Faults
    journal: Journal
    delay: float = 0.0

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        function = Faulty(stage.function, self.faults, self.journal, self.delay)
        return self.executor.map(replace(stage, function=function), calls)

    def start(self) -> None:
        self.executor.start()

    def capacity(self) -> tuple[Resources, ...] | None:
        return self.executor.capacity()

    def place(self) -> str:
        return self.executor.place()

    def waiting(self) -> str:
        return self.executor.waiting()

    def close(self) -> None:
        self.executor.close()

    @property
    def patience(self) -> float:
        return self.executor.patience

    @contextmanager
    def kept(self) -> Iterator[Self]:
        with self.executor.kept():
            yield self


def _twice(function: Function, task: Task, attempt: Attempt) -> Record:
    """The task beside a twin of it that commits for itself: one that was given up for lost and came back."""
    with ThreadPoolExecutor(1) as pool:
        twin = pool.submit(perform, function, task, attempt)
        record = function(task, attempt)
        twin.result()
    return record


def _strike(action: str, journal: Journal, start: Start) -> None:
    """Let it happen."""
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            journal.hold(start)
        case "slow":
            time.sleep(SLOW)
        case "exit":
            raise SystemExit(3)
        case _ if action:
            raise copy(ERRORS[action])


@dataclass(frozen=True)
class _Struck(Attempt):
    """An attempt that is struck inside the first write to `output`."""

    output: str = ""
    strike: Callable[[], None] = lambda: None

    @contextmanager
    def writer(self, name: str) -> Iterator[pa.NativeFile]:
        with Attempt.writer(self, name) as stream:
            yield pa.PythonFile(_Halfway(stream, self.strike), "w") if name == self.output else stream


class _Halfway:
    """A stream that stops once, with half of a write passed on."""

    def __init__(self, stream: pa.NativeFile, strike: Callable[[], None]) -> None:
        self._stream, self._strike = stream, strike
        self._struck = self.closed = False

    def write(self, data: Any) -> None:
        """Pass a buffer on."""
        view = memoryview(data).cast("B")
        half = 0 if self._struck else len(view) // 2
        if half:
            self._struck = True
            self._stream.write(view[:half])
            self._stream.flush()
            self._strike()
        self._stream.write(view[half:])

    def tell(self) -> int:
        """Bytes so far."""
        return int(self._stream.tell())

    def flush(self) -> None:
        """Pass on what is held back."""
        self._stream.flush()

    def close(self) -> None:
        """Nothing: the stream belongs to who opened it."""
        self.closed = True
