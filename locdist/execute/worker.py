"""What a worker does with one attempt of one task, the same for every executor."""

import errno
import os
import shutil
import socket
import threading
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

from locdist.errors import DataError, LocdistError, MachineError, UsageError
from locdist.execute.events import Failure
from locdist.plan.plan import Attempt, Function, Task
from locdist.plan.records import Record, commit, committed, sealed

PERIOD = 0.05  # seconds between two looks at the memory
RETRIED = (
    MachineError,
    OSError,
    MemoryError,
    EOFError,
    RuntimeError,
)  # RuntimeError: FAISS's and torch's reports of a full device

LASTING = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EROFS: "the disk can only be read",
}


@dataclass(frozen=True)
class Finished:
    """One attempt that ended, with a record or with a failure; `seconds` is its wall time."""

    task: Task
    outcome: Record | Failure
    seconds: float

    @property
    def record(self) -> Record | None:
        """The record, None when it failed."""
        return self.outcome if isinstance(self.outcome, Record) else None


def attempted(function: Function, task: Task, attempt: Attempt) -> Finished:
    """`perform`, with what it raises as a failure: the one call that executors send to their workers."""
    start = time.perf_counter()
    outcome: Record | Failure
    try:
        outcome = perform(function, task, attempt)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit and panics would end a thread without a word
        outcome = failure_of(error, attempt.folder.uri)
    return Finished(task, outcome, time.perf_counter() - start)


def perform(function: Function, task: Task, attempt: Attempt) -> Record:
    """Run the function of the stage for one task, then seal its outputs and commit them.

    Returns
    -------
    Record
        The record that counts: an earlier one, if a twin of this attempt committed first. A task that has a
        record is not run.
    """
    earlier = committed(attempt.folder, attempt.stage, task.name)
    if earlier is not None:
        return earlier
    start, slot = time.perf_counter(), METER.start()
    attempt = replace(attempt, written={})  # its own: threads share what they are sent
    try:
        record = function(task, attempt)
    finally:
        peak = METER.stop(slot)
    record = replace(record, stage=attempt.stage, task=task.name, inputs=list(task.inputs))
    attempt.check_wanted()
    record = sealed(attempt.folder, record, task.outputs, attempt.written)
    record = replace(record, host=socket.gethostname(), pid=os.getpid())
    record = replace(record, attempt=attempt.number, peak_memory=peak)
    return commit(attempt.folder, replace(record, seconds=time.perf_counter() - start))


def failure_of(error: BaseException, folder: str = "") -> Failure:
    """An exception, met in a task that writes to `folder`, as a failure; says whether another attempt could
    help.
    """
    cause = str(error) if isinstance(error, LocdistError) else f"{type(error).__name__}: {error}"
    lasting = _lasting(error)
    if lasting:
        cause = f"{lasting}{_room(folder)} while writing to {folder}: {cause}"
    return Failure(_kind(error), cause, "".join(traceback.format_exception(error)), bool(lasting))


def _lasting(error: BaseException | None) -> str:
    """What is wrong with a disk that an immediate attempt would find the same, or an empty string."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in LASTING:
            return LASTING[error.errno]
        error = error.__cause__ or error.__context__
    return ""


def _room(folder: str) -> str:
    """How much of the disk of a folder is left, in words; empty where that is not known."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return ""
    return f" ({usage.free:,} of {usage.total:,} bytes are free)"


def _kind(error: BaseException) -> str:
    if isinstance(error, UsageError):
        return "usage"
    if isinstance(error, DataError):
        return "data"
    if isinstance(error, RETRIED) and not isinstance(error, (RecursionError, NotImplementedError)):
        return "machine"
    return "internal"


class Meter:
    """The peak of this process's anonymous memory while tasks run.

    One daemon thread looks every `PERIOD` seconds, only while there is somebody to look for. Anonymous means
    without mapped files, which the kernel may take back at any time and which all workers of a node share.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._peaks: dict[int, int] = {}
        self._next = 0
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Begin a measurement; returns its number."""
        with self._change:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, daemon=True, name="locdist-memory")
                self._thread.start()
            self._next += 1
            self._peaks[self._next] = anonymous_memory()
            self._change.notify()
            return self._next

    def stop(self, number: int) -> int:
        """End a measurement; returns the peak in bytes."""
        with self._change:
            return max(self._peaks.pop(number), anonymous_memory())

    def _watch(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: bool(self._peaks))
                now = anonymous_memory()
                self._peaks = {number: max(peak, now) for number, peak in self._peaks.items()}
            time.sleep(PERIOD)


METER = Meter()
_STATM = Path("/proc/self/statm")


def anonymous_memory() -> int:
    """Bytes of anonymous memory of this process now; on systems without /proc the peak of all memory so
    far.
    """
    if _STATM.exists():
        _, resident, shared = _STATM.read_text().split()[:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    import resource  # noqa: PLC0415 - not on Windows

    return resource.getrusage(
        resource.RUSAGE_SELF
    ).ru_maxrss  # macOS, the one system that comes here, counts in bytes
