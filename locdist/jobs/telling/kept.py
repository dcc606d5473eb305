"""Reports: what a job leaves in its folder at the end."""

from dataclasses import asdict, dataclass
from typing import Self

from locdist.data.artefacts import packed, unpacked
from locdist.data.store import Store
from locdist.jobs.telling.text import plain, to_json

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
