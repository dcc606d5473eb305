"""The steps of a pipeline file as calls of jobs."""

from collections.abc import Callable, Mapping
from typing import Any

from locdist.data.dataset import Dataset
from locdist.jobs.apply import apply
from locdist.jobs.assign import assign
from locdist.jobs.backfit import backfit
from locdist.jobs.build_index import build_index
from locdist.jobs.cluster import cluster
from locdist.jobs.clustering.planned import plan_assign, plan_cluster
from locdist.jobs.couple import couple
from locdist.jobs.coupling.models import OF_ESTIMATORS
from locdist.jobs.coupling.planned import plan_apply, plan_couple
from locdist.jobs.embed import embed, place
from locdist.jobs.forecast import forecast
from locdist.jobs.graph import graph
from locdist.jobs.label import label
from locdist.jobs.layers.planned import plan_move
from locdist.jobs.learning import Lesson, learn, plan_learn
from locdist.jobs.move import move
from locdist.jobs.neighbors import neighbors
from locdist.jobs.network_plans import plan_embed, plan_graph, plan_label, plan_place
from locdist.jobs.plans import plan_index, plan_neighbors, plan_predict, plan_transform
from locdist.jobs.predict import predict
from locdist.jobs.restore import restore
from locdist.jobs.restoring.planned import plan_restore
from locdist.jobs.scales.planned import plan_backfit
from locdist.jobs.series.planned import plan_forecast
from locdist.jobs.telling.kept import REPORT
from locdist.jobs.transform import transform
from locdist.methods.layered import layered_method
from locdist.pipeline.asking import Backfit, Evaluate, Forecast, Neighbors, Predict, Transform
from locdist.pipeline.call import Call, EvaluateCall, JobCall
from locdist.pipeline.choices import made
from locdist.pipeline.graphs import Embed, Graph, Label, Place
from locdist.pipeline.inputs import Inputs
from locdist.pipeline.learning import Build, Rules, Select, Tune
from locdist.pipeline.meaning import INDEX, outs, scored, steps_of
from locdist.pipeline.moving import Assign, Cluster, Move
from locdist.pipeline.networks import Apply, Couple
from locdist.pipeline.pictures import Restore
from locdist.pipeline.report import Told
from locdist.pipeline.sections import Asked, File, Own, Writing
from locdist.pipeline.supports import BUILDING, Index
from locdist.search.generation import Generation, open_index
from locdist.search.layout import MANIFEST as INDEX_MANIFEST

Verb = tuple[Callable[..., Any], Callable[..., Told]]  # what does it, and what plans it
Work = tuple[Verb, Callable[[], tuple[Any, ...]], Mapping[str, Any]]  # with its arguments, and its options


def calls(file: File, inputs: Inputs) -> tuple[Call, ...]:
    """The steps in their order; the build of the index is the first, where the file has a support for it."""
    built = [_index(file.index, inputs)] if file.index and file.support else []
    return (*built, *(_call(file, number, inputs) for number in range(len(file.steps))))


def _call(file: File, number: int, inputs: Inputs) -> Call:
    asked, verb = file.steps[number].content, file.steps[number].verb
    if isinstance(asked, Evaluate):
        by = str(scored(file, number))
        out = outs(file)[by]
        return EvaluateCall(asked.name, verb, out, ((by, out, REPORT),), asked)
    (do, tell), given, chosen = _WORK[type(asked)](asked, inputs)
    return JobCall(asked.name, verb, asked.out, _reads(file, asked), do, tell, given, chosen)


def _reads(file: File, asked: Writing) -> tuple[tuple[str, str, str], ...]:
    """What a step waits for: the index of the file, and the steps that it names."""
    folders = outs(file)
    needed = [
        (name, folders[name], INDEX_MANIFEST if role == INDEX else REPORT) for role, name in steps_of(asked)
    ]
    if isinstance(asked, Predict | Neighbors | Select):
        by = file.index if asked.index is None else asked.index
        needed += [(INDEX, by.path, INDEX_MANIFEST)] if by is not None and by.path is not None else []
    return tuple(needed)


def _index(asked: Index, inputs: Inputs) -> Call:
    chosen = {name: getattr(asked, name) for name in BUILDING}
    return JobCall(
        INDEX, INDEX, asked.path, (), build_index, plan_index,
        lambda: (inputs.support(None), asked.path), chosen,
    )  # fmt: skip


def _build(asked: Build, inputs: Inputs) -> Work:
    return (
        (build_index, plan_index),
        lambda: (inputs.support(asked.support, asked.map), asked.out),
        {name: getattr(asked, name) for name in BUILDING},
    )


def _predict(asked: Predict, inputs: Inputs) -> Work:
    return (
        (predict, plan_predict),
        lambda: (inputs.method(asked.method), inputs.index(asked), inputs.rows(asked.queries), asked.out),
        _chosen(asked, "extras", "explain", "recall", "limit"),
    )


def _neighbors(asked: Neighbors, inputs: Inputs) -> Work:
    return (
        (neighbors, plan_neighbors),
        lambda: (inputs.index(asked), inputs.rows(asked.queries), asked.out),
        _chosen(asked, "k", "recall", "limit"),
    )


def _transform(asked: Transform, inputs: Inputs) -> Work:
    return (
        (transform, plan_transform),
        lambda: (made(asked.method), inputs.support(asked.support), asked.out),
        _chosen(asked, "extras", "explain", "bad", "recall", "codes", "limit"),
    )


def _cluster(asked: Cluster, inputs: Inputs) -> Work:
    return (
        (cluster, plan_cluster),
        lambda: (made(asked.method), inputs.support(asked.support), asked.out),
        _chosen(asked, "grain", "sample", "radius", "least", "bad", "recall", "codes"),
    )


