"""Methods of images: what looks alike is averaged, wherever it is.

Images are arrays [h, w] or [h, w, c] of any range; what comes back has the same shape, in double precision.
`ld.restore` does that for the images of files. Tables work the same way with `local_mean` and others: the
surroundings of a row, its patch, are the key.
"""

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local import images
from locdist.local.kernels import weigh
from locdist.local.neighborhood import Neighborhood
from locdist.methods.method import ArrayLike, Method
from locdist.methods.restored import (
    Bilateral,
    Image,
    NonlocalBayes,
    NonlocalMeans,
    check_odd,
    check_positive,
    check_whole,
    checked,
)

_PIXELS = 4096  # that are asked at once


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
    return NonlocalMeans(h, patch, distance, sigma)(image)


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
    return Bilateral(window, sigma_color, sigma_space)(image)


def nonlocal_bayes(
    image: ArrayLike | Tensor,
    sigma: float,
    patch: int = 5,
    distance: int = 13,
    similar: tuple[int, int] = (70, 30),
    stride: int = 3,
) -> Image:
    """Non-local Bayes: groups of patches that look alike are taken for draws from one Gaussian and noise, and
    each patch for its mean given what was seen; in two passes.

    The first finds groups, means and covariances in the noisy image, less the noise; of so few patches a
    variance below 2 σ² may be noise alone, and counts as such. The second finds them in what the first made.
    In color, groups are found by lightness and each of three uncorrelated channels is shrunk; of another
    number of channels each is shrunk, and the first one tells groups.

    Parameters
    ----------
    image : array [h, w] or [h, w, c]
    sigma : float
        Standard deviation of the noise, in units of the image; > 0.
    patch : int
        Pixels of the side of a patch, at least 2.
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
    return NonlocalBayes(sigma, patch, distance, similar, stride)(image)


def patches(image: ArrayLike | Tensor, size: int = 7) -> Image:
    """The surroundings of all pixels as rows: the keys with which any local model is a non-local one.

    The squared distance of two rows is the |z_i − z_j|² of `nonlocal_means`, so
    `ld.local_mean(None, "gaussian", h / 2**0.5)` over them is non-local means with a window as wide as the
    image. The image is reflected at its edges.

    Parameters
    ----------
    image : array [h, w] or [h, w, c]
    size : int
        Pixels of the side of a patch, odd.

    Returns
    -------
    array [h w, c size²]
        A row for each pixel, in the order of `image.reshape(h * w, -1)`.
    """
    values, shape = checked(image)
    _check_patch(size, shape)
    tap = images.taps(size).double()
    weight = (tap[:, None] * tap / values.shape[2]).sqrt()
    return (images.patches(values, size) * weight).reshape(shape[0] * shape[1], -1).numpy()


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
    values, shape = checked(image)
    _check_patch(patch, shape)
    check_positive("h", h)
    for name, given, least in (("distance", distance, 0), ("similar", similar, 1), ("reach", reach, 0)):
        check_whole(name, given, least)
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


def _check_patch(size: int, shape: tuple[int, ...]) -> None:
    """UsageError for a patch without a middle, or of which half is larger than the image."""
    check_odd("patch", size)
    if size // 2 >= min(shape[:2]):
        raise UsageError(f"an image that a patch of {size} fits", f"shape {list(shape)}", "Make it smaller.")
