"""What people see of a run: a moving display in a terminal, a line now and then elsewhere. Both only listen
to events.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from locdist.execute.amounts import duration, size
from locdist.execute.events import (
    Audited,
    Connected,
    Event,
    Listener,
    RecordDropped,
    RunEnded,
    StageFinished,
    StageStarted,
    Stopping,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    Tried,
    Tuning,
    Waiting,
)

EVERY = 5.0  # seconds between two lines
NAMED = 5  # tasks in flight that are named
TROUBLES = (TaskFailed, RecordDropped)


def progress(stream: TextIO | None = None) -> Listener:
    """The display that suits a stream (default: stderr)."""
    stream = stream or sys.stderr
    return Terminal(stream) if stream.isatty() else Lines(stream)


@dataclass
class Tally:
    """Counts of the stage that is running; `rows`, `tasks` and `bytes` include what earlier runs finished,
    the speed does not.
    """

    stage: str = ""
    tasks: int = 0
    total: int = 0
    rows: int = 0
    expected: int = 0
    bad_rows: int = 0
    bytes: int = 0
    retried: int = 0
    lost: int = 0
    fresh_rows: int = 0
    fresh_tasks: int = 0
    started: float = field(default_factory=time.monotonic)

    @staticmethod
    def of(event: StageStarted) -> "Tally":
        """The tally at the beginning of a stage."""
        told = event.stage.name, event.finished, len(event.stage.tasks), event.rows, event.expected
        return Tally(*told, bad_rows=event.bad_rows, bytes=event.bytes)

    def add(self, event: Event) -> None:
        """Count what happened."""
        if isinstance(event, TaskFinished):
            self.tasks, self.fresh_tasks = self.tasks + 1, self.fresh_tasks + 1
            self.rows, self.fresh_rows = self.rows + event.record.rows, self.fresh_rows + event.record.rows
            self.bad_rows += event.record.bad_rows
            self.bytes += sum(event.record.bytes.values())
        elif isinstance(event, TaskStarted):
            self.retried += event.attempt > 1
        elif isinstance(event, TaskFailed):
            self.lost += event.failure.lost

    @property
    def speed(self) -> float:
        """Rows a second in this run."""
        return self.fresh_rows / max(time.monotonic() - self.started, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds that the rest of the tasks will take at the speed so far, None before the first."""
        if not self.fresh_tasks:
            return None
        return (time.monotonic() - self.started) * (self.total - self.tasks) / self.fresh_tasks

    def __str__(self) -> str:
        rows = f"{self.rows:,}" + (f"/{self.expected:,}" if self.expected else "")
        told = [f"{self.stage}: {self.tasks:,}/{self.total:,} tasks", f"{rows} rows"]
        told += [f"{self.speed:,.0f} rows/s"] + ([f"{size(self.bytes)} written"] if self.bytes else [])
        told += [] if self.left is None else [f"{duration(self.left)} left"]
        counts = {"bad rows": self.bad_rows, "retried": self.retried, "workers lost": self.lost}
        return ", ".join([*told, *(f"{count:,} {name}" for name, count in counts.items() if count)])


class Troubles:
    """What goes wrong, in not more than a sentence every few seconds: a thousand failures are one line with
    their number.
    """

    def __init__(self, every: float) -> None:
        self._every, self._last, self._held = every, float("-inf"), 0

    def sentence(self, event: Event) -> str | None:
        """What to say now; None to hold it back."""
        if time.monotonic() - self._last < self._every:
            self._held += 1
            return None
        more, self._last = self.rest(), time.monotonic()
        return f"{sentence(event)}{f' ({more})' if more else ''}"

    def rest(self) -> str | None:
        """What was held back since it was last asked."""
        held, self._held = self._held, 0
        return f"and {held:,} more failures; `locdist status` lists them" if held else None


