"""`backfit`: sums of local models at sites, each with a bandwidth of its own."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import Job, verb
from locdist.cli.given import dataset_of, parameters_of

Backfitting = Annotated[str, typer.Option("--method", "-m", help="mgwr.", metavar="NAME")]


@verb
def backfit(
    job: Job,
    support: opt.SupportPath,
    key: opt.Key,
    features: opt.Features,
    target: opt.Target,
    out: opt.Out,
    method: Backfitting = "mgwr",
    id: opt.Id = None,
    scaling: opt.Scaling = None,
    metric: opt.Metric = "l2",
    kernel: opt.KernelName = None,
    bandwidth: opt.Bandwidth = None,
    param: opt.Param = None,
    bad: opt.Bad = "raise",
    keep: opt.Keep = None,
    max_bad: opt.MaxBad = None,
) -> None:
    """Fit multiscale geographically weighted regression: a bandwidth for each term.

    \b
    locdist backfit counties/ --key east,north --scaling key=none
        --features income,rural --target graduates --out scales/
    locdist backfit counties/ --key lon,lat --metric haversine
        --features income,rural --target graduates --bandwidth fixed
        --out scales/
    """
    from locdist.jobs.backfit import backfit
    from locdist.jobs.scales.planned import plan_backfit

    widths = {} if bandwidth is None else {"bandwidth": bandwidth}
    spec = {"name": method, **parameters_of(None, kernel, None, None, param), **widths}
    rows = dataset_of(support, key, features, target, id, None, scaling, metric)
    chosen: dict[str, Any] = {"keep": opt.keep(keep), "bad": bad}
    job.carry_out((backfit, plan_backfit), (spec, rows, out), chosen, max_bad)
