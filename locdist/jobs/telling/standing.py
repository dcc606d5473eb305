"""What `status` returns: how a folder stands, as text and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from locdist.errors import MachineError, TooManyBadRows
from locdist.execute.amounts import duration, size
from locdist.jobs.telling.text import aligned, number, to_json
from locdist.plan.lock import Holder
from locdist.plan.status import Audit
from locdist.search.summary import Summary

SHOWN = 10  # failures, and files to run again, that the text names
LAST = 5  # events that the text tells


@dataclass(frozen=True)
class StageState:
    """One stage.

    Parameters
    ----------
    name : str
    finished, total : int, int or None
        Tasks; None before it was planned.
    rows, bad_rows, bytes : int
        Of the finished ones; bytes written.
    retried : int
        Attempts of the last run that were not the first of their task.
    speed, left : float or None
        Of a stage that is running: rows a second in this run, and seconds that the rest will take.
    """

    name: str
    finished: int
    total: int | None
    rows: int
    bad_rows: int
    bytes: int = 0
    retried: int = 0
    speed: float | None = None
    left: float | None = None


@dataclass(frozen=True)
class FailedTask:
    """A task that is not finished, and the cause of its last failure."""

    stage: str
    task: str
    cause: str


@dataclass(frozen=True)
class FolderStatus:
    """How a folder stands.

    Parameters
    ----------
    folder, kind : str
        The verb that fills it.
    state : {"finished", "running", "stopped", "failed", "died", "damaged", "not started"}
        "died": it was running and its driver is gone. "damaged": finished once, and
        outputs are missing or changed now.
    exit_code : int or None
        What the last run ended with.
    message : str
        The error of the last run.
    stages : tuple of StageState
    failures : tuple of FailedTask
        The first hundred.
    dropped : tuple of str
        Finished tasks whose outputs are missing or were changed: they run again.
    command : str
        The command that continues; empty when nobody said.
    notes : tuple of str
        What a finished folder holds.
    index : Summary or None
        Of an index that is finished.
    audit : Audit or None
        Recall of the search.
    runner : Holder or None
        Who is running it.
    events : tuple of mapping
        The last of the log, oldest first.
    """

    folder: str
    kind: str
    state: str
    exit_code: int | None = None
    message: str = ""
    stages: tuple[StageState, ...] = ()
    failures: tuple[FailedTask, ...] = ()
    dropped: tuple[str, ...] = ()
    command: str = ""
    notes: tuple[str, ...] = ()
    index: Summary | None = None
    audit: Audit | None = None
    runner: Holder | None = None
    events: tuple[Mapping[str, Any], ...] = ()

    @property
    def code(self) -> int:
        """What `locdist status` exits with: the exit code of the last run, 4 when it died or its outputs are
        damaged, 0 while it is running or before it starts.
        """
        return MachineError.exit_code if self.state in ("died", "damaged") else self.exit_code or 0

    def to_json(self) -> bytes:
        """The status as JSON."""
        return to_json(asdict(self))

    def __str__(self) -> str:
        bad = self.state == "finished" and self.exit_code == TooManyBadRows.exit_code
        state = f"{self.state}, with too many bad rows" if bad else self.state
        lines = [f"{self.folder}: {self.kind}, {state}", *([str(self.index)] if self.index else [])]
        lines += [f"run by {self.runner}"] if self.runner else []
        lines += self.notes
        lines += [self.message] if self.message else []
        lines += aligned([_HEAD, *map(_cells, self.stages)]) if self.stages else []
        lines += [_pace(stage) for stage in self.stages if stage.speed is not None]
        lines += [str(self.audit)] if self.audit else []
        lines += _few([f"failed: {each.task} of {each.stage}: {each.cause}" for each in self.failures])
        lines += _few([f"to run again: {each}" for each in self.dropped])
        if self.state != "finished":
            lines += [event_line(event) for event in self.events[-LAST:]]
        built = (
            self.state == "damaged" and self.index
        )  # which the same command leaves as it is: the notes say more
        if self.state not in ("finished", "running") and not built:
            lines.append(f"to continue: {self.command or 'run the same command again'}")
        return "\n".join(lines)


def event_line(event: Mapping[str, Any]) -> str:
    """An event of the log as a line of text."""
    told = {name: value for name, value in event.items() if name not in ("time", "event") and value != ""}
    return f"{event['time']} {event['event']}: " + ", ".join(f"{name} {_value(told[name])}" for name in told)


_HEAD = ("stage", "tasks", "rows", "bad rows", "written", "retried")


def _cells(stage: StageState) -> tuple[str, ...]:
    total = "?" if stage.total is None else f"{stage.total:,}"
    counts = (f"{stage.finished:,}/{total}", f"{stage.rows:,}", f"{stage.bad_rows:,}")
    return stage.name, *counts, size(stage.bytes), f"{stage.retried:,}"


def _pace(stage: StageState) -> str:
    left = "" if stage.left is None else f", about {duration(stage.left)} left"
    return f"{stage.name}: {stage.speed:,.0f} rows/s{left}"


def _few(lines: list[str]) -> list[str]:
    more = len(lines) - SHOWN
    return lines[:SHOWN] + ([f"... and {more:,} more"] if more > 0 else [])


def _value(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value) if isinstance(value, bool) else number(value)
