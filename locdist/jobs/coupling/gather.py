"""The first task of `couple` over rows: what the nodes of a partition would minimise, by name."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.columns import Flags, Matrix, codes, distinct, numbers, targets, vectors
from locdist.data.dataset import Dataset
from locdist.data.encoding import Encoding
from locdist.data.source import Span
from locdist.data.store import Store
from locdist.errors import DataError
from locdist.jobs.coupling.edges import names_as
from locdist.jobs.coupling.fits import read_fit
from locdist.jobs.indexing import BATCH_ROWS, read_ipc
from locdist.jobs.request import rows_told, write_ipc
from locdist.jobs.spreading.whole import tensor
from locdist.local.losses import Losses, Rows
from locdist.local.network import with_intercept
from locdist.methods.coupled import CoupledMethod
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record


@dataclass(frozen=True)
class GatherRows:
    """The losses of the nodes that have rows in a span.

    Parameters
    ----------
    support : Dataset
        Its id names the node of a row.
    encoding : Encoding
        Of the features.
    method : CoupledMethod
    kind : pa.DataType
        Of the names of all nodes.
    before : str or None
        The file of the models that losses are expanded at; 0 at first.
    """

    support: Dataset
    encoding: Encoding
    method: CoupledMethod
    kind: pa.DataType
    before: str | None = None

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.support.source, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output has a node a row, sorted by name."""
        span = Span(*task.inputs)
        named, rows = good_rows(read_table(self.support, span), self.support, self.encoding, self.kind)
        family, features = self.method.family, with_intercept(rows.features, self.method.intercept)
        if family is not None and not family.inside(rows.there.targets).all():
            wanted = f"targets that {self.method.spec['family']} models have"
            raise DataError(wanted, "others", "Leave such rows out, or choose another family.")
        names = distinct(named)
        count, at = len(names), None
        if self.before is not None:
            known, fit = read_fit(attempt.folder, self.before)
            at = fit.state.models[torch.from_numpy(codes(names, known))]
        local = torch.from_numpy(codes(named, names))
        rows = Rows(local, features, rows.targets, rows.weights)
        losses = Losses.of(rows, count, at, family)
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            write_ipc(sink, name, _batch(names, losses))
        used = len(rows.nodes)
        return Record(rows=span.rows, bad_rows=span.rows - used, data={"nodes": count})


def good_rows(
    table: pa.Table, support: Dataset, encoding: Encoding, kind: pa.DataType
) -> tuple[pa.ChunkedArray, Rows]:
    """The names of the nodes of rows that can be used, of one kind, and these rows; their nodes have no
    numbers yet. Rows that weigh nothing are among them: they name their node.
    """
    roles = support.roles
    assert roles.id is not None
    features, bad, _ = encoding.encode(table)
    target, wrong = targets(table, roles.target)
    named = names_as(kind, table.column(roles.id))
    weights, lost = row_weights(table, roles.weight)
    good = ~(bad | wrong | lost | named.is_null().to_numpy())
    x, y, v = (torch.from_numpy(each[good]).double() for each in (features, target[:, 0], weights))
    return named.filter(pa.array(good)), Rows(torch.zeros(len(y), dtype=torch.int64), x, y, v)


def row_weights(table: pa.Table, column: str | None) -> tuple[Matrix, Flags]:
    """How much rows count [n], 1 where no column says it; and where it says nothing that can be."""
    if column is None:
        return np.ones(len(table)), np.zeros(len(table), np.bool_)
    weights, lost = numbers(table.column(column))
    return weights, lost | (weights < 0)


def read_table(support: Dataset, span: Span, more: Sequence[str] = ()) -> pa.Table:
    """The rows of a span, with the columns that have a role, and some more."""
    columns, schema = list(dict.fromkeys([*support.roles.columns, *more])), support.source.schema
    empty = pa.schema([schema.field(name) for name in columns]).empty_table()
    return pa.concat_tables([empty, *support.source.read(span.start, span.stop, columns, BATCH_ROWS)])


def read_losses(folder: Store, files: Sequence[str]) -> tuple[list[pa.Array], list[Losses]]:
    """Names and losses of the nodes of each partition."""
    batches = [read_ipc(folder, name) for name in files]
    return [batch.column("node") for batch in batches], [_losses(batch) for batch in batches]


def _batch(names: pa.Array, losses: Losses) -> pa.RecordBatch:
    flat = losses.curve.flatten(1)
    parts = {"curve": vectors(flat.numpy()), "pull": vectors(losses.pull.numpy())}
    numbers = {"level": losses.level.numpy(), "rows": losses.rows.numpy()}
    return pa.RecordBatch.from_pydict({"node": names, **parts, **numbers})


def _losses(batch: pa.RecordBatch) -> Losses:
    curve, pull, level, rows = (tensor(batch, name) for name in ("curve", "pull", "level", "rows"))
    return Losses(_square(curve, pull), pull, level, rows)


def _square(flat: Tensor, pull: Tensor) -> Tensor:
    return flat.reshape(len(pull), pull.shape[1], pull.shape[1])
