"""`_locdist/status.json`: how a run stands, for programs and for `locdist status`.

It repeats what the exit code and the messages say; nothing is decided from it, so it may lag a few seconds
behind.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from locdist.data.store import Store

STATUS = "_locdist/status.json"


@dataclass(frozen=True)
class Counts:
    """Tasks and rows of one stage."""

    total: int = 0
    finished: int = 0
    failed: int = 0
    rows: int = 0
    bad_rows: int = 0


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
    updated : float
        Seconds since 1970. A "running" older than a minute means that the driver died: the lock knows.
    """

    state: str
    exit_code: int | None = None
    message: str = ""
    command: str = ""
    stages: Mapping[str, Counts] = field(default_factory=dict)
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    updated: float = field(default_factory=time.time)


def write_status(folder: Store, status: RunStatus) -> None:
    """Replace the status of the folder."""
    folder.write(STATUS, (json.dumps(asdict(status), indent=2) + "\n").encode())


def read_status(folder: Store) -> RunStatus | None:
    """The status of the folder, or None when nothing ran there yet."""
    if not folder.exists(STATUS):
        return None
    content = json.loads(folder.read(STATUS))
    stages = {name: Counts(**counts) for name, counts in content.pop("stages").items()}
    return RunStatus(**content, stages=stages)
