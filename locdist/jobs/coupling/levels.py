"""The groups that a job is given of named devices: a table with a device a row, a column for each level."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from locdist.data.columns import codes, distinct, is_class
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.jobs.coupling.edges import kind_of, names_as
from locdist.jobs.request import OURS, inputs
from locdist.local.graph import Graph
from locdist.local.hierarchy import grouped


@dataclass(frozen=True)
class NamedLevels:
    """Where the groups of named devices are.

    Parameters
    ----------
    source : Source
        Of a table with a device a row.
    kind : pa.DataType
        Of the names of all devices.
    columns : tuple of str
        The device, and its group at each level; a null is no group.
    """

    source: Source
    kind: pa.DataType
    columns: tuple[str, ...]

    @staticmethod
    def of(data: Any, columns: Sequence[str] | None, node: str, names: pa.DataType) -> "NamedLevels":
        """The groups of a table whose devices are named as in the column `node` of rows, of type `names`."""
        rows = source(data)
        chosen = tuple(columns or (node, *(name for name in rows.schema.names if name != node)))
        rows.check(chosen)
        kinds = {name: rows.schema.field(name).type for name in chosen[1:]}
        wrong = [f"{name} of type {kind}" for name, kind in kinds.items() if not is_class(kind)]
        if wrong or not kinds:
            wanted = "a column of the device, and one of names of groups for each level"
            raise UsageError(wanted, ", ".join(wrong) or ", ".join(chosen), "Name them (ends=, --ends).")
        return NamedLevels(rows, kind_of(rows, chosen[:1], names), chosen)

    @property
    def folders(self) -> tuple[str, ...]:
        """What an output must not touch."""
        return inputs(self.source)

    def settled(self, folder: Store) -> "NamedLevels":
        """The same where tasks can read it."""
        return replace(self, source=self.source.spill(folder.child(f"{OURS}/edges")))

    @property
    def count(self) -> int:
        """Who may be in a group, level by level."""
        return self.source.rows * (len(self.columns) - 1)

    @property
    def more(self) -> int:
        """Nodes that have no name: groups, at most."""
        return self.count

    def among(self, names: Sequence[pa.Array]) -> tuple[pa.Array, Graph]:
        """The names of all devices, sorted: those given, and those of the table; and the graph of these and,
        behind them, of groups.
        """
        schema = pa.schema([self.source.schema.field(name) for name in self.columns])
        table = pa.concat_tables([schema.empty_table(), *self.source.read(columns=self.columns)])
        devices = names_as(self.kind, table.column(self.columns[0]))
        own = distinct(devices)
        if len(own) < len(devices):
            given = f"{len(devices) - len(own):,} of {len(devices):,} rows without one, or with one again"
            raise DataError("a device of its own in each row of the groups", given, "Leave these out.")
        everybody = distinct(pa.chunked_array([*names, own], self.kind))
        levels = np.full((len(self.columns) - 1, len(everybody)), -1)
        places = codes(devices, everybody)
        for level, name in zip(levels, self.columns[1:], strict=True):
            level[places] = codes(table.column(name), distinct(table.column(name))).clip(min=-1)
        return everybody, grouped(torch.from_numpy(levels))
