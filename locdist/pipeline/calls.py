"""The steps of a pipeline file as calls of jobs."""

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from locdist.data.store import Store
from locdist.execute.events import Event, Listener, TaskFinished
from locdist.jobs.apply import apply
from locdist.jobs.backfit import backfit
from locdist.jobs.build_index import build_index
from locdist.jobs.cluster import cluster
from locdist.jobs.clustering.planned import plan_cluster
from locdist.jobs.couple import couple
from locdist.jobs.coupling.planned import plan_apply, plan_couple
from locdist.jobs.embed import embed
from locdist.jobs.evaluate import ClassCount, Evaluation, evaluate
from locdist.jobs.forecast import forecast
from locdist.jobs.graph import graph
from locdist.jobs.label import label
from locdist.jobs.layers.planned import plan_move
from locdist.jobs.move import move
from locdist.jobs.neighbors import neighbors
from locdist.jobs.network_plans import plan_embed, plan_graph, plan_label
from locdist.jobs.plans import plan_index, plan_neighbors, plan_predict, plan_transform
from locdist.jobs.predict import predict
from locdist.jobs.scales.planned import plan_backfit
from locdist.jobs.series.planned import plan_forecast
from locdist.jobs.status import status
from locdist.jobs.telling.kept import REPORT
from locdist.jobs.transform import transform
from locdist.methods.layered import layered_method
from locdist.pipeline.choices import made
from locdist.pipeline.inputs import Inputs
from locdist.pipeline.meaning import INDEX, outs, scored
from locdist.pipeline.networks import Apply, Couple
from locdist.pipeline.report import StepPlan, StepReport, Told
from locdist.pipeline.sections import (
    Backfit,
    Cluster,
    Embed,
    Evaluate,
    File,
    Forecast,
    Graph,
    Label,
    Move,
    Neighbors,
    Own,
    Predict,
    Transform,
)
from locdist.pipeline.supports import Index
from locdist.search.layout import MANIFEST as INDEX_MANIFEST

def calls(file: File, inputs: Inputs) -> tuple[Call, ...]:
    """The steps in their order; the build of the index is the first, where the file has a support for it."""
    built = [_index(file.index, inputs)] if file.index and file.support else []
    return (*built, *(_call(file, number, inputs) for number in range(len(file.steps))))


def _call(file: File, number: int, inputs: Inputs) -> Call:
    asked = file.steps[number].content
    if isinstance(asked, Evaluate):
        by = str(scored(file, number))
        out = outs(file)[by]
        return EvaluateCall(asked.name, "evaluate", out, ((by, out, REPORT),), asked)
    return _CALLS[type(asked)](file, asked, inputs)


def _index(asked: Index, inputs: Inputs) -> Call:
    chosen = asked.model_dump(exclude={"path"})
    return JobCall(
        INDEX, INDEX, asked.path, (), build_index, plan_index,
        lambda: (inputs.support(None), asked.path), chosen,
    )  # fmt: skip


def _predict(file: File, asked: Predict, inputs: Inputs) -> Call:
    chosen = _chosen(asked, "extras", "explain", "recall", "limit")
    return JobCall(
        asked.name, "predict", asked.out, _reads(file, asked), predict, plan_predict,
        lambda: (made(asked.method), _place(file), inputs.rows(asked.queries), asked.out), chosen,
    )  # fmt: skip


def _neighbors(file: File, asked: Neighbors, inputs: Inputs) -> Call:
    chosen = _chosen(asked, "k", "recall", "limit")
    return JobCall(
        asked.name, "neighbors", asked.out, _reads(file, asked), neighbors, plan_neighbors,
        lambda: (_place(file), inputs.rows(asked.queries), asked.out), chosen,
    )  # fmt: skip


def _transform(file: File, asked: Transform, inputs: Inputs) -> Call:
    chosen = _chosen(asked, "extras", "explain", "bad", "recall", "codes", "limit")
    return JobCall(
        asked.name, "transform", asked.out, _reads(file, asked), transform, plan_transform,
        lambda: (made(asked.method), inputs.support(asked.support), asked.out), chosen,
    )  # fmt: skip


def _cluster(file: File, asked: Cluster, inputs: Inputs) -> Call:
    chosen = _chosen(asked, "grain", "sample", "radius", "least", "bad", "recall", "codes")
    return JobCall(
        asked.name, "cluster", asked.out, _reads(file, asked), cluster, plan_cluster,
        lambda: (made(asked.method), inputs.support(asked.support), asked.out), chosen,
    )  # fmt: skip


def _move(file: File, asked: Move, inputs: Inputs) -> Call:
    chosen = _chosen(asked, "bad", "recall", "codes")
    return JobCall(
        asked.name, "move", asked.out, _reads(file, asked), move, plan_move,
        lambda: (layered_method(asked.method), inputs.support(asked.support), asked.out), chosen,
    )  # fmt: skip


