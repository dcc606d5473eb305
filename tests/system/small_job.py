"""A small real job for the tests of plan and execute, and a driver to be started, and killed, as a process:

python -m tests.system.small_job OUT LOG [--tasks N] [--workers N] [--processes] [--delay S] [--fault NAME]

Each task writes ten rows of Parquet. Every start of a task leaves a file in LOG, because records only tell of
what was committed.
"""

import argparse
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, MachineError
from locdist.execute.executor import Stopped, run
from locdist.execute.local import Local
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Attempt, Function, Stage, Task, remaining
from locdist.plan.records import Record, history

ROWS = 10


@dataclass(frozen=True)
class Write:
    """Writes ten rows; `fault` is a name of FAULTS and happens to `victim`: always, or once if `once`."""

    log: str
    delay: float = 0.0
    fault: str = ""
    victim: str = "part-00003"
    once: bool = False

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        started = len(list(Path(self.log).glob(f"{task.name}.*")))
        Path(self.log, f"{task.name}.{started}").write_text(str(os.getpid()))
        time.sleep(self.delay)
        first = task.inputs[0] * ROWS
        table = pa.table({"id": range(first, first + ROWS)})
        strikes = self.fault and task.name == self.victim and not (self.once and started)
        with attempt.writer(task.outputs[0]) as stream:
            stream.write(b"PAR1" if strikes else b"")
            if strikes:
                FAULTS[self.fault]()
            pq.write_table(table, stream)
        return Record(rows=ROWS, data={"first": first})


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise(error: Exception) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


FAULTS: dict[str, Callable[[], object]] = {
    "kill": _kill,
    "hang": lambda: time.sleep(600),
    "exit": lambda: sys.exit(3),
    "machine": _raise(MachineError("a disk", "none", "Insert it.")),
    "full": _raise(OSError(errno.ENOSPC, "No space left on device")),
    "read-only": _raise(OSError(errno.EROFS, "Read-only file system")),
    "memory": _raise(MemoryError("no more")),
    "data": _raise(DataError("good rows", "bad ones", "Mend them.")),
    "bug": _raise(ZeroDivisionError("division by zero")),
}


@dataclass(frozen=True)
class SmallJob:
    """Stages that are known beforehand; the report is the records."""

    folder: Store
    stages: tuple[Stage, ...]

    def next_stage(self, records: Mapping[str, Mapping[str, Record]]) -> Stage | None:
        return next((stage for stage in self.stages if remaining(stage, records)), None)

    def finish(self, records: Mapping[str, Mapping[str, Record]]) -> dict[str, dict[str, Record]]:
        return {stage: dict(done) for stage, done in records.items()}


def finished(folder: Store, stage: str) -> dict[str, Record]:
    """The finished tasks of one stage by name."""
    return dict(history(folder).records.get(stage, {}))


def small_job(folder: Store, function: Function, tasks: int = 8, stages: int = 1) -> SmallJob:
    """Stages named write-0, ... with tasks part-00000, ..."""
    return SmallJob(
        folder,
        tuple(
            Stage(
                f"write-{stage}",
                tuple(
                    Task(
                        f"part-{i:05}",
                        (f"{'' if stage == 0 else f'{stage}/'}part-{i:05}.parquet",),
                        (i,),
                        ROWS,
                    )
                    for i in range(tasks)
                ),
                function,
            )
            for stage in range(stages)
        ),
    )


def main(arguments: list[str] | None = None) -> int:
    """Run it as a command does; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("log")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--fault", default="")
    given = parser.parse_args(arguments)
    folder = Store.at(given.out)
    job = small_job(folder, Write(given.log, given.delay, given.fault, once=True), given.tasks)
    try:
        with claimed(folder, Manifest("small", {"tasks": given.tasks})):
            run(job, Local(given.workers, given.processes))
    except (LocdistError, Stopped) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
