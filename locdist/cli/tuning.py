"""`tune`: a metric, the parameters of a method, and its intervals."""

from typing import Annotated

import typer

from locdist.cli import options as opt
from locdist.cli.frame import command, listening, show
from locdist.cli.given import dataset_of

_TRIED = "Candidates"
LearnedMethod = Annotated[
    str,
    typer.Option(
        "--method", "-m", help="local-gp, local-linear, local-mean or local-vote.", rich_help_panel=_TRIED,
        metavar="NAME",
    ),
]  # fmt: skip
Covariances = Annotated[
    list[str] | None,
    typer.Option(
        "--covariance", help="Of local-gp; matern32 and mix by default.", rich_help_panel=_TRIED,
        metavar="NAME,...",
    ),
]  # fmt: skip
Ranks = Annotated[
    list[int] | None,
    typer.Option(
        "--rank", help="Directions besides a scale for each column; repeat it. 0, of many rows also 4.",
        rich_help_panel=_TRIED, metavar="N",
    ),
]  # fmt: skip
Steps = Annotated[
    list[int] | None,
    typer.Option("--steps", help="Of the gradient, 300; repeat it.", rich_help_panel=_TRIED, metavar="N"),
]
SampleRows = Annotated[
    int, typer.Option("--sample", help="Rows of the support to learn from, at most.", rich_help_panel=_TRIED)
]
Written = Annotated[
    str, typer.Option("--out", "-o", help="A file, for --map and --method.", metavar="FILE.json")
]
Target = Annotated[str, typer.Option("--target", help="What is predicted.", rich_help_panel="Support")]


@command
def tune(
    support: opt.SupportPath,
    key: opt.Key,
    target: Target,
    out: Written,
    scaling: opt.Scaling = None,
    method: LearnedMethod = "local-gp",
    k: opt.Neighbors = None,
    covariance: Covariances = None,
    rank: Ranks = None,
    steps: Steps = None,
    sample: SampleRows = 50_000,
    seed: opt.Seed = 0,
    bad: opt.Bad = "raise",
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Learn which columns of the key count how much, the parameters of a method, and intervals.

    Every candidate is judged by what it says of rows of the support from the others.

    \b
    locdist tune data/train/ --key longitude,latitude,rooms --target price
        --out tuned.json
    locdist index data/train/ --key longitude,latitude,rooms
        --target price --map tuned.json --out index/
    locdist predict index/ data/new/ --method tuned.json
        --extras interval --out pred/
    """
    from locdist.jobs.tune import tune
    from locdist.local.learn import STEPS

    rows = dataset_of(support, key, None, [target], None, None, scaling, "l2")
    found = tune(
        rows, out, method=method, k=k, covariance=opt.names(covariance) or None, rank=rank,
        steps=steps or STEPS, sample=sample, seed=seed, bad=bad, listener=listening(quiet),
    )  # fmt: skip
    show(found, json)
