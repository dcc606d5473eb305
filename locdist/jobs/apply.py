"""`apply`: what the models of nodes say of new rows, each asked of the model of its node."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from locdist.data.encoding import UNSEEN_CATEGORY
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.asking.ask import Running, kept, spans_of
from locdist.jobs.asking.block import Block, statuses
from locdist.jobs.asking.partition import QUARANTINE, write_partition
from locdist.jobs.asking.questions import check_kept
from locdist.jobs.asking.report import check_bad
from locdist.jobs.asking.tally import Counted, Tally, added
from locdist.jobs.coupling.costs import apply_cost
from locdist.jobs.coupling.models import Choice, StoredModels
from locdist.jobs.request import column_bytes, inputs, left_out, rows_told, settled, snapshot, unsettle
from locdist.jobs.telling.coupled import ApplyReport
from locdist.jobs.telling.kept import spent
from locdist.local.answers import Answers, Status
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Attempt, Resources, Stage, Task, holding, remaining
from locdist.plan.records import Record
from locdist.plan.versions import versions

APPLY, BLOCK = "apply", 65_536


def apply(
    models: StoredModels | str | Path,
    queries: Any,
    out: str | Path | None = None,
    *,
    method: Choice | None = None,
    keep: str | Sequence[str] | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    limit: int | None = None,
    max_bad: float | None = None,
    listener: Listener | None = None,
    command: str = "",
) -> ApplyReport | pa.Table:
    """What the models of nodes say of new rows.

    Parameters
    ----------
    models : path
        The folder that `couple` wrote.
    queries : path, table or mapping of names to arrays
        Rows with the features of the models, and the column that names the node of each; of charts the
        features alone.
    out : path or URI, optional
        The output folder; without it a table is returned. One row a query, in the order of the queries: what
        is kept, `prediction`, and `status`, that of the node's model; "empty" for a node that nobody knows.
        Of charts `label` and the probabilities of all classes, as in `predict`; "low_support" where no chart
        is certain and all vote.
    method : FedRelax, Atlas, or spec, optional
        Of models that it made: a folder holds no code, so their estimators are named again. They are fitted
        again, once in each process, where a query asks for them; every process holds all rows of all nodes.
    keep : str or list of str, optional
        Columns of the queries that go along, "*" for all; by default each row's file and its number in it.
    executor, resources, overwrite, limit, max_bad, listener, command
        As in `predict`.

    Returns
    -------
    ApplyReport, or pa.Table without `out`
    """
    question, started = asked(models, queries, keep, method), time.monotonic()
    running = Running(executor, resources, overwrite, limit, max_bad, listener, command)
    if out is None:
        return question.here(running.rows(question.source))
    folder, runner = Store.at(out), executor or Local()
    taken = (*inputs(question.source), question.models.folder)
    with claimed(folder, question.manifest(running.limit), taken, overwrite) as claim, runner.kept():
        rows = settled(question.source.without(claim.added), folder)
        notes = left_out(question.source) + claim.notes
        job = ApplyJob(folder, replace(question, source=rows), running, started, notes)
        return run(job, runner, listener=listener, command=command)


def asked(
    models: StoredModels | str | Path,
    queries: Any,
    keep: str | Sequence[str] | None = None,
    method: Choice | None = None,
) -> "ApplyRows":
    """What `apply` runs and `plan` describes, checked."""
    found, rows = StoredModels.at(models, method), source(queries)
    return ApplyRows(rows, found, kept(keep, rows, None))


@dataclass(frozen=True)
class ApplyRows:
    """The answers of some queries.

    Parameters
    ----------
    source : Source
    models : StoredModels
    keep : tuple of str
        Columns that go along; without any, the address of each row.
    """

    source: Source
    models: StoredModels
    keep: tuple[str, ...]

    def __post_init__(self) -> None:
        self.models.stored.encoding.check(self.source.schema)
        self.source.check(self.columns)
        check_kept(self.keep, self.models.shown.schema())

    @property
    def columns(self) -> list[str]:
        """Columns that are read."""
        return list(dict.fromkeys([*self.models.columns, *self.keep]))

    @property
    def schema(self) -> pa.Schema:
        """Of the output."""
        own = [self.source.schema.field(name) for name in self.keep]
        address = [pa.field("file", pa.string()), pa.field("row", pa.int64())]
        return pa.schema([*(own or address), *self.models.shown.schema()])

    def manifest(self, limit: int | None) -> Manifest:
        """What is pinned in the folder."""
        told: Mapping[str, Any] = {
            "models": self.models.fingerprint, "keep": list(self.keep), "limit": limit,
            "roles": {"target": [self.models.stored.target]},
        }  # fmt: skip
        return Manifest(APPLY, told, snapshot(self.source), versions())

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.source, *task.inputs)

    def tables(self, start: int, stop: int) -> Iterator[tuple[pa.Table, Tally]]:
        """Output rows [start, stop), a block at a time, with what is counted."""
        shown = self.models.shown
        for table in self.source.read(start, stop, self.columns, BLOCK):
            block, answers = self._answers(table, start)
            columns = [*shown.values(answers.values), statuses(answers.status)]
            told = pa.Table.from_arrays(columns, schema=shown.schema())
            own = table.select(self.keep) if self.keep else self.source.addresses(start, start + len(table))
            whole = pa.Table.from_arrays([*own.columns, *told.columns], schema=self.schema)
            yield whole, Tally.of(self.source, block, told, {})
            start += len(table)

    def _answers(self, table: pa.Table, first: int) -> tuple[Block, Answers]:
        features, bad, rejected = self.models.stored.encoding.encode(table)
        x = torch.from_numpy(features).double()
        answers, nameless = self.models.answers(table, x)
        rejected = [*rejected, *nameless]
        for found in rejected:
            bad[found.rows] |= found.reason != UNSEEN_CATEGORY
        wrong = torch.from_numpy(bad)
        block = Block(table, first, x, None, wrong, tuple(rejected))
        return block, answers.refuse(wrong, Status.BAD_QUERY)

    def here(self, rows: int) -> pa.Table:
        """All answers, in memory."""
        return pa.concat_tables([self.schema.empty_table(), *(table for table, _ in self.tables(0, rows))])

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Write one output partition."""
        return write_partition(self.schema, self.tables(*task.inputs), task, attempt)


