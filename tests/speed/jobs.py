"""Our side of the table: the job of `predict` from files to files, and jobs of tiny tasks."""

import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing import active_children
from pathlib import Path

import pyarrow.parquet as pq

from locdist.data.store import Store
from locdist.execute.events import Event, StageStarted, TaskFinished
from locdist.execute.executor import run
from locdist.execute.local import Local
from locdist.jobs.asking.ask import Report
from locdist.jobs.predict import asked, predict
from locdist.methods.method import Method
from locdist.plan.plan import Attempt, Stage, Task, remaining
from locdist.plan.records import COMMITS, Record
from locdist.search.generation import Generation
from tests.speed.inputs import FEW
from tests.speed.peers import Numbers

LOOK = 0.02  # seconds between two looks at a worker's memory


class Clock:
    """A listener that notes when the first stage began and when each task ended."""

    def __init__(self) -> None:
        self.called = time.perf_counter()
        self.began = 0.0
        self.ended: list[float] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageStarted):
            self.began = time.perf_counter()
        if isinstance(event, TaskFinished):
            self.ended.append(time.perf_counter())


@dataclass
class Job:
    """One `predict`, run again and again in one folder.

    The first run tunes nprobe and audits recall, and leaves the plan in the folder; `again` deletes outputs
    and commit records only, so that the same call then does everything but that.
    """

    method: Method
    index: Generation
    queries: Path
    out: Path
    workers: int

    def first(self) -> tuple[Report, float]:
        """The report of a first run, and the seconds before its first task."""
        clock = Clock()
        report = self._predict(Local(self.workers), clock)
        return report, clock.began - clock.called

    def again(self, processes: bool = False) -> Report:
        """The whole call without tuning and audit."""
        for file in self.out.glob("part-*.parquet"):
            file.unlink()
        shutil.rmtree(self.out / COMMITS)
        return self._predict(Local(self.workers, processes), Clock())

    def predictions(self) -> Numbers:
        """What it wrote [q]."""
        return pq.read_table(self.out, columns=["prediction"]).column(0).to_numpy()

    def _predict(self, executor: Local, clock: Clock) -> Report:
        report = predict(self.method, self.index, self.queries, self.out, executor=executor, listener=clock)
        assert isinstance(report, Report)
        return report


class Watch:
    """The largest anonymous memory of a worker process while the body runs, by the kernel's own account."""

    def __enter__(self) -> "Watch":
        self.peak, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            for child in active_children():
                self.peak = max(self.peak, anonymous(child.pid))


def anonymous(pid: int | None) -> int:
    """Bytes of anonymous memory of a process, RssAnon of Linux; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)


@dataclass(frozen=True)
class Empty:
    """A task that does nothing."""

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        return Record(rows=1)


@dataclass(frozen=True)
class ManyTasks:
    """A job of one stage; the report is its records."""

    folder: Store
    tasks: Stage

    def next_stage(self, records: Mapping[str, Mapping[str, Record]]) -> Stage | None:
        return self.tasks if remaining(self.tasks, records) else None

    def finish(self, records: Mapping[str, Mapping[str, Record]]) -> Mapping[str, Record]:
        return records[self.tasks.name]


def empty_tasks(count: int) -> Stage:
    """Tasks that do nothing: what is left is the executor and the commit."""
    return Stage("empty", tuple(Task(f"part-{number:05}", (), ()) for number in range(count)), Empty())


def tiny_tasks(method: Method, index: Generation, queries: Path, count: int) -> Stage:
    """Tasks of `predict` with a handful of queries each."""
    question = replace(asked(method, index, queries)[1], index=index)
    names = [f"part-{number:05}" for number in range(count)]
    return Stage(
        "predict",
        tuple(
            Task(name, (f"{name}.parquet",), (FEW * number, FEW * number + FEW), FEW)
            for number, name in enumerate(names)
        ),
        question,
    )


def long_tasks(method: Method, index: Generation, queries: Path, count: int, rows: int) -> Stage:
    """Tasks of `predict`, each over the same queries, so that each takes as long."""
    question = replace(asked(method, index, queries)[1], index=index)
    names = [f"part-{number:05}" for number in range(count)]
    tasks = tuple(Task(name, (f"{name}.parquet",), (0, rows), rows) for name in names)
    return Stage("predict", tasks, question)


def milliseconds_a_task(stage: Stage, folder: Path, executor: Local) -> float:
    """Milliseconds that a worker spends on each task once all workers have opened what they need."""
    clock = Clock()
    run(ManyTasks(Store.at(folder), stage), executor, listener=clock)
    workers = executor.workers or 1
    ended = clock.ended[2 * workers :]
    return workers * 1000 * (ended[-1] - ended[0]) / (len(ended) - 1)
