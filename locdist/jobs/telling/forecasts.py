"""What `forecast` did."""

from dataclasses import dataclass

from locdist.jobs.telling.kept import Kept
from locdist.jobs.telling.text import statuses_told


@dataclass(frozen=True)
class ForecastReport(Kept):
    """What `forecast` did.

    Parameters
    ----------
    out : str
    series, rows : int
        Rows of the output: one for each series and step.
    status : dict
        Rows of each status.
    seconds, work_seconds, peak_memory, tasks, notes
        As in `Report`.
    """

    out: str
    series: int
    rows: int
    status: dict[str, int]
    seconds: float
    work_seconds: float
    peak_memory: int
    tasks: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows of {self.series:,} series in {self.out} ({self.seconds:.1f} s)",
            statuses_told(self.status),
        ]
        return "\n".join([*lines, *self.notes])
