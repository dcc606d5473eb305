"""Methods of images: what looks alike is averaged, wherever it is.

Images are arrays [h, w] or [h, w, c] of any range; what comes back has the same shape, in double precision.
They are small data: a method works in memory. Tables work the same way with `local_mean` and others: the
surroundings of a row, its patch, are the key.
"""

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.errors import UsageError
from locdist.local import images
from locdist.local.kernels import weigh
from locdist.local.neighborhood import Neighborhood
from locdist.methods.method import ArrayLike, Method

Image = NDArray[np.float64]
Number = TypeVar("Number", int, float)
_PIXELS = 4096  # that are asked at once
_COLORS = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -2.0, 1.0]], dtype=torch.float64)


def nonlocal_means(
    image: ArrayLike | Tensor, h: float = 0.1, patch: int = 7, distance: int = 11, sigma: float = 0.0
) -> Image:
    """Non-local means: every pixel is the mean of those in a window around it, weighted by how alike their
    surroundings are, Σ_j w_ij v_j / Σ_j w_ij with w_ij = exp(−max(|z_i − z_j|² − 2σ², 0) / h²).

    z_i are the values around pixel i; |z|² is their mean square, weighted by a Gaussian over the patch. It is
    the local mean over patches; the image is reflected at its edges.

    Parameters
    ----------
    image : array [h, w] or [h, w, c]
    h : float
        How unlike surroundings may be, in units of the image.
    patch : int
        Pixels of the side of a patch, odd.
    distance : int
        Pixels to look in each direction.
    sigma : float
        Standard deviation of the noise.

    Returns
    -------
    array, as the image

    References
    ----------
    Buades, Coll, Morel, *A Non-Local Algorithm for Image Denoising*, CVPR 2005.
    """
    values, shape = _image(image)
    _odd("patch", patch, values)
    _positive("h", h)
    _at_least("distance", distance, 1)
    _at_least("sigma", sigma, 0)
    return images.alike(values, patch, distance, sigma, h).reshape(shape).numpy()


