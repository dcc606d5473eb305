"""The edges that a job is given between named nodes: a table, or a graph that `graph` wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from locdist.data.columns import codes, decoded, numbers
from locdist.data.schema import is_text, plain, promote
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
    columns : tuple of str
        The two ends, and the weight if there is one; of a graph none.
    graph : StoredGraph, optional
    """

    source: Source
    columns: tuple[str, ...] = ()
    graph: StoredGraph | None = None

    @staticmethod
    def of(data: Any, columns: Sequence[str] | None, names: pa.DataType) -> "NamedEdges":
        """The edges of a graph's folder, or of a table, whose ends are named as nodes of type `names` are."""
        if isinstance(data, StoredGraph) or (isinstance(data, str | Path) and _is_graph(data)):
            found = StoredGraph.at(data)
            return NamedEdges(found.source, (), found)._checked(names)
        rows = source(data)
        if columns is None:
            columns = (*ENDS, *((WEIGHT,) if WEIGHT in rows.schema.names else ()))
        if len(columns) not in (2, 3):
            given = ", ".join(columns) or "none"
            raise UsageError("the columns of both ends, and of the weight if any", given, "Name them.")
        rows.check(columns)
        return NamedEdges(rows, tuple(columns))._checked(names)

    def _checked(self, names: pa.DataType) -> "NamedEdges":
        for name in self._ends:
            kind = plain(self.source.schema.field(name).type)
            if promote(kind, plain(names)) is None or is_text(kind) != is_text(plain(names)):
                given = f"{kind} in column {name!r}"
                raise UsageError(
                    f"ends of edges of type {names}, as the nodes", given, "Convert one of them."
                )
        return self

    @property
    def _ends(self) -> tuple[str, ...]:
        return ((self.graph.own or [NODE])[0],) if self.graph else self.columns[:2]

    @property
    def folders(self) -> tuple[str, ...]:
        """What an output must not touch."""
        return (self.graph.folder,) if self.graph else inputs(self.source)

    def settled(self, folder: Store) -> "NamedEdges":
        """The same where tasks can read it."""
        return NamedEdges(self.source.spill(folder.child(f"{OURS}/edges")), self.columns, self.graph)

    def read(self) -> tuple[pa.ChunkedArray, pa.ChunkedArray, np.ndarray[Any, np.dtype[np.float64]]]:
        """Names of heads and tails [e], and weights [e]; of a graph every node is its own neighbor, too, with
        the weight 0, so that all are named.
        """
        if self.graph:
            names = pa.concat_tables([self.graph.named(span) for span in self.graph.spans]).column(0)
            whole = self.graph.whole()
            own = torch.arange(len(whole))
            heads, tails = (torch.cat([each, own]).numpy() for each in (whole.heads, whole.ends))
            weights = torch.cat([whole.weights, torch.zeros(len(whole)).double()]).numpy()
            there = names.is_valid().to_numpy()  # a row that the index left out has no name
            some = there[heads] & there[tails]
            return names.take(pa.array(heads[some])), names.take(pa.array(tails[some])), weights[some]
        schema = pa.schema([self.source.schema.field(name) for name in self.columns])
        table = pa.concat_tables([schema.empty_table(), *self.source.read(columns=self.columns)])
        ends = [decoded(table.column(name)) for name in self.columns[:2]]
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
    """The graph of edges between nodes, numbered as their `names` are."""
    heads, tails = (torch.from_numpy(codes(each, names)) for each in ends)
    return Graph.of_pairs(heads, tails, torch.from_numpy(weights), nodes=len(names))


def _is_graph(place: str | Path) -> bool:
    store = Store.at(place)
    return store.exists(REPORT) and read_manifest(store).kind == "graph"
