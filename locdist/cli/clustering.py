"""`cluster`, `assign` and `bandwidth`: groups of rows that climb to one mode."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import Job, command, verb
from locdist.cli.given import dataset_of

_MODES = "Modes"
Radius = Annotated[
    float,
    typer.Option(
        "--bandwidth", help="Of the kernel, in units of the scaled key; `locdist bandwidth` estimates one.",
        rich_help_panel=_MODES, metavar="H",
    ),
]  # fmt: skip
KernelName = Annotated[
    str,
    typer.Option(
        "--kernel", help="gaussian, uniform (flat), epanechnikov, ...", rich_help_panel=_MODES,
        metavar="NAME",
    ),
]  # fmt: skip
Grain = Annotated[
    float,
    typer.Option(
        "--grain", help="Cells of the lattice that rows climb on, in bandwidths; 0 for none.",
        rich_help_panel=_MODES,
    ),
]  # fmt: skip
SampleSize = Annotated[
    int,
    typer.Option(
        "--sample", help="Rows of the support that climbs on it look at.", rich_help_panel=_MODES,
    ),
]  # fmt: skip
Merged = Annotated[
    float | None,
    typer.Option(
        "--radius", help="Modes that are no farther apart are one; the bandwidth by default.",
        rich_help_panel=_MODES,
    ),
]  # fmt: skip
Least = Annotated[
    int, typer.Option("--least", help="Rows of a cluster; others are orphans.", rich_help_panel=_MODES)
]
Clusters = Annotated[str, typer.Argument(help="The folder that `locdist cluster` wrote.")]
Quantile = Annotated[
    float, typer.Option("--quantile", help="Share of the rows that a bandwidth is to reach.")
]


@verb
def cluster(
    job: Job,
    support: opt.SupportPath,
    key: opt.Key,
    out: opt.Out,
    bandwidth: Radius,
    kernel: KernelName = "gaussian",
    k: opt.Neighbors = None,
    param: opt.Param = None,
    grain: Grain = 0.25,
    sample: SampleSize = 5_000,
    radius: Merged = None,
    least: Least = 1,
    weight: opt.Weight = None,
    id: opt.Id = None,
    scaling: opt.Scaling = None,
    map: opt.Map = None,
    codes: opt.Codes = None,
    bad: opt.Bad = "raise",
    recall: opt.Recall = 0.99,
    keep: opt.Keep = None,
    max_bad: opt.MaxBad = None,
) -> None:
    """Cluster rows: those that climb to the same mode of their density (mean shift).

    \b
    locdist cluster stars/ --key x,y,z --bandwidth 0.8 --out groups/
    locdist assign groups/ new-stars/ --out labels/
    """
    from locdist.jobs.cluster import cluster
    from locdist.jobs.clustering.planned import plan_cluster

    spec = {"name": "mean-shift", "bandwidth": bandwidth, "kernel": kernel, "k": k, **opt.parameters(param)}
    rows = dataset_of(support, key, None, None, id, weight, scaling, "l2", map)
    chosen: dict[str, Any] = {"grain": grain, "sample": sample, "radius": radius, "least": least}
    chosen |= {"keep": opt.keep(keep), "bad": bad, "recall": recall, "codes": codes}
    job.carry_out((cluster, plan_cluster), (spec, rows, out), chosen, max_bad)


@verb
def assign(
    job: Job,
    clusters: Clusters,
    queries: opt.QueriesPath,
    out: opt.Out,
    recall: opt.RecallOfRun = None,
    keep: opt.Keep = None,
    limit: opt.Limit = None,
    max_bad: opt.MaxBad = None,
) -> None:
    """Assign new rows to the clusters that `cluster` found.

    \b
    locdist assign groups/ new-stars/ --out labels/
    """
    from locdist.jobs.assign import assign
    from locdist.jobs.clustering.planned import plan_assign

    chosen: dict[str, Any] = {
        "recall": recall,
        "keep": opt.keep(keep),
        "limit": limit,
    }
    job.carry_out((assign, plan_assign), (clusters, queries, out), chosen, max_bad)


@command
def bandwidth(
    index: opt.IndexPath,
    quantile: Quantile = 0.3,
    sample: Annotated[int, typer.Option("--sample", help="Rows that are compared.")] = 2000,
    seed: Annotated[int, typer.Option("--seed", help="Of the sample.")] = 0,
) -> None:
    """Estimate a bandwidth for `cluster`: how far a row's nearest rows reach, a share of all.

    \b
    locdist bandwidth index/ --quantile 0.1
    """
    from locdist.jobs.clustering.bandwidth import estimate_bandwidth

    typer.echo(f"{estimate_bandwidth(index, quantile, sample, seed):.6g}")
