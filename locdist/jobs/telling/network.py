"""What a graph is like: degrees, components, and how it was made."""

from collections.abc import Sequence
from dataclasses import dataclass

from locdist.jobs.telling.kept import Kept
from locdist.search.audit import Recall


@dataclass(frozen=True)
class Degrees:
    """Edges of a node: the fewest, the mean, the most; the most that lead to one node; nodes without any."""

    least: int
    mean: float
    most: int
    most_in: int
    isolated: int


@dataclass(frozen=True)
class GraphReport(Kept):
    """What `graph` made.

    Parameters
    ----------
    out : str
        The folder.
    rows, bad_rows : int
        Nodes, one for each row of the support; rows that the index left out.
    status : dict
        Nodes of each status: "empty" ones have no edges.
    edges : int
        Directed ones; an undirected edge counts twice.
    symmetrized : str or None
        "union", "mutual" or "mean".
    weights : str
        What an edge weighs, in words.
    degrees : Degrees
    components, sizes : int, tuple of int
        Connected components, whichever way edges lead, and nodes of the largest ten.
    recall : Recall or None
        As audited; None when the search is exact.
    nprobe : int
    seconds, work_seconds, peak_memory, tasks, notes
        As in `Report`.
    """

    out: str
    rows: int
    bad_rows: int
    status: dict[str, int]
    edges: int
    symmetrized: str | None
    weights: str
    degrees: Degrees
    components: int
    sizes: tuple[int, ...]
    recall: Recall | None
    nprobe: int
    seconds: float
    work_seconds: float
    peak_memory: int
    tasks: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        found = self.degrees
        degrees = f"{found.least:,} to {found.most:,}, {found.mean:.1f} on average"
        lines = [
            f"{self.rows:,} nodes, {self.edges:,} edges in {self.out} ({self.seconds:.1f} s)",
            f"edges of a node: {degrees}; at most {found.most_in:,} to one; {found.isolated:,} have none",
            f"{_components(self.components, self.sizes)}; weights: {self.weights}",
        ]
        if self.symmetrized:
            lines.append(f"undirected: {self.symmetrized}")
        lines.append(f"recall {self.recall}, nprobe {self.nprobe}" if self.recall else "search: exact")
        return "\n".join([*lines, *self.notes])


def _components(count: int, sizes: Sequence[int]) -> str:
    if count == 1:
        return "1 connected component"
    more = ", ..." if count > len(sizes) else ""
    return f"{count:,} connected components, of {', '.join(f'{size:,}' for size in sizes)}{more} nodes"
