"""What `embed` did."""

from dataclasses import asdict, dataclass

from locdist.data.artefacts import packed, unpacked
from locdist.data.store import Store
from locdist.jobs.asking.report import REPORT
from locdist.jobs.telling.text import plain, to_json


@dataclass(frozen=True)
class EmbedReport:
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
        reconstruction error.
    settled : bool
        Whether the eigenvectors are exact to many digits.
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
    notes: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """The report as JSON."""
        return to_json(asdict(self))

    def write(self, folder: Store) -> None:
        """Leave it in the folder: the last file that the job writes."""
        folder.write(REPORT, packed(plain(asdict(self)), indent=1))

    @staticmethod
    def read(folder: Store) -> "EmbedReport":
        """What `write` left."""
        place, remedy = folder.path(REPORT), "Delete that file and run the same command again."
        return unpacked(EmbedReport, folder.read(REPORT), "the report of an embedding", place, remedy)

    def __str__(self) -> str:
        values = ", ".join(f"{value:.4g}" for value in self.eigenvalues)
        lines = [
            f"{self.rows:,} rows in {self.out} ({self.seconds:.1f} s)",
            "status: " + ", ".join(f"{name} {count:,}" for name, count in self.status.items()),
            f"eigenvalues {values}, of the largest of {self.components:,} connected components",
        ]
        lines += [] if self.settled else ["the eigenvectors have not settled: use more neighbors"]
        return "\n".join([*lines, *self.notes])
