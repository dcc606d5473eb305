"""What `couple` and `apply` did."""

from collections.abc import Sequence
from dataclasses import dataclass

from locdist.jobs.telling.kept import Kept
from locdist.jobs.telling.text import statuses_told
from locdist.plan.records import Record


@dataclass(frozen=True)
class CoupleReport(Kept):
    """What `couple` did.

    Parameters
    ----------
    out : str
    rows, bad_rows : int
        Rows of the data; those that were left out.
    nodes, edges : int
    status : dict
        Nodes of each status.
    rests : bool
        Whether the certificate is good enough.
    steps, rounds : int
        Passes over the rows, and how often nodes heard of their neighbors.
    gap, residual : float
        The certificate; of FedRelax the residual is the last change of what nodes say of shared rows.
    objective : float or None
        What was minimised, where it is known.
    seconds, work_seconds, peak_memory, tasks, notes
        As in `Report`.
    """

    out: str
    rows: int
    bad_rows: int
    nodes: int
    edges: int
    status: dict[str, int]
    rests: bool
    steps: int
    rounds: int
    gap: float
    residual: float
    objective: float | None
    seconds: float
    work_seconds: float
    peak_memory: int
    tasks: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        how = "settled" if self.rests else "not settled"
        lines = [
            f"{self.nodes:,} nodes, {self.edges:,} edges, {self.rows:,} rows in {self.out} "
            f"({self.seconds:.1f} s)",
            statuses_told(self.status),
            f"{how} after {self.rounds:,} rounds: residual {self.residual:.2g}, gap {self.gap:.2g}"
            + ("" if self.objective is None else f"; objective {self.objective:.10g}"),
        ]
        return "\n".join([*lines, *self.notes])


@dataclass(frozen=True)
class FoldReport(Kept):
    """What `couple` did with the charts of a logifold.

    Parameters
    ----------
    out : str
    rows, bad_rows : int
        Rows of the data; those that were left out.
    charts, held_out : int
        Charts, and rows that none of them was fitted on.
    status : dict
        Charts of each status.
    seconds, work_seconds, peak_memory, tasks, notes
        As in `Report`.
    """

    out: str
    rows: int
    bad_rows: int
    charts: int
    held_out: int
    status: dict[str, int]
    seconds: float
    work_seconds: float
    peak_memory: int
    tasks: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.charts:,} charts of {self.rows:,} rows in {self.out} ({self.seconds:.1f} s)",
            statuses_told(self.status),
            f"{self.held_out:,} rows held out for the thresholds",
        ]
        return "\n".join([*lines, *self.notes])


def whys(done: Sequence[Record]) -> tuple[str, ...]:
    """A sentence for the user where fits have raised errors."""
    told = next((record.data["why"] for record in done if record.data["why"]), "")
    return (f"what could not be fitted is not_finite: {told}",) if told else ()


@dataclass(frozen=True)
class ApplyReport(Kept):
    """What `apply` did.

    Parameters
    ----------
    out : str
    rows, bad_rows : int
        Rows written; queries among them that could not be used.
    status : dict
        Rows of each status.
    reasons : dict
        Why queries could not be used, and unseen categories.
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
            f"{self.rows:,} rows in {self.out} ({self.seconds:.1f} s)",
            statuses_told(self.status),
            *(f"{count:,} queries: {reason}" for reason, count in self.reasons.items()),
        ]
        return "\n".join([*lines, *self.notes])
