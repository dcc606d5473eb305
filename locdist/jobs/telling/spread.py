"""What `label` did."""

from dataclasses import dataclass

from locdist.jobs.telling.kept import Kept
from locdist.jobs.telling.text import statuses_told


@dataclass(frozen=True)
class LabelReport(Kept):
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

    def __str__(self) -> str:
        how = "settled" if self.rests else "not settled"
        lines = [
            f"{self.rows:,} nodes in {self.out} ({self.seconds:.1f} s), {self.classes:,} classes, "
            f"{self.known:,} labels given",
            statuses_told(self.status),
            f"{how} after {self.sweeps:,} sweeps; the last one changed numbers by {self.change:.2g} at most",
        ]
        return "\n".join([*lines, *self.notes])
