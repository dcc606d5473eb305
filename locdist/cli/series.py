"""`forecast`: what follows series, and `backtest`: how well that would have been known before."""

import shlex
from json import dumps
from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.choosing import Params, grid_of
from locdist.cli.frame import Job, command, show, verb
from locdist.cli.given import parameters_of

_SERIES = "Series"


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_SERIES, metavar=metavar)


SeriesPath = Annotated[str, typer.Argument(help="Folder, file or quoted pattern of the rows of all series.")]
Values = Annotated[str, _option("--target", help="The column of the values.", metavar="NAME")]
Time = Annotated[
    str | None,
    _option("--time", help="The column that orders rows; else they are in order.", metavar="NAME"),
]
SeriesId = Annotated[
    str | None, _option("--id", help="The column that names a row's series; one by default.", metavar="NAME")
]
Steps = Annotated[int, _option("--steps", help="How far.", metavar="N")]
Order = Annotated[int, _option("--order", help="Values of the past that are compared.", metavar="N")]
Lag = Annotated[int, _option("--lag", help="Steps from one of them to the next.", metavar="N")]
Direct = Annotated[bool, _option("--direct", help="Every step from what is known, without a free run.")]
_TRIED = "Values to try"


def _values(*names: str, help: str, metavar: str = "V,V,...") -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_TRIED, metavar=metavar)


Orders = Annotated[str | None, _values("--order", help="Values of the past that are compared; 8.")]
Lags = Annotated[str | None, _values("--lag", help="Steps from one of them to the next; 1.")]
Ks = Annotated[str | None, _values("--k", "-k", help="Neighbors.")]
Kernels = Annotated[list[str] | None, _values("--kernel", help="Kernels.", metavar="NAME,...")]
Bandwidths = Annotated[str | None, _values("--bandwidth", help="Distances, nearest or nearest:1.5.")]
Ridges = Annotated[str | None, _values("--ridge", help="Penalties of local slopes.")]
Origins = Annotated[int, _option("--origins", help="Times of each series to forecast from.", metavar="N")]
OnlyPast = Annotated[
    bool, _option("--past", help="Nothing after a time is known; else only the steps are hidden.")
]
SeriesName = Annotated[str, typer.Option("--method", "-m", help="local-ar.", metavar="NAME")]


@verb
def forecast(
    job: Job,
    series: SeriesPath,
    target: Values,
    steps: Steps,
    out: opt.Out,
    time: Time = None,
    id: SeriesId = None,
    method: SeriesName = "local-ar",
    order: Order = 8,
    lag: Lag = 1,
    direct: Direct = False,
    k: opt.Neighbors = None,
    kernel: opt.KernelName = None,
    bandwidth: opt.Bandwidth = None,
    ridge: opt.Ridge = None,
    param: opt.Param = None,
) -> None:
    """Forecast series by local models of their own past.

    \b
    locdist forecast loads/ --target load --time hour --id meter --steps 24
        --order 48 -k 32 --out next-day/
    locdist forecast laser.parquet --target intensity --steps 100 --order 25
        --param model=local-mean --out free-run/
    """
    from locdist.jobs.forecast import forecast
    from locdist.jobs.series.planned import plan_forecast

    given = parameters_of(None if k is None else str(k), kernel, bandwidth, ridge, param)
    spec = {"name": method, "order": order, "lag": lag, "direct": direct, **given}
    chosen: dict[str, Any] = {"steps": steps, "target": target, "time": time, "id": id}
    job.carry_out((forecast, plan_forecast), (spec, series, out), chosen)


@command
def backtest(
    series: SeriesPath,
    target: Values,
    steps: Steps,
    time: Time = None,
    id: SeriesId = None,
    method: SeriesName = "local-ar",
    origins: Origins = 24,
    past: OnlyPast = False,
    direct: Direct = False,
    order: Orders = None,
    lag: Lags = None,
    k: Ks = None,
    kernel: Kernels = None,
    bandwidth: Bandwidths = None,
    ridge: Ridges = None,
    param: Params = None,
    json: opt.Json = False,
) -> None:
    """Say how well settings would have forecast stretches of the series that are hidden from them.

    From some times of each series on; the errors are in variances of the series: 1 is as good as its mean.
    All values are held in memory.

    \b
    locdist backtest loads/ --target load --time hour --id meter --steps 24
        --order 12,24,48 -k 16,32
    locdist backtest laser.parquet --target intensity --steps 100
        --order 16,32 --param model=local-linear,local-gp --past
    locdist forecast loads/ --target load --time hour --id meter --steps 24
        --order 24 -k 32 --out next-day/
    """
    from locdist.jobs.backtest import backtest
    from locdist.jobs.telling.backtest import flat

    given = {"order": order, "lag": lag}
    tried = [f"{name}={values}" for name, values in given.items() if values is not None]
    grid = grid_of(k, kernel, bandwidth, ridge, [*(param or ()), *tried]) or {}
    roles: dict[str, Any] = {"target": target, "time": time, "id": id}
    found = backtest(
        {"name": method, "direct": direct},
        series,
        steps=steps,
        origins=origins,
        past=past,
        grid=grid,
        **roles,
    )
    show(found, json)
    if not json:
        best = flat(found.best)
        words = [
            *_words(roles | {"steps": steps}),
            *_words({name: best[name] for name in grid if name in best}),
        ]
        words += ["--direct"] * direct
        typer.echo(f"the first: locdist forecast {shlex.quote(series)} {' '.join(words)} --out DIR")


def _words(chosen: dict[str, Any]) -> list[str]:
    """Options of `forecast` that say what was chosen."""
    own = ("target", "time", "id", "steps", "order", "lag", "kernel", "bandwidth", "ridge")
    flags = {"k": "-k "} | {name: f"--{name} " for name in own}
    told = {
        name: value if isinstance(value, str) else dumps(value)
        for name, value in chosen.items()
        if value is not None
    }
    return [
        flags[name] + shlex.quote(text) if name in flags else "--param " + shlex.quote(f"{name}={text}")
        for name, text in told.items()
    ]
