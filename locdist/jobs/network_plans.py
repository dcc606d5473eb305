"""`plan` of the jobs about graphs: what they would run, and why."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from locdist.data.dataset import Dataset
from locdist.data.store import Store
from locdist.execute.contract import Executor
from locdist.jobs import embed, label
from locdist.jobs.asking.ask import search_of
from locdist.jobs.asking.places import INDEX
from locdist.jobs.build_index import Options
from locdist.jobs.extent import Extent
from locdist.jobs.graph import EDGES, SUMMARY, SYMMETRIZE, Asked, requested
from locdist.jobs.linking import both_cost, edges_cost, linking, spans_of, summary_cost
from locdist.jobs.plans import (
    Records,
    asking,
    building,
    hands_of,
    index_to_build,
    opened_plan,
    search_basis,
    size_of,
    standing,
)
from locdist.jobs.request import inputs
from locdist.jobs.spreading.parts import USUAL, part_cost, spread_cost
from locdist.jobs.telling.outlook import IndexPlan, JobPlan, StagePlan, index_choices, stage_plan
from locdist.methods.embedded import EmbedMethod, embed_method
from locdist.methods.labels import LabelMethod
from locdist.methods.method import Bandwidth, KernelChoice, Method
from locdist.plan.cost import MEASURED, Search
from locdist.plan.plan import Resources
from locdist.plan.records import history
from locdist.search.generation import Generation
from locdist.search.layout import MANIFEST


def plan_graph(
    support: Dataset | Generation | str | Path,
    out: str | Path,
    *,
    k: int | None = None,
    radius: float | None = None,
    kernel: KernelChoice | None = None,
    bandwidth: Bandwidth | None = None,
    method: Method | str | Mapping[str, Any] | None = None,
    symmetrize: str | None = None,
    bad: str = "raise",
    recall: float | None = None,
    codes: str | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `graph` would run with the same arguments; raises what that would refuse before any work."""
    chosen, folder = linking(k, radius, kernel, bandwidth, method, symmetrize), Store.at(out)
    asked = requested(support, chosen, bad, recall, codes)
    state, records, claim = standing(folder, asked.manifest, asked.taken, overwrite)
    if asked.support is not None:
        source = asked.support.source.without(claim.added)
        asked = replace(asked, support=replace(asked.support, source=source))
    width, search, build, index = _indexing(asked, folder, state)
    stages = (*build, *_stages(asked, width, search, records))
    limits = {"k": chosen.links.k, "radius": chosen.links.radius}
    told = {"edges": ", ".join(f"{name} {value}" for name, value in limits.items() if value is not None)}
    told["weights"] = chosen.words
    told |= {"symmetrized": symmetrize or "no: edges lead one way"}
    if asked.support is not None:
        told |= index_choices(asked.support, _options(asked))
    finished = state == "continues" and all(stage.finished == stage.tasks for stage in stages)
    return JobPlan(
        kind="graph",
        folder=folder.uri,
        state="finished" if finished else state,
        **(size_of(asked.support.source) if asked.support else {"files": 0, "rows": asked.rows, "volume": 0}),
        choices=told,
        stages=stages,
        notes=claim.notes,
        index=index,
        **hands_of(executor, workers, resources),
    )


