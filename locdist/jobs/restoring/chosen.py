"""The methods of `restore`: those of images, and segments as an image."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from locdist.jobs.clustering.climb import Climb
from locdist.jobs.segment import GRAIN, SAMPLE, Cutting
from locdist.methods.moving import mean_shift
from locdist.methods.restored import IMAGE_METHODS, ImageMethod
from locdist.methods.spelled import spelled

_HELD = 1024  # bytes of a number, of climbs over the sample besides


@dataclass(frozen=True)
class MeanShift(ImageMethod):
    """Segments by mean shift: every pixel has the color of its segment.

    Parameters
    ----------
    space, color, least, join
        As in `segment`.
    """

    space: float = 8.0
    color: float = 0.1
    least: int = 20
    join: bool = True
    name: ClassVar[str] = "mean-shift"

    def __post_init__(self) -> None:
        _ = self._cutting  # checks

    @property
    def side(self) -> int:
        return 1

    @property
    def looks(self) -> int:
        return SAMPLE

    def memory(self, numbers: int) -> int:
        return _HELD * numbers

    def restored(self, values: Tensor) -> Tensor:
        if self._cutting.is_far(values):
            return torch.full_like(values, float("nan"))
        found = self._cutting(values)
        return found.colors[found.labels]

    @property
    def _cutting(self) -> Cutting:
        climb = Climb.of(mean_shift(1.0, "uniform"), GRAIN, SAMPLE, None)
        return Cutting.of(climb, self.space, self.color, self.least, self.join)


RESTORE_METHODS: Mapping[str, Callable[..., ImageMethod]] = {**IMAGE_METHODS, MeanShift.name: MeanShift}


def restore_method(choice: ImageMethod | str | Mapping[str, Any]) -> ImageMethod:
    """A method by its name, or by its name and parameters: {"name": "bilateral", "window": 9}."""
    return (
        choice if isinstance(choice, ImageMethod) else spelled(choice, RESTORE_METHODS, "a method of images")
    )
