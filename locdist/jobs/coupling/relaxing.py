"""What the tasks of FedRelax do: a task for each group of nodes, whose models are fitted one by one."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.data.columns import codes, distinct, vectors
from locdist.data.dataset import Dataset
from locdist.data.encoding import Encoding
from locdist.data.source import Source, Span
from locdist.data.store import Store
from locdist.errors import DataError
from locdist.jobs.asking.block import statuses
from locdist.jobs.coupling.edges import NamedEdges, graph_of
from locdist.jobs.coupling.gather import good_rows, read_table
from locdist.jobs.coupling.stored import Stored
from locdist.jobs.indexing import read_ipc
from locdist.jobs.request import read_batches, rows_told, write_ipc
from locdist.jobs.spreading.whole import tensor
from locdist.local.answers import Status
from locdist.local.graph import Edges, Graph
from locdist.local.losses import Rows
from locdist.local.network import Links
from locdist.local.relaxed import Relaxed, heard, ordered
from locdist.local.relaxed import statuses as of_nodes
from locdist.methods.federated import largest_change
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record

MOST = 1e300  # a change that is infinite
FNV_BASIS, FNV_PRIME = 0xCBF29CE484222325, np.uint64(0x100000001B3)


@dataclass(frozen=True)
class SortRows:
    """The rows of a span, encoded, with a batch for each group of nodes."""

    support: Dataset
    encoding: Encoding
    groups: int
    kind: pa.DataType  # of the names of all nodes

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.support.source, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """A batch for each group of nodes."""
        span = Span(*task.inputs)
        named, rows = good_rows(read_table(self.support, span), self.support, self.encoding, self.kind)
        names = distinct(named)
        local = codes(named, names)
        group = group_of(names, self.groups)[local]
        batch = batch_of(named.combine_chunks(), rows)
        order = np.lexsort((local, group))
        ends = np.searchsorted(group[order], np.arange(self.groups + 1))
        pieces = [batch.take(pa.array(order[start:stop])) for start, stop in itertools.pairwise(ends)]
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            write_ipc(sink, name, *pieces)
        told = {"nodes": len(names)}
        return Record(rows=span.rows, bad_rows=span.rows - len(rows.nodes), data=told)


@dataclass(frozen=True, eq=False)
class Group:
    """Nodes of a round.

    Parameters
    ----------
    names : pa.Array [n]
        Sorted.
    rows : Rows
        Of all of them, by node.
    told : Tensor [n, s, 1]
        What their neighbors said of the shared rows.
    weight : Tensor [n]
        Of the neighbors that did.
    ends : int
        Edges that begin at one of them, of the undirected graph.
    """

    names: pa.Array
    rows: Rows
    told: Tensor
    weight: Tensor
    ends: int


@dataclass(frozen=True)
class Groups:
    """What the tasks of a round read.

    Parameters
    ----------
    refit : Relaxed
    edges : NamedEdges
    shared : Source
        The rows that everybody sees.
    encoding : Encoding
    rows : tuple of str
        What `SortRows` wrote.
    count : int
    said : tuple of str
        What each group said in the round before; nothing before the first one.
    """

    refit: Relaxed
    edges: NamedEdges
    shared: Source
    encoding: Encoding
    rows: tuple[str, ...]
    count: int
    said: tuple[str, ...] = ()

    def common(self) -> Tensor:
        """The shared rows [s, d], encoded."""
        columns = [column.name for column in self.encoding.columns]
        table = pa.concat_tables(list(self.shared.read(columns=columns)))
        features, bad, _ = self.encoding.encode(table)
        if bad.any():
            given = f"{int(bad.sum()):,} of {len(bad):,} that cannot be used"
            raise DataError("shared rows with all features", given, "Leave these out.")
        return torch.from_numpy(features).double()

    def group(self, folder: Store, number: int, shared: int) -> Group:
        """A group, its edges, and what neighbors said of so many shared rows."""
        *both, weights = self.edges.read()
        ends = distinct(pa.chunked_array([chunk for end in both for chunk in end.chunks], self.edges.kind))
        names, rows = self._own(folder, number, ends)
        everybody = distinct(pa.chunked_array([ends, names]))
        whole = Links.of(graph_of((both[0], both[1]), weights, everybody)).graph
        near, asked = around(whole, torch.from_numpy(codes(names, everybody)))
        said = said_by(folder, self.said, everybody.take(pa.array(asked.numpy())), shared)
        return Group(names, rows, *heard(near, said), len(near.ends))

    def _own(self, folder: Store, number: int, ends: pa.Array) -> tuple[pa.Array, Rows]:
        """The names of a group's nodes, sorted, and their rows, by node."""
        batches = []
        for name in self.rows:
            with folder.open(name, mmap=True) as stream:
                batches += read_batches(stream, name, lambda schema: range(number, number + 1))
        table = pa.Table.from_batches(batches)
        ours = ends.filter(pa.array(group_of(ends, self.count) == number))
        named = table.column("node")
        names = distinct(pa.chunked_array([*named.chunks, ours], self.edges.kind))
        return names, ordered(rows_of(table.combine_chunks().to_batches() or batches[:1], names))


@dataclass(frozen=True)
class RelaxGroup:
    """A round of a group of nodes."""

    groups: Groups

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is what they say; the record's data the largest change of it."""
        (number,) = task.inputs
        folder, groups = attempt.folder, self.groups
        common = groups.common()
        group = groups.group(folder, number, len(common))
        said, reasons = torch.full_like(group.told, torch.nan), [""]
        for node, own in enumerate(group.rows.by_node(len(group.names))):
            fitted, why = groups.refit.attempt(own, common, group.told[node], float(group.weight[node]))
            said[node] = groups.refit.ask(fitted, common, 1)
            reasons.append(why)
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            flat = vectors(said[:, :, 0].numpy())
            write_ipc(sink, name, pa.RecordBatch.from_pydict({"node": group.names, "said": flat}))
        change = largest_change(read_said(folder, groups.said[number])[1], said) if groups.said else MOST
        return Record(
            rows=len(group.names), data={"change": min(change, MOST), "why": max(reasons, key=bool)}
        )


