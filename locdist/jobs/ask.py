"""Running the jobs that answer queries: what is pinned, tuned and audited before, and reported after."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.dataset import Dataset
from locdist.data.source import Source, Span, source
from locdist.data.store import Store
from locdist.errors import TooManyBadRows, UsageError, did_you_mean
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.diagnostics import Diagnostics
from locdist.jobs.places import Places
from locdist.jobs.questions import BLOCK_ROWS, Ask, added
from locdist.jobs.request import check_recall, inputs, rows_per_task, snapshot, versions
from locdist.jobs.spread import Spread, spread
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Stage, Task, remaining
from locdist.plan.records import Record
from locdist.search.audit import Recall, audit, tune

PLAN = "_locdist/plan.json"
REPORT = "_locdist/report.json"
AUDITED = 1000  # queries; tuning takes as many others
_WINDOWS = 32  # places of a large source that a sample is drawn from
_WINDOW_ROWS = 65_536


@dataclass(frozen=True)
class Running:
    """How a job is run, whatever it computes: nothing here changes an answer.

    Parameters
    ----------
    executor : Executor, optional
        `Local()` by default.
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
    overwrite: bool = False
    limit: int | None = None
    max_bad: float | None = None
    listener: Listener | None = None
    command: str = ""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise UsageError("a limit of at least one row", str(self.limit), "Leave it out for all rows.")
        if self.max_bad is not None and self.max_bad < 0:
            raise UsageError(
                "max_bad as a share below 1 or a number of rows", str(self.max_bad), "0 allows none."
            )


@dataclass(frozen=True)
class Report:
    """What a job did.

    Parameters
    ----------
    out : str
        The output folder.
    rows, bad_rows : int
        Rows written; queries among them that could not be used.
    status : dict
        Rows of each status.
    reasons : dict
        Why queries could not be used, and unseen categories.
    recall : Recall or None
        Audited on a sample of the queries; None when the search is exact.
    nprobe : int
        Lists searched for each query.
    seconds : float
        Of this run (a continued one counts its own part).
    work_seconds, peak_memory : float, int
        Over all tasks: their seconds, and the largest anonymous memory of a worker in bytes.
    tasks : int
    sums : dict
        Whatever else the job adds up.
    diagnostics : Diagnostics or None
        Of a `transform`.
    notes : tuple of str
        What a continued run found changed: files that appeared, versions that differ.
    """

    out: str
    rows: int
    bad_rows: int
    status: dict[str, int]
    reasons: dict[str, int]
    recall: Recall | None
    nprobe: int
    seconds: float
    work_seconds: float
    peak_memory: int
    tasks: int
    sums: dict[str, float] = field(default_factory=dict)
    diagnostics: Diagnostics | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """The report as `_locdist/report.json` holds it."""
        return json.dumps(asdict(self), indent=1).encode()

    def __str__(self) -> str:
        told = [f"{self.rows:,} rows in {self.out} ({self.seconds:.1f} s, {self.tasks} tasks)"]
        told.append("status: " + ", ".join(f"{name} {count:,}" for name, count in self.status.items()))
        told += [f"{count:,} queries: {reason}" for reason, count in self.reasons.items()]
        told.append(f"recall {self.recall}, nprobe {self.nprobe}" if self.recall else "search: exact")
        return "\n".join([*told, *self.notes])


@dataclass(frozen=True)
class AskJob:
    """The job of one `Ask`: a task for each output partition."""

    folder: Store
    kind: str
    question: Ask
    rows: int
    plan: Mapping[str, Any]
    started: float
    notes: tuple[str, ...] = ()

    def next_stage(self, records: Mapping[str, Mapping[str, Record]]) -> Stage | None:
        """One stage."""
        stage = stage_of(self.kind, self.question, self.rows)
        return stage if remaining(stage, records) else None

    def finish(self, records: Mapping[str, Mapping[str, Record]]) -> Report:
        """Add up the records and write the report."""
        done = [record for _, record in sorted(records[self.kind].items())]
        status, reasons, sums = (
            reduce(added, (dict(record.data[name]) for record in done))
            for name in ("status", "reasons", "sums")
        )
        report = Report(
            out=self.folder.uri,
            rows=sum(record.rows for record in done),
            bad_rows=sum(record.bad_rows for record in done),
            status=status,
            reasons=reasons,
            recall=Recall(**self.plan["recall"]) if self.plan["recall"] else None,
            nprobe=self.plan["nprobe"],
            seconds=time.monotonic() - self.started,
            work_seconds=sum(record.seconds for record in done),
            peak_memory=max(record.peak_memory for record in done),
            tasks=len(done),
            sums=sums,
            notes=self.notes,
            diagnostics=Diagnostics.of(sums),
        )
        self.folder.write(REPORT, report.to_json())
        return report


def stage_of(kind: str, question: Ask, rows: int) -> Stage:
    """The tasks of an `Ask` over the first `rows` rows."""
    spans = [
        span
        for span in question.source.partitions(_rows_per_task(question, rows))
        if span.start < rows or not rows
    ]
    spans = [Span(span.start, min(span.stop, rows)) for span in spans]
    return Stage(
        kind,
        tuple(
            Task(
                name := f"part-{number:05}",
                (f"{name}.parquet",),
                (span.start, span.stop),
                question,
                span.rows,
            )
            for number, span in enumerate(spans)
        ),
    )


def _rows_per_task(question: Ask, rows: int) -> int:
    return rows_per_task(rows, 4 * question.index.layout.width + 64)


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

    def manifest(self, limit: int | None) -> Manifest:
        """The manifest of its output folder."""
        pinned = {**self.choices, "k": self.k, "recall": self.recall, "limit": limit}
        return Manifest(self.kind, pinned, snapshot(self.source), versions())


