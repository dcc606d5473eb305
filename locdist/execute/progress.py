"""What people see of a run: a moving display in a terminal, a line now and then elsewhere. Both only listen
to events.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from locdist.execute.events import (
    Event,
    Listener,
    RecordDropped,
    RunEnded,
    StageFinished,
    StageStarted,
    Stopping,
    TaskFailed,
    TaskFinished,
)

EVERY = 5.0  # seconds between two lines


def progress(stream: TextIO | None = None) -> Listener:
    """The display that suits a stream (default: stderr)."""
    stream = stream or sys.stderr
    return Terminal(stream) if stream.isatty() else Lines(stream)


@dataclass
class Tally:
    """Counts of the stage that is running; `rows` and `tasks` include what earlier runs finished, the speed
    does not.
    """

    stage: str = ""
    tasks: int = 0
    total: int = 0
    rows: int = 0
    expected: int = 0
    bad_rows: int = 0
    fresh_rows: int = 0
    fresh_tasks: int = 0
    started: float = field(default_factory=time.monotonic)

    @staticmethod
    def of(event: StageStarted) -> "Tally":
        """The tally at the beginning of a stage."""
        return Tally(event.stage.name, event.finished, len(event.stage.tasks), event.rows, event.expected)

    def add(self, event: TaskFinished) -> None:
        """Count a finished task."""
        self.tasks, self.fresh_tasks = self.tasks + 1, self.fresh_tasks + 1
        self.rows, self.fresh_rows = self.rows + event.record.rows, self.fresh_rows + event.record.rows
        self.bad_rows += event.record.bad_rows

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
        left = "" if self.left is None else f", {_duration(self.left)} left"
        bad = f", {self.bad_rows:,} bad rows" if self.bad_rows else ""
        return (
            f"{self.stage}: {self.tasks}/{self.total} tasks, {rows} rows, {self.speed:,.0f} rows/s{left}{bad}"
        )


class Lines:
    """A line every few seconds, one at the end of each stage, and one for whatever goes wrong."""

    def __init__(self, stream: TextIO, every: float = EVERY) -> None:
        self._stream, self._every = stream, every
        self._tally, self._last = Tally(), 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageStarted):
            self._tally, self._last = Tally.of(event), time.monotonic()
        elif isinstance(event, TaskFinished):
            self._tally.add(event)
            if time.monotonic() - self._last >= self._every:
                self._last = time.monotonic()
                self._print(str(self._tally))
        elif (text := sentence(event)) is not None:
            self._print(text)

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class Terminal:
    """A bar for each stage, kept by rich."""

    def __init__(self, stream: TextIO) -> None:
        # Imported here because most workers and scripts have no terminal, and rich takes a tenth of a second.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

        self._bars = Progress(BarColumn(), TextColumn("{task.description}"), console=Console(file=stream))
        self._tally, self._bar = Tally(), self._bars.add_task("", visible=False)

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageStarted):
            self._tally = Tally.of(event)
            self._bars.start()
            self._bars.update(self._bar, total=self._tally.total, visible=True)
        elif isinstance(event, TaskFinished):
            self._tally.add(event)
        elif (text := sentence(event)) is not None:
            self._bars.console.print(text, highlight=False, markup=False)
        self._bars.update(self._bar, completed=self._tally.tasks, description=str(self._tally))
        if isinstance(event, StageFinished | RunEnded):
            self._bars.update(self._bar, visible=False)
            self._bars.stop()


def sentence(event: Event) -> str | None:
    """What an event says to people, None for those that are only counted."""
    words: dict[type[Any], Callable[[Any], str]] = {
        StageFinished: _finished,
        TaskFailed: _failed,
        RecordDropped: lambda e: f"task {e.dropped.task} of {e.dropped.stage} runs again: {e.dropped.reason}",
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
    return f"{event.stage}: ended after {_duration(event.seconds)}, {counts}"


def _failed(event: TaskFailed) -> str:
    then = "given up" if event.final else "it will be tried again"
    where = f"task {event.task.name} of {event.stage}"
    return f"{where} failed in attempt {event.attempt}, {then}: {event.failure.cause}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours}:{minutes:02}:{rest:02}"
        if hours
        else f"{minutes}:{rest:02}"
        if seconds >= 10
        else f"{seconds:.1f} s"
    )
