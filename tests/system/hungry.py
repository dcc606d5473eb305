"""A worker that takes more memory than its group may have, so that the kernel ends it."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from locdist.execute.contract import Calls, Executor
from locdist.execute.local import Local
from locdist.execute.worker import Finished
from locdist.plan.plan import Attempt, Function, Stage, Task
from locdist.plan.records import Record
from locdist.testing import Journal

STEP = 8 << 20
MOST = 1 << 30  # bytes: who comes so far is in no group


@contextmanager
def group(limit: int) -> Iterator[Path]:
    """A control group whose processes may hold `limit` bytes; OSError where none can be made."""
    old = Path("/sys/fs/cgroup/memory")
    base = old if old.is_dir() else old.parent
    place = base / f"locdist-{uuid.uuid4().hex}"
    place.mkdir()
    try:
        (place / ("memory.limit_in_bytes" if base == old else "memory.max")).write_text(str(limit))
        yield place
    finally:
        for _ in range(50):  # it is busy until its processes are gone
            try:
                place.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@dataclass(frozen=True)
class Hungry:
    """A stage's function whose `victim` goes into the group at its first start, and eats."""

    function: Function
    victim: str
    journal: Journal
    group: str

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        first = self.journal.begin(attempt.stage, task.name).number == 1
        if task.name == self.victim and first:
            Path(self.group, "cgroup.procs").write_text(str(os.getpid()))
            eaten = [b"x" * STEP for _ in range(MOST // STEP)]
            raise AssertionError(f"{len(eaten) * STEP} bytes and still alive")
        return self.function(task, attempt)


@dataclass(frozen=True)
class HungryExecutor(Executor):
    """Processes of this machine with one hungry task."""

    victim: str
    journal: Journal
    group: str

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        function = Hungry(stage.function, self.victim, self.journal, self.group)
        return Local(2, processes=True).map(replace(stage, function=function), calls)
