"""What `move` would run; nothing is computed or written."""

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
from locdist.jobs.build_index import Options
from locdist.jobs.extent import Extent
from locdist.jobs.move import requested
from locdist.jobs.request import column_bytes, inputs
from locdist.jobs.telling.outlook import JobPlan, StagePlan, ask_stage, index_choices
from locdist.methods.layered import LayeredMethod, layered_method
from locdist.plan.cost import Search, Solve
from locdist.plan.plan import Resources
from locdist.plan.records import history
from locdist.search.layout import MANIFEST as INDEX_MANIFEST


def plan_move(
    method: LayeredMethod | str | Mapping[str, Any],
    support: Dataset,
    out: str | Path,
    *,
    keep: str | Sequence[str] | None = None,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `move` would run with the same arguments, with as many layers as are allowed; raises what that
    would refuse before any work.
    """
    chosen, support, folder = layered_method(method), checked(support), Store.at(out)
    request, options = requested(chosen, support, keep, bad, recall, codes), Options(recall, codes, None, bad)
    state, records, claim = plans.standing(folder, request.manifest(None), inputs(support.source), overwrite)
    support = replace(support, source=support.source.without(claim.added))
    below = folder.child(INDEX)
    built = state == "continues" and below.exists(INDEX_MANIFEST)
    done = history(below).records if state == "continues" else {}
    building = () if built else plans.building(support, below, options, done)
    kept = column_bytes(support.source, request.choices["keep"])
    width, sizes = Extent.of(support).width, _sizes(support)
    told = "the rows as the last layer left them"
    tell = ask_stage("move", sizes, Search(0), Solve(1, width), kept, records, told)
    finished = state == "continues" and tell.finished == tell.tasks
    return JobPlan(
        kind="move",
        folder=folder.uri,
        state="finished" if finished else state,
        **plans.size_of(support.source),
        choices={"layers": f"at most {chosen.loop.most}", **index_choices(support, options)},
        stages=(*building, *(() if finished else (_layer(chosen, support, options),)), tell),
        notes=claim.notes,
        **plans.hands_of(executor, workers, resources),
    )


def _sizes(support: Dataset) -> list[int]:
    return [span.rows for span in spans_of(support.source, support.rows, support.roles.columns)]


def _layer(chosen: LayeredMethod, support: Dataset, options: Options) -> StagePlan:
    """All layers, each of the cost of the first; the indexes between them cost what the first one does."""
    layer, extent, most = chosen.loop.level(0).layer, Extent.of(support), chosen.loop.most
    choice = extent.choice(support, options.codes)
    lists = choice.nlist if layer.k and choice.codes != "exact" else 0
    search = Search(support.rows, lists, math.ceil(math.sqrt(lists)))
    solve = Solve(layer.neighbors, extent.width, layer.model.columns(layer.neighbors, extent.width))
    basis = f"{most} layers of the cost of the first, each with an index as the one above"
    one = ask_stage("layer", _sizes(support), search, solve, 0, {}, basis)
    tasks = most * one.tasks
    return replace(
        one, tasks=tasks, rows=most * one.rows, seconds=most * one.seconds, distances=most * one.distances
    )
