"""What `couple` and `apply` would run; nothing is computed or written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from locdist.data.dataset import Dataset
from locdist.data.store import Store
from locdist.execute.contract import Executor
from locdist.jobs import apply, couple
from locdist.jobs.asking.ask import Running
from locdist.jobs.coupling.costs import USUAL, apply_cost, couple_cost, gather_cost
from locdist.jobs.extent import Extent
from locdist.jobs.plans import hands_of, size_of, standing
from locdist.jobs.request import column_bytes, inputs
from locdist.jobs.telling.outlook import JobPlan, stage_plan
from locdist.methods.coupled import CoupledMethod
from locdist.plan.plan import Resources, remaining


def plan_couple(
    method: CoupledMethod | str | Mapping[str, Any],
    support: Dataset,
    edges: Any,
    out: str | Path,
    *,
    ends: Sequence[str] | None = None,
    bad: str = "raise",
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `couple` would run with the same arguments; raises what that would refuse before any work."""
    asked, folder = couple.requested(method, support, edges, ends, bad), Store.at(out)
    state, records, claim = standing(folder, asked.manifest, asked.taken, overwrite)
    support = replace(asked.support, source=asked.support.source.without(claim.added))
    job = couple.CoupleJob(folder, replace(asked, support=support), 0.0, resources)
    sizes, extent = [stop - start for start, stop in job.spans.values()], Extent.of(support)
    count, width = asked.edges.source.rows, extent.width
    family = "one pass" if asked.method.family is None else "one pass, and one more for each step of Newton"
    rounds = f"about {USUAL} rounds of {count:,} edges, assumed; as many nodes as rows, at most"
    most = min(support.rows, 2 * count + 1)
    gather, solve = (couple.step_name(stage, 0) for stage in (couple.GATHER, couple.COUPLE))
    stages = (
        stage_plan(couple.PROFILE, sizes, extent.profile, records, "one pass over all rows"),
        stage_plan(gather, sizes, lambda rows: gather_cost(rows, width), records, family),
        stage_plan(solve, [most], lambda nodes: couple_cost(nodes, width, count), records, rounds),
        stage_plan(
            couple.NODES, [most], lambda nodes: couple_cost(nodes, width, count), records, "the table"
        ),
    )
    return JobPlan(
        kind="couple",
        folder=folder.uri,
        state="finished" if state == "continues" and stages[-1].finished else state,
        **size_of(support.source),
        choices={
            "method": " ".join(f"{name}={value}" for name, value in asked.method.spec.items()),
            "edges": f"{count:,} rows of {', '.join(asked.edges.source.places) or 'a table'}",
            "bad rows": "an error" if bad == "raise" else "dropped and counted",
        },
        stages=stages,
        notes=claim.notes,
        **hands_of(executor, workers, resources),
    )


def plan_apply(
    models: str | Path,
    queries: Any,
    out: str | Path,
    *,
    keep: str | Sequence[str] | None = None,
    limit: int | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `apply` would run with the same arguments; raises what that would refuse before any work."""
    question, folder = apply.asked(models, queries, keep), Store.at(out)
    taken = (*inputs(question.source), question.models.folder)
    state, records, claim = standing(folder, question.manifest(limit), taken, overwrite)
    question = replace(question, source=question.source.without(claim.added))
    stage = apply.stage_of(question, Running(limit=limit, resources=resources))
    remaining(stage, records)  # refuses what another version planned
    sizes, width = [task.rows for task in stage.tasks], question.models.stored.encoding.width
    size = column_bytes(question.source, question.keep)
    told = stage_plan(
        stage.name, sizes, lambda rows: apply_cost(rows, width, size), records, "the model of each row's node"
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
