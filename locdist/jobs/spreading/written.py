"""The first and the last tasks of `label`: what is known of a partition, and what came out for it."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.jobs.asking.block import STATUS, statuses
from locdist.jobs.asking.present import WIDE, chances, lists, nullable
from locdist.jobs.labelled import Labels, distinct
from locdist.jobs.request import read_batches, write_ipc
from locdist.jobs.spreading.whole import Classes, tensor
from locdist.jobs.stored import StoredGraph
from locdist.local.answers import Answers, Status
from locdist.methods.labels import LabelMethod
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record


@dataclass(frozen=True)
class FindLabels:
    """The labels of the nodes of one partition."""

    graph: StoredGraph
    labels: Labels

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is a column of labels; the record's data are the classes in it, and of how many nodes
        each is the label, or the sum of the shares.
        """
        number, start, stop = task.inputs
        batch = self.labels.at(self.graph, self.graph.spans[number])
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            write_ipc(sink, name, batch)
        column = batch.column(0)
        if batch.schema.names == ["shares"]:
            rows = column.values.to_numpy().reshape(len(batch), -1)
            known, sums = int(rows.any(axis=1).sum()), rows.sum(axis=0).tolist()
            return Record(rows=stop - start, data={"classes": [], "known": known, "sums": sums})
        classes = distinct(batch)
        counted = {each["values"]: each["counts"] for each in column.drop_null().value_counts().to_pylist()}
        sums = [counted[each] for each in classes]
        data = {"classes": classes, "known": len(column) - column.null_count, "sums": sums}
        return Record(rows=stop - start, data=data)


@dataclass(frozen=True)
class WriteLabels:
    """The labels that came out for one partition.

    Parameters
    ----------
    method : LabelMethod
    graph : StoredGraph
    classes : Classes
    states : tuple of str
        The file of the states of each partition.
    apart : bool
        Whether each partition has a file of its own; otherwise a batch in the same one.
    means : tuple of float
        Of all labels, by class, where they are not in the file.
    rests : bool
        Whether the loop settled.
    """

    method: LabelMethod
    graph: StoredGraph
    classes: Classes
    states: tuple[str, ...]
    apart: bool
    means: tuple[float, ...]
    rests: bool

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output: what names a node, its label, the score of each class, and a status."""
        number, start, stop = task.inputs
        batch = self._state(attempt, number)
        values = tensor(batch, "values")
        told = tensor(batch, "means") if "means" in batch.schema.names else torch.tensor(self.means).double()
        answers = self.method.answers(values, told.expand_as(values), self.rests)
        table = self._table(answers, self.graph.named(self.graph.spans[number]))
        (name,) = task.outputs
        with (
            attempt.writer(name) as sink,
            pq.ParquetWriter(sink, table.schema, compression="zstd", write_page_checksum=True) as writer,
        ):
            writer.write_table(table, row_group_size=1 << 16)
        counts = np.bincount(answers.status.numpy(), minlength=len(Status)).tolist()
        status = {each.name.lower(): counts[each] for each in Status if counts[each]}
        return Record(rows=stop - start, data={"status": status})

    def _state(self, attempt: Attempt, number: int) -> pa.RecordBatch:
        name, place = self.states[number], 0 if self.apart else number
        with attempt.folder.open(name, mmap=True) as stream:
            return read_batches(stream, name, lambda schema: range(place, place + 1))[0]

    def _table(self, answers: Answers, named: pa.Table) -> pa.Table:
        classes = self.classes.array()
        own = [named.schema.field(name) for name in named.schema.names]
        scores = chances(classes.to_pylist())
        if self.method.balanced:
            scores = [field.with_name(field.name.replace("probability", "score", 1)) for field in scores]
        schema = pa.schema([*own, pa.field("label", classes.type), *scores, pa.field("status", STATUS)])
        columns = [*named.columns, *_labels(answers.values, classes), statuses(answers.status)]
        return pa.Table.from_arrays(columns, schema=schema)


def _labels(values: Tensor, classes: pa.Array) -> list[pa.Array]:
    """The class with the largest score, and the scores; null where there is none."""
    known = ~values.isnan().any(dim=1)
    best = pa.array(values.nan_to_num(float("-inf")).argmax(dim=1).numpy(), mask=~known.numpy())
    if len(classes) <= WIDE:
        return [classes.take(best), *(nullable(column) for column in values.T)]
    return [classes.take(best), lists(values, ~known)]
