"""`segment`: an image cut into regions of pixels that are near and alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.errors import UsageError
from locdist.jobs.asking.spread import spread
from locdist.jobs.chosen import read_method
from locdist.jobs.clustering.climb import Climb
from locdist.jobs.clustering.merge import Ends, merged, side
from locdist.local.modes import cells, located
from locdist.local.regions import Regions
from locdist.methods.method import ArrayLike, Method
from locdist.methods.moving import mean_shift
from locdist.methods.restored import check_positive, check_truth, check_whole, checked
from locdist.search.exact import Exact

GRAIN, SAMPLE = 0.25, 5_000  # side of the cells of the lattice; pixels that climbs look at
FAR = 2.0**40  # units from 0, where the digits of numbers are about to end


@dataclass(frozen=True)
class Segments:
    """The segments of an image.

    Parameters
    ----------
    labels : array [h, w] int64
        The segment of each pixel, from 0 on, the largest first.
    colors : array [m, c]
        Of each segment: the mean of its pixels' modes.
    sizes : array [m] int64
        Pixels of each.
    """

    labels: NDArray[np.int64]
    colors: NDArray[np.float64]
    sizes: NDArray[np.int64]

    @property
    def image(self) -> NDArray[np.float64]:
        """The image [h, w, c] in which each segment has its color."""
        return self.colors[self.labels]


def segment(
    image: ArrayLike | Tensor,
    method: Method | str | Mapping[str, Any] | None = None,
    *,
    space: float = 8.0,
    color: float = 0.1,
    least: int = 20,
    join: bool = True,
    grain: float = GRAIN,
    sample: int = SAMPLE,
) -> Segments:
    """The segments of an image: pixels that climb to one mode of the density of places and colors.

    Each pixel is a row, its place in units of `space` and its color in units of `color`; the method climbs
    and modes are merged as `cluster` does. Then segments that touch are one where the colors of their modes
    are no farther apart than `color` times the bandwidth, parts that do not hang together are segments of
    their own, and a segment of fewer than `least` pixels goes to the one among those it touches that is
    nearest in color.

    Parameters
    ----------
    image : array [h, w] or [h, w, c]
    method : Method, name or spec, optional
        Any mean shift; by default `ld.mean_shift(1.0, "uniform")`.
    space : float
        Pixels that are one unit of place.
    color : float
        One unit of color, in units of the image.
    least : int
        Pixels of the smallest segment.
    join : bool
        Whether segments that touch and are alike are one. Without it a wide even area is cut into cells of
        about the bandwidth, as its pixels have modes everywhere; and segments may be in several parts.
    grain : float
        As in `cluster`.
    sample : int
        Pixels, from all over the image, whose density is climbed: more are slower and finer.

    Returns
    -------
    Segments

    References
    ----------
    Comaniciu, Meer, *Mean Shift: A Robust Approach Toward Feature Space Analysis*, IEEE PAMI 24, 2002.
    """
    values, _ = checked(image)
    chosen = mean_shift(1.0, "uniform") if method is None else read_method(method)
    cutting = Cutting.of(Climb.of(chosen, grain, sample, None), space, color, least, join)
    if cutting.is_far(values):
        given = f"space={space!r}, color={color!r}, a largest value of {float(values.abs().max()):g}"
        raise UsageError("places and colors within 2^40 units", given, "Make space, or color, larger.")
    (found,) = spread(cutting, [values])
    return Segments(found.labels.numpy(), found.colors.numpy(), found.sizes.numpy())


@dataclass(frozen=True)
class Cutting:
    """How an image is cut; the parameters are those of `segment`."""

    climb: Climb
    space: float
    color: float
    least: int
    join: bool

    @staticmethod
    def of(climb: Climb, space: float, color: float, least: int, join: bool) -> "Cutting":
        """Checked; UsageError for what is no width, count or choice."""
        check_positive("space", space)
        check_positive("color", color)
        check_whole("least", least, 1)
        check_truth("join", join)
        return Cutting(climb, float(space), float(color), least, join)

    def is_far(self, values: Tensor) -> bool:
        """Whether an image lies so many units from 0 that cells of a lattice cannot tell pixels apart."""
        return max(max(values.shape[:2]) / self.space, float(values.abs().max()) / self.color) > FAR

    def __call__(self, values: Tensor) -> Regions:
        """The regions of an image [h, w, c]."""
        place = torch.cartesian_prod(*(torch.arange(size).double() for size in values.shape[:2]))
        rows = torch.cat([place / self.space, values.flatten(0, 1) / self.color], 1)
        modes, mode = _modes(rows, self.climb)
        pixels = self.color * modes[mode, 2:]
        found = Regions.of(mode.reshape(values.shape[:2]), pixels)
        if self.join:
            found = found.connected(pixels, self.color * self.climb.radius)
        return found.absorbed(pixels, self.least)


def _modes(rows: Tensor, climb: Climb) -> tuple[Tensor, Tensor]:
    """Modes [m, d], and that of each row [n]. Some rows from all over the image stand for all of them: every
    so many-th one would be those of a few of its columns.
    """
    shuffled = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    index = Exact(rows[shuffled[: climb.sample]])
    answers = climb(index, rows)
    assert answers.effective is not None
    places = torch.where(answers.values.isfinite().all(1, keepdim=True), answers.values, rows)
    ends = Ends(places, answers.effective, torch.ones(len(rows)).double())
    kept = ends.gathered(climb.radius)
    modes, mode = merged(climb, index, kept, torch.float64)
    own = side(climb.radius)
    return modes.places, mode[located(cells(places, own), cells(kept.places, own))]
