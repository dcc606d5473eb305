"""`restore`: a method at every image."""

from typing import Annotated, Any

import typer

from locdist.cli import options as opt
from locdist.cli.frame import Job, verb
from locdist.errors import UsageError

_IMAGES = "Images"


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_IMAGES, metavar=metavar)


ImagesPath = Annotated[str, typer.Argument(help="Folder, file or quoted pattern; a row is an image.")]
ImageMethodName = Annotated[
    str,
    _option("--method", "-m", help="nonlocal-means, nonlocal-bayes, bilateral, mean-shift.", metavar="NAME"),
]
Column = Annotated[
    str, _option("--column", help="The images: lists of rows of pixels, numbers or lists of numbers.")
]
Shape = Annotated[
    str | None, _option("--shape", help="Of images written as flat vectors, tensors too.", metavar="H,W[,C]")
]


@verb
def restore(
    job: Job,
    images: ImagesPath,
    out: opt.Out,
    method: ImageMethodName = "nonlocal-means",
    param: opt.Param = None,
    column: Column = "image",
    shape: Shape = None,
    keep: opt.Keep = None,
    limit: opt.Limit = None,
    max_bad: opt.MaxBad = None,
) -> None:
    """Restore images: denoise, smooth or segment every one. Sizes may differ.

    Writes `restored_COLUMN` and a status for each. `locdist methods` lists the parameters.

    \b
    locdist restore scans/ -m nonlocal-means --param h=15 --param sigma=25
        --keep id --out clean/
    locdist restore digits/ -m bilateral --param window=5 --column pixels
        --shape 28,28 --out smooth/
    """
    from locdist.jobs.restore import restore
    from locdist.jobs.restoring.planned import plan_restore

    spec = {"name": method, **opt.parameters(param)}
    chosen: dict[str, Any] = {
        "column": column,
        "shape": _sizes(shape),
        "keep": opt.keep(keep),
        "limit": limit,
    }
    job.carry_out((restore, plan_restore), (spec, images, out), chosen, max_bad)


def _sizes(text: str | None) -> list[int] | None:
    """Height, width and perhaps channels."""
    if text is None:
        return None
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        remedy = "Write --shape 28,28 or --shape 32,32,3."
        raise UsageError("whole numbers with commas between them", repr(text), remedy) from None
