"""`move`: the rows of a support, layer after layer."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import carry_out, command, running

LayeredName = Annotated[
    str,
    typer.Option(
        "--method", "-m", help="blurring-mean-shift, denoise-manifold, or stack.", rich_help_panel="Method",
        metavar="NAME",
    ),
]  # fmt: skip


@command
def move(
    context: typer.Context,
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
    executor: opt.ExecutorName = "local",
    address: opt.Address = None,
    workers: opt.Workers = None,
    processes: opt.Processes = False,
    resources: opt.ResourcesOf = None,
    overwrite: opt.Overwrite = False,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Move rows together, layer after layer: blurring mean shift, denoising, stacks of local models.

    \b
    locdist move scans/ --key x,y,z -m denoise-manifold -k 30
        --param components=2 --out clean/
    locdist move stars/ --key x,y -m blurring-mean-shift --bandwidth 0.5
        --out groups/
    """
    from locdist.cli.commands import _dataset
    from locdist.jobs.layers.planned import plan_move
    from locdist.jobs.move import move

    width = None if bandwidth is None else opt.bandwidth(bandwidth)
    given = {"kernel": None if kernel is None else opt.value_of(kernel), "bandwidth": width}
    named = {name: value for name, value in given.items() if value is not None}
    named |= {} if k is None else {"k": opt.neighbors(k)}
    spec = {"name": method, **named, **opt.parameters(param)}
    rows = _dataset(support, key, None, target, id, weight, scaling, metric, map)
    chosen: dict[str, Any] = {"keep": opt.keep(keep), "bad": bad, "recall": recall, "codes": codes}
    chosen |= {"overwrite": overwrite}
    run = running(executor, address, workers, processes, resources, quiet)
    run |= {"max_bad": opt.max_bad(max_bad)}
    carry_out(context, json, (move, plan_move), (spec, rows, out), chosen, run)
