"""The labels that a job is given: in the order of the nodes, or by their ids; few, or one for each node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from locdist.data.columns import is_class, numbers
from locdist.data.schema import plain
from locdist.data.source import Source, Span, source
from locdist.errors import DataError, UsageError
from locdist.jobs.stored import StoredGraph

MOST = 10_000  # classes
PREFIX = "probability_"  # of a column of shares, as predictions have it


@dataclass(frozen=True)
class Labels:
    """Where labels are.

    Parameters
    ----------
    source : Source
    target : tuple of str
        One column of classes, null for none; or several of numbers, the shares of a class each.
    id : str or None
        The column that names a node; without it there is a row for each node, in their order.
    """

    source: Source
    target: tuple[str, ...]
    id: str | None = None

    @staticmethod
    def of(data: Any, target: str | Sequence[str], id: str | None, graph: StoredGraph) -> "Labels":
        """Labels for the nodes of a graph; UsageError for those that do not fit it."""
        rows = source(data)
        names = (target,) if isinstance(target, str) else tuple(target)
        found = Labels(rows, names, id)
        rows.check([*names, *([id] if id is not None else [])])
        kinds = [rows.schema.field(name).type for name in names]
        if len(names) == 1 and not is_class(kinds[0]):
            raise UsageError("a column of classes", f"{names[0]!r} of type {kinds[0]}", "Name another one.")
        if not names:
            raise UsageError("the column of the labels", "none", "Name it, as the target.")
        if id is None and rows.rows != graph.nodes:
            wanted = f"a row for each of {graph.nodes:,} nodes, in their order, or an id"
            raise UsageError(wanted, f"{rows.rows:,} rows without an id", "Name the column of the ids.")
        return found

    @property
    def columns(self) -> list[str]:
        """Columns that are read."""
        return [*([self.id] if self.id is not None else []), *self.target]

    @property
    def classes(self) -> list[Any] | None:
        """The classes, where columns have their names."""
        return [name.removeprefix(PREFIX) for name in self.target] if len(self.target) > 1 else None

    @property
    def type(self) -> pa.DataType:
        """Of the classes."""
        return pa.string() if self.classes else plain(self.source.schema.field(self.target[0]).type)

    def at(self, graph: StoredGraph, span: Span) -> pa.RecordBatch:
        """The labels of the nodes of a span: a column "label" with nulls, or "shares" with zeros."""
        if self.id is None:
            tables = self.source.read(span.start, span.stop, self.columns)
            found = pa.concat_tables([self._empty, *tables])
        else:
            found = self._joined(graph, span)
        if self.classes is None:
            column = found.column(0).combine_chunks()
            column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            return pa.RecordBatch.from_pydict({"label": column})
        shares = np.column_stack([numbers(column)[0] for column in found.columns])
        if (shares < 0).any():
            raise DataError("shares of 0 or more", f"{shares.min():g}", "Repair the labels.")
        flat = pa.array(shares.reshape(-1))
        return pa.RecordBatch.from_pydict(
            {"shares": pa.FixedSizeListArray.from_arrays(flat, len(self.target))}
        )

    def _joined(self, graph: StoredGraph, span: Span) -> pa.Table:
        """The targets by the ids of the nodes; of a node that is named twice the first counts."""
        assert self.id is not None
        nodes = graph.named(span).column(0)  # the id, or the number
        known = pa.concat_tables([self._empty_with_id, *self.source.read(columns=self.columns)])
        some = pc.is_valid(known.column(1))
        known = known.filter(some)
        ids = known.column(0).cast(nodes.type)
        return known.select(self.target).take(pc.index_in(nodes, value_set=ids.combine_chunks()))

    @property
    def _empty(self) -> pa.Table:
        return self._empty_with_id.select(self.target)

    @property
    def _empty_with_id(self) -> pa.Table:
        return pa.schema([self.source.schema.field(name) for name in self.columns]).empty_table()


def distinct(batch: pa.RecordBatch) -> list[Any]:
    """The classes in a batch, sorted; none for shares, whose columns have their names."""
    if batch.schema.names == ["shares"]:
        return []
    found = sorted(batch.column(0).unique().drop_null().to_pylist())
    if len(found) > MOST:
        raise DataError(f"at most {MOST:,} classes", f"{len(found):,}", "Is it the right column?")
    return found


def joined_classes(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """All classes, sorted; DataError without any."""
    found = sorted({value for part in parts for value in part})
    if not found:
        raise DataError("a label of some node", "none", "Check the labels, and the ids that name nodes.")
    if len(found) > MOST:
        raise DataError(f"at most {MOST:,} classes", f"{len(found):,}", "Is it the right column?")
    return found


def shares_of(batch: pa.RecordBatch, classes: pa.Array) -> Tensor:
    """Labels as shares [n, c]: zeros where there is none."""
    column = batch.column(0)
    if batch.schema.names == ["shares"]:
        shares = torch.from_numpy(column.values.to_numpy().reshape(-1, len(classes)).copy())
        total = shares.sum(1, keepdim=True)
        return shares / total.where(total > 0, 1.0)
    codes = pc.fill_null(pc.index_in(column, value_set=classes.cast(column.type)), -1)
    places = torch.from_numpy(codes.to_numpy().astype(np.int64))
    shares = torch.zeros(len(places), len(classes), dtype=torch.float64)
    some = (places >= 0).nonzero()[:, 0]
    shares[some, places[some]] = 1.0
    return shares
