"""What `couple` and `apply` would run; nothing is computed or written."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from locdist.data.dataset import Dataset
from locdist.data.store import Store
from locdist.execute.contract import Executor
from locdist.jobs import apply, couple, fold, relax
from locdist.jobs.asking.ask import Running
from locdist.jobs.coupling.costs import USUAL, apply_cost, couple_cost, fold_cost, gather_cost, relax_cost
from locdist.jobs.coupling.models import Choice
from locdist.jobs.coupling.passes import PROFILE, Passes
from locdist.jobs.extent import Extent
from locdist.jobs.passing import Records
from locdist.jobs.plans import hands_of, size_of, standing
from locdist.jobs.request import column_bytes, inputs
from locdist.jobs.telling.outlook import JobPlan, StagePlan, stage_plan
from locdist.methods.atlas import Atlas
from locdist.methods.federated import FedRelax
from locdist.plan.plan import Resources, remaining


def plan_couple(
    method: Choice,
    support: Dataset,
    edges: Any,
    out: str | Path,
    *,
    ends: Sequence[str] | None = None,
    shared: Any = None,
    bad: str = "raise",
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `couple` would run with the same arguments; raises what that would refuse before any work."""
    asked, folder = couple.requested(method, support, edges, ends, bad, shared), Store.at(out)
    state, records, claim = standing(folder, asked.manifest, asked.taken, overwrite)
    support = replace(asked.support, source=asked.support.source.without(claim.added))
    passes = Passes(folder, support, bad, resources)
    telling = {FedRelax: _relaxing, Atlas: _folding}.get(type(asked.method), _solving)
    more = telling(passes, asked, records)
    sizes, extent = [stop - start for start, stop in passes.spans.values()], Extent.of(support)
    stages = (stage_plan(PROFILE, sizes, extent.profile, records, "one pass over all rows"), *more)
    choices = {"method": " ".join(f"{name}={value}" for name, value in asked.method.spec.items())}
    if asked.edges is not None:
        places = ", ".join(asked.edges.source.places) or "a table"
        choices["edges"] = f"{asked.edges.count:,} of {places}"
    return JobPlan(
        kind="couple",
        folder=folder.uri,
        state="finished" if state == "continues" and stages[-1].finished == stages[-1].tasks else state,
        **size_of(support.source),
        choices=choices | {"bad rows": "an error" if bad == "raise" else "dropped and counted"},
        stages=stages,
        notes=claim.notes,
        **hands_of(executor, workers, resources),
    )


def _solving(passes: Passes, asked: couple.Asked, records: Records) -> list[StagePlan]:
    """All nodes at once."""
    sizes = [stop - start for start, stop in passes.spans.values()]
    assert asked.edges is not None
    count, width = asked.edges.count, Extent.of(passes.support).width
    most = _most(passes, asked)
    gather, solve = (couple.step_name(stage, 0) for stage in (couple.GATHER, couple.COUPLE))
    once = "one pass; families take one more for each step of Newton"
    rounds = f"about {USUAL} rounds of {count:,} edges, assumed; as many nodes as rows, at most"
    return [
        stage_plan(gather, sizes, lambda rows: gather_cost(rows, width), records, once),
        stage_plan(solve, [most], lambda nodes: couple_cost(nodes, width, count), records, rounds),
        stage_plan(couple.NODES, [most], lambda nodes: couple_cost(nodes, width, 0), records, "the table"),
    ]


def _relaxing(passes: Passes, asked: couple.Asked, records: Records) -> list[StagePlan]:
    """Groups of nodes."""
    assert isinstance(asked.method, FedRelax)
    assert asked.edges is not None
    assert asked.shared is not None
    sizes, width = [stop - start for start, stop in passes.spans.values()], Extent.of(passes.support).width
    groups = max(relax.LEAST, len(sizes))
    share = [-(-passes.support.rows // groups)] * groups
    rounds = f"at most {asked.method.rounds + 1} rounds; what fits of estimators take is not known"
    parts = (width, asked.edges.count, asked.shared.rows, _most(passes, asked), groups)
    return [
        stage_plan(relax.SORT, sizes, lambda rows: gather_cost(rows, width), records, "by groups of nodes"),
        stage_plan(relax.round_name(0), share, lambda rows: relax_cost(rows, *parts), records, rounds),
        stage_plan(relax.NODES, share, lambda rows: relax_cost(rows, *parts), records, "one pass"),
    ]


def _folding(passes: Passes, asked: couple.Asked, records: Records) -> list[StagePlan]:
    """Charts."""
    method, rows = asked.method, passes.support.rows
    assert isinstance(method, Atlas)
    sizes, width = [stop - start for start, stop in passes.spans.values()], Extent.of(passes.support).width
    share = 0.5 if isinstance(method.holdout, str) else method.holdout
    held, count = round(rows * share), method.count
    charts = f"{count} charts" if asked.support.roles.id is None else f"a task a chart, {count} assumed"
    told = f"{charts}, {held:,} rows held out; what fits of estimators take is not known"
    parts = [-(-(rows - held) // count)] * count
    return [
        stage_plan(fold.SORT, sizes, lambda rows: gather_cost(rows, width), records, "by charts"),
        stage_plan(fold.FIT, parts, lambda rows: fold_cost(rows, held, width), records, told),
    ]


def _most(passes: Passes, asked: couple.Asked) -> int:
    """Nodes, assumed: no more than rows, nor than the edges connect; and groups."""
    assert asked.edges is not None
    return min(passes.support.rows, 2 * asked.edges.count + 1) + asked.edges.more


def plan_apply(
    models: str | Path,
    queries: Any,
    out: str | Path,
    *,
    method: Choice | None = None,
    keep: str | Sequence[str] | None = None,
    limit: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `apply` would run with the same arguments; raises what that would refuse before any work."""
    question, folder = apply.asked(models, queries, keep, method), Store.at(out)
    taken = (*inputs(question.source), question.models.folder)
    state, records, claim = standing(folder, question.manifest(limit), taken, overwrite)
    question = replace(question, source=question.source.without(claim.added))
    stage = apply.stage_of(question, Running(limit=limit, resources=resources))
    remaining(stage, records)  # refuses what another version planned
    sizes, width = [task.rows for task in stage.tasks], question.models.stored.encoding.width
    size, held = column_bytes(question.source, question.keep), question.models.held
    told = stage_plan(
        stage.name,
        sizes,
        lambda rows: apply_cost(rows, width, size, held),
        records,
        "all charts" if question.models.stored.classes else "the model of each row's node",
    )
    return JobPlan(
        kind="apply",
        folder=folder.uri,
        state="finished" if told.finished == told.tasks and state == "continues" else state,
        **size_of(question.source),
        choices={"models": question.models.folder},
        stages=(told,),
        notes=claim.notes,
        **hands_of(executor, workers, resources),
    )
