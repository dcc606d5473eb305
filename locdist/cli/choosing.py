"""`select`: which method, and which parameters."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import command, show
from locdist.cli.given import dataset_of
from locdist.errors import UsageError

_TRIED = "Values to try"


def _values(name: str, help: str, short: tuple[str, ...] = (), metavar: str = "V,V,...|LOW..HIGH") -> Any:
    return typer.Option(*short, name, help=help, rich_help_panel=_TRIED, metavar=metavar)


Methods = Annotated[list[str], _values("--method", "Methods to choose among.", ("-m",), "NAME,...")]
Ks = Annotated[
    str | None,
    _values("--k", "Neighbors; by default 8 to 256 by factors of 2, of gwr a search.", ("-k",)),
]
Kernels = Annotated[list[str] | None, _values("--kernel", "Kernels.", metavar="NAME,...")]
Bandwidths = Annotated[
    str | None,
    _values("--bandwidth", "Distances, nearest, nearest:1.5, sample-point:8; of gwr also fixed: a search."),
]
Ridges = Annotated[str | None, _values("--ridge", "Penalties of local slopes.")]
Params = Annotated[
    list[str] | None, _values("--param", "Values of any other parameter.", metavar="NAME=V,V,...")
]
Criterion = Annotated[
    str | None,
    _values("--criterion", "loo (default), log-likelihood, aicc (of gwr), aic, bic or gcv.", metavar="NAME"),
]
SampleSize = Annotated[
    int | None,
    _values("--sample", "Rows of the support that are asked; 2,000, of gwr 20,000.", metavar="N"),
]
Simplest = Annotated[
    bool,
    typer.Option(
        "--simplest", help="Choose the smoothest setting within one standard error of the best.",
        rich_help_panel=_TRIED,
    ),
]  # fmt: skip
Written = Annotated[
    str | None,
    typer.Option("--out", "-o", help="A file for the method, which --method reads.", metavar="FILE.json"),
]
Plotted = Annotated[
    str | None, typer.Option("--plot", help="A picture of the criterion.", metavar="FILE.svg")
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key", help="As in index; without a key SUPPORT is an index.", rich_help_panel="Support",
        metavar="NAME[:X]",
    ),
]  # fmt: skip


@command
def select(
    support: opt.SupportPath,
    method: Methods,
    key: Keys = None,
    features: opt.Features = None,
    target: opt.Target = None,
    weight: opt.Weight = None,
    offset: opt.Offset = None,
    map: opt.Map = None,
    scaling: opt.Scaling = None,
    metric: opt.Metric = "l2",
    bad: opt.Bad = "raise",
    k: Ks = None,
    kernel: Kernels = None,
    bandwidth: Bandwidths = None,
    ridge: Ridges = None,
    param: Params = None,
    criterion: Criterion = None,
    sample: SampleSize = None,
    seed: opt.Seed = 0,
    simplest: Simplest = False,
    out: Written = None,
    plot: Plotted = None,
    json: opt.Json = False,
) -> None:
    """Choose a method by how well it answers rows of the support from the others.

    Searches once, with the largest k. LOW..HIGH in the place of values is searched by golden section.

    \b
    locdist select data/train/ --key lon,lat --target price
        -m local-linear,local-mean --k 16,32,64,128 --kernel tricube,gaussian
    locdist select index/ -m local-linear --k 8..512 --out chosen.json
    locdist select sales/ --key lon,lat --metric haversine --target price
        --features rooms,area -m gwr --out chosen.json
    locdist predict index/ data/new/ --method chosen.json --out pred/
    """
    from locdist.jobs.select import select

    roles = (features, target, None, weight, scaling, metric, map, offset)
    rows = dataset_of(support, key, *roles) if key else support
    found = select(
        opt.names(method), rows, grid=grid_of(k, kernel, bandwidth, ridge, param), criterion=criterion,
        sample=sample, seed=seed, bad=bad,
    )  # fmt: skip
    if out is not None:
        found.write(out, simplest)
    if plot is not None:
        found.plot(plot)
    show(found, json)


def grid_of(
    k: str | None,
    kernel: list[str] | None,
    bandwidth: str | None,
    ridge: str | None,
    param: list[str] | None,
) -> dict[str, Any] | None:
    """Values by parameter; None when none are given."""
    given: dict[str, Any] = {name: _tried(text) for name, text in (("k", k), ("ridge", ridge)) if text}
    if kernel:
        composed = [each for each in kernel if each.startswith("{")]
        plain = [each for each in kernel if not each.startswith("{")]
        given["kernel"] = [*opt.names(plain), *map(opt.value_of, composed)]
    if bandwidth:
        given["bandwidth"] = _tried(bandwidth, lambda text: text if text == "fixed" else opt.bandwidth(text))
    for pair in param or ():
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise UsageError("a parameter as NAME=V,V,...", repr(pair), "Write --param degree=1,2.")
        given[name] = _tried(text)
    return given or None


def _tried(text: str, read: Any = None) -> Any:
    """Values with commas between them, or a range."""
    from locdist.jobs.grid import Between

    if text.startswith("{"):
        return [opt.value_of(text)]
    low, dots, high = text.partition("..")
    if dots:
        ends = [opt.value_of(low), opt.value_of(high)]
        return Between(*ends)
    return [(read or opt.value_of)(each) for each in text.split(",")]
