"""What the tasks of `graph` do: find the edges of some rows, make them lead both ways, and look at all."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.jobs.asking.questions import GROUP_BYTES, block_rows
from locdist.jobs.request import read_batches, write_ipc
from locdist.jobs.stored import Nodes, node_table, part_of, places, schema_of
from locdist.local.answers import Status
from locdist.local.graph import Edges, combined, joined, roots
from locdist.local.links import FIRST, Links
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record
from locdist.search.files import array
from locdist.search.generation import Generation

LARGEST = 10  # components whose sizes are told
_NAMES = ("head", "tail", "weight", "distance")


@dataclass(frozen=True)
class FindEdges:
    """The edges of rows [start, stop) of the support.

    Parameters
    ----------
    index : Generation
    links : Links
    cuts : tuple of int
        The first row of each partition, and the number of rows, where edges are made to lead both ways;
        otherwise none: then the outputs are final.
    """

    index: Generation
    links: Links
    cuts: tuple[int, ...] = ()

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is a partition of the graph; or the edges of the rows, and the same reversed, a batch
        for each partition that they lead to.
        """
        start, stop = task.inputs
        if not self.cuts:
            return write_nodes(attempt, task, self.index, self._nodes(start, stop))
        blocks = [block for block, _ in self._blocks(start, stop)]
        there, back = (Edges.together([block[side] for block in blocks]) for side in (0, 1))
        home = torch.bucketize(back.heads, torch.tensor(self.cuts[1:-1]), right=True)
        sides = [_batch(there)], [_batch(back.some(home == number)) for number in range(len(self.cuts) - 1)]
        for name, batches in zip(task.outputs, sides, strict=True):
            with attempt.writer(name) as sink:
                write_ipc(sink, name, *batches)
        return Record(rows=stop - start)

    def _nodes(self, start: int, stop: int) -> Iterator[Nodes]:
        stored = places(self.index, start, stop)
        for (edges, _), few in self._blocks(start, stop):
            count = len(few)
            yield Nodes(start, stored[:count], edges, few * int(Status.FEW))
            start, stored = start + count, stored[count:]

    def _blocks(self, start: int, stop: int) -> Iterator[tuple[tuple[Edges, Edges], Tensor]]:
        """Edges of a block of rows, there and back, and which rows [n] have fewer than k. Heads are rows of
        the source, tails are stored rows.
        """
        k, size = self.links.k or 0, block_rows(self.links.k or FIRST)
        for first, stored in _pieces(self.index, start, stop, size):
            own = (stored >= 0).nonzero()[:, 0]
            ids = stored[own]
            edges, found = self.links.edges(self.index, ids, own + first, self.index.layout.rows)
            few = torch.zeros(len(stored), dtype=torch.bool)
            few[own] = (found < k) & (self.links.radius is None)
            there = replace(edges, heads=own[edges.heads] + first)
            back = replace(edges, heads=self.index.sources(edges.tails), tails=ids[edges.heads])
            yield (there, back), few


@dataclass(frozen=True)
class Symmetrize:
    """The edges of partition `number`, rows [start, stop), with those of all others that lead to it.

    Parameters
    ----------
    index : Generation
    how : str
        See `local.graph.combined`.
    there, back : tuple of str
        Files of each partition: its own edges, and those reversed.
    """

    index: Generation
    how: str
    there: tuple[str, ...]
    back: tuple[str, ...]

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is a partition of the graph."""
        number, start, stop = task.inputs
        own = _edges(attempt, self.there[number], 0)
        others = Edges.together([_edges(attempt, name, number) for name in self.back])
        both = combined(own, others, self.index.layout.rows, self.how)
        return write_nodes(attempt, task, self.index, self._nodes(both, start, stop))

    def _nodes(self, edges: Edges, start: int, stop: int) -> Iterator[Nodes]:
        size = block_rows(max(1, len(edges.heads) // max(1, stop - start)))
        for first, stored in _pieces(self.index, start, stop, size):
            begin, end = torch.searchsorted(edges.heads, torch.tensor([first, first + len(stored)])).tolist()
            here = edges.some(torch.arange(begin, end))
            yield Nodes(first, stored, _nearest_first(here), torch.zeros_like(stored))


@dataclass(frozen=True)
class Summarize:
    """Degrees and connected components of a graph of `nodes` nodes; a few numbers of each are held."""

    nodes: int

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """No output: the record's data are what `GraphReport` tells."""
        parents, into = torch.arange(self.nodes), torch.zeros(self.nodes, dtype=torch.int64)
        counts, first = [], 0
        for name in task.inputs:
            part = part_of(attempt.folder, name, self.nodes)
            joined(parents, part.heads + first, part.ends)
            into += torch.bincount(part.ends, minlength=self.nodes)
            counts.append(part.counts)
            first += len(part)
        out = torch.cat(counts)
        sizes = torch.bincount(roots(parents, torch.arange(self.nodes)))
        degrees = {"least": int(out.min()), "mean": float(out.double().mean()), "most": int(out.max())}
        degrees |= {"most_in": int(into.max()), "isolated": int((out + into == 0).sum())}
        largest = sizes.sort(descending=True).values[:LARGEST].tolist()
        found = {"edges": int(out.sum()), "components": int((sizes > 0).sum())}
        return Record(rows=self.nodes, data=found | {"degrees": degrees, "sizes": [n for n in largest if n]})


def write_nodes(attempt: Attempt, task: Task, index: Generation, nodes: Iterable[Nodes]) -> Record:
    """Write one partition of a graph; the record's data count the statuses."""
    (name,), counts, group = task.outputs, torch.zeros(len(Status), dtype=torch.int64), list[pa.Table]()
    schema = schema_of(index)
    with (
        attempt.writer(name) as sink,
        pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for some in nodes:
            table, status = node_table(index, some)
            counts += torch.bincount(status, minlength=len(Status))
            group.append(table)
            if sum(part.nbytes for part in group) >= GROUP_BYTES:
                writer.write_table(pa.concat_tables(group))
                group = []
        writer.write_table(pa.concat_tables([schema.empty_table(), *group]))
    told = {status.name.lower(): int(counts[status]) for status in Status if counts[status]}
    return Record(rows=int(counts.sum()), bad_rows=int(counts[Status.BAD_QUERY]), data={"status": told})


def _pieces(index: Generation, start: int, stop: int, size: int) -> Iterator[tuple[int, Tensor]]:
    """Rows [start, stop) of the source in blocks: the first of each, and where they are stored."""
    return zip(range(start, stop, size), torch.split(places(index, start, stop), size), strict=True)


def _batch(edges: Edges) -> pa.RecordBatch:
    columns = (edges.heads, edges.tails, edges.weights, edges.distances)
    told = zip(_NAMES, columns, strict=True)
    return pa.RecordBatch.from_pydict({name: column.numpy() for name, column in told if column is not None})


def _edges(attempt: Attempt, name: str, number: int) -> Edges:
    """The edges in a batch of a file."""
    with attempt.folder.open(name, mmap=True) as stream:
        (batch,) = read_batches(stream, name, lambda schema: range(number, number + 1))
        return Edges(*(torch.from_numpy(array(batch.column(name)).copy()) for name in _NAMES))


def _nearest_first(edges: Edges) -> Edges:
    assert edges.distances is not None
    nearest = edges.distances.argsort(stable=True)
    return edges.some(nearest[edges.heads[nearest].argsort(stable=True)])
