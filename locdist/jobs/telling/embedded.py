"""What `embed` did."""

from dataclasses import dataclass

from locdist.jobs.telling.kept import Kept
from locdist.jobs.telling.text import statuses_told


@dataclass(frozen=True)
class EmbedReport(Kept):
    """What `embed` did.

    Parameters
    ----------
    out : str
    rows : int
    status : dict
        Rows of each status: "empty" are those outside of the largest connected component.
    components : int
        Of the graph.
    eigenvalues : tuple of float
        One for each coordinate, the smallest first, without the constant one's 0. Of "lle" their sum is the
        reconstruction error. Of "lazy-map" what a step leaves, the largest first; of "lazy-autoencoder" alone
        the mean squared error of rows as the codes of the others tell them.
    settled : bool
        Whether the eigenvectors are exact to many digits; of "lazy-map" whether it came to rest.
    method : str
    seconds, work_seconds, peak_memory, tasks, notes
        As in `Report`.
    """

    out: str
    rows: int
    status: dict[str, int]
    components: int
    eigenvalues: tuple[float, ...]
    settled: bool
    seconds: float
    work_seconds: float
    peak_memory: int
    tasks: int
    method: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = ", ".join(f"{value:.4g}" for value in self.eigenvalues)
        lines = [
            f"{self.rows:,} rows in {self.out} ({self.seconds:.1f} s)",
            statuses_told(self.status),
            f"mean squared error {values}, each row told by the others"
            if self.method == "lazy-autoencoder"
            else f"eigenvalues {values}, of the largest of {self.components:,} connected components",
        ]
        more = "take more steps" if self.method == "lazy-map" else "use more neighbors"
        lines += [] if self.settled else [f"the eigenvectors have not settled: {more}"]
        return "\n".join([*lines, *self.notes])
