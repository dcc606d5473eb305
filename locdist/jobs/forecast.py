"""`forecast`: what follows series, by local models of their own past."""

import itertools
import time as clock
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path as Place
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.asking.ask import spans_of
from locdist.jobs.asking.spread import spread
from locdist.jobs.asking.tally import added
from locdist.jobs.passing import Records, forget_bare, passed, sweep
from locdist.jobs.request import inputs, is_whole, settled, snapshot
from locdist.jobs.series.answers import follow, followed, told
from locdist.jobs.series.read import Columns, gathered
from locdist.jobs.series.tasks import (
    CUT,
    FIND,
    FORECAST,
    SPAN_ROWS,
    CutSpans,
    FindRuns,
    ForecastSpan,
    cut_cost,
    forecast_cost,
)
from locdist.jobs.telling.forecasts import ForecastReport
from locdist.jobs.telling.kept import REPORT, spent
from locdist.local.series import Path
from locdist.methods.method import ArrayLike
from locdist.methods.series import SeriesMethod, series_method
from locdist.plan.cost import MEASURED
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Resources, Stage, Task, holding, remaining
from locdist.plan.records import history
from locdist.plan.versions import versions

Part = TypeVar("Part")


def forecast(
    method: SeriesMethod | str | Mapping[str, Any],
    series: Any,
    out: str | Place | None = None,
    *,
    steps: int,
    target: str | None = None,
    time: str | None = None,
    id: str | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> ForecastReport | pa.Table | Path:
    """What follows series.

    Parameters
    ----------
    method : SeriesMethod, name or spec
        `ld.local_ar`.
    series : path, table or mapping of names to arrays; or array [n] or [s, n]
        Rows in even steps of time; of arrays each row is a series. What is null or nan is not known: windows
        with such values are nobody's neighbors.
    out : path or URI, optional
        The output folder: a row for each series and step, with the id, the time (at the distance of the last
        two), "step" from 1, "prediction" and "status". Without it that is returned as a table, or for arrays
        as arrays.
    steps : int
        How far.
    target : str, optional
        The column of the values; of arrays none.
    time : str, optional
        Numbers, dates or times, which put the rows of a series in order; by default they are.
    id : str, optional
        The series that a row belongs to, which has its rows one after the other; by default there is one
        series.
    executor, resources, overwrite, listener, command
        As in `predict`.

    Returns
    -------
    ForecastReport, pa.Table or Path
        A run that ends without support has the status of that step from there on, and no values.

    Raises
    ------
    UsageError, DataError, MachineError
    """
    chosen, count = series_method(method), _steps(steps)
    if target is None:
        return _of_arrays(chosen, series, count, out, time, id)
    asked = requested(chosen, series, count, target, time, id)
    if out is None:
        table = pa.concat_tables([_empty(asked), *asked.source.read(columns=asked.columns.names)])
        found = gathered(table, asked.columns)
        (path,) = spread(lambda each: follow(chosen.loop, each, count), [found])
        return told(asked.columns, asked.source.schema, found, path)
    folder, started, runner = Store.at(out), clock.monotonic(), executor or Local()
    with claimed(folder, asked.manifest, inputs(asked.source), overwrite) as claim, runner.kept():
        rows = settled(asked.source.without(claim.added), folder)
        job = ForecastJob(folder, Asked(rows, asked.columns, chosen, count), started, resources, claim.notes)
        past = history(folder).records
        if folder.exists(REPORT) and len(past.get(FORECAST, {})) < len(job.cuts(past)) - 1:
            forget_bare(folder, past)
        return run(job, runner, listener=listener, command=command)


@dataclass(frozen=True)
class Asked:
    """What `forecast` is asked."""

    source: Source
    columns: Columns
    method: SeriesMethod
    steps: int

    @property
    def manifest(self) -> Manifest:
        """What is pinned in the folder."""
        columns = {"target": self.columns.target, "time": self.columns.time, "id": self.columns.id}
        asked = {"method": self.method.spec, "steps": self.steps, **columns}
        return Manifest("forecast", asked, snapshot(self.source), versions())


def requested(
    method: SeriesMethod | str | Mapping[str, Any],
    series: Any,
    steps: int,
    target: str,
    time: str | None = None,
    id: str | None = None,
) -> Asked:
    """What `forecast` runs and `plan` describes, checked."""
    rows, columns = source(series), Columns(target, time, id)
    columns.check(rows)
    if not rows.rows:
        raise DataError("rows of a series", "none", "Check the path.")
    return Asked(rows, columns, series_method(method), _steps(steps))


@dataclass(frozen=True)
class ForecastJob:
    """The job of `forecast`."""

    folder: Store
    asked: Asked
    started: float
    resources: Resources | None = None
    notes: tuple[str, ...] = ()

    def cuts(self, records: Records) -> list[int]:
        """Where spans of whole series begin, and the number of rows; of one series it is one span."""
        if self.asked.columns.id is None:
            return [0, self.asked.source.rows]
        return list(records[CUT][CUT].data["cuts"]) if records.get(CUT) else []

    def next_stage(self, records: Records) -> Stage | None:
        """Find, cut, forecast."""
        cuts = self.cuts(records)
        if not cuts:
            return self._found(records)
        asked = self.asked
        tasks = tuple(
            Task(name, (f"{name}.parquet",), (start, stop), asked.steps)
            for name, (start, stop) in named(itertools.pairwise(cuts))
        )
        function = ForecastSpan(asked.source, asked.columns, asked.method, asked.steps)
        most = max(stop - start for start, stop in itertools.pairwise(cuts))
        cost = forecast_cost(asked.method, most, asked.steps)
        stage = Stage(FORECAST, tasks, function, holding(self.resources, cost.memory), cost.formula)
        return stage if remaining(stage, records) else None

    def _found(self, records: Records) -> Stage:
        asked, resources = self.asked, holding(self.resources, MEASURED.base)
        rows, id = asked.source.rows, asked.columns.id
        assert id is not None
        tasks = tuple(
            Task(name, (passed(FIND, name),), (span.start, span.stop), span.rows)
            for name, span in named(spans_of(asked.source, rows, [id]))
        )
        stage = Stage(FIND, tasks, FindRuns(asked.source, asked.columns), resources)
        if remaining(stage, records):
            return stage
        files = tuple(name for task in tasks for name in task.outputs)
        cost, task = cut_cost(records[FIND].values()), Task(CUT, (), (rows,), rows)
        resources = holding(self.resources, cost.memory)
        return Stage(CUT, (task,), CutSpans(rows, files, SPAN_ROWS), resources, cost.formula)

    def finish(self, records: Records) -> ForecastReport:
        """Write the report, and remove what only the job needed."""
        done = [record for stage in records.values() for record in stage.values()]
        parts = records[FORECAST].values()
        rows = sum(record.rows for record in parts)
        report = ForecastReport(
            out=self.folder.uri,
            series=rows // self.asked.steps,
            rows=rows,
            status=reduce(added, (dict(record.data["status"]) for record in parts)),
            notes=self.notes,
            **spent(done, self.started),
        )
        report.write(self.folder)
        sweep(self.folder, [FIND], records)
        return report


def named(parts: Iterable[Part]) -> Iterator[tuple[str, Part]]:
    """The name of a partition for each."""
    return ((f"part-{number:05}", part) for number, part in enumerate(parts))


def matrix(series: ArrayLike | Tensor) -> Tensor:
    """Series [s, n] of arrays [n] or [s, n]; nan where masked or infinite."""
    array = series.detach().numpy() if isinstance(series, Tensor) else series
    values = torch.from_numpy(np.ma.filled(np.ma.asarray(array, np.float64), np.nan).copy())
    if values.ndim not in (1, 2) or not values.numel():
        given = f"shape {list(values.shape)}"
        raise UsageError("a series [n], or series [s, n]", given, "Name the `target` of a table.")
    values = values.reshape(-1, values.shape[-1])
    return values.masked_fill(~values.isfinite(), torch.nan)


def _of_arrays(method: SeriesMethod, series: Any, steps: int, out: object, time: object, id: object) -> Path:
    if isinstance(series, str | Place | Mapping | pa.Table) or not (out is time is id is None):
        raise UsageError("the column of the values", "none", "Name it, as the target.")
    (found,) = spread(lambda values: followed(method.loop, values, steps), [matrix(series)])
    return Path(found.values[0], found.status[0]) if np.ndim(series) == 1 else found


def _empty(asked: Asked) -> pa.Table:
    fields = [asked.source.schema.field(name) for name in asked.columns.names]
    return pa.schema(fields).empty_table()


def _steps(steps: int) -> int:
    if not is_whole(steps) or steps < 1:
        raise UsageError("at least one step", repr(steps), "It is a whole number.")
    return int(steps)