def bilateral(
    image: ArrayLike | Tensor, window: int = 7, sigma_color: float = 0.1, sigma_space: float = 2.0
) -> Image:
    """The bilateral filter: every pixel is the mean of those around it, weighted by how near and how alike
    they are: exp(−|x_i − x_j|² / 2σ_s² − |v_i − v_j|² / 2σ_c²).

    A self-local mean with a product of kernels. The window is a disk; the image is continued at its edges.

    Parameters
    ----------
    image : array [h, w] or [h, w, c]
    window : int
        Pixels of the diameter of the window, odd.
    sigma_color : float
        In units of the image.
    sigma_space : float
        In pixels.

    Returns
    -------
    array, as the image

    References
    ----------
    Tomasi, Manduchi, *Bilateral Filtering for Gray and Color Images*, ICCV 1998.
    """
    values, shape = _image(image)
    _odd("window", window, values)
    _positive("sigma_color", sigma_color)
    _positive("sigma_space", sigma_space)
    return images.of_one_color(values, window // 2, sigma_space, sigma_color).reshape(shape).numpy()


def nonlocal_bayes(
    image: ArrayLike | Tensor,
    sigma: float,
    patch: int | None = None,
    distance: int = 13,
    similar: tuple[int, int] = (90, 60),
    stride: int = 3,
) -> Image:
    """Non-local Bayes: groups of patches that look alike are taken for draws from one Gaussian and noise, and
    each patch for its mean given what was seen; in two passes.

    The first finds groups, means and covariances in the noisy image, the second in what the first made. In
    color, groups are found by lightness and each of three uncorrelated channels is shrunk.

    Parameters
    ----------
    image : array [h, w] or [h, w, 3]
    sigma : float
        Standard deviation of the noise, in units of the image; > 0.
    patch : int, optional
        Pixels of the side of a patch; by default 5.
    distance : int
        Pixels to look in each direction.
    similar : (int, int)
        Patches of a group, in the first and in the second pass.
    stride : int
        A group is made around every so many-th pixel, in both directions.

    Returns
    -------
    array, as the image

    References
    ----------
    Lebrun, Buades, Morel, *A Nonlocal Bayesian Image Denoising Algorithm*, SIAM J. Imaging Sciences 6, 2013.
    """
    values, shape = _image(image)
    size = 5 if patch is None else patch
    _at_least("patch", size, 2)
    if min(values.shape[:2]) < size:
        raise UsageError(f"an image of at least {size} x {size} pixels", str(shape), "Use a smaller patch.")
    _positive("sigma", sigma)
    _at_least("stride", stride, 1)
    turn = _COLORS / _COLORS.norm(dim=1, keepdim=True) if values.shape[2] == 3 else torch.eye(values.shape[2])
    there = (values @ turn.double().T).float()
    first, second = (images.Groups(size, stride, distance, count) for count in similar)
    basic = images.regrouped(there, there, first, sigma, clean=False)
    found = images.regrouped(there, basic, second, sigma, clean=True)
    return (found.double() @ turn.double()).reshape(shape).numpy()


def nonlocal_model(
    image: ArrayLike | Tensor,
    method: Method,
    h: float = 0.1,
    patch: int = 7,
    distance: int = 7,
    similar: int = 16,
    reach: int = 1,
) -> Image:
    """A local model of the pixels, fitted not only around each one but around all whose surroundings look
    alike: min_θ Σ_j w_ij Σ_k K(x_j, x_k) l(v_k, f(x_k − x_j, θ)), told at 0.

    w_ij is that of `nonlocal_means`. With a constant and a reach of 0 it is non-local means over so many
    pixels, with `similar=1` the method on the pixels themselves.

    Parameters
    ----------
    image : array [h, w] or [h, w, c]
    method : Method
        Of numbers: `ld.local_linear(k=9, kernel="gaussian", bandwidth=1.0)`. Its kernel is K, of distances in
        pixels; its k does not matter.
    h, patch, distance
        As in `nonlocal_means`.
    similar : int
        Pixels with the surroundings most alike, among those in the window, the pixel itself among them.
    reach : int
        Pixels around each of them that count, in each direction.

    Returns
    -------
    array, as the image
        nan where the model has no answer.
    """
    values, shape = _image(image)
    _odd("patch", patch, values)
    _positive("h", h)
    for name, given, least in (("distance", distance, 0), ("similar", similar, 1), ("reach", reach, 0)):
        _at_least(name, given, least)
    layer = method.layer
    if (
        layer.needs & {"codes", "density", "keys", "reach"}
        or method.loop is not None
        or layer.kernel.adaptive
    ):
        remedy = 'Use ld.local_linear(k=9, kernel="gaussian", bandwidth=1.0), say.'
        raise UsageError("a method of numbers, with a bandwidth in pixels", method.name, remedy)
    pooled = images.Pooled.of(values, patch, distance, similar, reach, h)
    parts = []
    for start in range(0, pooled.pixels, _PIXELS):
        hood, shares = pooled.around(torch.arange(start, min(start + _PIXELS, pooled.pixels)))
        parts.append(_answered(method, hood, shares))
    return torch.cat(parts).reshape(shape).numpy()


def _answered(method: Method, hood: Neighborhood, shares: Tensor) -> Tensor:
    """Values of a model where neighbors weigh as the kernel says and by their shares."""
    near = weigh(method.layer.kernel, Neighborhood(hood.distances, hood.ids, row_weights=shares))
    return method.layer.model.predict(hood, near.weights).values


def _image(image: ArrayLike | Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """An image as [h, w, c], and its own shape."""
    values = torch.tensor(np.asarray(image), dtype=torch.float64)
    if values.ndim not in (2, 3) or not values.numel():
        raise UsageError(
            "an image [h, w] or [h, w, c]", f"shape {list(values.shape)}", "One image at a time."
        )
    if not values.isfinite().all():
        raise UsageError("an image of finite numbers", "some that are not", "Fill the gaps first.")
    return values.reshape(*values.shape[:2], -1), tuple(values.shape)


def _odd(name: str, given: object, image: Tensor) -> None:
    whole = isinstance(given, int) and not isinstance(given, bool) and given >= 1 and given % 2 == 1
    if not whole or int(given) // 2 >= min(image.shape[:2]):  # type: ignore[call-overload]
        remedy = "It has a pixel in its middle, and half of it is less than the image."
        raise UsageError(f"an odd {name}", repr(given), remedy)


def _positive(name: str, given: float) -> None:
    if isinstance(given, bool) or not 0 < given < float("inf"):
        raise UsageError(f"{name} > 0", repr(given), "It is in units of the image, or pixels.")


def _at_least(name: str, given: Number, least: Number) -> None:
    if isinstance(given, bool) or not least <= given < float("inf"):
        raise UsageError(f"{name} of at least {least}", repr(given), "Correct it.")
