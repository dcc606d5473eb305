"""The edges that a job is given between named nodes: a table, or a graph that `graph` wrote."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from locdist.data.columns import codes, decoded, distinct, numbers
from locdist.data.schema import cast, is_text, plain, promote
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.jobs.request import OURS, inputs
from locdist.jobs.stored import NODE, StoredGraph
from locdist.jobs.telling.kept import REPORT
from locdist.local.graph import Graph
from locdist.plan.manifest import read_manifest

ENDS, WEIGHT = ("source", "target"), "weight"


@dataclass(frozen=True)
class NamedEdges:
    """Where edges between named nodes are.

    Parameters
    ----------
    source : Source
        Of a table with an edge a row; of a graph its files.
    kind : pa.DataType
        Of the names of all nodes: it holds those of rows, and of both ends.
    columns : tuple of str
        The two ends, and the weight if there is one; of a graph none.
    graph : StoredGraph, optional
    """

    source: Source
    kind: pa.DataType
    columns: tuple[str, ...] = ()
    graph: StoredGraph | None = None

    @staticmethod
    def of(data: Any, columns: Sequence[str] | None, names: pa.DataType) -> "NamedEdges":
        """The edges of a graph's folder, or of a table, whose ends are named as nodes of type `names` are."""
        if isinstance(data, StoredGraph) or (isinstance(data, str | Path) and is_graph(data)):
            if columns is not None:
                given = ", ".join(columns)
                raise UsageError("a graph, which has no columns of ends", given, "Leave them out.")
            found = StoredGraph.at(data)
            return NamedEdges(found.source, names, (), found)._checked()
        rows = source(data)
        if columns is None:
            columns = (*ENDS, *((WEIGHT,) if WEIGHT in rows.schema.names else ()))
        if len(columns) not in (2, 3):
            given = ", ".join(columns) or "none"
            raise UsageError("the columns of both ends, and of the weight if any", given, "Name them.")
        rows.check(columns)
        return NamedEdges(rows, names, tuple(columns))._checked()

    def _checked(self) -> "NamedEdges":
        """The same with the kind of names that holds those of rows, which it has now, and of both ends."""
        return replace(self, kind=kind_of(self.source, self._ends, self.kind))

    @property
    def more(self) -> int:
        """Nodes that have no name."""
        return 0

    @property
    def _ends(self) -> tuple[str, ...]:
        return ((self.graph.own or [NODE])[0],) if self.graph else self.columns[:2]

    @property
    def folders(self) -> tuple[str, ...]:
        """What an output must not touch."""
        return (self.graph.folder,) if self.graph else inputs(self.source)

    def settled(self, folder: Store) -> "NamedEdges":
        """The same where tasks can read it."""
        return replace(self, source=self.source.spill(folder.child(f"{OURS}/edges")))

    @property
    def count(self) -> int:
        """Edges, as they are given."""
        return self.graph.report.edges if self.graph else self.source.rows

    def among(self, names: Sequence[pa.Array]) -> tuple[pa.Array, Graph]:
        """The names of all nodes, sorted: those given, and those at edges; and the graph of them."""
        heads, tails, weights = self.read()
        ends = [chunk for end in (heads, tails) for chunk in end.chunks]
        everybody = distinct(pa.chunked_array([*names, *ends], self.kind))
        return everybody, graph_of((heads, tails), weights, everybody)

    def read(self) -> tuple[pa.ChunkedArray, pa.ChunkedArray, np.ndarray[Any, np.dtype[np.float64]]]:
        """Names of heads and tails [e], and weights [e]; of a graph every node is its own neighbor, too, with
        the weight 0, so that all are named.
        """
        if self.graph:
            named = pa.concat_tables([self.graph.named(span) for span in self.graph.spans]).column(0)
            names = names_as(self.kind, named)
            whole = self.graph.whole()
            own = torch.arange(len(whole))
            heads, tails = (torch.cat([each, own]).numpy() for each in (whole.heads, whole.ends))
            weights = torch.cat([whole.weights, torch.zeros(len(whole)).double()]).numpy()
            there = names.is_valid().to_numpy()  # a row that the index left out has no name
            some = there[heads] & there[tails]
            return names.take(pa.array(heads[some])), names.take(pa.array(tails[some])), weights[some]
        schema = pa.schema([self.source.schema.field(name) for name in self.columns])
        table = pa.concat_tables([schema.empty_table(), *self.source.read(columns=self.columns)])
        ends = [names_as(self.kind, table.column(name)) for name in self.columns[:2]]
        weights, bad = np.ones(len(table)), np.zeros(len(table), np.bool_)
        for name in self.columns[2:]:
            weights, bad = numbers(table.column(name))
        wrong = bad | (weights < 0) | ends[0].is_null().to_numpy() | ends[1].is_null().to_numpy()
        if wrong.any():
            given = f"{int(wrong.sum()):,} of {len(table):,} that are not, the first in row {wrong.argmax()}"
            raise DataError("edges with two ends and a weight of 0 or more", given, "Leave them out.")
        return ends[0], ends[1], weights


def graph_of(
    ends: tuple[pa.ChunkedArray, pa.ChunkedArray], weights: np.ndarray[Any, Any], names: pa.Array
) -> Graph:
    """The graph of edges between nodes, numbered as their `names` are; of several edges from one node to
    another the largest weight counts.
    """
    order = torch.from_numpy(weights).argsort(stable=True)
    heads, tails = (torch.from_numpy(codes(each, names))[order] for each in ends)
    return Graph.of_pairs(heads, tails, torch.from_numpy(weights)[order], nodes=len(names))


def kind_of(source: Source, columns: Sequence[str], names: pa.DataType) -> pa.DataType:
    """The type that holds the names of nodes in some columns, and those of type `names`."""
    kind = plain(names)
    for name in columns:
        own = plain(source.schema.field(name).type)
        both = promote(own, kind)
        if both is None or is_text(own) != is_text(kind):
            given = f"{own} in column {name!r}"
            raise UsageError(f"names of type {names}, as the nodes", given, "Convert one of them.")
        kind = both
    return kind


def names_as(kind: pa.DataType, names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Names of nodes in the type that all have; DataError for those that do not fit."""
    remedy = "Give ends of edges and ids of rows one type."
    return cast(
        decoded(names), kind, lambda error: DataError(f"names of nodes of type {kind}", str(error), remedy)
    )


def is_graph(place: str | Path) -> bool:
    """Whether `graph` has finished one there."""
    store = Store.at(place)
    return store.exists(REPORT) and read_manifest(store).kind == "graph"
