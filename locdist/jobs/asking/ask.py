"""Running the jobs that answer queries: what is pinned, tuned and audited before, and reported after."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.data.dataset import Dataset
from locdist.data.filesystems import redacted
from locdist.data.source import Source, Span, source
from locdist.data.store import Store
from locdist.errors import DataError, LocdistError, MachineError, UsageError, each_meant
from locdist.execute import machine
from locdist.execute.events import Listener, Tuning
from locdist.execute.executor import Executor, run
from locdist.execute.fitting import check_fits
from locdist.execute.local import Local
from locdist.execute.log import logged
from locdist.jobs.asking.diagnostics import Diagnostics
from locdist.jobs.asking.places import Places
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.report import Report, check_bad
from locdist.jobs.asking.spread import spread
from locdist.jobs.asking.tally import Counted, Tally, added, merged
from locdist.jobs.asking.tuning import AUDITED, PLAN, TUNED, Tuned, tuning
from locdist.jobs.request import (
    check_recall,
    check_told,
    column_bytes,
    inputs,
    is_number,
    is_whole,
    left_out,
    rows_per_task,
    settled,
    snapshot,
)
from locdist.jobs.telling.kept import spent
from locdist.methods.method import plain
from locdist.plan.cost import Search, predict_cost
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Resources, Stage, Task, holding, remaining
from locdist.plan.records import Record
from locdist.plan.status import Audit, RunStatus, write_status
from locdist.plan.versions import versions
from locdist.search.generation import Generation

EXACT_BYTES = 256 << 20  # at most, of the block of rows that an exact search compares with


@dataclass(frozen=True)
class Running:
    """How a job is run, whatever it computes: nothing here changes an answer.

    Parameters
    ----------
    executor : Executor, optional
        `Local()` by default.
    resources : Resources, optional
        What each task needs; the memory is predicted unless it is named.
    overwrite : bool
        Replace what the output folder holds.
    limit : int, optional
        Only the first so many rows: a trial of the whole path.
    max_bad : float or int, optional
        Bad queries allowed, as a share (below 1) or a number; more end in `TooManyBadRows` after everything
        is written.
    listener : callable, optional
        Receives events.
    command : str
        The command line that continues this run.
    """

    executor: Executor | None = None
    resources: Resources | None = None
    overwrite: bool = False
    limit: int | None = None
    max_bad: float | None = None
    listener: Listener | None = None
    command: str = ""

    def __post_init__(self) -> None:
        if self.limit is not None and not (is_whole(self.limit) and self.limit >= 1):
            raise UsageError("a limit of at least one row", repr(self.limit), "Leave it out for all rows.")
        object.__setattr__(self, "limit", plain(self.limit))
        if self.max_bad is not None and not (is_number(self.max_bad) and self.max_bad >= 0):
            share = "max_bad as a share below 1 or a number of rows"
            raise UsageError(share, repr(self.max_bad), "0.01 allows one in a hundred, 0 none.")
        if self.executor is not None and not isinstance(self.executor, Executor):
            raise UsageError("an executor", repr(self.executor), "Use ld.Local(workers=2), say.")

    def rows(self, source: Source) -> int:
        """How many rows of a source are asked."""
        return source.rows if self.limit is None else min(self.limit, source.rows)


@dataclass(frozen=True)
class AskJob:
    """The job of one `Ask`: a task for each output partition."""

    folder: Store
    kind: str
    question: Ask
    rows: int
    plan: Tuned
    started: float
    notes: tuple[str, ...] = ()
    max_bad: float | None = None
    resources: Resources | None = None

    def next_stage(self, records: Mapping[str, Mapping[str, Record]]) -> Stage | None:
        """One stage."""
        stage = stage_of(self.kind, self.question, self.rows, self.resources)
        return stage if remaining(stage, records) else None

    def finish(self, records: Mapping[str, Mapping[str, Record]]) -> Report:
        """Add up the records and write the report; TooManyBadRows afterwards."""
        done = [record for _, record in sorted(records[self.kind].items())]
        counted = [Counted.of(record) for record in done]
        rows = sum(record.rows for record in done)
        if rows != self.rows:
            raise DataError(
                f"{self.rows:,} rows in all partitions", f"{rows:,}", "Start again with --overwrite."
            )
        report = Report(
            out=self.folder.uri,
            rows=rows,
            bad_rows=sum(record.bad_rows for record in done),
            status=reduce(added, (each.status for each in counted)),
            reasons=reduce(added, (each.reasons for each in counted)),
            recall=self.plan.recall,
            nprobe=self.plan.nprobe,
            notes=self.notes + _missed(self.plan),
            **spent(done, self.started),
            diagnostics=Diagnostics.of(reduce(merged, (each.sums for each in counted))),
        )
        report.write(self.folder)
        where = f"All rows are written, the bad ones listed in {self.folder.uri}/_locdist/quarantine"
        check_bad(report.rows, report.bad_rows, report.reasons, self.max_bad, f"{where}; raise max_bad.")
        return report


def _missed(plan: Tuned) -> tuple[str, ...]:
    """A word when the audit finds less than was tuned for."""
    recall, target = plan.recall, plan.target
    if recall is None or target is None or recall.high >= target:
        return ()
    return (f"recall {recall.mean:.4f} is below the {target:g} that the search was tuned to",)


def _itself(question: Ask) -> tuple[str, ...]:
    """A word when every query is a row of the support and finds itself: it explains itself too well."""
    if question.own or question.source.fingerprint != question.index.layout.source.fingerprint:
        return ()
    return (
        "the queries are the rows of the index, and each is among its own neighbors: "
        "`transform` leaves it out",
    )


def stage_of(kind: str, question: Ask, rows: int, resources: Resources | None = None) -> Stage:
    """The tasks of an `Ask` over the first `rows` rows, each with these resources."""
    spans = spans_of(question.source, rows, question.read_columns)
    most = max(span.rows for span in spans)
    kept = column_bytes(question.source, question.keep)
    cost = predict_cost(most, question.block_rows, search_of(question.index), question.work, kept)
    tasks = []
    for number, span in enumerate(spans):
        name = f"part-{number:05}"
        tasks.append(Task(name, (f"{name}.parquet",), (span.start, span.stop), span.rows))
    return Stage(kind, tuple(tasks), question, holding(resources, cost.memory), cost.formula)


def spans_of(source: Source, rows: int, columns: Sequence[str]) -> list[Span]:
    """The spans of the tasks over the first `rows` rows, of which these columns are read."""
    spans = source.partitions(rows_per_task(rows, column_bytes(source, columns)))
    return [Span(span.start, min(span.stop, rows)) for span in spans if span.start < rows or not rows]


def search_of(index: Generation) -> Search:
    """How an index is searched, for predicting memory and time."""
    layout = index.layout
    compared = min(EXACT_BYTES, 12 * layout.rows * layout.width)  # keys in single and double precision
    return Search(layout.rows, layout.nlist, index.probes, resident=0 if layout.nlist else compared)


@dataclass(frozen=True)
class Request:
    """A job as it is pinned in its folder: asked again with anything different, it is refused.

    Parameters
    ----------
    kind : str
        The verb, which names the stage.
    source : Source
        The queries.
    k : int
        Neighbors, for tuning and audit.
    choices : mapping
        JSON-able: what decides the answers besides the inputs.
    recall : float
        What the search is tuned to.
    folders : tuple of str
        What the output must not touch besides the source.
    """

    kind: str
    source: Source
    k: int
    choices: Mapping[str, Any]
    recall: float
    folders: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_recall(self.recall)
        object.__setattr__(self, "k", int(self.k))

    def manifest(self, limit: int | None) -> Manifest:
        """The manifest of its output folder."""
        asked = {**self.choices, "k": self.k, "recall": self.recall, "limit": limit}
        pinned = {name: plain(value) for name, value in asked.items()}
        check_told(pinned)
        return Manifest(self.kind, pinned, snapshot(self.source), versions())


Prepare = Callable[[Store, Source], Ask]


def ask(request: Request, prepare: Prepare, out: str | Path, running: Running) -> Report:
    """Answer all queries, to files.

    Parameters
    ----------
    request : Request
    prepare : callable (Store, Source) -> Ask
        Makes the question, once the output folder is ours, of the queries as they were pinned.
    out : path or URI
    running : Running
    """
    folder, started = Store.at(out), time.monotonic()
    taken = (*inputs(request.source), *request.folders)
    with claimed(folder, request.manifest(running.limit), taken, running.overwrite) as claim:
        question = prepare(folder, settled(request.source.without(claim.added), folder))
        rows = running.rows(question.source)
        Places.of(request.source, question.index).write(folder)
        with (running.executor or Local()).kept() as executor:
            running = replace(running, executor=executor)
            with logged(folder, running.listener) as tell, _refusal(folder, running.command):
                plan = _planned(folder, question, request, running, tell)
            question = replace(question, index=question.index.probing(plan.nprobe))
            notes = left_out(request.source) + claim.notes + _itself(question)
            job = AskJob(
                folder, request.kind, question, rows, plan, started, notes, running.max_bad, running.resources
            )
            return run(
                job, executor, listener=running.listener, command=running.command, audit=audit_of(plan)
            )


@contextmanager
def _refusal(folder: Store, command: str) -> Iterator[None]:
    """Leave for `locdist status` why a run ended before it began."""
    try:
        yield
    except LocdistError as error:
        with suppress(MachineError):
            told = redacted(str(error)), redacted(command)
            write_status(folder, RunStatus("failed", error.exit_code, *told))
        raise


def ask_here(request: Request, question: Ask, running: Running) -> pa.Table:
    """Answer all queries, in memory."""
    rows = running.rows(request.source)
    plan = tuning(question, request.k, request.recall, rows)
    tuned = replace(question, index=question.index.probing(plan.nprobe))
    size = tuned.block_rows
    blocks = [(start, min(start + size, rows)) for start in range(0, rows, size)]
    device = machine.device(0, running.resources.gpus if running.resources else 0.0)
    answers = spread(lambda block: list(tuned.tables(*block, device)), blocks)
    found = [pair for part in answers for pair in part]
    tally = reduce(Tally.add, (counted for _, counted in found), Tally())
    check_bad(rows, tally.bad, tally.reasons, running.max_bad, "Repair these rows, or raise max_bad.")
    return pa.concat_tables([tuned.schema.empty_table(), *(table for table, _ in found)])


def _planned(folder: Store, question: Ask, request: Request, running: Running, tell: Listener) -> Tuned:
    """The plan in force: a resumed job keeps the one that it began with. Before it is tuned, which may take
    long, the executor has to answer and to have room.
    """
    if not folder.exists(PLAN):
        rows, executor = running.rows(question.source), running.executor
        assert executor is not None
        executor.start()
        check_fits(stage_of(request.kind, question, rows, running.resources), executor)
        if rows and not question.index.exact:
            tell(Tuning(min(rows, TUNED + AUDITED), question.index.layout.rows))
        tuning(question, request.k, request.recall, rows).write(folder)
    return Tuned.read(folder)


def audit_of(plan: Tuned) -> Audit | None:
    """The recall that a plan was audited to have."""
    return Audit(plan.nprobe, **asdict(plan.recall)) if plan.recall else None


def queries_of(data: Any) -> Source:
    """The source of some queries: files, data in memory, or a dataset whose roles do not matter."""
    return data.source if isinstance(data, Dataset) else source(data)


def kept(keep: str | Sequence[str] | None, queries: Source, id: str | None) -> tuple[str, ...]:
    """Columns to keep: those asked for, else the user's id where the queries have it, else none (the row's
    address is kept).
    """
    if keep is None:
        return (id,) if id is not None and id in queries.schema.names else ()
    if keep == "*":
        return tuple(queries.schema.names)
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    lost = [name for name in names if name not in queries.schema.names]
    if lost:
        columns = ", ".join(queries.schema.names)
        wanted = f"a column of the queries to keep ({columns})"
        raise UsageError(wanted, ", ".join(map(repr, lost)), each_meant(lost, queries.schema.names))
    return names
