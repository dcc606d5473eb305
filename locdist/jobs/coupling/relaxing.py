"""What the tasks of FedRelax do: a task for each group of nodes, whose models are fitted one by one."""

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.data.columns import codes, decoded, distinct, vectors
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
from locdist.local.losses import Rows
from locdist.local.network import Links
from locdist.local.relaxed import Relaxed, heard
from locdist.local.relaxed import statuses as of_nodes
from locdist.methods.federated import largest_change
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record

MOST = 1e300  # a change that is infinite


@dataclass(frozen=True)
class SortRows:
    """The rows of a span, encoded, with a batch for each group of nodes."""

    support: Dataset
    encoding: Encoding
    groups: int

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.support.source, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Rows of a node keep their order."""
        span = Span(*task.inputs)
        named, rows = good_rows(read_table(self.support, span), self.support, self.encoding)
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
        return Record(rows=span.rows, bad_rows=span.rows - len(rows.nodes))


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

    def own(self, folder: Store, number: int) -> tuple[pa.Array, Rows]:
        """The names of a group's nodes, sorted, and their rows, by node."""
        batches = []
        for name in self.rows:
            with folder.open(name, mmap=True) as stream:
                batches += read_batches(stream, name, lambda schema: range(number, number + 1))
        table = pa.Table.from_batches(batches)
        kind = table.schema.field("node").type
        heads, tails, _ = self.edges.read()
        ends = distinct(
            pa.chunked_array([*decoded(heads).cast(kind).chunks, *decoded(tails).cast(kind).chunks])
        )
        ours = ends.filter(pa.array(group_of(ends, self.count) == number))
        named = table.column("node")
        names = distinct(pa.chunked_array([*named.chunks, ours], kind))
        return names, rows_of(table.combine_chunks().to_batches() or batches[:1], names)

    def heard(self, folder: Store, names: pa.Array, shared: int) -> tuple[Tensor, Tensor]:
        """What the neighbors of nodes said [n, s, 1], and the weights of those that did [n]."""
        if not self.said:
            nothing = torch.full((len(names), shared, 1), torch.nan, dtype=torch.float64)
            return nothing, torch.zeros(len(names), dtype=torch.float64)
        parts = [read_said(folder, name) for name in self.said]
        known = pa.concat_arrays([each for each, _ in parts])
        order = pa.compute.array_sort_indices(known)
        everybody, kind = known.take(order), known.type
        said = torch.cat([each for _, each in parts])[torch.from_numpy(order.to_numpy().astype(np.int64))]
        heads, tails, weights = self.edges.read()
        graph = graph_of((decoded(heads).cast(kind), decoded(tails).cast(kind)), weights, everybody)
        told, weight = heard(Links.of(graph).graph, said)
        places = torch.from_numpy(codes(names, everybody))
        return told[places], weight[places]


@dataclass(frozen=True)
class RelaxGroup:
    """A round of a group of nodes."""

    groups: Groups

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is what they say; the record's data the largest change of it."""
        (number,) = task.inputs
        folder, groups = attempt.folder, self.groups
        common = groups.common()
        names, rows = groups.own(folder, number)
        told, weight = groups.heard(folder, names, len(common))
        said = torch.full_like(told, torch.nan)
        for node, own in enumerate(rows.by_node(len(names))):
            fitted = groups.refit.refit(own, common, told[node], float(weight[node]))
            said[node] = groups.refit.ask(fitted, common, 1)
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            flat = vectors(said[:, :, 0].numpy())
            write_ipc(sink, name, pa.RecordBatch.from_pydict({"node": names, "said": flat}))
        change = largest_change(read_said(folder, groups.said[number])[1], said) if groups.said else MOST
        return Record(rows=len(names), data={"change": min(change, MOST)})


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
        names, rows = self.groups.own(folder, number)
        told, weight = self.groups.heard(folder, names, len(common))
        _, said = read_said(folder, self.said[number])
        counts = torch.bincount(rows.nodes, minlength=len(names))
        status = of_nodes(counts, said, self.rests)
        table = pa.table({self.stored.node: names, "rows": counts.numpy(), "status": statuses(status)})
        part, mine, theirs = task.outputs
        with attempt.writer(part) as sink:
            pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
        order = rows.nodes.argsort(stable=True)
        named = names.take(pa.array(rows.nodes[order].numpy()))
        with attempt.writer(mine) as sink:
            write_ipc(sink, mine, batch_of(named, some(rows, order)))
        columns = {"node": names, "heard": vectors(told[:, :, 0].numpy()), "weight": weight.numpy()}
        with attempt.writer(theirs) as sink:
            write_ipc(sink, theirs, pa.RecordBatch.from_pydict(columns))
        if number == 0:
            with folder.writer(SHARED) as sink:
                write_ipc(sink, SHARED, pa.RecordBatch.from_pydict({"shared": vectors(common.numpy())}))
            self.stored.write(folder)
        counted = np.bincount(status.numpy(), minlength=len(Status)).tolist()
        told_of = {each.name.lower(): counted[each] for each in Status if counted[each]}
        return Record(rows=len(names), data={"status": told_of})


SHARED = "_models/shared.arrow"


def kept_files(number: int) -> tuple[str, str]:
    """Rows, and what was heard, of a group of nodes."""
    return f"_models/rows-{number:05}.arrow", f"_models/heard-{number:05}.arrow"


def group_of(names: pa.Array, groups: int) -> NDArray[np.int64]:
    """The group of each name: the same wherever it is asked."""
    sums = [zlib.crc32(str(name).encode()) % groups for name in names.to_pylist()]
    return np.array(sums, np.int64)


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


def some(rows: Rows, order: Tensor) -> Rows:
    """Rows in another order."""
    return Rows(*(part[order] for part in (rows.nodes, rows.features, rows.targets, rows.weights)))


def read_said(folder: Store, name: str) -> tuple[pa.Array, Tensor]:
    """Names, and what they said [n, s, 1]."""
    batch = read_ipc(folder, name)
    return batch.column("node"), tensor(batch, "said")[:, :, None]
