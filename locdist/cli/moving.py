"""`move`: the rows of a support, layer after layer."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import Job, verb
from locdist.cli.given import dataset_of, parameters_of

LayeredName = Annotated[
    str,
    typer.Option(
        "--method", "-m", help="blurring-mean-shift, denoise-manifold, or stack.", rich_help_panel="Method",
        metavar="NAME",
    ),
]  # fmt: skip


@verb
def move(
    job: Job,
    support: opt.SupportPath,
    key: opt.Key,
    out: opt.Out,
    method: LayeredName,
    target: opt.Target = None,
    id: opt.Id = None,
    weight: opt.Weight = None,
    scaling: opt.Scaling = None,
    metric: opt.Metric = "l2",
    map: opt.Map = None,
    codes: opt.Codes = None,
    bad: opt.Bad = "raise",
    k: opt.NeighborsOrAll = None,
    kernel: opt.KernelName = None,
    bandwidth: opt.Bandwidth = None,
    param: opt.Param = None,
    recall: opt.Recall = 0.99,
    keep: opt.Keep = None,
    max_bad: opt.MaxBad = None,
) -> None:
    """Move rows together, layer after layer: blurring mean shift, denoising, stacks of local models.

    \b
    locdist move scans/ --key x,y,z -m denoise-manifold -k 30
        --param components=2 --out clean/
    locdist move stars/ --key x,y -m blurring-mean-shift --bandwidth 0.5
        --out groups/
    """
    from locdist.jobs.layers.planned import plan_move
    from locdist.jobs.move import move

    spec = {"name": method, **parameters_of(k, kernel, bandwidth, None, param)}
    rows = dataset_of(support, key, None, target, id, weight, scaling, metric, map)
    chosen: dict[str, Any] = {"keep": opt.keep(keep), "bad": bad, "recall": recall, "codes": codes}
    job.carry_out((move, plan_move), (spec, rows, out), chosen, max_bad)
