"""Where the local executor does one task at a time: in a thread of this process, or in a process of its own.

A process serves one seat, so its death costs one attempt of one task, and says which. It is spawned, never
forked: a child forked after OpenMP has run hangs in its first parallel region. It watches its parent and ends
with it, however the parent ends, and leaves Ctrl-C to it.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from abc import ABC, abstractmethod
from multiprocessing import connection
from typing import Any

from locdist.errors import LocdistError, MachineError, UsageError
from locdist.execute import machine
from locdist.execute.events import Failure
from locdist.execute.threads import limit_this_thread, variables
from locdist.execute.worker import Finished, attempted, failure_of
from locdist.local.heap import keep_memory
from locdist.plan.lock import UNGUARDED, WORKER, leave_if_imported
from locdist.plan.plan import Attempt, Function, Task
from locdist.plan.records import Record


class Seat(ABC):
    """A place for one task at a time, served by one thread of the driver."""

    @abstractmethod
    def take(self, function: Function) -> None:
        """What the tasks of the coming calls do; called by the driver before the seat is served."""

    @abstractmethod
    def call(self, task: Task, attempt: Attempt) -> Finished:
        """Do an attempt and wait for its end; failures are returned, not raised."""

    def prepare(self) -> None:  # noqa: B027 - a thread needs none of these three
        """Called by the driver before the first task; raises when there can be no task here."""

    def enter(self) -> None:  # noqa: B027
        """Called once by the thread that serves the seat."""

    def close(self) -> None:  # noqa: B027
        """Abandon what is in flight, if that is possible, and free the seat."""


class ThreadSeat(Seat):
    """A thread of this process; what is in flight cannot be abandoned, only left alone."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def take(self, function: Function) -> None:
        self._function = function

    def enter(self) -> None:
        limit_this_thread(self._threads)

    def call(self, task: Task, attempt: Attempt) -> Finished:
        return attempted(self._function, task, attempt)


class ProcessSeat(Seat):
    """A spawned process, kept for many tasks and replaced when it dies."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._process: Any = None
        self._pipe: Any = None
        self._function: Function | None = None
        self._ready = self._told = self._closed = False

    def take(self, function: Function) -> None:
        self._told = self._told and function is self._function
        self._function = function

    def launch(self) -> None:
        """Start the process if there is none, without waiting, so that several start at the same time."""
        if self._process is not None and self._process.is_alive():
            return
        leave_if_imported()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True, name=WORKER)
        with machine.environment(variables(self._threads)):
            self._process.start()
        theirs.close()
        self._ready = self._told = False

    def prepare(self) -> None:
        self.launch()
        try:
            self._ready = self._ready or self._pipe.recv_bytes() == b"ready"
        except (EOFError, ConnectionError):
            raise self._not_started() from None

    def call(self, task: Task, attempt: Attempt) -> Finished:
        if self._closed:
            return Finished(task, Failure("machine", "the run was abandoned"), 0.0)
        try:
            self.prepare()
            self._pipe.send_bytes(self._message(task, attempt))
            outcome, seconds = pickle.loads(self._pipe.recv_bytes())
            self._told = isinstance(outcome, Record)  # after a failure it may be that it was not understood
            return Finished(task, outcome, seconds)
        except (MachineError, UsageError) as error:
            return Finished(task, failure_of(error), 0.0)
        except (EOFError, OSError):
            cause = f"the worker process was lost: {self._ended()}"
            return Finished(task, Failure("machine", cause, lost=True), 0.0)

    def close(self) -> None:
        self._closed = True  # the thread that serves us may still come with a task
        if self._process is not None:
            self._process.kill()  # whatever it writes is written under a temporary name
            self._process.join()

    def _not_started(self) -> LocdistError:
        remedy = (
            "Worker processes import the script that started the run: start it below "
            "`if __name__ == '__main__':`, or use threads (the default)."
        )
        ended, expected = self._ended(), "a worker process to start"
        if self._process.exitcode == UNGUARDED:
            return UsageError(expected, "one that began the run of its script once more", remedy)
        return MachineError(expected, ended, f"Its own message is above. {remedy}")

    def _message(self, task: Task, attempt: Attempt) -> bytes:
        """The call, with the function when the process does not have it yet."""
        try:
            return pickle.dumps((None if self._told else self._function, task, attempt))
        except Exception as error:
            raise UsageError(
                f"a function of stage {attempt.stage!r} that can be pickled",
                str(error),
                "Use functions of modules and frozen dataclasses.",
            ) from error

    def _ended(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"it ended with exit code {code}"
        often = ", often sent when memory runs out" if code == -signal.SIGKILL else ""
        return f"it was ended by {signal.Signals(-code).name}{often}"


def _serve(pipe: Any) -> None:
    """The life of a worker process."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C goes to all processes of a terminal; the driver decides
    threading.Thread(target=_end_with_parent, daemon=True, name="locdist-parent").start()
    keep_memory()
    pipe.send_bytes(b"ready")
    function: Any = None
    while True:
        try:
            message = pipe.recv_bytes()
        except EOFError:
            return
        function, *answer = _answer(function, message)
        pipe.send_bytes(pickle.dumps(answer))


def _answer(function: Any, message: bytes) -> tuple[Any, Any, float]:
    """The function that is held now, and how the call ended."""
    try:
        sent, task, attempt = pickle.loads(message)
    except Exception as error:  # noqa: BLE001 - a module that is missing here, a class that changed, ...
        return function, failure_of(error), 0.0
    function = function if sent is None else sent
    finished = attempted(function, task, attempt)
    return function, finished.outcome, finished.seconds


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
