"""The verbs that compute. Each stands twice on the command line: alone it runs, behind `plan` it tells."""

from typing import Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import carry_out, command, running
from locdist.errors import UsageError


@command
def index(
    context: typer.Context,
    support: opt.SupportPath,
    key: opt.Key,
    out: opt.Out,
    features: opt.Features = None,
    target: opt.Target = None,
    id: opt.Id = None,
    weight: opt.Weight = None,
    offset: opt.Offset = None,
    scaling: opt.Scaling = None,
    metric: opt.Metric = "l2",
    map: opt.Map = None,
    recall: opt.Recall = 0.99,
    codes: opt.Codes = None,
    nlist: opt.Nlist = None,
    bad: opt.Bad = "raise",
    seed: opt.Seed = 0,
    executor: opt.ExecutorName = "local",
    address: opt.Address = None,
    workers: opt.Workers = None,
    processes: opt.Processes = False,
    resources: opt.ResourcesOf = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Index a support: an immutable folder that later commands search.

    Given again, the same command continues a stopped build.

    \b
    locdist index data/train/ --key lon,lat --features rooms,area
        --target price --out index/
    locdist index 'texts/*.parquet' --key embedding --metric cosine
        --target label --id doc --out index/
    locdist index flights/ --key dep_delay:5,distance,carrier:0.6
        --target arr_delay --bad drop --out index/
    """
    from locdist.jobs.plans import plan_index

    rows = _dataset(support, key, features, target, id, weight, scaling, metric, map, offset)
    chosen: dict[str, Any] = {"recall": recall, "codes": codes, "nlist": nlist, "bad": bad, "seed": seed}
    run = running(executor, address, workers, processes, resources, quiet)
    carry_out(context, json, (_indexed, plan_index), (rows, out), chosen | {"overwrite": overwrite}, run)


@command
def predict(
    context: typer.Context,
    index: opt.IndexPath,
    queries: opt.QueriesPath,
    out: opt.Out,
    method: opt.MethodName = "local-mean",
    k: opt.NeighborsOrAll = None,
    kernel: opt.KernelName = None,
    bandwidth: opt.Bandwidth = None,
    ridge: opt.Ridge = None,
    param: opt.Param = None,
    recall: opt.RecallOfRun = None,
    keep: opt.Keep = None,
    extras: opt.Extras = None,
    explain: opt.Explain = 0,
    limit: opt.Limit = None,
    max_bad: opt.MaxBad = None,
    executor: opt.ExecutorName = "local",
    address: opt.Address = None,
    workers: opt.Workers = None,
    processes: opt.Processes = False,
    resources: opt.ResourcesOf = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Predict every query with a local model of its neighbors.

    Given again, the same command continues a stopped run and computes nothing twice.

    \b
    locdist predict index/ data/new/ -m local-linear -k 64 --out pred/
    locdist predict index/ data/new/ -m local-vote -k 15 --kernel uniform
        --keep label --explain 5 --max-bad 0.1% --out labels/
    locdist plan predict index/ data/new/ -m knn -k 10 --out pred/
    """
    from locdist.jobs.plans import plan_predict
    from locdist.jobs.predict import predict

    spec = _method(method, k, kernel, bandwidth, ridge, param)
    chosen: dict[str, Any] = {
        "keep": opt.keep(keep),
        "extras": opt.names(extras),
        "explain": explain,
        "recall": recall,
    }
    chosen |= {"limit": limit, "overwrite": overwrite}
    run = running(executor, address, workers, processes, resources, quiet)
    run |= {"max_bad": opt.max_bad(max_bad)}
    carry_out(context, json, (predict, plan_predict), (spec, index, queries, out), chosen, run)


@command
def neighbors(
    context: typer.Context,
    index: opt.IndexPath,
    queries: opt.QueriesPath,
    out: opt.Out,
    k: opt.NeighborsToFind,
    recall: opt.RecallOfRun = None,
    keep: opt.Keep = None,
    limit: opt.Limit = None,
    max_bad: opt.MaxBad = None,
    executor: opt.ExecutorName = "local",
    address: opt.Address = None,
    workers: opt.Workers = None,
    processes: opt.Processes = False,
    resources: opt.ResourcesOf = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Find the k nearest rows of the support for every query: the kNN join itself.

    \b
    locdist neighbors index/ data/new/ -k 64 --out near/
    """
    from locdist.jobs.neighbors import neighbors
    from locdist.jobs.plans import plan_neighbors

    chosen: dict[str, Any] = {
        "k": k,
        "keep": opt.keep(keep),
        "recall": recall,
        "limit": limit,
        "overwrite": overwrite,
    }
    run = running(executor, address, workers, processes, resources, quiet)
    run |= {"max_bad": opt.max_bad(max_bad)}
    carry_out(context, json, (neighbors, plan_neighbors), (index, queries, out), chosen, run)


@command
def transform(
    context: typer.Context,
    support: opt.SupportPath,
    key: opt.Key,
    out: opt.Out,
    method: opt.MethodName = "local-mean",
    features: opt.Features = None,
    target: opt.Target = None,
    id: opt.Id = None,
    weight: opt.Weight = None,
    offset: opt.Offset = None,
    scaling: opt.Scaling = None,
    metric: opt.Metric = "l2",
    map: opt.Map = None,
    codes: opt.Codes = None,
    bad: opt.Bad = "raise",
    k: opt.NeighborsOrAll = None,
    kernel: opt.KernelName = None,
    bandwidth: opt.Bandwidth = None,
    ridge: opt.Ridge = None,
    param: opt.Param = None,
    recall: opt.Recall = 0.99,
    keep: opt.Keep = None,
    extras: opt.Extras = None,
    explain: opt.Explain = 0,
    limit: opt.Limit = None,
    max_bad: opt.MaxBad = None,
    executor: opt.ExecutorName = "local",
    address: opt.Address = None,
    workers: opt.Workers = None,
    processes: opt.Processes = False,
    resources: opt.ResourcesOf = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Answer every row of a support from the other rows; indexes it first.

    \b
    locdist transform sales/ --key lon,lat --features rooms --scaling none
        --target price -m gwr -k 121 --out fit/
    """
    from locdist.jobs.plans import plan_transform
    from locdist.jobs.transform import transform

    spec = _method(method, k, kernel, bandwidth, ridge, param)
    rows = _dataset(support, key, features, target, id, weight, scaling, metric, map, offset)
    chosen: dict[str, Any] = {
        "keep": opt.keep(keep),
        "extras": opt.names(extras),
        "explain": explain,
        "recall": recall,
    }
    chosen |= {"bad": bad, "codes": codes, "limit": limit, "overwrite": overwrite}
    run = running(executor, address, workers, processes, resources, quiet)
    run |= {"max_bad": opt.max_bad(max_bad)}
    carry_out(context, json, (transform, plan_transform), (spec, rows, out), chosen, run)


def _indexed(support: Any, out: str, **choices: Any) -> Any:
    """Build an index, and say what it is."""
    from locdist.jobs.build_index import build_index
    from locdist.jobs.status import status

    build_index(support, out, **choices)
    return status(out)


def _dataset(
    support: str,
    key: list[str],
    features: list[str] | None,
    target: list[str] | None,
    id: str | None,
    weight: str | None,
    scaling: str | None,
    metric: str,
    map: str | None = None,
    offset: str | None = None,
) -> Any:
    from locdist.data.dataset import dataset
    from locdist.jobs.chosen import read_map

    return dataset(
        support,
        key=opt.columns(key),
        features=opt.columns(features) or None,
        target=opt.names(target),
        id=id,
        weight=weight,
        offset=offset,
        scaling=_scaling(scaling),
        metric=metric,
        map=None if map is None else read_map(map),
    )


def _method(
    name: str,
    k: str | None,
    kernel: str | None,
    bandwidth: str | None,
    ridge: float | None,
    param: list[str] | None,
) -> dict[str, Any]:
    """The method as a spec, from its name or the file that holds it, with the parameters that were given."""
    from locdist.jobs.chosen import is_file, read_method

    width = None if bandwidth is None else opt.bandwidth(bandwidth)
    shape = None if kernel is None else opt.value_of(kernel)
    given = {"kernel": shape, "bandwidth": width, "ridge": ridge}
    named = {name: value for name, value in given.items() if value is not None}
    named |= {} if k is None else {"k": opt.neighbors(k)}
    chosen = read_method(name).spec if is_file(name) else {"name": name}
    spec = {**chosen, **named, **opt.parameters(param)}
    if k == "all" and read_method(spec).layer.k is not None:
        raise UsageError("a method of sums for -k all", spec["name"], "Say how many neighbors count, -k 64.")
    return spec


def _scaling(text: str | None) -> str | dict[str, str] | None:
    """`none`, or by role: `key=none,features=standard`."""
    if text is None or "=" not in text:
        return text
    return {role: scaling for role, _, scaling in (part.partition("=") for part in text.split(","))}