@dataclass(frozen=True)
class ApplyJob:
    """The job of `apply`."""

    folder: Store
    question: ApplyRows
    running: Running
    started: float
    notes: tuple[str, ...] = ()

    def next_stage(self, records: Mapping[str, Mapping[str, Record]]) -> Stage | None:
        """One stage."""
        stage = stage_of(self.question, self.running)
        return stage if remaining(stage, records) else None

    def finish(self, records: Mapping[str, Mapping[str, Record]]) -> ApplyReport:
        """Add up the records and write the report; TooManyBadRows afterwards."""
        done = [record for _, record in sorted(records[APPLY].items())]
        counted = [Counted.of(record) for record in done]
        report = ApplyReport(
            out=self.folder.uri,
            rows=sum(record.rows for record in done),
            bad_rows=sum(record.bad_rows for record in done),
            status=reduce(added, (each.status for each in counted)),
            reasons=reduce(added, (each.reasons for each in counted)),
            notes=self.notes,
            **spent(done, self.started),
        )
        report.write(self.folder)
        unsettle(self.folder)
        where = f"All rows are written, the bad ones listed in {self.folder.uri}/{QUARANTINE}"
        most = self.running.max_bad
        check_bad(report.rows, report.bad_rows, report.reasons, most, f"{where}; raise max_bad.")
        return report


def stage_of(question: ApplyRows, running: Running) -> Stage:
    """The tasks of `apply`."""
    rows = running.rows(question.source)
    spans = spans_of(question.source, rows, question.columns)
    tasks = [
        Task(f"part-{number:05}", (f"part-{number:05}.parquet",), (span.start, span.stop), span.rows)
        for number, span in enumerate(spans)
    ]
    width, size = question.models.stored.encoding.width, column_bytes(question.source, question.keep)
    most = min(BLOCK, max(task.rows for task in tasks))
    cost = apply_cost(most, width, size, question.models.held)
    resources = holding(running.resources, cost.memory)
    return Stage(APPLY, tuple(tasks), question, resources, cost.formula)
