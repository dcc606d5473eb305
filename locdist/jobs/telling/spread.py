"""What `label` did."""

from dataclasses import asdict, dataclass

from locdist.data.artefacts import packed
from locdist.data.store import Store
from locdist.jobs.asking.report import REPORT
from locdist.jobs.telling.text import plain, to_json


@dataclass(frozen=True)
class LabelReport:
    """What `label` did.

    Parameters
    ----------
    out : str
    rows, known : int
        Nodes; those that had a label before.
    classes : int
    status : dict
        Nodes of each status: "empty" are those that no label reaches.
    sweeps : int
    rests : bool
        Whether the loop settled before its last sweep.
    change, flipped, consistency
        Of the last sweep: the largest change of a number, nodes whose label changed, and how well labels and
        neighbors agree, a mean over the nodes.
    partitioned : bool
        Whether partitions were swept apart.
    seconds, work_seconds, peak_memory, tasks, notes
        As in `Report`.
    """

    out: str
    rows: int
    known: int
    classes: int
    status: dict[str, int]
    sweeps: int
    rests: bool
    change: float
    flipped: int
    consistency: float
    partitioned: bool
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

    def __str__(self) -> str:
        how = "settled" if self.rests else "not settled"
        lines = [
            f"{self.rows:,} nodes in {self.out} ({self.seconds:.1f} s), {self.classes:,} classes, "
            f"{self.known:,} labels given",
            "status: " + ", ".join(f"{name} {count:,}" for name, count in self.status.items()),
            f"{how} after {self.sweeps:,} sweeps; the last one changed numbers by {self.change:.2g} at most",
        ]
        return "\n".join([*lines, *self.notes])
