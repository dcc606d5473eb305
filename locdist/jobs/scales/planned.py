"""What `backfit` would run; nothing is computed or written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from locdist.data.dataset import Dataset, checked
from locdist.data.store import Store
from locdist.execute.contract import Executor
from locdist.jobs import plans
from locdist.jobs.asking.ask import spans_of
from locdist.jobs.asking.places import INDEX
from locdist.jobs.backfit import CODES, requested
from locdist.jobs.build_index import Options
from locdist.jobs.request import column_bytes, inputs
from locdist.jobs.scales.fit import COLUMNS, FIT, HAT, SCALES, SWEEPS, TOLD, TRIED, fit_cost
from locdist.jobs.telling.outlook import JobPlan, StagePlan, ask_stage, index_choices, stage_plan
from locdist.methods.multiscale import BackfitMethod, backfit_method
from locdist.plan.cost import Search, Solve
from locdist.plan.plan import Resources
from locdist.plan.records import Record, history
from locdist.search.layout import MANIFEST as INDEX_MANIFEST

Records = Mapping[str, Mapping[str, Record]]


def plan_backfit(
    method: BackfitMethod | str | Mapping[str, Any],
    support: Dataset,
    out: str | Path,
    *,
    keep: str | Sequence[str] | None = None,
    bad: str = "raise",
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `backfit` would run with the same arguments; raises what that would refuse before any work."""
    chosen, support, folder = backfit_method(method), checked(support), Store.at(out)
    request, options = requested(chosen, support, keep, bad), Options(1.0, CODES, None, bad)
    state, records, claim = plans.standing(folder, request.manifest(None), inputs(support.source), overwrite)
    support = replace(support, source=support.source.without(claim.added))
    going = state == "continues"
    built = going and folder.child(INDEX).exists(INDEX_MANIFEST)
    done = {name: history(folder.child(name)).records if going else {} for name in (INDEX, FIT)}
    building = () if built else plans.building(support, folder.child(INDEX), options, done[INDEX])
    kept, rows = column_bytes(support.source, request.choices["keep"]), support.rows
    sizes = [span.rows for span in spans_of(support.source, rows, support.roles.columns)]
    tell = ask_stage("backfit", sizes, Search(0), Solve(1, 1), kept, records, "what was fitted, of each row")
    return JobPlan(
        kind="backfit",
        folder=folder.uri,
        state="finished" if going and tell.finished == tell.tasks else state,
        **plans.size_of(support.source),
        choices={
            "method": " ".join(f"{name}={value}" for name, value in chosen.spec.items()),
            **index_choices(support, options),
        },
        stages=(*building, *_fitting(rows, len(support.roles.features) + 1, done[FIT]), tell),
        notes=claim.notes,
        **plans.hands_of(executor, workers, resources),
    )


def _fitting(rows: int, terms: int, records: Records) -> list[StagePlan]:
    """The stages of the fit."""
    columns = [min(COLUMNS, rows - start) for start in range(0, rows, COLUMNS)]
    search = f"{SWEEPS} sweeps, assumed, with {TRIED} bandwidths tried for each term"
    parts = ((SCALES, [rows], search), (HAT, columns, f"{SWEEPS} sweeps"), (TOLD, [rows], "sums"))
    return [
        stage_plan(name, sizes, lambda _, name=name: fit_cost(name, rows, terms), records, why)  # type: ignore[misc]
        for name, sizes, why in parts
    ]