def _graph(file: File, asked: Graph, inputs: Inputs) -> Call:
    names = ("k", "radius", "kernel", "bandwidth", "symmetrize", "bad", "recall", "codes")
    chosen = {name: getattr(asked, name) for name in names}
    chosen["method"] = None if asked.method is None else made(asked.method)
    return JobCall(
        asked.name, "graph", asked.out, _reads(file, asked), graph, plan_graph,
        lambda: (inputs.support(asked.support), asked.out), chosen,
    )  # fmt: skip


def _label(file: File, asked: Label, inputs: Inputs) -> Call:
    chosen = {"target": asked.target, "id": asked.id, "partitioned": asked.partitioned}
    steps = [rows.step for rows in (asked.graph, asked.labels) if rows.step is not None]
    return JobCall(
        asked.name, "label", asked.out, tuple((step, outs(file)[step], REPORT) for step in steps), label,
        plan_label,
        lambda: (asked.method, inputs.place(asked.graph), inputs.rows(asked.labels), asked.out), chosen,
    )  # fmt: skip


def _embed(file: File, asked: Embed, inputs: Inputs) -> Call:
    chosen = {name: getattr(asked, name) for name in ("bad", "recall", "codes")}
    return JobCall(
        asked.name, "embed", asked.out, _reads(file, asked), embed, plan_embed,
        lambda: (asked.method, inputs.support(asked.support), asked.out), chosen,
    )  # fmt: skip


def _backfit(file: File, asked: Backfit, inputs: Inputs) -> Call:
    return JobCall(
        asked.name, "backfit", asked.out, _reads(file, asked), backfit, plan_backfit,
        lambda: (asked.method, inputs.support(asked.support), asked.out), _chosen(asked, "bad"),
    )  # fmt: skip


def _forecast(file: File, asked: Forecast, inputs: Inputs) -> Call:
    chosen = {name: getattr(asked, name) for name in ("steps", "target", "time", "id")}
    step = asked.series.step
    reads = () if step is None else ((step, outs(file)[step], REPORT),)
    return JobCall(
        asked.name, "forecast", asked.out, reads, forecast, plan_forecast,
        lambda: (asked.method, inputs.rows(asked.series), asked.out), chosen,
    )  # fmt: skip


def _couple(file: File, asked: Couple, inputs: Inputs) -> Call:
    step, chosen = asked.edges.step, {"ends": asked.ends, "bad": asked.bad}
    reads = () if step is None else ((step, outs(file)[step], REPORT),)
    return JobCall(
        asked.name, "couple", asked.out, (*reads, *_reads(file, asked)), couple, plan_couple,
        lambda: (asked.method, inputs.support(asked.support), inputs.place(asked.edges), asked.out), chosen,
    )  # fmt: skip


def _apply(file: File, asked: Apply, inputs: Inputs) -> Call:
    steps = [rows.step for rows in (asked.models, asked.queries) if rows is not None]
    reads = tuple((step, outs(file)[step], REPORT) for step in steps if step is not None)
    return JobCall(
        asked.name, "apply", asked.out, reads, apply, plan_apply,
        lambda: (inputs.place(asked.models), inputs.rows(asked.queries), asked.out), _chosen(asked, "limit"),
    )  # fmt: skip


def _place(file: File) -> str:
    """The folder of the index."""
    assert file.index is not None  # `meaning` has told a file that needs one
    return file.index.path


def _chosen(asked: Predict | Neighbors | Own | Apply, *names: str) -> dict[str, Any]:
    """The options of a verb, as its function takes them."""
    keep = asked.keep if asked.keep is None or "*" not in asked.keep else "*"
    return {"keep": keep, **{name: getattr(asked, name) for name in names}}


def _reads(file: File, asked: Predict | Neighbors | Own) -> tuple[tuple[str, str, str], ...]:
    """What a step waits for: the index, and the step whose output it reads."""
    needed = [] if isinstance(asked, Own) else [(INDEX, _place(file), INDEX_MANIFEST)]
    rows = asked.support if isinstance(asked, Own) else asked.queries
    if rows is not None and rows.step is not None:
        needed.append((rows.step, outs(file)[rows.step], REPORT))
    return tuple(needed)


_CALLS: Mapping[type, Callable[[File, Any, Inputs], Call]] = {
    Predict: _predict, Neighbors: _neighbors, Transform: _transform, Cluster: _cluster, Move: _move,
    Graph: _graph, Label: _label, Embed: _embed, Backfit: _backfit, Forecast: _forecast, Couple: _couple,
    Apply: _apply,
}  # fmt: skip
