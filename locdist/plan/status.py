"""`_locdist/status.json`: how a run stands, for programs and for `locdist status`.

It repeats what the exit code and the messages say; nothing is decided from it, so it may lag a few seconds
behind.
"""

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from locdist.data.artefacts import packed, unpacked
from locdist.data.store import Store

STATUS = "_locdist/status.json"


@dataclass(frozen=True)
class Counts:
    """Tasks and rows of one stage.

    Parameters
    ----------
    total, finished, failed, rows, bad_rows : int
        Tasks in all, with a record, given up; rows of the finished ones.
    bytes : int
        Written by them.
    retried : int
        Attempts of this run that were not the first of their task.
    earlier, earlier_rows : int
        What was finished before this run.
    began : float
        When this run began with the stage, in seconds since 1970; 0 before.
    """

    total: int = 0
    finished: int = 0
    failed: int = 0
    rows: int = 0
    bad_rows: int = 0
    bytes: int = 0
    retried: int = 0
    earlier: int = 0
    earlier_rows: int = 0
    began: float = 0.0


@dataclass(frozen=True)
class Audit:
    """Recall of the search with `nprobe` lists a query: mean and 95 % interval over `queries` queries at `k`
    neighbors.
    """

    nprobe: int
    mean: float
    low: float
    high: float
    queries: int
    k: int

    def __str__(self) -> str:
        interval = f"{self.low:.4f} to {self.high:.4f}, {self.queries} queries, k={self.k}"
        return f"recall {self.mean:.4f} ({interval}), nprobe {self.nprobe}"


@dataclass(frozen=True)
class RunStatus:
    """State of a run.

    Parameters
    ----------
    state : str
        "running", "finished", "failed" or "stopped".
    exit_code : int or None
        What the command line ends with; None while running.
    message : str
        The error, if there is one.
    command : str
        The command that continues, if the caller gave one.
    stages : mapping of stage name to Counts
    audit : Audit or None
        Recall; None when the search is exact, or nothing is searched.
    updated : float
        Seconds since 1970. A "running" older than a minute means that the driver died: the lock knows.
    """

    state: str
    exit_code: int | None = None
    message: str = ""
    command: str = ""
    stages: Mapping[str, Counts] = field(default_factory=dict)
    audit: Audit | None = None
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    updated: float = field(default_factory=time.time)


def write_status(folder: Store, status: RunStatus) -> None:
    """Replace the status of the folder."""
    folder.write(STATUS, packed(asdict(status), indent=2) + b"\n")


def read_status(folder: Store) -> RunStatus | None:
    """The status of the folder, or None when nothing ran there yet."""
    if not folder.exists(STATUS):
        return None
    remedy = "Delete that file; the next run writes it again."
    return unpacked(RunStatus, folder.read(STATUS), "the status of a run", folder.path(STATUS), remedy)
