"""`restore`: a method at every image, files to files or in memory."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from locdist.data.pictures import Pictures
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.asking.ask import Running, kept
from locdist.jobs.asking.partition import QUARANTINE
from locdist.jobs.asking.report import check_bad
from locdist.jobs.asking.tally import Counted, added
from locdist.jobs.passing import Records
from locdist.jobs.request import inputs, left_out, settled, snapshot, unsettle
from locdist.jobs.restoring.chosen import restore_method
from locdist.jobs.restoring.tasks import MEASURE, RESTORE, RestoreRows, measuring, restoring
from locdist.jobs.telling.kept import spent
from locdist.jobs.telling.restored import RestoreReport
from locdist.methods.restored import ImageMethod
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Resources, Stage, remaining
from locdist.plan.versions import versions


def restore(
    method: ImageMethod | str | Mapping[str, Any],
    images: Any,
    out: str | Path | None = None,
    *,
    column: str = "image",
    shape: Sequence[int] | None = None,
    keep: str | Sequence[str] | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    limit: int | None = None,
    max_bad: float | None = None,
    listener: Listener | None = None,
    command: str = "",
) -> RestoreReport | pa.Table:
    """Restore images: a method at every one.

    Parameters
    ----------
    method : name or spec
        "bilateral", {"name": "nonlocal-means", "h": 0.1}; "nonlocal-bayes", "mean-shift".
    images : path, table, mapping of names to arrays, array [n, h, w] or [n, h, w, c], or list of arrays
        A row for each image: its column holds lists of rows of pixels, which are numbers or lists of numbers.
        Sizes may differ.
    out : path or URI, optional
        The output folder; without it a table is returned. One row an image, in order: what is kept,
        `restored_COLUMN` in double precision, and `status`. What is no image, or smaller than the method's
        window, is null, with the status "bad_query" and its reason in the report.
    column : str
        Of the images.
    shape : (int, int) or (int, int, int), optional
        Of images that are written as flat vectors, or as Arrow's tensors of fixed shape: height, width and
        perhaps channels.
    keep : str or list of str, optional
        Other columns that go along, "*" for all; by default each row's file and its number in it.
    executor, resources, overwrite, limit, max_bad, listener, command
        As in `predict`.

    Returns
    -------
    RestoreReport, or pa.Table without `out`

    Raises
    ------
    UsageError, DataError, MachineError, TooManyBadRows
    """
    question, started = asked(method, images, column, shape, keep), time.monotonic()
    running = Running(executor, resources, overwrite, limit, max_bad, listener, command)
    if out is None:
        table, tally = question.here(running.rows(question.source))
        check_bad(tally.rows, tally.bad, tally.reasons, max_bad, "Repair these images, or raise max_bad.")
        return table
    folder, runner = Store.at(out), executor or Local()
    pinned = manifest(question, running.limit)
    with claimed(folder, pinned, inputs(question.source), overwrite) as claim, runner.kept():
        rows = settled(question.source.without(claim.added), folder)
        notes = left_out(question.source) + claim.notes
        job = RestoreJob(folder, replace(question, source=rows), running, started, notes)
        return run(job, runner, listener=listener, command=command)


def asked(
    method: ImageMethod | str | Mapping[str, Any],
    images: Any,
    column: str = "image",
    shape: Sequence[int] | None = None,
    keep: str | Sequence[str] | None = None,
) -> RestoreRows:
    """What `restore` runs and `plan` describes, checked."""
    chosen, rows = restore_method(method), _rows(images, column)
    rows.check([column])
    return RestoreRows(rows, Pictures.of(rows.schema, column, shape), chosen, kept(keep, rows, None))


def manifest(question: RestoreRows, limit: int | None) -> Manifest:
    """What is pinned in the folder."""
    pictures = question.pictures
    told = {
        "method": question.method.spec,
        "column": pictures.column,
        "shape": None if pictures.shape is None else list(pictures.shape),
        "keep": list(question.keep),
        "limit": limit,
    }
    return Manifest(RESTORE, told, snapshot(question.source), versions())


@dataclass(frozen=True)
class RestoreJob:
    """The job of `restore`."""

    folder: Store
    question: RestoreRows
    running: Running
    started: float
    notes: tuple[str, ...] = ()

    def next_stage(self, records: Records) -> Stage | None:
        """Measure, restore."""
        asked, given = self.question, self.running.resources
        first = measuring(asked.source, asked.pictures.column, self.running.rows(asked.source), given)
        if remaining(first, records):
            return first
        stage = restoring(asked, records[MEASURE], given)
        return stage if remaining(stage, records) else None

    def finish(self, records: Records) -> RestoreReport:
        """Add up the records and write the report; TooManyBadRows afterwards."""
        done = [record for stage in records.values() for record in stage.values()]
        parts = [record for _, record in sorted(records[RESTORE].items())]
        counted = [Counted.of(record) for record in parts]
        report = RestoreReport(
            out=self.folder.uri,
            rows=sum(record.rows for record in parts),
            bad_rows=sum(record.bad_rows for record in parts),
            status=reduce(added, (each.status for each in counted)),
            reasons=reduce(added, (each.reasons for each in counted)),
            notes=self.notes,
            **spent(done, self.started),
        )
        wanted = self.running.rows(self.question.source)
        if report.rows != wanted:
            raise DataError(
                f"{wanted:,} rows in all partitions", f"{report.rows:,}", "Start again with --overwrite."
            )
        report.write(self.folder)
        unsettle(self.folder)
        where = f"All rows are written, the bad ones listed in {self.folder.uri}/{QUARANTINE}"
        most = self.running.max_bad
        check_bad(report.rows, report.bad_rows, report.reasons, most, f"{where}; raise max_bad.")
        return report


def _rows(images: Any, column: str) -> Source:
    """The source of images: of arrays, a column of them is made."""
    if isinstance(images, Mapping):
        return source({name: _column(values) for name, values in images.items()})
    made = _column(images)
    return source({column: made} if isinstance(made, pa.Array) else images)


def _column(values: Any) -> Any:
    """Arrays [h, w] or [h, w, c] as a column of images; anything else as it is."""
    stacked = isinstance(values, np.ndarray) and values.ndim in (3, 4)
    listed = isinstance(values, list | tuple) and any(getattr(each, "ndim", 0) in (2, 3) for each in values)
    if not (stacked or listed):
        return values
    found = [
        None if each is None else np.ma.filled(np.ma.asarray(each, np.float64), np.nan) for each in values
    ]
    axes = {each.ndim for each in found if each is not None} or {values.ndim - 1}
    if len(axes) > 1:
        raise UsageError("images [h, w], or images [h, w, c]", "both", "Give those in color apart.")
    return Pictures("", axes.pop()).written(found)
