"""`couple` and `apply`: models at the nodes of a graph, and what they say of new rows."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import Job, verb
from locdist.cli.given import dataset_of
from locdist.errors import UsageError

_NODES = "Nodes"
RowsPath = Annotated[str, typer.Argument(help="Folder, file or quoted pattern of the rows of all nodes.")]
_EDGES = (
    "A table with an edge a row, or the folder that `locdist graph` wrote; of dem-learn a table with a "
    "device a row, and its group at each level. None of logifold."
)
EdgesPath = Annotated[str | None, typer.Argument(help=_EDGES)]
Node = Annotated[
    str | None,
    typer.Option(
        "--node", help="The column that names the node, device or chart of a row; charts may be drawn.",
        rich_help_panel=_NODES, metavar="NAME",
    ),
]  # fmt: skip
Target = Annotated[str, typer.Option("--target", help="The column that is predicted.", metavar="NAME")]
Ends = Annotated[
    list[str] | None,
    typer.Option(
        "--ends", rich_help_panel=_NODES, metavar="NAMES",
        help="Columns of an edge: both nodes, and its weight; source,target,weight by default. Of dem-learn "
        "the device, and each level.",
    ),
]  # fmt: skip
Shared = Annotated[
    str | None,
    typer.Option(
        "--shared", help="Folder, file or quoted pattern of rows that nodes of fed-relax agree on.",
        rich_help_panel=_NODES, metavar="ROWS",
    ),
]  # fmt: skip
Coupled = Annotated[
    str, typer.Option("--method", "-m", help="gtvmin, dem-learn, fed-relax or logifold.", metavar="NAME")
]
Again = Annotated[
    str | None,
    typer.Option(
        "--method", "-m", metavar="NAME",
        help="fed-relax or logifold, with the --param that `couple` had: a folder names no code.",
    ),
]  # fmt: skip
ModelsPath = Annotated[str, typer.Argument(help="The folder that `locdist couple` wrote.")]


@verb
def couple(
    job: Job,
    rows: RowsPath,
    key: opt.Key,
    target: Target,
    out: opt.Out,
    edges: EdgesPath = None,
    node: Node = None,
    method: Coupled = "gtvmin",
    param: opt.Param = None,
    ends: Ends = None,
    shared: Shared = None,
    weight: opt.Weight = None,
    scaling: opt.Scaling = None,
    bad: opt.Bad = "raise",
) -> None:
    """Fit a model at each node of a graph, drawn to those of its neighbors.

    \b
    locdist couple readings/ edges.parquet --key wind,hour --target power
        --node turbine -m gtvmin --param strength=2 --out models/
    locdist apply models/ new/ --out predictions/

    Groups of devices: a table with a device a row.

    \b
    locdist couple readings/ groups.parquet --key wind,hour
        --target power --node turbine --ends turbine,park,region
        -m dem-learn --param mu=5 --out models/

    Any estimator that can be imported, with its own parameters; `apply` is
    told it again.

    \b
    locdist couple readings/ edges.parquet --key wind,hour --target power
        --node turbine --shared common.parquet -m fed-relax
        --param estimator=sklearn.tree.DecisionTreeRegressor
        --param max_depth=4 --out trees/

    Charts of classifiers, without edges: each is fitted on its part.

    \b
    locdist couple plants/ --key petals --target species -m logifold
        --param estimator=sklearn.linear_model.LogisticRegression
        --param charts=8 --param holdout=0.2 --out charts/
    """
    from locdist.jobs.couple import couple
    from locdist.jobs.coupling.planned import plan_couple

    support = dataset_of(rows, key, None, [target], node, weight, scaling, "l2")
    spec = {"name": method, **opt.parameters(param)}
    chosen: dict[str, Any] = {"ends": opt.names(ends) or None, "shared": shared, "bad": bad}
    job.carry_out((couple, plan_couple), (spec, support, edges, out), chosen)


@verb
def apply(
    job: Job,
    models: ModelsPath,
    queries: opt.QueriesPath,
    out: opt.Out,
    method: Again = None,
    param: opt.Param = None,
    keep: opt.Keep = None,
    limit: opt.Limit = None,
    max_bad: opt.MaxBad = None,
) -> None:
    """Predict new rows, each by the model of its node, or by the charts that are certain.

    \b
    locdist apply models/ new/ --keep turbine,hour --out predictions/
    locdist apply trees/ new/ -m fed-relax --param max_depth=4
        --param estimator=sklearn.tree.DecisionTreeRegressor
        --out predictions/
    """
    from locdist.jobs.apply import apply
    from locdist.jobs.coupling.planned import plan_apply

    if param and method is None:
        raise UsageError("the method that has these parameters", "none", "Name it (-m).")
    spec = None if method is None else {"name": method, **opt.parameters(param)}
    chosen: dict[str, Any] = {"method": spec, "keep": opt.keep(keep), "limit": limit}
    job.carry_out((apply, plan_apply), (models, queries, out), chosen, max_bad)
