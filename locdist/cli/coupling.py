"""`couple` and `apply`: models at the nodes of a graph, and what they say of new rows."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import Job, verb
from locdist.cli.given import dataset_of

_NODES = "Nodes"
RowsPath = Annotated[str, typer.Argument(help="Folder, file or quoted pattern of the rows of all nodes.")]
EdgesPath = Annotated[
    str, typer.Argument(help="A table with an edge a row, or the folder that `locdist graph` wrote.")
]
Node = Annotated[
    str,
    typer.Option(
        "--node", help="The column that names the node of a row.", rich_help_panel=_NODES, metavar="NAME"
    ),
]
Target = Annotated[str, typer.Option("--target", help="The column that is predicted.", metavar="NAME")]
Ends = Annotated[
    list[str] | None,
    typer.Option(
        "--ends", help="Columns of an edge: both nodes, and its weight; source,target,weight by default.",
        rich_help_panel=_NODES, metavar="NAMES",
    ),
]  # fmt: skip
Coupled = Annotated[str, typer.Option("--method", "-m", help="gtvmin.", metavar="NAME")]
ModelsPath = Annotated[str, typer.Argument(help="The folder that `locdist couple` wrote.")]


@verb
def couple(
    job: Job,
    rows: RowsPath,
    edges: EdgesPath,
    key: opt.Key,
    node: Node,
    target: Target,
    out: opt.Out,
    method: Coupled = "gtvmin",
    param: opt.Param = None,
    ends: Ends = None,
    weight: opt.Weight = None,
    scaling: opt.Scaling = None,
    bad: opt.Bad = "raise",
) -> None:
    """Fit a model at each node of a graph, drawn to those of its neighbors.

    \b
    locdist couple readings/ edges.parquet --key wind,hour --target power
        --node turbine -m gtvmin --param strength=2 --out models/
    locdist apply models/ new/ --out predictions/
    """
    from locdist.jobs.couple import couple
    from locdist.jobs.coupling.planned import plan_couple

    support = dataset_of(rows, key, None, [target], node, weight, scaling, "l2")
    spec = {"name": method, **opt.parameters(param)}
    chosen: dict[str, Any] = {"ends": opt.names(ends) or None, "bad": bad}
    job.carry_out((couple, plan_couple), (spec, support, edges, out), chosen)


@verb
def apply(
    job: Job,
    models: ModelsPath,
    queries: opt.QueriesPath,
    out: opt.Out,
    keep: opt.Keep = None,
    limit: opt.Limit = None,
    max_bad: opt.MaxBad = None,
) -> None:
    """Predict new rows, each by the model of its node.

    \b
    locdist apply models/ new/ --keep turbine,hour --out predictions/
    """
    from locdist.jobs.apply import apply
    from locdist.jobs.coupling.planned import plan_apply

    chosen: dict[str, Any] = {"keep": opt.keep(keep), "limit": limit}
    job.carry_out((apply, plan_apply), (models, queries, out), chosen, max_bad)
