"""What `cluster` and `assign` would run; nothing is computed or written."""

import math
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
from locdist.jobs.assign import assigned
from locdist.jobs.build_index import Options
from locdist.jobs.chosen import read_method
from locdist.jobs.cluster import CLIMB, requested
from locdist.jobs.clustering.climb import STEPS, Climb
from locdist.jobs.clustering.merge import MERGED, PART_ROWS
from locdist.jobs.extent import Extent
from locdist.jobs.predict import work
from locdist.jobs.request import column_bytes, inputs
from locdist.jobs.telling.outlook import JobPlan, StagePlan, ask_stage, index_choices
from locdist.methods.method import Method
from locdist.plan.cost import MEASURED, Search, Solve
from locdist.plan.plan import Resources
from locdist.plan.records import Record, history
from locdist.search.layout import MANIFEST as INDEX_MANIFEST

Records = Mapping[str, Mapping[str, Record]]


def plan_cluster(
    method: Method | str | Mapping[str, Any],
    support: Dataset,
    out: str | Path,
    *,
    grain: float = 0.25,
    sample: int = 5_000,
    radius: float | None = None,
    least: int = 1,
    keep: str | Sequence[str] | None = None,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `cluster` would run with the same arguments; raises what that would refuse before any work."""
    climb, support = Climb.of(read_method(method), grain, sample, radius), checked(support)
    request, folder = requested(climb, support, least, keep, bad, recall, codes), Store.at(out)
    options = Options(recall, codes, None, bad)
    state, records, claim = plans.standing(folder, request.manifest(None), inputs(support.source), overwrite)
    support = replace(support, source=support.source.without(claim.added))
    going = state == "continues"
    below = folder.child(INDEX)
    built = going and below.exists(INDEX_MANIFEST)
    done = {name: history(folder.child(name)).records if going else {} for name in (INDEX, CLIMB, MERGED)}
    building = () if built else plans.building(support, below, options, done[INDEX])
    stages = _stages(climb, support, request.choices["keep"], {**done[CLIMB], **done[MERGED], **records})
    return JobPlan(
        kind="cluster",
        folder=folder.uri,
        state="finished" if going and stages[-1].finished == stages[-1].tasks else state,
        **plans.size_of(support.source),
        choices={
            "method": plans.told_of(climb.method),
            "climbs": _how(climb),
            **index_choices(support, options),
        },
        stages=(*building, *stages),
        notes=claim.notes,
        **plans.hands_of(executor, workers, resources),
    )


def plan_assign(
    clusters: str | Path,
    queries: Any,
    out: str | Path,
    *,
    keep: str | Sequence[str] | None = None,
    recall: float | None = None,
    limit: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `assign` would run with the same arguments; raises what that would refuse before any work."""
    request, question = assigned(clusters, queries, keep, recall)
    choices = {"method": plans.told_of(question.climb.method), "climbs": _how(question.climb)}
    hands = plans.hands_of(executor, workers, resources)
    return plans.asking(request, question, out, limit, hands, overwrite, choices)


def _stages(climb: Climb, support: Dataset, keep: tuple[str, ...], records: Records) -> tuple[StagePlan, ...]:
    rows, extent = support.rows, Extent.of(support)
    solve = work(climb.method, extent.width, extent.width, frozenset())
    asked = rows if solve.k or not climb.grain else min(rows, climb.sample)
    choice = extent.choice(support, None)
    lists = choice.nlist if solve.k and choice.codes != "exact" else 0
    search = Search(asked, lists, math.ceil(math.sqrt(lists)))
    sizes = [span.rows for span in spans_of(support.source, rows, support.roles.columns)]
    one = ask_stage("climb", sizes, search, solve, 0, records, f"{STEPS} steps of each row, assumed")
    steps = replace(one, seconds=STEPS * one.seconds, distances=STEPS * one.distances)
    parts = [min(PART_ROWS, rows)] * max(1, math.ceil(rows / PART_ROWS))
    kept = column_bytes(support.source, keep)
    told = "the cell of each row looked up"
    label = ask_stage("cluster", sizes, Search(0), Solve(1, extent.width), kept, records, told)
    cells = _small("cells", parts, extent.width, records, "one place of each cell")
    merge = _small("merge", [len(parts)], extent.width, records, "cells, as many as there will be")
    return steps, cells, merge, label


def _small(name: str, sizes: Sequence[int], width: int, records: Records, basis: str) -> StagePlan:
    """A stage of places."""
    rows, each = sum(sizes), 8 * (width + 2)
    seconds = len(sizes) * MEASURED.task + rows * MEASURED.row
    memory = MEASURED.base + 4 * each * max(sizes)
    done = min(len(records.get(name, {})), len(sizes))
    return StagePlan(name, len(sizes), done, rows, memory, rows * each, 0, 0, seconds, basis)


def _how(climb: Climb) -> str:
    if not climb.grain:
        return "every row for itself, over all rows"
    rows = "all neighbors" if climb.method.layer.k else f"{climb.sample:,} rows"
    return f"on a lattice of {climb.grain:g} bandwidths, over {rows}; modes over all rows"
