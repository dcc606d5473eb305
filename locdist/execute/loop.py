"""The loop of a run: which tasks are left, who is in flight, what is counted, when to give up.

It is the state behind `execute.executor.run`. Stages run one after another; in a stage all tasks are
attempted, then those that failed for a reason that may pass, and so on.
"""

import json
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, MachineError, UsageError
from locdist.execute.contract import Calls, Executor
from locdist.execute.events import (
    Failure,
    Listener,
    RecordDropped,
    RunEnded,
    StageFinished,
    StageStarted,
    Stopping,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from locdist.execute.worker import Finished
from locdist.plan.plan import Attempt, Resources, Stage, Task, remaining, stale
from locdist.plan.records import ERRORS, Record, compact, forget, history
from locdist.plan.status import Counts, RunStatus, write_status

STATUS_EVERY = 5.0  # seconds


class Stopped(KeyboardInterrupt):
    """The run was stopped by a signal and can be continued; `exit_code` is 130 or 143."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; running the same again continues")
        self.exit_code = 128 + number


class Loop:
    """The state of one run: who is in flight, what is counted, whether to stop."""

    def __init__(
        self,
        folder: Store,
        executor: Executor,
        attempts: int,
        stall_after: float,
        listener: Listener,
        command: str,
    ) -> None:
        self.folder, self.executor, self.attempts = folder, executor, attempts
        self.stall_after, self.tell, self.command = stall_after, listener, command
        self.counts: dict[str, Counts] = {}
        self.in_flight: dict[str, int] = {}
        self.ran: set[str] = set()
        self.unclaimed: tuple[str, ...] = ()
        self.signal, self.announced = 0, False
        self.written = 0.0

    def begin(self) -> dict[str, dict[str, Record]]:
        """What is finished already; clears what an earlier run left behind."""
        past = history(self.folder)
        forget(self.folder, past.dropped)
        for dropped in past.dropped:
            self.tell(RecordDropped(dropped))
        for name in past.leftovers:
            self.folder.delete(name)
        self.unclaimed = past.unclaimed
        for stage, done in past.records.items():
            self.counts[stage] = _counted(len(done), done)
        self.status("running")
        return {stage: dict(done) for stage, done in past.records.items()}

    def stage(self, stage: Stage, records: dict[str, dict[str, Record]]) -> None:
        """Run a stage to its end, adding to its records; raises for the tasks that failed for good."""
        if stage.name in self.ran:
            raise RuntimeError(f"next_stage returned {stage.name!r} again, though all its tasks are finished")
        _check_fits(stage, self.executor.capacity())
        done = records.setdefault(stage.name, {})
        todo, start = remaining(stage, records), time.monotonic()
        self.sweep(stage, records)
        self.open(stage, done)
        failures = self.rounds(stage, todo, done)
        counts = self.counts[stage.name]
        seconds = time.monotonic() - start
        self.tell(
            StageFinished(stage.name, len(stage.tasks), len(failures), counts.rows, counts.bad_rows, seconds)
        )
        if self.signal:
            raise Stopped(self.signal)
        if failures:
            raise _failed(stage, failures)
        if todo:
            compact(self.folder, stage.name, done)

    def sweep(self, stage: Stage, records: Mapping[str, Mapping[str, Record]]) -> None:
        """Delete what a run of another plan wrote and did not commit, if it reads like an output of ours."""
        claimed = {name for done in records.values() for record in done.values() for name in record.bytes}
        for name in stale(stage, self.unclaimed):
            if name not in claimed:  # an earlier stage of this run may have written it again
                self.folder.delete(name)

    def open(self, stage: Stage, done: Mapping[str, Record]) -> None:
        """Begin to count."""
        self.ran.add(stage.name)
        self.counts[stage.name] = counts = _counted(len(stage.tasks), done)
        self.tell(StageStarted(stage, len(done), counts.rows, sum(task.rows for task in stage.tasks)))
        self.status("running")

    def rounds(self, stage: Stage, todo: tuple[Task, ...], done: dict[str, Record]) -> dict[str, Failure]:
        """Attempt all tasks, then those that failed for a reason that may pass, ...; returns what failed for
        good.
        """
        failures: dict[str, Failure] = {}
        for number in range(1, self.attempts + 1):
            again = []
            for finished in self.results(stage, todo, number):
                task, outcome = finished.task, finished.outcome
                if isinstance(outcome, Record):
                    self.succeeded(stage, task, outcome, done)
                elif self.failed(stage, task, outcome, number):
                    failures[task.name] = outcome
                else:
                    again.append(task)
            todo = tuple(again)
            if self.signal or not todo:
                break
        return failures

    def results(self, stage: Stage, tasks: tuple[Task, ...], number: int) -> Iterator[Finished]:
        """What the executor says, watched for stalls."""
        last = time.monotonic()
        stream = self.executor.map(stage, self.calls(stage, tasks, number))
        try:
            for finished in stream:
                self.status("running", STATUS_EVERY)
                self.announce_stop()
                if finished is not None:
                    last = time.monotonic()
                    self.in_flight.pop(finished.task.name, None)
                    yield finished
                elif time.monotonic() - last > self.stall_after:
                    raise self.stalled(stage)
        finally:
            getattr(
                stream, "close", lambda: None
            )()  # also when this iterator is left early: abandons what is in flight
            self.in_flight.clear()

    def calls(self, stage: Stage, tasks: tuple[Task, ...], number: int) -> Calls:
        """Hand out tasks until told to stop."""
        attempt = Attempt(self.folder, stage.name, number)
        for task in tasks:
            if self.signal:
                return
            self.in_flight[task.name] = number
            self.tell(TaskStarted(stage.name, task, number))
            yield task, attempt

    def succeeded(self, stage: Stage, task: Task, record: Record, done: dict[str, Record]) -> None:
        """Count a finished task."""
        done[task.name] = record
        now = self.counts[stage.name]
        rows, bad = now.rows + record.rows, now.bad_rows + record.bad_rows
        self.counts[stage.name] = replace(now, finished=now.finished + 1, rows=rows, bad_rows=bad)
        self.tell(TaskFinished(stage.name, task, record))

    def failed(self, stage: Stage, task: Task, failure: Failure, number: int) -> bool:
        """Keep the traceback of a failed attempt; True when there will be no other."""
        final = failure.kind != "machine" or failure.lasting or number == self.attempts
        text = f"attempt {number} of task {task.name} of stage {stage.name}, inputs {_inputs(task)}\n"
        text += f"{failure.cause}\n\n"
        with suppress(MachineError):  # where the disk is full: the cause is told all the same
            self.folder.write(f"{ERRORS}/{stage.name}/{task.name}.txt", (text + failure.traceback).encode())
        if final:
            now = self.counts[stage.name]
            self.counts[stage.name] = replace(now, failed=now.failed + 1)
        self.tell(TaskFailed(stage.name, task, number, failure, final))
        return final

    def stalled(self, stage: Stage) -> MachineError:
        """The error of a run in which nothing happens."""
        names = ", ".join(self.in_flight) or "none, no worker took one"
        return MachineError(
            f"a task of stage {stage.name!r} to end within {self.stall_after:g} seconds",
            f"none; in flight: {names}",
            "Look at the workers of these tasks; run the same again to continue, or allow more time.",
        )

    def announce_stop(self) -> None:
        """Say once that a signal came: here and not in its handler, which may interrupt anything, a listener
        too.
        """
        if self.signal and not self.announced:
            self.announced = True
            self.tell(Stopping(signal.Signals(self.signal).name, tuple(self.in_flight)))

    def ended(self, state: str, exit_code: int, message: str = "") -> None:
        """Say how the run ended, to programs and to listeners."""
        self.status(state, exit_code=exit_code, message=message)
        self.tell(RunEnded(state, exit_code, message))

    def status(self, state: str, every: float = 0.0, exit_code: int | None = None, message: str = "") -> None:
        """Write status.json, unless it is younger than `every` seconds."""
        if time.monotonic() - self.written >= every or not self.written:
            self.written = time.monotonic()
            with suppress(MachineError):  # it may lag; what cannot be written ends the tasks, not the others
                write_status(
                    self.folder, RunStatus(state, exit_code, message, self.command, dict(self.counts))
                )


def _counted(total: int, done: Mapping[str, Record]) -> Counts:
    rows = sum(record.rows for record in done.values())
    return Counts(total, len(done), 0, rows, sum(record.bad_rows for record in done.values()))


def _check_fits(stage: Stage, capacity: Resources | None) -> None:
    if capacity is None:
        return
    asked = stage.resources
    for name in ("cpus", "gpus", "memory"):
        need, has = getattr(asked, name), getattr(capacity, name)
        if need > has and not (name == "memory" and has == 0):
            raise UsageError(
                f"tasks of stage {stage.name!r} to fit a worker",
                f"{name} {need:,} asked where the largest worker has {has:,}",
                "Ask for less, or use larger workers: this would wait forever.",
            )


def _failed(stage: Stage, failures: Mapping[str, Failure]) -> LocdistError:
    """One error for all tasks that failed: of the class of the first that repeating would not help."""
    first = next((name for name in failures if failures[name].kind != "machine"), next(iter(failures)))
    task = next(task for task in stage.tasks if task.name == first)
    rest = [name for name in failures if name != first]
    listed = ", ".join(rest[:5]) + (", ..." if len(rest) > 5 else "")
    others = f" ({len(rest)} other{' tasks' if rest[1:] else ''} failed too: {listed})" if rest else ""
    kinds = {"usage": UsageError, "data": DataError, "machine": MachineError}
    return kinds.get(failures[first].kind, LocdistError)(
        f"task {first!r} of stage {stage.name!r} to finish",
        f"{failures[first].cause} [inputs {_inputs(task)}]{others}",
        f"The traceback is in {ERRORS}/{stage.name}/{first}.txt; running the same again continues.",
    )


def _inputs(task: Task) -> str:
    return json.dumps(task.inputs, default=str)[:500]
