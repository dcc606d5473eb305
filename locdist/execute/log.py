"""The log of a folder: a line of JSON for each event, appended to `_locdist/events.jsonl` by one run after
another.

People and programs read it, nothing is decided from it, and where it cannot be written (a full disk) the run
goes on without. A driver that dies leaves everything up to its last event. Object stores cannot append: there
each run writes pieces, `_locdist/events/TIME-PID-00000.jsonl`, when it ends, when a stage ends, and in
between once a minute; a driver that dies takes what came after the last piece with it. Addresses in it have
no credentials (`data.filesystems.redacted`).
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import IO, Any

from pydantic_core import from_json

from locdist.data.filesystems import redacted
from locdist.data.store import Store
from locdist.errors import LocdistError
from locdist.execute.events import (
    Audited,
    Connected,
    Event,
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
    Tried,
    Tuning,
    Waiting,
)

EVENTS = "_locdist/events.jsonl"
PIECES = "_locdist/events"
PIECE_EVERY = 60.0  # seconds
TAIL = 1 << 16  # bytes at the end of a log in which its last events are looked for
Line = dict[str, Any]


@contextmanager
def logged(folder: Store, listener: Listener | None) -> Iterator[Listener]:
    """A listener that writes to the log of a folder and passes on to `listener`, while the body runs."""
    log = _Pieces(folder) if folder.local is None else _Appended(folder.target(EVENTS))

    def tell(event: Event) -> None:
        log.write(event)
        if listener is not None:
            listener(event)

    try:
        yield tell
    finally:
        log.close()


def last_events(folder: Store, count: int) -> list[Line]:
    """The last events of a folder, oldest first; reads the end of the log only."""
    if folder.local is None:
        pieces = folder.files(PIECES)[-count:]
        text = b"".join(folder.read(piece.path) for piece in pieces)
    elif folder.exists(EVENTS):
        with folder.open(EVENTS) as stream:
            stream.seek(max(0, stream.size() - TAIL))
            text = bytes(stream.read())
    else:
        return []
    return [line for line in map(_parsed, text.splitlines()) if line is not None][-count:]


def as_line(event: Event, now: float) -> Line:
    """An event as it is logged at a time in seconds since 1970."""
    name, fields = _FIELDS[type(event)]
    moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return {"time": moment.replace("+00:00", "Z"), "event": name, **fields(event)}


class _Appended:
    """A file at the end of which each event is written as it comes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def write(self, event: Event) -> None:
        """Append a line."""
        with suppress(OSError):
            self._file = self._file or self._opened()
            self._file.write(_text(event))
            self._file.flush()

    def close(self) -> None:
        """Leave the file."""
        with suppress(OSError):  # what is still in its buffer may not fit on the disk
            if self._file is not None:
                self._file.close()

    def _opened(self) -> IO[str]:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with open(self._path, "ab+", opener=_no_link) as file:  # a driver that died may have left half a line
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read() not in (b"", b"\n"):
                file.write(b"\n")
        return open(self._path, "a", encoding="utf-8", opener=_no_link)


def _no_link(path: str, flags: int) -> int:
    """Open a log, not what somebody has linked in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


class _Pieces:
    """Small objects, each with the events since the one before."""

    def __init__(self, folder: Store) -> None:
        self._folder, self._lines, self._number, self._last = folder, list[str](), 0, time.monotonic()
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        self._name = f"{PIECES}/{moment}-{os.getpid()}"

    def write(self, event: Event) -> None:
        """Keep a line, and write a piece when it is time."""
        self._lines.append(_text(event))
        if isinstance(event, StageFinished | RunEnded) or time.monotonic() - self._last >= PIECE_EVERY:
            self.close()

    def close(self) -> None:
        """Write what there is."""
        self._last = time.monotonic()
        if self._lines:
            with suppress(LocdistError, OSError):  # the next piece tries again
                self._folder.write(f"{self._name}-{self._number:05}.jsonl", "".join(self._lines).encode())
                self._number, self._lines = self._number + 1, []


def _text(event: Event) -> str:
    return redacted(json.dumps(as_line(event, time.time()), default=str, separators=(",", ":"))) + "\n"


def _parsed(text: bytes) -> Line | None:
    """A line of a log; None for half a one, or something else."""
    with suppress(ValueError):
        line = from_json(text)
        if (
            isinstance(line, dict)
            and isinstance(line.get("time"), str)
            and isinstance(line.get("event"), str)
        ):
            return line
    return None


def _finished(event: TaskFinished) -> Line:
    record = event.record
    told = {name: getattr(record, name) for name in ("attempt", "rows", "bad_rows")}
    told |= {"bytes": sum(record.bytes.values()), "seconds": round(record.seconds, 3)}
    told |= {name: getattr(record, name) for name in ("peak_memory", "host", "pid")}
    return {"stage": event.stage, "task": event.task.name, **told}


def _failed(event: TaskFailed) -> Line:
    failure = event.failure
    told = {"kind": failure.kind, "cause": failure.cause, "lost": failure.lost, "final": event.final}
    return {"stage": event.stage, "task": event.task.name, "attempt": event.attempt, **told}


def _begun(event: StageStarted) -> Line:
    told = {"finished": event.finished, "rows": event.rows, "expected": event.expected}
    return {"stage": event.stage.name, "tasks": len(event.stage.tasks), **told}


def _waiting(event: Waiting) -> Line:
    told = {"in_flight": event.in_flight[:20], "tasks": len(event.in_flight)}
    return {"stage": event.stage, "seconds": round(event.seconds), **told, "reason": event.reason}


def _started(event: RunStarted) -> Line:
    me = {"host": socket.gethostname(), "pid": os.getpid()}
    return {"executor": event.executor, **me, "command": event.command}


def _all(event: Any) -> Line:
    return dict(vars(event))


_FIELDS: Mapping[type[Any], tuple[str, Callable[[Any], Line]]] = {
    Tuning: ("tuning", _all),
    Tried: ("tried", _all),
    RunStarted: ("run-started", _started),
    Connected: ("connected", _all),
    Audited: ("audited", lambda event: _all(event.audit)),
    StageStarted: ("stage-started", _begun),
    TaskStarted: (
        "task-started",
        lambda event: {"stage": event.stage, "task": event.task.name, "attempt": event.attempt},
    ),
    TaskFinished: ("task-finished", _finished),
    TaskFailed: ("task-failed", _failed),
    RecordDropped: ("record-dropped", lambda event: _all(event.dropped)),
    Waiting: ("waiting", _waiting),
    Stopping: ("stopping", _all),
    StageFinished: ("stage-finished", _all),
    RunEnded: ("run-ended", _all),
}
