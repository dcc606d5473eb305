"""Small tasks and jobs that a contract lets an executor run; functions of a module, so that they travel."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from locdist.data.store import Store
from locdist.plan.plan import Attempt, Function, Resources, Stage, Task, remaining
from locdist.plan.records import Record, history

ROWS = 10
BEAT = 0.1  # seconds between two signs of life


@dataclass(frozen=True)
class Write:
    """Writes ten rows of Parquet, after a pause of some seconds; `mark` goes to its record."""

    pause: float = 0.0
    mark: str = ""

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        time.sleep(self.pause)
        first = task.inputs[0] * ROWS
        with attempt.writer(task.outputs[0]) as stream:
            pq.write_table(pa.table({"id": range(first, first + ROWS)}), stream)
        return Record(rows=ROWS, data={"first": first} | ({"mark": self.mark} if self.mark else {}))


@dataclass(frozen=True)
class Large:
    """A function of some size that notes in `log` each time that a process receives it."""

    content: bytes
    log: str

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)
        Path(self.log, f"{os.getpid()}.{time.time_ns()}").touch()

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        time.sleep(0.05)
        return Record(data={"length": len(self.content)})


@dataclass(frozen=True)
class Pulse:
    """Says that it lives, in a file of `log` for each task, as long as it does."""

    log: str
    seconds: float

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            Path(self.log, task.name).touch()
            time.sleep(BEAT)
        return Record()


@dataclass(frozen=True)
class Call:
    """Calls a function without arguments and keeps what it returns."""

    function: Callable[[], Mapping[str, object]]

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        return Record(data=self.function())


@dataclass(frozen=True)
class SmallJob:
    """Stages that are known beforehand; the report is the records."""

    folder: Store
    stages: tuple[Stage, ...]

    def next_stage(self, records: Mapping[str, Mapping[str, Record]]) -> Stage | None:
        """The first that is not complete."""
        return next((stage for stage in self.stages if remaining(stage, records)), None)

    def finish(self, records: Mapping[str, Mapping[str, Record]]) -> dict[str, dict[str, Record]]:
        """The records."""
        return {stage: dict(done) for stage, done in records.items()}


def small_job(
    folder: Store, function: Function, tasks: int = 8, stages: int = 1, resources: Resources | None = None
) -> SmallJob:
    """Stages named write-0, ... with tasks part-00000, ... of one output each."""
    made = tuple(
        Stage(
            f"write-{stage}", _tasks(tasks, f"{stage}/" if stage else ""), function, resources or Resources()
        )
        for stage in range(stages)
    )
    return SmallJob(folder, made)


def _tasks(count: int, below: str) -> tuple[Task, ...]:
    names = [f"part-{number:05}" for number in range(count)]
    return tuple(
        Task(name, (f"{below}{name}.parquet",), (number,), ROWS) for number, name in enumerate(names)
    )


def finished(folder: Store, stage: str) -> dict[str, Record]:
    """The finished tasks of one stage by name."""
    return dict(history(folder).records.get(stage, {}))


def contents(folder: Store, suffix: str = ".parquet") -> dict[str, bytes]:
    """The outputs of a job by name; the name of what a lost worker left half-written begins with a dot."""
    names = (file.path for file in folder.files())
    outputs = (name for name in names if name.endswith(suffix) and not name.startswith("_locdist/"))
    return {name: folder.read(name) for name in outputs if not name.rpartition("/")[2].startswith(".")}
