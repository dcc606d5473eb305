"""The verbs that compute. Each stands twice on the command line: alone it runs, behind `plan` it tells."""

from typing import Any

from locdist.cli import options as opt
from locdist.cli.frame import Job, verb
from locdist.cli.given import dataset_of, method_of


@verb
def index(
    job: Job,
    support: opt.SupportPath,
    key: opt.Key,
    out: opt.Out,
    features: opt.Features = None,
    target: opt.Target = None,
    id: opt.Id = None,
    weight: opt.Weight = None,
    offset: opt.Offset = None,
    shape: opt.Shape = None,
    scaling: opt.Scaling = None,
    metric: opt.Metric = "l2",
    map: opt.Map = None,
    recall: opt.Recall = 0.99,
    codes: opt.Codes = None,
    nlist: opt.Nlist = None,
    bad: opt.Bad = "raise",
    seed: opt.Seed = 0,
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

    rows = dataset_of(support, key, features, target, id, weight, scaling, metric, map, offset, shape)
    chosen: dict[str, Any] = {"recall": recall, "codes": codes, "nlist": nlist, "bad": bad, "seed": seed}
    job.carry_out((_indexed, plan_index), (rows, out), chosen)


@verb
def predict(
    job: Job,
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

    spec = method_of(method, k, kernel, bandwidth, ridge, param)
    chosen: dict[str, Any] = {
        "keep": opt.keep(keep),
        "extras": opt.names(extras),
        "explain": explain,
        "recall": recall,
    }
    chosen |= {"limit": limit}
    job.carry_out((predict, plan_predict), (spec, index, queries, out), chosen, max_bad)


@verb
def neighbors(
    job: Job,
    index: opt.IndexPath,
    queries: opt.QueriesPath,
    out: opt.Out,
    k: opt.NeighborsToFind,
    recall: opt.RecallOfRun = None,
    keep: opt.Keep = None,
    limit: opt.Limit = None,
    max_bad: opt.MaxBad = None,
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
    }
    job.carry_out((neighbors, plan_neighbors), (index, queries, out), chosen, max_bad)


@verb
def transform(
    job: Job,
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
) -> None:
    """Answer every row of a support from the other rows; indexes it first.

    \b
    locdist transform sales/ --key lon,lat --features rooms --scaling none
        --target price -m gwr -k 121 --out fit/
    """
    from locdist.jobs.plans import plan_transform
    from locdist.jobs.transform import transform

    spec = method_of(method, k, kernel, bandwidth, ridge, param)
    rows = dataset_of(support, key, features, target, id, weight, scaling, metric, map, offset)
    chosen: dict[str, Any] = {
        "keep": opt.keep(keep),
        "extras": opt.names(extras),
        "explain": explain,
        "recall": recall,
    }
    chosen |= {"bad": bad, "codes": codes, "limit": limit}
    job.carry_out((transform, plan_transform), (spec, rows, out), chosen, max_bad)


def _indexed(support: Any, out: str, **choices: Any) -> Any:
    """Build an index, and say what it is."""
    from locdist.jobs.build_index import build_index
    from locdist.jobs.status import status

    build_index(support, out, **choices)
    return status(out)
