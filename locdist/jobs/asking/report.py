"""What a job did, for people and for `_locdist/report.json`."""

from collections.abc import Mapping
from dataclasses import dataclass

from locdist.data.artefacts import unpacked
from locdist.data.store import Store
from locdist.errors import TooManyBadRows
from locdist.jobs.asking.diagnostics import Diagnostics
from locdist.jobs.telling.kept import REPORT, Kept
from locdist.jobs.telling.text import statuses_told
from locdist.search.audit import Recall


@dataclass(frozen=True)
class Report(Kept):
    """What a job did.

    Parameters
    ----------
    out : str
        The output folder.
    rows, bad_rows : int
        Rows written; queries among them that could not be used.
    status : dict
        Rows of each status.
    reasons : dict
        Why queries could not be used, and unseen categories.
    recall : Recall or None
        Audited on a sample of the queries; None when the search is exact.
    nprobe : int
        Lists searched for each query.
    seconds : float
        Of this run (a continued one counts its own part).
    work_seconds, peak_memory : float, int
        Over all tasks: their seconds, and the largest anonymous memory of a worker in bytes.
    tasks : int
    diagnostics : Diagnostics or None
        Of a `transform`.
    notes : tuple of str
        What a continued run found changed: files that appeared, versions that differ.
    """

    out: str
    rows: int
    bad_rows: int
    status: dict[str, int]
    reasons: dict[str, int]
    recall: Recall | None
    nprobe: int
    seconds: float
    work_seconds: float
    peak_memory: int
    tasks: int
    diagnostics: Diagnostics | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = [f"{self.rows:,} rows in {self.out} ({self.seconds:.1f} s, {self.tasks} tasks)"]
        told.append(statuses_told(self.status))
        told += [f"{count:,} queries: {reason}" for reason, count in self.reasons.items()]
        if 0 < self.rows == self.bad_rows:
            told.append("no query could be used: the output has no answer (max_bad makes that an error)")
        told.append(f"recall {self.recall}, nprobe {self.nprobe}" if self.recall else "search: exact")
        told += [str(self.diagnostics)] if self.diagnostics else []
        return "\n".join([*told, *self.notes])


@dataclass(frozen=True)
class Reported:
    """What is read again of a report: rows written, and those of each status."""

    rows: int
    status: dict[str, int]

    @staticmethod
    def read(folder: Store) -> "Reported":
        """What a report says; the folder has one."""
        place, remedy = folder.path(REPORT), "Delete that file and run the same command again."
        return unpacked(Reported, folder.read(REPORT), "the report of a job", place, remedy, extra="ignore")


def check_bad(rows: int, bad: int, reasons: Mapping[str, int], most: float | None, remedy: str) -> None:
    """TooManyBadRows when more queries were bad than allowed."""
    allowed = None if most is None else most * rows if most < 1 else most
    if allowed is not None and bad > allowed:
        told = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        raise TooManyBadRows(f"at most {allowed:g} bad queries of {rows:,}", f"{bad:,} ({told})", remedy)
