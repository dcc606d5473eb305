"""`forecast`: what follows series."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import Job, verb
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
