"""Tasks, stages and jobs: what to compute, never where.

A plan is small, frozen and picklable (paths, numbers, frozen choices; no tensors, no open files, no
closures), because the same object is the configuration, the program and the message to a worker. What all
tasks of a stage share (the function, and with it the files of the source) belongs to the stage and is sent
once to each worker; a task is a name and a few numbers. Outputs are named by what they hold, so a task that
is attempted again, by anybody, writes the same files.
"""

import math
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from locdist.data.store import Store
from locdist.errors import DataError, MachineError, UsageError
from locdist.plan.records import NAME, Record, Summing, Written, claim_of, covers

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
    custom : mapping of str to float
        What else workers were started with, by the names that the cluster gave it.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 0
    custom: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        amounts = (self.gpus, self.memory, *self.custom.values())
        if not (self.cpus > 0 and min(amounts) >= 0 and math.isfinite(self.cpus + sum(amounts))):
            raise UsageError(
                "cpus > 0, and gpus, memory and custom resources >= 0",
                str(self),
                "Correct the resources of the run.",
            )

    @property
    def threads(self) -> int:
        """Threads of the libraries inside one task."""
        return max(1, int(self.cpus))

    def over(self, task: "Resources") -> int:
        """How many such tasks this holds at a time; memory that is unknown holds any."""
        memory = task.memory if self.memory else 0
        asked = {**task.custom, "cpus": task.cpus, "gpus": task.gpus, "memory": memory}
        has = {**self.custom, "cpus": self.cpus, "gpus": self.gpus, "memory": self.memory}
        # 1 / 0.1 is ten, whatever the rounding.
        return min(int(has.get(name, 0) / amount + 1e-9) for name, amount in asked.items() if amount)


def holding(given: Resources | None, memory: int) -> Resources:
    """The resources given for a run, with the memory predicted for a task unless it was named."""
    given = given or Resources()
    return replace(given, memory=given.memory or memory)


@dataclass(frozen=True)
class Attempt:
    """One try of one task: where its outputs go (`folder`), its stage, which try it is (1 for the first), and
    the torch device that it may use.

    `claim` is the word of the request that it belongs to (`records.claim_of`). `written` holds size and
    checksum of what `writer` wrote, so that nobody has to read it again.
    """

    folder: Store
    stage: str
    number: int = 1
    device: str = "cpu"
    claim: str = ""
    written: dict[str, Written] = field(default_factory=dict, compare=False, repr=False)

    def check_wanted(self) -> None:
        """MachineError when the folder was given to another request while this attempt was under way;
        DataError when it is another folder on this machine, which no driver has claimed.
        """
        claim = claim_of(self.folder)
        if self.claim and not claim:
            raise DataError(
                f"the output folder {self.folder.uri} of the driver of this run",
                f"another one, or none, on {socket.gethostname()}",
                "Write to a folder that all machines of the run share, or to an object store.",
            )
        if claim != self.claim:
            raise MachineError(
                f"{self.folder.uri} to be written by the run that this attempt belongs to",
                "a folder that was given to another request since",
                "Nothing: what was computed is not wanted any more.",
            )

    @contextmanager
    def writer(self, name: str) -> Iterator[pa.NativeFile]:
        """A stream whose content becomes the file when the block ends well (`Store.writer`), summed as it
        passes.
        """
        with self.folder.writer(name) as stream:
            summing = Summing(stream)
            yield pa.PythonFile(summing, "w")
            self.check_wanted()
        self.written[name] = summing.written


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
        What it reads, JSON-able; kept in its record, shown in errors.
    rows : int
        Rows expected, for progress displays; 0 when unknown.
    """

    name: str
    outputs: tuple[str, ...]
    inputs: tuple[Any, ...]
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


Function = Callable[[Task, Attempt], Record]


@dataclass(frozen=True)
class Stage:
    """Tasks that may run at the same time, in any order; a stage ends when all its tasks have.

    Parameters
    ----------
    name : str
        Unique in its job; letters, digits and ". _ = + -".
    tasks : tuple of Task
    function : callable (Task, Attempt) -> Record
        What each task does. Picklable; a frozen dataclass with `__call__`, or a function of a module. Writes
        the outputs through `attempt.writer` and returns a Record with `rows` and whatever else it knows. Its
        `reads(task)`, where it has one, says in words for errors what a task reads.
    resources : Resources
        What each task needs.
    formula : str
        How their memory was predicted, for errors.
    """

    name: str
    tasks: tuple[Task, ...]
    function: Function
    resources: Resources = field(default_factory=Resources)
    formula: str = ""

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
    """The tasks of a stage that have no record.

    Raises
    ------
    UsageError
        When a record is of no task of the stage, or of one that covers something else: the folder was planned
        by a version that cut the work in other pieces, and together they would hold rows twice or not at all.
    """
    done, planned = records.get(stage.name, {}), {task.name: task for task in stage.tasks}
    for name, record in done.items():
        if name not in planned or not covers(record, planned[name].inputs):
            raise UsageError(
                f"the tasks of stage {stage.name!r} that the folder was begun with",
                f"a record of {name!r} for inputs {record.inputs!r}, planned by another version",
                "Use --overwrite to begin again, or continue with the version that began.",
            )
    return tuple(task for name, task in planned.items() if name not in done)


def stale(stage: Stage, names: Iterable[str]) -> tuple[str, ...]:
    """Files among `names` that are named like an output of the stage, up to its number, and are none: left by
    a run that was planned by another version and died before it committed them.
    """
    ours = {name for task in stage.tasks for name in task.outputs}
    like = {_pattern(name) for name in ours}
    return tuple(name for name in names if name not in ours and _pattern(name) in like)


def _pattern(name: str) -> str:
    return re.sub(r"[0-9]{5,}", "#", name)  # we number with five digits; `part-1` may be a file of the user


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
