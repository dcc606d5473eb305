"""`graph`, `label`, `embed` and `place`: who is a neighbor of whom, and what is made of it."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.choosing import Keys
from locdist.cli.frame import Job, verb
from locdist.cli.given import dataset_of, method_of

_EDGES = "Edges"


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_EDGES, metavar=metavar)


Most = Annotated[int | None, _option("-k", help="Neighbors of a row: 15, or all in the radius.", metavar="N")]
Radius = Annotated[float | None, _option("--radius", help="No neighbors farther away than this.")]
Kernel = Annotated[
    str | None, _option("--kernel", help="What an edge weighs: gaussian, ...; 1 by default.", metavar="NAME")
]
Weighing = Annotated[
    str | None,
    _option("--method", "-m", help="Weights are those of a linear smoother: barycenter, ...", metavar="NAME"),
]
Symmetrize = Annotated[
    str | None,
    _option("--symmetrize", help="union, mutual or mean: edges lead both ways, with one weight."),
]

GraphPath = Annotated[str, typer.Argument(help="The folder that `locdist graph` wrote.")]
LabelsPath = Annotated[str, typer.Argument(help="Folder, file or quoted pattern of the known labels.")]
Targets = Annotated[
    list[str],
    typer.Option("--target", help="The column of the classes, or columns of shares.", metavar="NAME"),
]
LabelsId = Annotated[
    str | None,
    typer.Option("--id", help="The column of the labels that names a node; else a row each, in order."),
]
Spreading = Annotated[
    str,
    typer.Option(
        "--method", "-m", help="label-propagation, label-spreading, relaxation-labeling, poisson-learning.",
        metavar="NAME",
    ),
]  # fmt: skip
Partitioned = Annotated[
    bool | None,
    typer.Option("--partitioned/--whole", help="Sweep partitions apart; where one worker is too small."),
]

Embedding = Annotated[
    str,
    typer.Option("--method", "-m", help="lle, spectral, lazy-map or lazy-autoencoder.", metavar="NAME"),
]
EmbeddingPath = Annotated[str, typer.Argument(help="The folder that `locdist embed` wrote.")]


@verb
def graph(
    job: Job,
    support: opt.SupportPath,
    out: opt.Out,
    key: Keys = None,
    id: opt.Id = None,
    weight: opt.Weight = None,
    scaling: opt.Scaling = None,
    metric: opt.Metric = "l2",
    map: opt.Map = None,
    k: Most = None,
    radius: Radius = None,
    kernel: Kernel = None,
    bandwidth: opt.Bandwidth = None,
    method: Weighing = None,
    param: opt.Param = None,
    symmetrize: Symmetrize = None,
    codes: opt.Codes = None,
    bad: opt.Bad = "raise",
    recall: opt.RecallOfRun = None,
) -> None:
    """Make the graph of neighbors among the rows of a support; indexes it first.

    \b
    locdist graph data/train/ --key lon,lat -k 15 --out graph/
    locdist graph data/train/ --key embedding -k 15 --kernel gaussian
        --bandwidth 0.5 --symmetrize mean --out graph/
    locdist graph index/ -m barycenter --param k=12 --out graph/
    """
    from locdist.jobs.graph import graph
    from locdist.jobs.network_plans import plan_graph

    rows = dataset_of(support, key, None, None, id, weight, scaling, metric, map) if key else support
    width = None if bandwidth is None else opt.bandwidth(bandwidth)
    spec = None if method is None else method_of(method, None, None, None, None, param)
    chosen: dict[str, Any] = {"k": k, "radius": radius, "kernel": kernel, "bandwidth": width, "method": spec}
    chosen |= {"symmetrize": symmetrize, "codes": codes, "bad": bad, "recall": recall}
    job.carry_out((graph, plan_graph), (rows, out), chosen)


@verb
def label(
    job: Job,
    graph: GraphPath,
    labels: LabelsPath,
    out: opt.Out,
    target: Targets,
    id: LabelsId = None,
    method: Spreading = "label-propagation",
    param: opt.Param = None,
    partitioned: Partitioned = None,
) -> None:
    """Spread the labels of some nodes of a graph to all.

    \b
    locdist label graph/ data/train/ --target species --out labels/
    locdist label graph/ known.parquet --target species --id plant
        -m label-spreading --param alpha=0.5 --out labels/
    """
    from locdist.jobs.label import label
    from locdist.jobs.network_plans import plan_label

    spec = {"name": method, **opt.parameters(param)}
    chosen: dict[str, Any] = {"target": opt.names(target), "id": id, "partitioned": partitioned}
    given = (spec, graph, labels, out)
    job.carry_out((label, plan_label), given, chosen)


@verb
def embed(
    job: Job,
    support: opt.SupportPath,
    key: opt.Key,
    out: opt.Out,
    id: opt.Id = None,
    weight: opt.Weight = None,
    scaling: opt.Scaling = None,
    metric: opt.Metric = "l2",
    map: opt.Map = None,
    method: Embedding = "lle",
    k: opt.Neighbors = None,
    param: opt.Param = None,
    codes: opt.Codes = None,
    bad: opt.Bad = "raise",
    recall: opt.Recall = 0.99,
) -> None:
    """Find coordinates in which neighbors stay neighbors; makes the graph first.

    \b
    locdist embed data/train/ --key x,y,z -m lle -k 12 --out embedding/
    locdist embed data/train/ --key embedding -m spectral
        --param components=3 --out embedding/
    locdist embed data/sample/ --key x,y,z -m lazy-autoencoder
        --out codes/
    """
    from locdist.jobs.embed import embed
    from locdist.jobs.network_plans import plan_embed

    rows = dataset_of(support, key, None, None, id, weight, scaling, metric, map)
    spec = {"name": method, **({} if k is None else {"k": k}), **opt.parameters(param)}
    chosen: dict[str, Any] = {"codes": codes, "bad": bad, "recall": recall}
    job.carry_out((embed, plan_embed), (spec, rows, out), chosen)


@verb
def place(
    job: Job,
    embedding: EmbeddingPath,
    queries: opt.QueriesPath,
    out: opt.Out,
    recall: opt.RecallOfRun = None,
    keep: opt.Keep = None,
    limit: opt.Limit = None,
    max_bad: opt.MaxBad = None,
) -> None:
    """Place new rows in an embedding, by their neighbors.

    With codes of a lazy autoencoder also what these tell of each row:
    columns "reconstructed_NAME", where gaps in the row are filled.

    \b
    locdist place embedding/ data/new/ --out placed/
    """
    from locdist.jobs.embed import place
    from locdist.jobs.network_plans import plan_place

    chosen: dict[str, Any] = {"keep": opt.keep(keep), "recall": recall}
    chosen |= {"limit": limit}
    job.carry_out((place, plan_place), (embedding, queries, out), chosen, max_bad)