class Lines:
    """A line every few seconds on how it stands, not more than that on what goes wrong, and one at the end of
    each stage.
    """

    def __init__(self, stream: TextIO, every: float = EVERY) -> None:
        self._stream, self._every = stream, every
        self._tally, self._last, self._troubles = Tally(), 0.0, Troubles(every)

    def __call__(self, event: Event) -> None:
        self._tally.add(event)
        if isinstance(event, StageStarted):
            self._tally, self._last = Tally.of(event), time.monotonic()
        elif isinstance(event, TaskFinished):
            if time.monotonic() - self._last >= self._every:
                self._last = time.monotonic()
                self._print(str(self._tally))
        elif isinstance(event, TROUBLES):
            self._print(self._troubles.sentence(event))
        else:
            self._print(self._troubles.rest() if isinstance(event, StageFinished | RunEnded) else None)
            self._print(sentence(event))

    def _print(self, text: str | None) -> None:
        if text is not None:
            print(text, file=self._stream, flush=True)


class Terminal:
    """A bar for each stage, kept by rich."""

    def __init__(self, stream: TextIO, every: float = EVERY) -> None:
        # Imported here because most workers and scripts have no terminal, and rich takes a tenth of a second.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

        self._bars = Progress(BarColumn(), TextColumn("{task.description}"), console=Console(file=stream))
        self._tally, self._bar = Tally(), self._bars.add_task("", visible=False)
        self._troubles = Troubles(every)

    def __call__(self, event: Event) -> None:
        self._tally.add(event)
        if isinstance(event, StageStarted):
            self._tally = Tally.of(event)
            self._bars.start()
            self._bars.update(self._bar, total=self._tally.total, visible=True)
        elif isinstance(event, TROUBLES):
            self._print(self._troubles.sentence(event))
        else:
            self._print(self._troubles.rest() if isinstance(event, StageFinished | RunEnded) else None)
            self._print(sentence(event))
        self._bars.update(self._bar, completed=self._tally.tasks, description=str(self._tally))
        if isinstance(event, StageFinished | RunEnded):
            self._bars.update(self._bar, visible=False)
            self._bars.stop()

    def _print(self, text: str | None) -> None:
        if text is not None:
            self._bars.console.print(text, highlight=False, markup=False)


def sentence(event: Event) -> str | None:
    """What an event says to people, None for those that are only counted."""
    words: dict[type[Any], Callable[[Any], str]] = {
        Tuning: lambda e: f"tuning: {e.queries:,} queries are compared with all {e.rows:,} rows of the index",
        Tried: lambda e: (
            f"tuning: {e.number} of {e.total}, {e.candidate}: error {e.error:.6g}, {duration(e.seconds)}"
        ),
        Connected: lambda e: e.place,
        Audited: lambda e: str(e.audit),
        StageFinished: _finished,
        TaskFailed: _failed,
        RecordDropped: lambda e: f"task {e.dropped.task} of {e.dropped.stage} runs again: {e.dropped.reason}",
        Waiting: _waiting,
        Stopping: lambda e: (
            f"{e.signal}: finishing {len(e.in_flight)} tasks in flight; once more to abandon them"
        ),
    }
    write = words.get(type(event))
    return write(event) if write else None


def _finished(event: StageFinished) -> str:
    failed = f", failed tasks: {event.failed}" if event.failed else ""
    bad = f", {event.bad_rows:,} bad" if event.bad_rows else ""
    counts = f"{event.tasks} tasks, {event.rows:,} rows{bad}{failed}"
    return f"{event.stage}: ended after {duration(event.seconds)}, {counts}"


def _failed(event: TaskFailed) -> str:
    then = "given up" if event.final else "it will be tried again"
    where = f"task {event.task.name} of {event.stage}"
    return f"{where} failed in attempt {event.attempt}, {then}: {event.failure.cause}"


def _waiting(event: Waiting) -> str:
    count = len(event.in_flight)
    names = ", ".join(event.in_flight[:NAMED]) + (f", ... ({count:,} in flight)" if count > NAMED else "")
    awaited = f"{names} to end" if count else "a worker"
    reason = f"; {event.reason}" if event.reason else ""
    since = f" since {duration(event.seconds)}" if event.seconds else ""
    return f"{event.stage}: waiting{since} for {awaited}{reason}"
