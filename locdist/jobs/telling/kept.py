"""Reports: what a job leaves in its folder at the end."""

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Self

from locdist.data.artefacts import packed, unpacked
from locdist.data.store import Store
from locdist.jobs.telling.text import plain, to_json
from locdist.plan.records import Record

REPORT = "_locdist/report.json"


@dataclass(frozen=True)
class Kept:
    """The report of a job; what it tells are the fields of its class."""

    def to_json(self) -> bytes:
        """The report as JSON."""
        return to_json(asdict(self))

    def write(self, folder: Store) -> None:
        """Leave it in the folder: the last file that the job writes."""
        folder.write(REPORT, packed(plain(asdict(self)), indent=1))

    @classmethod
    def read(cls, folder: Store) -> Self:
        """What `write` left."""
        place, remedy = folder.path(REPORT), "Delete that file and run the same command again."
        return unpacked(cls, folder.read(REPORT), "the report of a job", place, remedy)


def spent(done: Collection[Record], started: float) -> dict[str, Any]:
    """What a job took, as reports tell it: `seconds` since it was started here, and of all its finished tasks
    `work_seconds`, `peak_memory` and how many `tasks` they are.
    """
    return {
        "seconds": time.monotonic() - started,
        "work_seconds": sum(record.seconds for record in done),
        "peak_memory": max(record.peak_memory for record in done),
        "tasks": len(done),
    }
