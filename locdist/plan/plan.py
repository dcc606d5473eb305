"""Tasks, stages and jobs: what to compute, never where.

A plan is small, frozen and picklable (paths, numbers, frozen choices; no tensors, no open files, no
closures), because the same object is the configuration, the program and the message to a worker. Outputs are
named by what they hold, so a task that is attempted again, by anybody, writes the same files.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.plan.records import Record

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]*")
Report = TypeVar("Report", covariant=True)


@dataclass(frozen=True)
class Resources:
    """What one task needs, or what one worker has.

    Parameters
    ----------
    cpus : float
        Cores, > 0. FAISS, torch and BLAS get max(1, int(cpus)) threads.
    gpus : float
        Devices, >= 0.
    memory : int
        Bytes; 0 means unknown.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 0

    def __post_init__(self) -> None:
        if not (self.cpus > 0 and self.gpus >= 0 and self.memory >= 0):
            raise UsageError(
                "cpus > 0, gpus >= 0 and memory >= 0", str(self), "Correct the resources of the run."
            )

    @property
    def threads(self) -> int:
        """Threads of the libraries inside one task."""
        return max(1, int(self.cpus))


@dataclass(frozen=True)
class Attempt:
    """One try of one task: where its outputs go (`folder`), its stage, and which try it is (1 for the
    first).
    """

    folder: Store
    stage: str
    number: int = 1
    threads: int = 1


@dataclass(frozen=True)
class Task:
    """A unit of work that one worker does, whole or not at all.

    Parameters
    ----------
    name : str
        What it holds ("part-00017"), unique in its stage; letters, digits and ". _ = + -".
    outputs : tuple of str
        Files it writes, relative to the job's folder, outside `_locdist/`.
    inputs : tuple
        What it reads, JSON-able; shown in errors.
    function : callable (Task, Attempt) -> Record
        Picklable; a frozen dataclass with `__call__`, or a function of a module. Writes the outputs through
        `attempt.folder` and returns a Record with `rows` and whatever else it knows.
    rows : int
        Rows expected, for progress displays; 0 when unknown.
    """

    name: str
    outputs: tuple[str, ...]
    inputs: tuple[Any, ...]
    function: Callable[["Task", Attempt], Record]
    rows: int = 0

    def __post_init__(self) -> None:
        _check_name("the name of a task", self.name)
        for output in self.outputs:
            if output.startswith(("/", "_locdist/")) or not set(output.split("/")).isdisjoint(
                {"", ".", ".."}
            ):
                raise UsageError(
                    f"outputs of task {self.name!r} below the job's folder and outside _locdist/",
                    repr(output),
                    "Name outputs like 'part-00017.parquet'.",
                )


@dataclass(frozen=True)
class Stage:
    """Tasks that may run at the same time, in any order; a stage ends when all its tasks have."""

    name: str
    tasks: tuple[Task, ...]
    resources: Resources = Resources()

    def __post_init__(self) -> None:
        _check_name("the name of a stage", self.name)
        _check_unique(f"names of the tasks of stage {self.name!r}", [task.name for task in self.tasks])
        _check_unique(
            f"outputs of stage {self.name!r}", [name for task in self.tasks for name in task.outputs]
        )


class Job(Protocol[Report]):
    """What `execute.executor.run` runs.

    `next_stage` looks at the records of all stages so far, `records[stage][task]`, and returns the first
    stage that is not complete (with all its tasks; those with a record are skipped), or None. It is called
    again after each stage, so a stage may depend on what earlier ones recorded. `finish` makes the report.
    """

    @property
    def folder(self) -> Store: ...

    def next_stage(self, records: Mapping[str, Mapping[str, Record]]) -> Stage | None: ...

    def finish(self, records: Mapping[str, Mapping[str, Record]]) -> Report: ...


def remaining(stage: Stage, records: Mapping[str, Mapping[str, Record]]) -> tuple[Task, ...]:
    """The tasks of a stage that have no record."""
    done = records.get(stage.name, {})
    return tuple(task for task in stage.tasks if task.name not in done)


def first_unfinished(stages: Sequence[Stage], records: Mapping[str, Mapping[str, Record]]) -> Stage | None:
    """The first of some known stages that has tasks left: `next_stage` of a job whose stages do not depend on
    records.
    """
    return next((stage for stage in stages if remaining(stage, records)), None)


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{what} of letters, digits and '._=+-'", repr(name), "It becomes the name of a file."
        )


def _check_unique(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        twice = [name for name, count in Counter(names).items() if count > 1]
        raise UsageError(
            f"different {what}",
            f"{twice[:3]} more than once",
            "Each task and each output needs its own name.",
        )
