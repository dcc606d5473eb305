"""Graphs in files: one row a node, in the order of the support, with the list of its neighbors."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.data.source import Source, Span, source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.jobs.asking.block import STATUS, statuses
from locdist.jobs.telling.kept import REPORT
from locdist.jobs.telling.network import GraphReport
from locdist.local.answers import Status
from locdist.local.graph import Edges, Graph
from locdist.plan.manifest import read_manifest
from locdist.search.generation import Generation

NODE, NEIGHBORS = "node", "neighbors"


def schema_of(index: Generation) -> pa.Schema:
    """Columns of a graph: the id of the support where it has one, the node, its neighbors, its status."""
    id = index.layout.roles.id
    names = [("id", index.id_type)] if id else []
    neighbor = pa.struct([(NODE, pa.int64()), *names, ("distance", pa.float64()), ("weight", pa.float64())])
    own = [(id, index.id_type)] if id else []
    return pa.schema([*own, (NODE, pa.int64()), (NEIGHBORS, pa.list_(neighbor)), ("status", STATUS)])


@dataclass(frozen=True, eq=False)
class Nodes:
    """Some nodes in order.

    Parameters
    ----------
    first : int
        The number of the first.
    stored : Tensor [n]
        The row of the index that each one is; -1 for those that it left out.
    edges : Edges
        Sorted by head, which are nodes; tails are rows of the index, distances as a kernel sees them.
    status : Tensor [n]
    """

    first: int
    stored: Tensor
    edges: Edges
    status: Tensor


def node_table(index: Generation, nodes: Nodes) -> tuple[pa.Table, Tensor]:
    """Nodes as a table, and their statuses [n]: EMPTY without edges, BAD_QUERY if the index left it out."""
    edges, schema, named = nodes.edges, schema_of(index), index.layout.roles.id is not None
    assert edges.distances is not None
    count = len(nodes.status)
    counts = torch.bincount(edges.heads - nodes.first, minlength=count)
    status = nodes.status.where(counts > 0, int(Status.EMPTY)).where(nodes.stored >= 0, int(Status.BAD_QUERY))
    true = -edges.distances if index.layout.metric == "ip" else edges.distances.clamp(min=0).sqrt()
    ids = [index.identify(edges.tails)] if named else []
    parts = [index.sources(edges.tails).numpy(), *ids, true.numpy(), edges.weights.numpy()]
    structs = pa.StructArray.from_arrays(
        [pa.array(part) for part in parts], fields=list(schema.field(NEIGHBORS).type.value_type)
    )
    ends = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)
    lists = pa.ListArray.from_arrays(pa.array(ends.numpy()), structs)
    own = [index.identify(nodes.stored)] if named else []
    numbers = pa.array(np.arange(nodes.first, nodes.first + count))
    return pa.Table.from_arrays([*own, numbers, lists, statuses(status)], schema=schema), status


def places(index: Generation, start: int, stop: int) -> Tensor:
    """Where rows [start, stop) of the source are stored; -1 for those that the index left out."""
    ids, rows = index.stored(start, stop)
    stored = torch.full((stop - start,), -1)
    stored[rows - start] = ids
    return stored


def edges_in(table: pa.Table) -> Edges:
    """The edges of the nodes of a table, heads counted from its first, in the order of the lists."""
    parts = []
    first = 0
    for chunk in table.column(NEIGHBORS).chunks:
        flat = chunk.flatten()
        counts = torch.from_numpy(pc.fill_null(pc.list_value_length(chunk), 0).to_numpy().astype(np.int64))
        heads = torch.repeat_interleave(torch.arange(first, first + len(chunk)), counts)
        tails, weights, away = (_numbers(flat, name) for name in (NODE, "weight", "distance"))
        parts.append(Edges(heads, tails, weights, away))
        first += len(chunk)
    return Edges.together(parts)


def part_of(folder: Store, name: str, nodes: int) -> Graph:
    """The nodes of one output file, as rows; their edges lead to all `nodes`."""
    with folder.open(name) as stream:
        table = pq.read_table(stream, columns=[NEIGHBORS])
    return Graph.of(edges_in(table), table.num_rows, nodes)


@dataclass(frozen=True)
class StoredGraph:
    """A graph that `graph` wrote.

    Parameters
    ----------
    folder : str
    source : Source
        Its files.
    report : GraphReport
    """

    folder: str
    source: Source
    report: GraphReport

    @staticmethod
    def at(folder: "str | Path | StoredGraph") -> "StoredGraph":
        """Open it; UsageError for a folder that holds no finished graph."""
        if isinstance(folder, StoredGraph):
            return folder
        store = Store.at(folder)
        if not store.exists(REPORT) or read_manifest(store).kind != "graph":
            given = f"{store.uri}, which holds none that is finished"
            raise UsageError("the folder of a graph", given, "Make it with ld.graph or `locdist graph`.")
        found = StoredGraph(store.uri, source(store.uri), GraphReport.read(store))
        if found.source.rows != found.report.rows:
            given = f"{found.source.rows:,} in its files"
            raise DataError(f"{found.report.rows:,} nodes in {store.uri}", given, "Make the graph again.")
        return found

    @property
    def nodes(self) -> int:
        """Nodes n."""
        return self.report.rows

    @property
    def spans(self) -> list[Span]:
        """The nodes of each file."""
        starts = self.source.starts
        return [Span(*pair) for pair in itertools.pairwise(starts)]

    @property
    def own(self) -> list[str]:
        """The column that names a node, where the support had one."""
        return [name for name in self.source.schema.names if name not in (NODE, NEIGHBORS, "status")]

    def named(self, span: Span) -> pa.Table:
        """What names the nodes of a span: the id of the support where it had one, and their numbers."""
        columns = [*self.own, NODE]
        empty = pa.schema([self.source.schema.field(name) for name in columns]).empty_table()
        tables = self.source.read(span.start, span.stop, columns)
        return pa.concat_tables([empty, *tables]).combine_chunks()

    def rows(self, span: Span) -> Graph:
        """The nodes of a span as rows, whose edges lead to all nodes."""
        parts = []
        for first, table in self._tables(span):
            edges = edges_in(table)
            parts.append(Edges(edges.heads + first, edges.tails, edges.weights, edges.distances))
        return Graph.of(Edges.together(parts), span.rows, self.nodes)

    def whole(self) -> Graph:
        """All of it, in memory, without distances."""
        parts = [self.rows(span) for span in self.spans]
        counts = torch.cat([each.counts for each in parts])
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        ends, weights = (torch.cat([getattr(each, name) for each in parts]) for name in ("ends", "weights"))
        return Graph(starts, ends, weights, nodes=self.nodes)

    def _tables(self, span: Span) -> Iterator[tuple[int, pa.Table]]:
        first = 0
        for table in self.source.read(span.start, span.stop, [NEIGHBORS]):
            yield first, table
            first += table.num_rows


def _numbers(structs: pa.StructArray, name: str) -> Tensor:
    return torch.from_numpy(np.array(structs.field(name)))
