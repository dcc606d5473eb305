"""What happens in a run, as frozen events: progress displays, logs and tests listen to these and to nothing
else.
"""

from collections.abc import Callable
from dataclasses import dataclass

from locdist.plan.plan import Stage, Task
from locdist.plan.records import Dropped, Record
from locdist.plan.status import Audit


@dataclass(frozen=True)
class Failure:
    """Why an attempt failed.

    `kind` is "usage", "data", "machine" or "internal" (an exception of the code itself, which would only come
    again); only machine failures are worth another attempt, and of these not a `lasting` one, a full disk.
    `cause` is one line, `traceback` the remote one or empty; `lost` says that the worker itself is gone.
    """

    kind: str
    cause: str
    traceback: str = ""
    lasting: bool = False
    lost: bool = False


@dataclass(frozen=True)
class Tuning:
    """Before the first task the driver compares some `queries` with all `rows` of the index, to tune the
    search and to audit it.
    """

    queries: int
    rows: int


@dataclass(frozen=True)
class Tried:
    """A candidate of `tune`, `number` of `total`, was learned and judged in so many seconds."""

    candidate: str
    error: float
    number: int
    total: int
    seconds: float


@dataclass(frozen=True)
class RunStarted:
    """The first event of every run: the class of its executor, and the command that continues it, if the
    caller gave one.
    """

    executor: str
    command: str


@dataclass(frozen=True)
class Connected:
    """The executor has a cluster: which one, and whether it was started for this run."""

    place: str


@dataclass(frozen=True)
class Audited:
    """What the search of this run finds, measured before its first task, in this run or in the one that it
    continues.
    """

    audit: Audit


@dataclass(frozen=True)
class StageStarted:
    """Of its tasks `finished` were done before, with so many `rows`, `bad_rows` and `bytes` written;
    `expected` rows in all, 0 when unknown.
    """

    stage: Stage
    finished: int
    rows: int
    expected: int
    bad_rows: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class TaskStarted:
    """An attempt was handed to a worker; a retry, when it is not the first."""

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
class Waiting:
    """No task has ended for `seconds`; `reason` is what the executor says to it, or empty."""

    stage: str
    in_flight: tuple[str, ...]
    seconds: float
    reason: str


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
    Tuning
    | Tried
    | RunStarted
    | Connected
    | Audited
    | StageStarted
    | TaskStarted
    | TaskFinished
    | TaskFailed
    | RecordDropped
    | Waiting
    | Stopping
    | StageFinished
    | RunEnded
)
Listener = Callable[[Event], None]