@dataclass(frozen=True)
class WriteGroup:
    """A group of nodes in the end.

    Parameters
    ----------
    groups : Groups
        Of the last round.
    said : tuple of str
        What that said.
    rests : bool
    stored : Stored
    """

    groups: Groups
    said: tuple[str, ...]
    rests: bool
    stored: Stored

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Outputs: the nodes, their rows, and what they heard in the last round; for `apply`."""
        (number,) = task.inputs
        folder, common = attempt.folder, self.groups.common()
        group = self.groups.group(folder, number, len(common))
        names, rows = group.names, group.rows
        _, said = read_said(folder, self.said[number])
        counts = torch.bincount(rows.there.nodes, minlength=len(names))
        status = of_nodes(counts, self.groups.refit.strength * group.weight, said, self.rests)
        table = pa.table({self.stored.node: names, "rows": counts.numpy(), "status": statuses(status)})
        part, mine, theirs = task.outputs
        with attempt.writer(part) as sink:
            pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        order = rows.nodes.argsort(stable=True)
        named = names.take(pa.array(rows.nodes[order].numpy()))
        with attempt.writer(mine) as sink:
            write_ipc(sink, mine, batch_of(named, rows.some(order)))
        columns = {
            "node": names,
            "heard": vectors(group.told[:, :, 0].numpy()),
            "weight": group.weight.numpy(),
        }
        with attempt.writer(theirs) as sink:
            write_ipc(sink, theirs, pa.RecordBatch.from_pydict(columns))
        if number == 0:
            with folder.writer(SHARED) as sink:
                write_ipc(sink, SHARED, pa.RecordBatch.from_pydict({"shared": vectors(common.numpy())}))
            self.stored.write(folder)
        counted = np.bincount(status.numpy(), minlength=len(Status)).tolist()
        told_of = {each.name.lower(): counted[each] for each in Status if counted[each]}
        return Record(rows=len(names), data={"status": told_of, "ends": group.ends})


MODELS = "_models"
SHARED = f"{MODELS}/shared.arrow"


def kept_files(number: int) -> tuple[str, str]:
    """Rows, and what was heard, of a group of nodes."""
    return f"{MODELS}/rows-{number:05}.arrow", f"{MODELS}/heard-{number:05}.arrow"


def group_of(names: pa.Array, groups: int) -> NDArray[np.int64]:
    """The group of each name, the same wherever it is asked: FNV-1a of its text, of all names at once."""
    if not len(names):
        return np.zeros(0, np.int64)
    text = (names if is_binary(names.type) else names.cast(pa.large_string())).cast(pa.large_binary())
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    octets = np.frombuffer(data or b"", np.uint8)
    sums, left = np.full(len(text), FNV_BASIS, np.uint64), np.arange(len(text))
    for place in range(int(np.diff(ends).max())):
        left = left[ends[left + 1] - ends[left] > place]
        sums[left] = (sums[left] ^ octets[ends[left] + place]) * FNV_PRIME
    mixed = sums ^ (sums >> np.uint64(32))
    return (mixed % np.uint64(groups)).astype(np.int64)


def is_binary(kind: pa.DataType) -> bool:
    """Whether names are bytes, which need not be text."""
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def around(graph: Graph, rows: Tensor) -> tuple[Graph, Tensor]:
    """Some rows [n] of a graph, ascending, and the nodes [m] that their edges lead to, now its columns."""
    place = torch.full((len(graph),), -1)
    place[rows] = torch.arange(len(rows))
    own = graph.edges.some(place[graph.heads] >= 0)
    asked, tails = torch.unique(own.tails, return_inverse=True)
    near = Edges(place[own.heads], tails, own.weights)
    return Graph.of_sorted(near, len(rows), len(asked)), asked


def said_by(folder: Store, files: Sequence[str], names: pa.Array, shared: int) -> Tensor:
    """What nodes said [n, s, 1]; nan where that is not known. No answers of others are held."""
    found = torch.full((len(names), shared, 1), torch.nan, dtype=torch.float64)
    for name in files:
        batch = read_ipc(folder, name)
        places = codes(batch.column("node"), names)
        there = np.flatnonzero(places >= 0)
        found[torch.from_numpy(places[there])] = tensor(batch.take(pa.array(there)), "said")[:, :, None]
    return found


def batch_of(names: pa.Array, rows: Rows) -> pa.RecordBatch:
    """Rows with the names of their nodes."""
    features = vectors(rows.features.numpy())
    columns = {"target": rows.targets.numpy(), "weight": rows.weights.numpy()}
    return pa.RecordBatch.from_pydict({"node": names, "features": features, **columns})


def rows_of(batches: Sequence[pa.RecordBatch], names: pa.Array) -> Rows:
    """The rows of batches, with nodes numbered as names are."""
    parts = [torch.cat([tensor(each, name) for each in batches]) for name in ("features", "target", "weight")]
    nodes = np.concatenate([codes(each.column("node"), names) for each in batches])
    return Rows(torch.from_numpy(nodes), *parts)


def read_said(folder: Store, name: str) -> tuple[pa.Array, Tensor]:
    """Names, and what they said [n, s, 1]."""
    batch = read_ipc(folder, name)
    return batch.column("node"), tensor(batch, "said")[:, :, None]
