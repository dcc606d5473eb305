"""What `restore` did."""

from dataclasses import dataclass

from locdist.jobs.telling.kept import Kept
from locdist.jobs.telling.text import statuses_told


@dataclass(frozen=True)
class RestoreReport(Kept):
    """What `restore` did.

    Parameters
    ----------
    out : str
    rows, bad_rows : int
        Images; those among them that are none.
    status : dict
        Images of each status.
    reasons : dict
        Why some are none.
    seconds, work_seconds, peak_memory, tasks, notes
        As in `Report`.
    """

    out: str
    rows: int
    bad_rows: int
    status: dict[str, int]
    reasons: dict[str, int]
    seconds: float
    work_seconds: float
    peak_memory: int
    tasks: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} images in {self.out} ({self.seconds:.1f} s)",
            statuses_told(self.status),
            *(f"{count:,} images: {reason}" for reason, count in self.reasons.items()),
        ]
        return "\n".join([*lines, *self.notes])
