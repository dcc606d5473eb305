"""What happens in a run, as frozen events: progress displays, logs and tests listen to these and to nothing
else.
"""

from collections.abc import Callable
from dataclasses import dataclass

from locdist.plan.plan import Stage, Task
from locdist.plan.records import Dropped, Record


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed.

    `kind` is "usage", "data", "machine" or "internal" (an exception of the code itself, which would only come
    again); only machine failures are worth another attempt, and of these not a `lasting` one, a full disk.
    `cause` is one line, `traceback` the remote one or empty.
    """

    kind: str
    cause: str
    traceback: str = ""
    lasting: bool = False


@dataclass(frozen=True)
class StageStarted:
    """`tasks` in all, of which `finished` with `rows` rows were done before; `expected` rows in all, 0 when
    unknown.
    """

    stage: Stage
    finished: int
    rows: int
    expected: int


@dataclass(frozen=True)
class TaskStarted:
    """An attempt was handed to a worker."""

    stage: str
    task: Task
    attempt: int


@dataclass(frozen=True)
class TaskFinished:
    """A task is committed."""

    stage: str
    task: Task
    record: Record


@dataclass(frozen=True)
class TaskFailed:
    """An attempt failed; `final` when there will be no other."""

    stage: str
    task: Task
    attempt: int
    failure: Failure
    final: bool


@dataclass(frozen=True)
class RecordDropped:
    """A task that was finished has to run again."""

    dropped: Dropped


@dataclass(frozen=True)
class Stopping:
    """A signal came: no more tasks are handed out, those in flight are finished."""

    signal: str
    in_flight: tuple[str, ...]


@dataclass(frozen=True)
class StageFinished:
    """The stage ended, `failed` tasks without a record; rows and seconds are of this run."""

    stage: str
    tasks: int
    failed: int
    rows: int
    bad_rows: int
    seconds: float


@dataclass(frozen=True)
class RunEnded:
    """The last event of every run: `state` is "finished", "failed" or "stopped", as in status.json."""

    state: str
    exit_code: int
    message: str


Event = (
    StageStarted
    | TaskStarted
    | TaskFinished
    | TaskFailed
    | RecordDropped
    | Stopping
    | StageFinished
    | RunEnded
)
Listener = Callable[[Event], None]
