"""A sweep of each partition of the nodes on its own, with one barrier a sweep: for states that fit no worker.

A partition has its edges in blocks, by the partition that they lead to, and reads one of these at a time.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import pyarrow as pa
import torch

from locdist.data.store import Store
from locdist.jobs.labelled import shares_of
from locdist.jobs.passing import passed
from locdist.jobs.request import read_batches, write_ipc
from locdist.jobs.spreading.whole import Classes, batch_of, read_known, tensor
from locdist.jobs.stored import StoredGraph
from locdist.local.graph import Edges, Graph, blocks
from locdist.local.targets import Moved
from locdist.methods.labels import LabelMethod
from locdist.plan.cost import MEASURED, Estimate
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record

SWEEP = "sweep-"
NUMBER, EDGE = 48, 160  # bytes: of a number of the state in all its copies, of an edge
SWEPT, USUAL = 1e-8, 50  # seconds of an edge and a class in a sweep; sweeps, assumed


@dataclass(frozen=True)
class Cut:
    """The edges of one partition in blocks, and where its state begins.

    Parameters
    ----------
    method : LabelMethod
    graph : StoredGraph
    classes : Classes
    known : tuple of str
    means : tuple of float
        Of all labels, by class; for a balanced method.
    """

    method: LabelMethod
    graph: StoredGraph
    classes: Classes
    known: tuple[str, ...]
    means: tuple[float, ...]

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Outputs: the blocks; the state with what is given and the scale of each node."""
        number, start, stop = task.inputs
        span = self.graph.spans[number]
        rows = self.graph.rows(span)
        known = shares_of(read_known(attempt.folder, self.known[number]), self.classes.array())
        means = torch.tensor(self.means, dtype=torch.float64).expand_as(known)
        given, scale = (
            self.method.given(known, rows.degrees, means),
            torch.ones(len(rows), dtype=torch.float64),
        )
        if self.method.normalized == "both":
            scale = rows.degrees.where(rows.degrees != 0, 1.0).rsqrt()
        elif self.method.normalized:
            rows = rows.normalized(self.method.normalized)
        cuts = [*(each.start for each in self.graph.spans), self.graph.nodes]
        pieces = [_written(block) for block in blocks(rows, cuts)]
        states = [batch_of(values=self.method.begun(known), given=given, scale=scale)]
        for name, batches in zip(task.outputs, (pieces, states), strict=True):
            with attempt.writer(name) as sink:
                write_ipc(sink, name, *batches)
        return Record(rows=stop - start)


@dataclass(frozen=True)
class SweepPart:
    """One sweep of one partition.

    Parameters
    ----------
    method : LabelMethod
    graph : StoredGraph
    blocks, before : tuple of str
        Files of each partition: its edges, and its state before.
    """

    method: LabelMethod
    graph: StoredGraph
    blocks: tuple[str, ...]
    before: tuple[str, ...]

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is the state after; the record's data are what was moved."""
        number, start, stop = task.inputs
        own = _read(attempt.folder, self.before[number], 0)
        values, scale = tensor(own, "values"), tensor(own, "scale")
        found = torch.zeros_like(values)
        for other, name in enumerate(self.before):
            edges = _block(attempt.folder, self.blocks[number], other, self.graph, number)
            if len(edges.ends):
                state = _read(attempt.folder, name, 0)
                found += edges.times(tensor(state, "values") * tensor(state, "scale")[:, None])
        given = tensor(own, "given")
        after, moved = self.method.loop.step(values, found * scale[:, None], given)
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            write_ipc(sink, name, batch_of(values=after, given=given, scale=scale))
        return Record(rows=stop - start, data=asdict(moved))


def moved_of(records: Mapping[str, Record]) -> Moved:
    """What a sweep of all partitions did, merged in their order."""
    total = Moved()
    for _, record in sorted(records.items()):
        said = record.data
        total = total.merge(Moved(said["change"], said["flipped"], said["consistency"]))
    return total


def spread_cost(nodes: int, classes: int, edges: int) -> Estimate:
    """The task of all sweeps.

    memory = base + nodes classes 48 + edges 160: the state in all its copies, the graph while it is sorted
    """
    memory = MEASURED.base + nodes * classes * NUMBER + edges * EDGE
    formula = (
        f"base {MEASURED.base:,} + {nodes:,} nodes x {classes} classes x {NUMBER} + {edges:,} edges x {EDGE}"
    )
    return Estimate(
        memory, 0, MEASURED.task + edges * classes * SWEPT * USUAL, formula, 24 * edges, 8 * nodes
    )


def part_cost(graph: StoredGraph, classes: int) -> Estimate:
    """A task over one partition: the same of its share, with the state of one other."""
    most = max(span.rows for span in graph.spans)
    edges = 2 * most * max(1, graph.report.edges // max(1, graph.nodes))
    return spread_cost(2 * most, classes, edges)


def sweep_name(number: int) -> str:
    """The stage of a sweep; number 0 is where it begins."""
    return f"{SWEEP}{number:05}"


def states(graph: StoredGraph, number: int) -> tuple[str, ...]:
    """The states of all partitions after a sweep."""
    return tuple(passed(sweep_name(number), f"part-{part:05}") for part in range(len(graph.spans)))


def _written(block: Graph) -> pa.RecordBatch:
    return batch_of(head=block.heads, tail=block.ends, weight=block.weights)


def _block(folder: Store, name: str, other: int, graph: StoredGraph, number: int) -> Graph:
    batch = _read(folder, name, other)
    edges = Edges(*(tensor(batch, column) for column in ("head", "tail", "weight")))
    return Graph.of_sorted(edges, graph.spans[number].rows, graph.spans[other].rows)


def _read(folder: Store, name: str, number: int) -> pa.RecordBatch:
    with folder.open(name, mmap=True) as stream:
        return read_batches(stream, name, lambda schema: range(number, number + 1))[0]