def _assign(asked: Assign, inputs: Inputs) -> Work:
    return (
        (assign, plan_assign),
        lambda: (inputs.place(asked.clusters), inputs.rows(asked.queries), asked.out),
        _chosen(asked, "recall", "limit"),
    )


def _move(asked: Move, inputs: Inputs) -> Work:
    return (
        (move, plan_move),
        lambda: (layered_method(asked.method), inputs.support(asked.support), asked.out),
        _chosen(asked, "bad", "recall", "codes"),
    )


def _graph(asked: Graph, inputs: Inputs) -> Work:
    names = ("k", "radius", "kernel", "bandwidth", "symmetrize", "bad", "recall", "codes")
    method = None if asked.method is None else made(asked.method)
    return (
        (graph, plan_graph),
        lambda: (inputs.support(asked.support), asked.out),
        {**{name: getattr(asked, name) for name in names}, "method": method},
    )


def _label(asked: Label, inputs: Inputs) -> Work:
    return (
        (label, plan_label),
        lambda: (asked.method, inputs.place(asked.graph), inputs.rows(asked.labels), asked.out),
        {name: getattr(asked, name) for name in ("target", "id", "partitioned")},
    )


def _embed(asked: Embed, inputs: Inputs) -> Work:
    return (
        (embed, plan_embed),
        lambda: (asked.method, inputs.support(asked.support), asked.out),
        {name: getattr(asked, name) for name in ("bad", "recall", "codes")},
    )


def _place(asked: Place, inputs: Inputs) -> Work:
    return (
        (place, plan_place),
        lambda: (inputs.place(asked.embedding), inputs.rows(asked.queries), asked.out),
        _chosen(asked, "recall", "limit"),
    )


def _backfit(asked: Backfit, inputs: Inputs) -> Work:
    return (
        (backfit, plan_backfit),
        lambda: (asked.method, inputs.support(asked.support), asked.out),
        _chosen(asked, "bad"),
    )


def _forecast(asked: Forecast, inputs: Inputs) -> Work:
    return (
        (forecast, plan_forecast),
        lambda: (asked.method, inputs.rows(asked.series), asked.out),
        {name: getattr(asked, name) for name in ("steps", "target", "time", "id")},
    )


def _restore(asked: Restore, inputs: Inputs) -> Work:
    return (
        (restore, plan_restore),
        lambda: (asked.method, inputs.rows(asked.images), asked.out),
        _chosen(asked, "column", "shape", "limit"),
    )


def _couple(asked: Couple, inputs: Inputs) -> Work:
    return (
        (couple, plan_couple),
        lambda: (
            asked.method, inputs.support(asked.support), asked.edges and inputs.place(asked.edges), asked.out,
        ),
        {"ends": asked.ends, "shared": asked.shared and inputs.place(asked.shared), "bad": asked.bad},
    )  # fmt: skip


def _apply(asked: Apply, inputs: Inputs) -> Work:
    return (
        (apply, plan_apply),
        lambda: (inputs.place(asked.models), inputs.rows(asked.queries), asked.out),
        _chosen(asked, "limit") | {"method": asked.method or _estimators(asked.models.step, inputs)},
    )


def _estimators(step: str | None, inputs: Inputs) -> Any:
    """The method of a step whose output does not name its estimators."""
    methods = [each.content.method for each in inputs.file.steps if isinstance(each.content, Couple)
               and each.content.name == step]  # fmt: skip
    chosen = methods[0] if methods else None
    name = chosen.get("name") if isinstance(chosen, dict) else chosen
    return chosen if name in OF_ESTIMATORS else None


def _rules(asked: Rules, inputs: Inputs) -> Work:
    names = ("rules", "tnorm", "order", "steps", "ridge", "sample", "seed", "bad")
    options = {name: getattr(asked, name) for name in names} | {"membership": asked.forms}
    return _learning(asked, lambda: inputs.support(asked.support), options)


def _tune(asked: Tune, inputs: Inputs) -> Work:
    names = ("method", "k", "covariance", "rank", "steps", "sample", "seed", "bad")
    options = {name: getattr(asked, name) for name in names}
    return _learning(asked, lambda: inputs.support(asked.support), options)


def _select(asked: Select, inputs: Inputs) -> Work:
    names = ("methods", "grid", "criterion", "sample", "seed", "simplest")
    options = {name: getattr(asked, name) for name in names}
    return _learning(asked, lambda: open_index(inputs.index(asked)), options)


def _learning(
    asked: Rules | Tune | Select, support: Callable[[], Dataset | Generation], options: Mapping[str, Any]
) -> Work:
    verb = type(asked).__name__.lower()
    return (learn, plan_learn), lambda: (Lesson(verb, support(), options), asked.out), {}


def _chosen(asked: Own | Asked | Restore, *names: str) -> dict[str, Any]:
    """The options of a verb, as its function takes them."""
    keep = asked.keep if asked.keep is None or "*" not in asked.keep else "*"
    return {"keep": keep, **{name: getattr(asked, name) for name in names}}


_WORK: Mapping[type, Callable[[Any, Inputs], Work]] = {
    Predict: _predict, Neighbors: _neighbors, Transform: _transform, Cluster: _cluster, Assign: _assign,
    Move: _move, Graph: _graph, Label: _label, Embed: _embed, Place: _place, Backfit: _backfit,
    Forecast: _forecast, Couple: _couple, Apply: _apply, Rules: _rules, Tune: _tune, Select: _select,
    Build: _build, Restore: _restore,
}  # fmt: skip
