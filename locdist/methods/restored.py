"""Methods that make an image of an image: what `ld.restore` runs, and the functions of `methods.images`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.errors import UsageError
from locdist.local import images
from locdist.methods.method import ArrayLike, plain

Image = NDArray[np.float64]
_HELD = 384  # bytes of a number: its copies in Arrow and in tensors, measured
_COLORS = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]], dtype=torch.float64)


@dataclass(frozen=True)
class ImageMethod(ABC):
    """A frozen choice of what makes an image of an image, under a registered name."""

    name: ClassVar[str]

    @property
    def spec(self) -> dict[str, Any]:
        """JSON: the name and the parameters; `restore_method(spec)` makes it again."""
        return {"name": self.name, **{name: _told(value) for name, value in asdict(self).items()}}

    @property
    @abstractmethod
    def side(self) -> int:
        """Pixels of the smallest side of an image."""

    @property
    @abstractmethod
    def looks(self) -> int:
        """Pixels that each one is compared with, for predicting time."""

    def memory(self, numbers: int) -> int:
        """Bytes that an image of so many numbers takes at most, read, worked on and written."""
        return _HELD * numbers

    @abstractmethod
    def restored(self, values: Tensor) -> Tensor:
        """The image [h, w, c] that is made of another one, in double precision."""

    def __call__(self, image: ArrayLike | Tensor) -> Image:
        """What is made of an image [h, w] or [h, w, c], in its shape; UsageError for what is none."""
        values, shape = checked(image)
        if min(values.shape[:2]) < self.side:
            wanted = f"an image of at least {self.side} x {self.side} pixels"
            raise UsageError(wanted, f"shape {list(shape)}", "Make patch, or window, smaller.")
        return self.restored(values).reshape(shape).numpy()


@dataclass(frozen=True)
class NonlocalMeans(ImageMethod):
    """Non-local means: every pixel is the mean of those in a window whose surroundings look alike.

    Parameters
    ----------
    h, patch, distance, sigma
        As in `nonlocal_means`.
    """

    h: float = 0.1
    patch: int = 7
    distance: int = 11
    sigma: float = 0.0
    name: ClassVar[str] = "nonlocal-means"

    def __post_init__(self) -> None:
        check_odd("patch", self.patch)
        check_positive("h", self.h)
        check_whole("distance", self.distance, 1)
        if self.sigma != 0:
            check_positive("sigma", self.sigma)

    @property
    def side(self) -> int:
        return self.patch // 2 + 1

    @property
    def looks(self) -> int:
        return (2 * self.distance + 1) ** 2 // 2

    def restored(self, values: Tensor) -> Tensor:
        return images.alike(values, self.patch, self.distance, self.sigma, self.h)


@dataclass(frozen=True)
class Bilateral(ImageMethod):
    """The bilateral filter: every pixel is the mean of those that are near and alike.

    Parameters
    ----------
    window, sigma_color, sigma_space
        As in `bilateral`.
    """

    window: int = 7
    sigma_color: float = 0.1
    sigma_space: float = 2.0
    name: ClassVar[str] = "bilateral"

    def __post_init__(self) -> None:
        check_odd("window", self.window)
        check_positive("sigma_color", self.sigma_color)
        check_positive("sigma_space", self.sigma_space)

    @property
    def side(self) -> int:
        return self.window // 2 + 1

    @property
    def looks(self) -> int:
        return self.window**2

    def restored(self, values: Tensor) -> Tensor:
        return images.of_one_color(values, self.window // 2, self.sigma_space, self.sigma_color)


@dataclass(frozen=True)
class NonlocalBayes(ImageMethod):
    """Non-local Bayes: patches that look alike are draws from one Gaussian and noise, and each is its mean
    given what was seen.

    Parameters
    ----------
    sigma, patch, distance, similar, stride
        As in `nonlocal_bayes`.
    """

    sigma: float
    patch: int = 5
    distance: int = 13
    similar: tuple[int, int] = (70, 30)
    stride: int = 3
    name: ClassVar[str] = "nonlocal-bayes"

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        check_whole("patch", self.patch, 2)
        check_whole("distance", self.distance, 0)
        check_whole("stride", self.stride, 1)
        if self.stride > self.patch:
            given = f"stride {self.stride} and patch {self.patch}"
            raise UsageError("a stride of at most a patch", given, "No pixel may lie between patches.")
        passes: object = self.similar
        if not (isinstance(passes, tuple | list) and len(passes) == 2):
            raise UsageError("similar patches of two passes", repr(passes), "[70, 30], say.")
        object.__setattr__(self, "similar", tuple(self.similar))  # of JSON it is a list
        for count in self.similar:
            check_whole("similar", count, 1)

    @property
    def side(self) -> int:
        return self.patch

    @property
    def looks(self) -> int:
        return (2 * self.distance + 1) ** 2

    def memory(self, numbers: int) -> int:
        shifts, group = self.looks // self.stride**2, max(self.similar) * self.patch**2
        return (_HELD + 10 * shifts) * numbers + 32 * images.GROUPS * group

    def restored(self, values: Tensor) -> Tensor:
        colors, flat = values.shape[2], values.flatten(0, 1)
        middle = flat.amin(0) / 2 + flat.amax(0) / 2
        unit = float((values - middle).abs().max()) or 1.0  # single precision begins here
        turn = _COLORS / _COLORS.norm(dim=1, keepdim=True) if colors == 3 else torch.eye(colors).double()
        there, noise = ((values - middle) / unit @ turn.T).float(), self.sigma / unit
        first, second = (
            images.Groups(self.patch, self.stride, self.distance, count) for count in self.similar
        )
        basic = images.regrouped(there, there, first, noise, clean=False)
        found = images.regrouped(there, basic, second, noise, clean=True)
        return middle + unit * (found.double() @ turn)


IMAGE_METHODS: Mapping[str, Callable[..., ImageMethod]] = {
    method.name: method for method in (NonlocalMeans, Bilateral, NonlocalBayes)
}


def checked(image: ArrayLike | Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """An image as [h, w, c], and its own shape; UsageError for what is none."""
    values = torch.tensor(np.ma.filled(np.ma.asarray(image, np.float64), np.nan))
    if values.ndim not in (2, 3) or not values.numel():
        raise UsageError(
            "an image [h, w] or [h, w, c]", f"shape {list(values.shape)}", "One image at a time."
        )
    if not values.isfinite().all():
        raise UsageError("an image of finite numbers", "some that are not", "Fill the gaps first.")
    return values.reshape(*values.shape[:2], -1), tuple(values.shape)


def check_odd(name: str, given: int) -> None:
    """UsageError for a size without a pixel in its middle."""
    if not (_is_whole(given) and given >= 1 and given % 2):
        raise UsageError(f"an odd {name}", repr(given), "It has a pixel in its middle.")


def check_positive(name: str, given: float) -> None:
    """UsageError for a width that is none."""
    if not (_is_number(given) and 0 < given < float("inf")):
        raise UsageError(f"{name} > 0", repr(given), "It is in units of the image, or pixels.")


def check_whole(name: str, given: int, least: int) -> None:
    """UsageError for what is no count, or too small a one."""
    if not (_is_whole(given) and given >= least):
        raise UsageError(f"{name} of at least {least}", repr(given), "It is a whole number.")


def check_truth(name: str, given: bool) -> None:
    """UsageError for what is neither true nor false: a word would count as true."""
    if not isinstance(given, bool):
        raise UsageError(f"{name} true or false", repr(given), "Write one of these.")


def _told(value: Any) -> Any:
    return [plain(each) for each in value] if isinstance(value, tuple) else plain(value)


def _is_whole(given: object) -> bool:
    return isinstance(given, Integral) and not isinstance(given, bool)


def _is_number(given: object) -> bool:
    return isinstance(given, Real) and not isinstance(given, bool)
