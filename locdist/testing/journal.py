"""What was started, by whom: commit records only tell of what was finished."""

import json
import os
import socket
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from locdist.data.store import Store

_RELEASED = "released"
_LONGEST = 3600.0  # seconds that a task hangs when nobody releases it


@dataclass(frozen=True)
class Start:
    """The `number`-th start of a task, 1 for the first: where, when (seconds since 1970), whether it was
    `held` by a fault, and whether its function has `ended`, well or not.
    """

    stage: str
    task: str
    number: int
    host: str
    pid: int
    time: float
    held: bool = False
    ended: bool = False

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.stage}/{self.task}.{self.number}"


@dataclass(frozen=True)
class Journal:
    """A folder in which each start of a task leaves a file, however it ends.

    Parameters
    ----------
    place : str
        A folder, or the address of one, that all workers can write to; for one job, apart from its output.
    """

    place: str

    def begin(self, stage: str, task: str) -> Start:
        """Note a start; of twins in the same instant each has its own number."""
        start = Start(stage, task, 1, socket.gethostname(), os.getpid(), time.time())
        while not self._store.create(f"{start.name}.json", json.dumps(asdict(start)).encode()):
            start = replace(start, number=start.number + 1)
        return start

    def end(self, start: Start) -> None:
        """Note that the function of a start has ended."""
        self._store.write(f"{start.name}.ended", b"")

    def hold(self, start: Start) -> None:
        """Note that a start hangs, and hang until `release`."""
        self._store.write(f"{start.name}.held", b"")
        end = time.monotonic() + _LONGEST
        while time.monotonic() < end and not self._store.exists(_RELEASED):
            time.sleep(0.05)

    def release(self) -> None:
        """Let everything go on that hangs, and nothing hang any more."""
        self._store.write(_RELEASED, b"")

    def starts(self, task: str = "") -> list[Start]:
        """All starts so far, the earliest first, or those of one task."""
        names = {file.path for file in self._store.files()}
        found = []
        for name in names:
            if name.endswith(".json"):
                start = Start(**json.loads(self._store.read(name)))
                held, ended = (f"{start.name}.{word}" in names for word in ("held", "ended"))
                found.append(replace(start, held=held, ended=ended))
        return sorted((start for start in found if task in ("", start.task)), key=lambda start: start.time)

    def repeated(self) -> dict[str, int]:
        """How often tasks were started beyond the first time, by "stage/task"; those that were not are
        left out.
        """
        counts = Counter(f"{start.stage}/{start.task}" for start in self.starts())
        return {name: count - 1 for name, count in counts.items() if count > 1}

    def running(self) -> list[Start]:
        """Starts on this machine that have not ended though their process lives."""
        here = [start for start in self.starts() if start.host == socket.gethostname()]
        return [start for start in here if not start.ended and alive(start.pid)]

    @property
    def _store(self) -> Store:
        return Store.at(self.place)


def alive(pid: int) -> bool:
    """Whether a process runs: neither gone nor a zombie, which only waits to be asked how it ended."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # gone since, or a system without /proc
        return not Path("/proc/self").exists()
