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

from locdist.data.filesystems import redacted
from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, MachineError, UsageError
from locdist.execute.contract import Calls, Executor
from locdist.execute.events import (
    Audited,
    Connected,
    Failure,
    Listener,
    RecordDropped,
    RunEnded,
    RunStarted,
    StageFinished,
    StageStarted,
    Stopping,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    Waiting,
)
from locdist.execute.fitting import check_fits
from locdist.execute.worker import Finished
from locdist.plan.plan import Attempt, Stage, Task, remaining, stale
from locdist.plan.records import ERRORS, Record, claim_of, compact, forget, history, temporary
from locdist.plan.status import Audit, Counts, RunStatus, write_status

STATUS_EVERY = 5.0  # seconds
WAITED = 30.0  # seconds without a task ending after which, and then as often, it is said what is awaited


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
        audit: Audit | None = None,
    ) -> None:
        self.folder, self.executor, self.attempts = folder, executor, attempts
        self.stall_after, self.tell, self.command = stall_after, listener, command
        self.audit = audit
        self.counts: dict[str, Counts] = {}
        self.in_flight: dict[str, int] = {}
        self.ran: set[str] = set()
        self.unclaimed: tuple[str, ...] = ()
        self.lost = False  # whether a worker was
        self.signal, self.announced = 0, False
        self.written = 0.0
        self.claim = ""

    def introduce(self) -> None:
        """Say what begins, before the executor has workers."""
        self.tell(RunStarted(type(self.executor).__name__, redacted(self.command)))
        if self.audit is not None:
            self.tell(Audited(self.audit))

    def connect(self, stage: Stage) -> None:
        """Have workers for a stage, and say where they are."""
        self.executor.start()
        place = self.executor.place()
        if place and not self.ran:
            self.tell(Connected(redacted(place)))
        wait = lambda lack: self.tell(Waiting(stage.name, (), 0.0, lack))  # noqa: E731
        check_fits(stage, self.executor, wait, self.check_stop)
        self.check_stop()

    def check_stop(self) -> None:
        """Stop here, when a signal came and no task is in flight."""
        self.announce_stop()
        if self.signal:
            raise Stopped(self.signal)

    def begin(self) -> dict[str, dict[str, Record]]:
        """What is finished already; clears what an earlier run left behind."""
        self.claim, past = claim_of(self.folder), history(self.folder)
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
        self.connect(stage)
        done = records.setdefault(stage.name, {})
        todo, start = remaining(stage, records), time.monotonic()
        self.sweep(stage, records)
        self.open(stage, done)
        failures = self.rounds(stage, todo, done)
        counts = self.counts[stage.name]
        seconds = time.monotonic() - start
        rows = counts.rows - counts.earlier_rows
        self.tell(StageFinished(stage.name, len(stage.tasks), len(failures), rows, counts.bad_rows, seconds))
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
        self.counts[stage.name] = counts = replace(_counted(len(stage.tasks), done), began=time.time())
        told = counts.finished, counts.rows, sum(task.rows for task in stage.tasks)
        self.tell(StageStarted(stage, *told, counts.bad_rows, counts.bytes))
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
        last = told = time.monotonic()
        stream = self.executor.map(stage, self.calls(stage, tasks, number))
        try:
            for finished in stream:
                self.status("running", STATUS_EVERY)
                self.announce_stop()
                now = time.monotonic()
                if finished is not None:
                    last = told = now
                    self.in_flight.pop(finished.task.name, None)
                    yield finished
                elif now - last > self.stall_after:
                    raise self.stalled(stage)
                elif now - told >= WAITED:
                    told = now
                    self.tell(Waiting(stage.name, tuple(self.in_flight), now - last, self.executor.waiting()))
        finally:
            getattr(
                stream, "close", lambda: None
            )()  # also when this iterator is left early: abandons what is in flight
            self.in_flight.clear()

    def calls(self, stage: Stage, tasks: tuple[Task, ...], number: int) -> Calls:
        """Hand out tasks until told to stop."""
        attempt = Attempt(self.folder, stage.name, number, claim=self.claim)
        for task in tasks:
            if self.signal:
                return
            self.in_flight[task.name] = number
            now = self.counts[stage.name]
            self.counts[stage.name] = replace(now, retried=now.retried + (number > 1))
            self.tell(TaskStarted(stage.name, task, number))
            yield task, attempt

    def tidy(self) -> None:
        """Delete what workers that were lost in this run left half-written."""
        if self.lost:
            for file in self.folder.files():
                if temporary(file.path):
                    self.folder.delete(file.path)

    def succeeded(self, stage: Stage, task: Task, record: Record, done: dict[str, Record]) -> None:
        """Count a finished task."""
        done[task.name] = record
        now = self.counts[stage.name]
        self.counts[stage.name] = replace(
            now,
            finished=now.finished + 1,
            rows=now.rows + record.rows,
            bad_rows=now.bad_rows + record.bad_rows,
            bytes=now.bytes + sum(record.bytes.values()),
        )
        self.tell(TaskFinished(stage.name, task, record))

    def failed(self, stage: Stage, task: Task, failure: Failure, number: int) -> bool:
        """Keep the traceback of a failed attempt; True when there will be no other."""
        self.lost |= failure.lost
        final = failure.kind != "machine" or failure.lasting or number == self.attempts
        text = f"attempt {number} of task {task.name} of stage {stage.name}, inputs {_inputs(stage, task)}\n"
        text += f"{failure.cause}\n\n"
        with suppress(MachineError):  # where the disk is full: the cause is told all the same
            kept = redacted(text + failure.traceback).encode()
            self.folder.write(f"{ERRORS}/{stage.name}/{task.name}.txt", kept)
        if final:
            now = self.counts[stage.name]
            self.counts[stage.name] = replace(now, failed=now.failed + 1)
        self.tell(TaskFailed(stage.name, task, number, failure, final))
        return final

    def stalled(self, stage: Stage) -> MachineError:
        """The error of a run in which nothing happens."""
        names, reason = ", ".join(self.in_flight) or "none, no worker took one", self.executor.waiting()
        return MachineError(
            f"a task of stage {stage.name!r} to end within {self.stall_after:g} seconds",
            f"none; in flight: {names}" + (f"; {reason}" if reason else ""),
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
        message = redacted(message)
        self.status(state, exit_code=exit_code, message=message)
        self.tell(RunEnded(state, exit_code, message))

    def status(self, state: str, every: float = 0.0, exit_code: int | None = None, message: str = "") -> None:
        """Write status.json, unless it is younger than `every` seconds."""
        if time.monotonic() - self.written >= every or not self.written:
            self.written = time.monotonic()
            with suppress(MachineError):  # it may lag; what cannot be written ends the tasks, not the others
                told = state, exit_code, message, redacted(self.command), dict(self.counts), self.audit
                write_status(self.folder, RunStatus(*told))


def _counted(total: int, done: Mapping[str, Record]) -> Counts:
    """The counts of a stage that begins."""
    rows, bad = (sum(getattr(record, name) for record in done.values()) for name in ("rows", "bad_rows"))
    size = sum(sum(record.bytes.values()) for record in done.values())
    return Counts(total, len(done), 0, rows, bad, size, earlier=len(done), earlier_rows=rows)


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
        f"{failures[first].cause} [inputs {_inputs(stage, task)}]{others}",
        f"The traceback is in {ERRORS}/{stage.name}/{first}.txt; running the same again continues.",
    )


def _inputs(stage: Stage, task: Task) -> str:
    reads = getattr(stage.function, "reads", None)
    return str(reads(task)) if reads else json.dumps(task.inputs, default=str)[:500]