def ask(request: Request, prepare: Callable[[Store], Ask], out: str | Path, running: Running) -> Report:
    """Answer all queries, to files.

    Parameters
    ----------
    request : Request
    prepare : callable (Store) -> Ask
        Makes the question, once the output folder is ours.
    out : path or URI
    running : Running
    """
    folder, started = Store.at(out), time.monotonic()
    taken = (*inputs(request.source), *request.folders)
    with claimed(folder, request.manifest(running.limit), taken, running.overwrite) as claim:
        question = prepare(folder)
        question = replace(question, source=question.source.without(claim.added))
        rows = _rows(question.source, running.limit)
        Places.of(request.source, question.index).write(folder)
        plan = _planned(folder, question, request, rows)
        question = replace(question, index=question.index.probing(plan["nprobe"]))
        job = AskJob(folder, request.kind, question, rows, plan, started, claim.notes)
        report = run(job, running.executor or Local(), listener=running.listener, command=running.command)
    check_bad(report, running.max_bad)
    return report


def ask_here(request: Request, question: Ask, limit: int | None) -> pa.Table:
    """Answer all queries, in memory."""
    rows = _rows(request.source, limit)
    plan = tuning(question, request.k, request.recall, rows)
    tuned = replace(question, index=question.index.probing(plan["nprobe"]))
    blocks = [(start, min(start + BLOCK_ROWS, rows)) for start in range(0, rows, BLOCK_ROWS)]
    answers = spread(lambda block: [table for table, _ in tuned.tables(*block)], blocks)
    return pa.concat_tables([tuned.schema.empty_table(), *(table for part in answers for table in part)])


def _rows(source: Source, limit: int | None) -> int:
    return min(limit or source.rows, source.rows)


def check_bad(report: Report, most: float | None) -> None:
    """TooManyBadRows when more queries were bad than allowed."""
    allowed = None if most is None else most * report.rows if most < 1 else most
    if allowed is not None and report.bad_rows > allowed:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in report.reasons.items())
        raise TooManyBadRows(
            f"at most {allowed:g} bad queries of {report.rows:,}",
            f"{report.bad_rows:,} ({reasons})",
            f"All rows are written, the bad ones listed in {report.out}/_locdist/quarantine; raise max_bad.",
        )


def _planned(folder: Store, question: Ask, request: Request, rows: int) -> dict[str, Any]:
    """The plan in force: a resumed job keeps the one that it began with."""
    if not folder.exists(PLAN):
        plan = tuning(question, request.k, request.recall, rows)
        folder.write(PLAN, json.dumps(plan, indent=1).encode())
    return dict(json.loads(folder.read(PLAN)))


def tuning(question: Ask, k: int, target: float, rows: int) -> dict[str, Any]:
    """Probes that reach the recall target on a sample of the queries, and their recall audited on another."""
    index = question.index
    queries, own = _sample(question, rows, 2 * AUDITED)
    if index.exact or not len(queries):
        return {"nprobe": 0, "recall": None}
    every, half = Spread(index), len(queries) // 2
    exact = every.exactly(queries, k, own)

    def part(rows: slice) -> tuple[Tensor, int, Tensor | None]:
        return queries[rows], k, None if own is None else own[rows]

    first, second = slice(half), slice(half, None)
    nprobe = tune(every, *part(first), exact.rows(first), target, index.layout.nlist)
    audited = audit(every, *part(second), nprobe, exact.rows(second))
    return {"nprobe": nprobe, "recall": asdict(audited)}


def _sample(question: Ask, rows: int, wanted: int) -> tuple[Tensor, Tensor | None]:
    """Random good queries [<= wanted, d] out of up to 32 places of the source, in random order, and their own
    rows.
    """
    rng = np.random.default_rng(0)
    windows = [range(start, min(start + _WINDOW_ROWS, rows)) for start in range(0, rows, _WINDOW_ROWS)]
    chosen = [
        windows[place] for place in rng.choice(len(windows), min(_WINDOWS, len(windows)), replace=False)
    ]
    parts, owns = [], []
    for window in chosen:
        share = min(len(window), -(-wanted // len(chosen)))
        picked = np.sort(rng.choice(len(window), share, replace=False))
        tables = question.source.read(window.start, window.stop, question.read_columns)
        block = question.encoded(pa.concat_tables(list(tables)).take(pa.array(picked)), window.start)
        good = ~block.bad
        parts.append(block.queries[good])
        owns.append(torch.from_numpy(picked + window.start)[good])
    if not parts:
        return torch.zeros(0, question.index.layout.width), None
    order = torch.from_numpy(rng.permutation(sum(len(part) for part in parts)))[:wanted]
    return torch.cat(parts)[order], torch.cat(owns)[order] if question.own else None


def queries_of(data: Any) -> Source:
    """The source of some queries: files, data in memory, or a dataset whose roles do not matter."""
    return data.source if isinstance(data, Dataset) else source(data)


def kept(keep: str | Sequence[str] | None, queries: Source, id: str | None) -> tuple[str, ...]:
    """Columns to keep: those asked for, else the user's id where the queries have it, else none (the row's
    address is kept).
    """
    if keep is None:
        return (id,) if id is not None and id in queries.schema.names else ()
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    for name in names:
        if name not in queries.schema.names:
            columns = ", ".join(queries.schema.names)
            raise UsageError(
                f"a column of the queries to keep ({columns})",
                repr(name),
                did_you_mean(name, queries.schema.names),
            )
    return names
