"""Running a job: attempts, resuming, stopping, stalls and events, written once for all executors.

An executor only answers "do these calls, at most so many at a time, and say how each ended". It never
retries: engines retry without telling, and then nobody knows how often a poisonous partition has killed a
worker. Failed tasks are attempted again after all others, so one of them cannot keep the others from
finishing.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from locdist.errors import TooManyBadRows, UsageError
from locdist.execute.contract import Calls, Executor
from locdist.execute.events import Listener
from locdist.execute.log import logged
from locdist.execute.loop import Loop, Stopped
from locdist.execute.worker import Finished, attempted, perform
from locdist.plan.plan import Job
from locdist.plan.status import Audit

__all__ = ["Calls", "Executor", "Finished", "Stopped", "attempted", "perform", "run"]

Report = TypeVar("Report")


def run(
    job: Job[Report],
    executor: Executor,
    *,
    attempts: int = 3,
    stall_after: float = 1800.0,
    listener: Listener | None = None,
    command: str = "",
    audit: Audit | None = None,
) -> Report:
    """Run what is left of a job, and return its report; the caller holds the folder
    (`plan.manifest.claimed`). Its events are logged there (`execute.log`).

    Parameters
    ----------
    job : Job
    executor : Executor
    attempts : int
        Tries of a task before it is given up, >= 1. Only machine errors are tried again.
    stall_after : float
        Seconds without any task ending after which the run is given up.
    listener : callable (Event) -> None, optional
        `execute.progress.progress()`, a log, a test.
    command : str
        The command line that continues this run, for `status.json`.
    audit : Audit, optional
        Recall of the search, where one was measured before.

    Raises
    ------
    UsageError
        A stage needs more than a worker has; or a task raised it.
    DataError
        A task found its data wrong. All other tasks are finished first.
    TooManyBadRows
        The job found so when it was finished.
    MachineError
        A task failed in all its attempts, or the run stalled. All other tasks are finished first.
    Stopped
        SIGINT or SIGTERM came. Tasks in flight are finished; a second signal abandons them. The folder can be
        resumed.
    """
    if attempts < 1 or stall_after <= 0:
        raise UsageError(
            "attempts >= 1 and stall_after > 0", f"{attempts} and {stall_after}", "Correct the run."
        )
    with logged(job.folder, listener) as tell:
        loop = Loop(job.folder, executor, attempts, stall_after, tell, command, audit)
        with _reported(loop), executor.kept(), _signals(loop):
            records = loop.begin()
            while (stage := job.next_stage(records)) is not None:
                loop.stage(stage, records)
            loop.tidy()
            report = job.finish(records)
    return report


@contextmanager
def _reported(loop: Loop) -> Iterator[None]:
    """Leave a status that says how the run ended."""
    loop.introduce()
    try:
        yield
        loop.ended("finished", 0)
    except TooManyBadRows as error:  # everything is computed and written
        loop.ended("finished", error.exit_code, str(error))
        raise
    except KeyboardInterrupt as error:
        loop.ended("stopped", getattr(error, "exit_code", 130), str(error))
        raise
    except Exception as error:
        loop.ended("failed", getattr(error, "exit_code", 1), str(error))
        raise


@contextmanager
def _signals(loop: Loop) -> Iterator[None]:
    """The first SIGINT or SIGTERM stops handing out tasks, the second raises; only the main thread can
    listen.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def receive(number: int, frame: FrameType | None) -> None:
        if loop.signal:
            raise Stopped(number)
        loop.signal = number

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
