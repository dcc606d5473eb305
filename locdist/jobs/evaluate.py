"""`evaluate`: how good a finished prediction is, streamed over its partitions.

The truth is a column that the job was told to keep (another one of the output may have the same name), or it
is read from the queries that the manifest pinned: output row i is query i. Rows without a prediction and rows
without a truth are counted and never scored as something they are not.
"""

from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from locdist.data.artefacts import typed
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError, did_you_mean
from locdist.jobs.asking.places import Asked, Places, pinned_index
from locdist.jobs.asking.report import Reported
from locdist.jobs.telling.kept import REPORT
from locdist.jobs.telling.scorers import Scored, Scorer, scorer
from locdist.jobs.telling.scores import CLIP, ClassSums
from locdist.jobs.telling.text import aligned, number, to_json
from locdist.jobs.telling.verify import check_intact
from locdist.plan.manifest import read_manifest


@dataclass(frozen=True)
class ClassCount:
    """Rows of a class: `rows` that are it, `predicted` as it, and `correct`, which are both."""

    rows: int
    predicted: int
    correct: int


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a finished prediction; rows = n + missing + unknown.

    Parameters
    ----------
    folder, target : str
        The output, and the column of the truth.
    rows, n : int
        Rows of the output, and those with a prediction and a truth, which the metrics are about.
    missing : dict
        Rows with a truth and no prediction, by status.
    unknown : int
        Rows whose truth is null or not finite.
    metrics : dict
        For numbers rmse, mae, bias (mean of prediction − truth) and r2; for classes, and for numbers whose
        truth is 0 or 1, log_loss (probabilities clipped at 1e-15), brier (two classes: mean squared error of
        one; more: sum over the classes) and accuracy (numbers: at least 0.5 is 1).
    classes : dict
        For classes and 0/1 truths the counts of each.
    unseen : int
        Rows among `n` of classes that the support did not have: their probability is 0.
    outside : int
        Predictions of 0/1 truths outside [0, 1], clipped for log-loss and Brier score.
    """

    folder: str
    target: str
    rows: int
    n: int
    missing: dict[str, int]
    unknown: int
    metrics: dict[str, float]
    classes: dict[str, ClassCount] = field(default_factory=dict)
    unseen: int = 0
    outside: int = 0

    def to_json(self) -> bytes:
        """The evaluation as JSON; a metric that is not defined is null."""
        return to_json(asdict(self))

    def __str__(self) -> str:
        lines = [f"{self.target!r} in {self.folder}: {self.n:,} of {self.rows:,} rows scored"]
        lines += [f"{count:,} rows without a prediction: {status}" for status, count in self.missing.items()]
        lines += [f"{self.unknown:,} rows without a truth"] if self.unknown else []
        lines += [f"{self.unseen:,} rows of classes that the support did not have"] if self.unseen else []
        lines += aligned([(name, number(value)) for name, value in self.metrics.items()])
        if "log_loss" in self.metrics:
            outside = f"; {self.outside:,} predictions outside [0, 1] clipped" if self.outside else ""
            lines.append(f"  (log-loss: probabilities clipped at {CLIP:g}{outside})")
        return "\n".join([*lines, *_counts(self.classes)])


def evaluate(folder: str | Path, target: str | None = None, truth: Any = None) -> Evaluation:
    """Metrics of a finished prediction.

    Parameters
    ----------
    folder : path or URI
        The output of `predict`, `transform` or `apply`.
    target : str, optional
        The column of the truth, among the kept ones of the output or in the queries; the target of the index
        by default.
    truth : path, pattern, table or arrays, optional
        Where the column is instead: as many rows as the output, in its order. Needed when the queries were
        in memory and the column was not kept.

    Returns
    -------
    Evaluation
        Of numbers or of classes, as the prediction is; a missing prediction or truth is counted, not scored.

    Raises
    ------
    UsageError
        For a folder without a finished prediction, a column that does not exist, or one whose type is not
        that of the prediction.
    DataError
        When the truth has another number of rows than the output, values that do not fit, or no class that
        the support has.
    """
    store = Store.at(folder)
    output = finished_output(store)
    check_intact(store, [file.path for file in output.files])
    target = target or _target(store)
    kept = Asked.of(read_manifest(store)).keep
    known = output if truth is None and target in kept else _truth(store, target, truth)
    _check_rows(output, known)
    answers = pa.schema([field for field in output.schema if field.name not in kept])
    how = scorer(answers, known.schema.field(target), lambda: _vocabulary(store, output))
    start = how.score(_empty(output, how.columns), _empty(known, [target]).column(target))
    parts = (how.score(table, column) for table, column in _beside(output, known, how, target))
    total = reduce(Scored.add, parts, start)
    told = Evaluation(
        store.uri, target, output.rows, total.n, total.missing, total.unknown, total.sums.metrics
    )
    votes = total.sums.votes
    return told if votes is None else _recognized(_with_classes(told, how.classes, votes))


def finished_output(folder: Store) -> Source:
    """The partitions of a finished job with queries; UsageError when it is not finished."""
    manifest = read_manifest(folder)
    if manifest.kind == "build-index" or not folder.exists(REPORT):
        raise UsageError(
            "a finished output of predict, neighbors or transform",
            f"{folder.uri}, of {manifest.kind}" + ("" if folder.exists(REPORT) else ", without a report"),
            "`locdist status` says how it stands and which command continues.",
        )
    rows, found = Reported.read(folder).rows, source(folder.uri)
    if found.rows != rows:
        given = f"{found.rows:,} in {folder.uri}"
        raise DataError(f"the {rows:,} rows that the job wrote", given, "Run the same command again.")
    return found


def pinned_queries(folder: Store, remedy: str) -> Source:
    """The queries of a job; UsageError with a remedy when they were in memory."""
    places = Places.read(folder)
    if places.queries is None:
        raise UsageError("queries that lie in files", f"queries in memory, by {folder.uri}", remedy)
    return places.source(read_manifest(folder))


def _target(folder: Store) -> str:
    """The one target of the job."""
    asked = Asked.of(read_manifest(folder))
    targets = (asked.roles or pinned_index(folder).layout.roles).target
    if len(targets) != 1:
        given = f"an index with {', '.join(targets) or 'none'}"
        raise UsageError("one target to evaluate", given, "Name the column of the truth (--target).")
    return targets[0]


def _truth(folder: Store, target: str, truth: Any) -> Source:
    """Where the truth is, if not in the output."""
    remedy = "Pass the truth (truth=, --truth), or keep its column (keep=) when predicting."
    known = pinned_queries(folder, remedy) if truth is None else source(truth)
    if target not in known.schema.names:
        remedy = f"{did_you_mean(target, known.schema.names)} Or say where it is (--truth)."
        raise UsageError("the column of the truth in the output or the queries", repr(target), remedy)
    known.check([target])
    return known


@dataclass(frozen=True)
class Listed:
    """The classes that a column of lists of probabilities names in its metadata."""

    classes: tuple[str | int | float | bool, ...]


def _vocabulary(folder: Store, output: Source) -> pa.Array:
    """The classes that were voted on: of an index, or, of models, as the output itself says."""
    if read_manifest(folder).kind != "apply":
        return pinned_index(folder).vocabulary
    path, remedy = output.files[0].path, "Run the same command again with --overwrite."
    with folder.open(path) as stream:
        told = (pq.read_schema(stream).field("probability").metadata or {}).get(b"classes", b"")
    whole = b'{"classes": %s}' % told
    return pa.array(typed(Listed, whole, "the classes of probabilities", folder.path(path), remedy).classes)


def _beside(
    output: Source, known: Source, how: Scorer, target: str
) -> Iterator[tuple[pa.Table, pa.ChunkedArray]]:
    """Output rows and their truth, in tables of equal length."""
    if known is output:
        names = list(dict.fromkeys([*how.columns, target]))
        yield from ((table, table.column(target)) for table in output.read(columns=names))
        return
    truths = known.read(0, output.rows, [target])
    held = _empty(known, [target])
    for table in output.read(columns=how.columns):
        while held.num_rows < table.num_rows:
            held = pa.concat_tables([held, next(truths)])
        yield table, held.column(target).slice(0, table.num_rows)
        held = held.slice(table.num_rows)


def _empty(rows: Source, columns: list[str]) -> pa.Table:
    return pa.schema([rows.schema.field(name) for name in columns]).empty_table()


def _check_rows(output: Source, known: Source) -> None:
    """With a limit the output is shorter than its queries; otherwise it must not be."""
    limited = Asked.of(read_manifest(output.store)).limit if output.store else None
    if known.rows < output.rows or (known.rows > output.rows and limited is None):
        raise DataError(
            f"a truth of {output.rows:,} rows, one for each row of the output in its order",
            f"{known.rows:,} rows",
            "Use the data that was predicted.",
        )


def _with_classes(told: Evaluation, names: tuple[str, ...], votes: ClassSums) -> Evaluation:
    rows, predicted = votes.confusion.sum(axis=1), votes.confusion.sum(axis=0)
    correct = votes.confusion.diagonal()
    counts = zip(rows[:-1].tolist(), predicted.tolist(), correct.tolist(), strict=True)
    classes = {name: ClassCount(*each) for name, each in zip(names, counts, strict=True)}
    return replace(told, classes=classes, unseen=int(rows[-1]), outside=votes.outside)


def _recognized(told: Evaluation) -> Evaluation:
    """DataError when no truth is of any class that could have been predicted."""
    if told.n and told.unseen == told.n:
        raise DataError(
            f"a truth among the classes of the support ({', '.join(list(told.classes)[:10])})",
            f"none of them in {told.n:,} rows of {told.target!r}",
            "Name the column of the truth (--target).",
        )
    return told


def _counts(classes: dict[str, ClassCount]) -> list[str]:
    """The classes as lines of a table."""
    told = [(name, *(f"{count:,}" for count in astuple(each))) for name, each in classes.items()]
    return aligned([("class", "rows", "predicted", "correct"), *told]) if classes else []