def plan_label(
    method: LabelMethod | str | Mapping[str, Any],
    graph: str | Path,
    labels: Any,
    out: str | Path,
    *,
    target: str | Sequence[str],
    id: str | None = None,
    partitioned: bool | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `label` would run with the same arguments; raises what that would refuse before any work."""
    asked, folder = label.requested(method, graph, labels, target, id, partitioned), Store.at(out)
    state, records, claim = standing(folder, asked.manifest, asked.taken, overwrite)
    source, report = asked.labels.source, asked.graph.report
    sizes = [span.rows for span in asked.graph.spans]
    cost = part_cost(asked.graph, label.WIDE_STATE)
    small = replace(cost, seconds=MEASURED.task)
    whole = spread_cost(report.rows, label.WIDE_STATE, report.edges)
    why = f"{USUAL} sweeps of {label.WIDE_STATE} classes, assumed until the labels are read"
    if asked.partitioned:
        between = stage_plan("sweeps", sizes * USUAL, lambda rows: cost, {}, f"a barrier a sweep; {why}")
    else:
        between = stage_plan(label.SPREAD, [report.rows], lambda rows: whole, records, why)
    stages = (
        stage_plan(label.KNOWN, sizes, lambda rows: small, records, "the labels of each partition"),
        between,
        stage_plan(label.LABEL, sizes, lambda rows: small, records, "the state of each partition"),
    )
    finished = state == "continues" and stages[-1].finished == len(sizes)
    told = {"method": " ".join(f"{name}={value}" for name, value in asked.method.spec.items())}
    told |= {"state": "swept by partitions" if asked.partitioned else "swept in one task"}
    return JobPlan(
        kind="label",
        folder=folder.uri,
        state="finished" if finished else state,
        **size_of(source),
        choices=told | {"graph": f"{report.rows:,} nodes, {report.edges:,} edges"},
        stages=stages,
        notes=claim.notes,
        **hands_of(executor, workers, resources),
    )


def plan_embed(
    method: EmbedMethod | str | Mapping[str, Any],
    support: Dataset,
    out: str | Path,
    *,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `embed` would run with the same arguments; raises what that would refuse before any work."""
    chosen, folder = embed_method(method), Store.at(out)
    manifest = embed.requested(chosen, support, bad, recall, codes)
    state, records, claim = standing(folder, manifest, inputs(support.source), overwrite)
    support = replace(support, source=support.source.without(claim.added))
    below = folder.child(embed.GRAPH)
    made = plan_graph(support, below.uri, **chosen.links, bad=bad, recall=recall, codes=codes)
    cost = embed.axes_cost(chosen, support.rows, chosen.layer.neighbors * support.rows)
    sizes = [span.rows for span in spans_of(support.rows, embed.linking_of(chosen))]
    small = replace(cost, seconds=MEASURED.task, memory=MEASURED.base)
    why = "eigenvectors of the graph; their number of iterations is not known before"
    stages = (
        *(stage for stage in made.stages if made.state != "finished"),
        stage_plan(embed.AXES, [support.rows], lambda rows: cost, records, why),
        stage_plan(embed.EMBED, sizes, lambda rows: small, records, "the coordinates of each partition"),
    )
    finished = state == "continues" and stages[-1].finished == len(sizes)
    return JobPlan(
        kind="embed",
        folder=folder.uri,
        state="finished" if finished else state,
        **size_of(support.source),
        choices={
            "method": " ".join(f"{name}={value}" for name, value in chosen.spec.items()),
            **made.choices,
        },
        stages=stages,
        notes=claim.notes,
        index=made.index,
        **hands_of(executor, workers, resources),
    )


def plan_place(
    embedding: str | Path,
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
    """What `place` would run with the same arguments; raises what that would refuse before any work."""
    request, question = embed.placing(embedding, queries, keep, recall)
    hands = hands_of(executor, workers, resources)
    return asking(request, question, out, limit, hands, overwrite, {"embedding": str(embedding)})


def _options(asked: Asked) -> Options:
    return Options(asked.recall, asked.codes, None, asked.bad)


def _indexing(
    asked: Asked, folder: Store, state: str
) -> tuple[int, Search, tuple[StagePlan, ...], IndexPlan]:
    """Width and search of the index, the stages of its build, and what it will be."""
    if asked.support is None:
        assert asked.index is not None
        return asked.index.layout.width, search_of(asked.index), (), opened_plan(asked.index)
    below, extent = folder.child(INDEX), Extent.of(asked.support)
    choice = extent.choice(asked.support, asked.codes)
    lists = 0 if choice.codes == "exact" else choice.nlist
    search = Search(asked.support.rows, lists, math.ceil(math.sqrt(lists)))
    if state == "continues" and below.exists(MANIFEST):
        done = building(asked.support, below, _options(asked), history(below).records)
        return extent.width, search, (), index_to_build(done[-1], folder)
    records = history(below).records if state == "continues" else {}
    built = building(asked.support, below, _options(asked), records)
    return extent.width, search, built, index_to_build(built[-1], folder)


def _stages(asked: Asked, width: int, search: Search, records: Records) -> list[StagePlan]:
    sizes, chosen = [span.rows for span in spans_of(asked.rows, asked.linking)], asked.linking
    stages = [
        stage_plan(
            EDGES,
            sizes,
            lambda rows: edges_cost(rows, width, search, chosen),
            records,
            search_basis(search, None),
        )
    ]
    if chosen.symmetrize is not None:
        why = f"about {chosen.usual} edges of each node, exchanged by the partition that they lead to"
        stages.append(stage_plan(SYMMETRIZE, sizes, lambda rows: both_cost(rows, chosen), records, why))
    why = "one pass over all edges"
    return [*stages, stage_plan(SUMMARY, [asked.rows], summary_cost, records, why)]
