"""`tune`: a metric, the parameters of a method, and its intervals. `rules`: a table of fuzzy rules."""

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
Counts = Annotated[
    list[int] | None,
    typer.Option("--rules", help="How many, 16; repeat it.", rich_help_panel=_TRIED, metavar="N"),
]
Memberships = Annotated[
    list[str] | None,
    typer.Option(
        "--membership", help="gaussian, triangular, trapezoid or bell: one, or of each column of the key.",
        rich_help_panel=_TRIED, metavar="NAME,...",
    ),
]  # fmt: skip
Norm = Annotated[str, typer.Option("--tnorm", help="product or min.", rich_help_panel=_TRIED)]
Order = Annotated[
    int, typer.Option("--order", help="Of what rules say: 0 a number, 1 affine.", rich_help_panel=_TRIED)
]
RuleSteps = Annotated[
    list[int] | None,
    typer.Option("--steps", help="Of the gradient, 100; repeat it.", rich_help_panel=_TRIED, metavar="N"),
]
Ridges = Annotated[
    list[float] | None,
    typer.Option("--ridge", help="Of what rules say, 1e-8; repeat it.", rich_help_panel=_TRIED, metavar="X"),
]
Table = Annotated[str, typer.Option("--out", "-o", help="The table of rules.", metavar="FILE.parquet|.csv")]
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


@command
def rules(
    support: opt.SupportPath,
    key: opt.Key,
    target: Target,
    out: Table,
    rules: Counts = None,
    membership: Memberships = None,
    tnorm: Norm = "product",
    order: Order = 1,
    steps: RuleSteps = None,
    ridge: Ridges = None,
    sample: SampleRows = 20_000,
    seed: opt.Seed = 0,
    bad: opt.Bad = "raise",
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Learn a table of fuzzy rules: clusters, least squares, and the gradient (ANFIS).

    Every combination of numbers is judged by rows that are held back.

    \b
    locdist rules data/train/ --key speed,slope --target brake
        --rules 8 --rules 16 --out rules.parquet
    locdist index rules.parquet --key speed,slope --target brake
        --shape speed_width,slope_width,brake_by_speed,brake_by_slope
        --out base/
    locdist predict base/ data/new/ --method fuzzy-inference
        --param order=1 --out pred/
    """
    from locdist.jobs.rules import learn_rules

    rows = dataset_of(support, key, None, [target], None, None, None, "l2")
    forms = opt.names(membership) or ["gaussian"]
    found = learn_rules(
        rows, out, rules=rules or 16, membership=forms[0] if len(forms) == 1 else forms, tnorm=tnorm,
        order=order, steps=steps or 100, ridge=ridge or 1e-8, sample=sample, seed=seed, bad=bad,
        listener=listening(quiet),
    )  # fmt: skip
    show(found, json)
