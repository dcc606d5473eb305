"""What `forecast` would run; nothing is computed or written."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from locdist.data.store import Store
from locdist.execute.contract import Executor
from locdist.jobs import plans
from locdist.jobs.asking.ask import spans_of
from locdist.jobs.forecast import requested
from locdist.jobs.request import inputs
from locdist.jobs.series.tasks import CUT, FIND, FORECAST, SPAN_ROWS, cut_cost, forecast_cost
from locdist.jobs.telling.outlook import JobPlan, stage_plan
from locdist.methods.series import SeriesMethod, series_method
from locdist.plan.cost import MEASURED, Estimate
from locdist.plan.plan import Resources


def plan_forecast(
    method: SeriesMethod | str | Mapping[str, Any],
    series: Any,
    out: str | Path,
    *,
    steps: int,
    target: str,
    time: str | None = None,
    id: str | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `forecast` would run with the same arguments; raises what that would refuse before any work."""
    chosen, folder = series_method(method), Store.at(out)
    asked = requested(chosen, series, steps, target, time, id)
    state, records, claim = plans.standing(folder, asked.manifest, inputs(asked.source), overwrite)
    source, several = asked.source.without(claim.added), id is not None
    rows = source.rows
    cuts = dict(records[CUT][CUT].data)["cuts"] if records.get(CUT) else []
    sizes = [stop - start for start, stop in itertools.pairwise(cuts)] or [rows]
    if several and not cuts:
        sizes = [min(SPAN_ROWS, rows - start) for start in range(0, rows, SPAN_ROWS)]
    why = "spans of whole series" + ("" if cuts or not several else f" of about {SPAN_ROWS:,} rows, assumed")
    last = stage_plan(
        FORECAST, sizes, lambda each: forecast_cost(chosen, each, asked.steps), records,
        f"{why}; a step compares the windows of one series, assumed",
    )  # fmt: skip
    small = Estimate(MEASURED.base, 0, MEASURED.task, f"base {MEASURED.base:,}", 8 * rows, 0)
    parts = [span.rows for span in spans_of(source, rows, [id])] if id is not None else []
    found = records.get(FIND, {})
    begin = "where series begin" + ("" if found else "; the ids, which find counts, add to it")
    first = (
        stage_plan(FIND, parts, lambda each: replace(small, read=8 * each), records, "the id of each row"),
        stage_plan(CUT, [rows], lambda _: cut_cost(found.values()), records, begin),
    )
    return JobPlan(
        kind="forecast",
        folder=folder.uri,
        state="finished" if state == "continues" and last.finished == last.tasks else state,
        **plans.size_of(source),
        choices={
            "method": " ".join(f"{name}={value}" for name, value in chosen.spec.items()),
            "steps": str(asked.steps),
        },
        stages=(*(first if several else ()), last),
        notes=claim.notes,
        **plans.hands_of(executor, workers, resources),
    )
