"""What moves and what looks alike beside its references, for the README's table."""

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.manifold import spectral_embedding
from sklearn.neighbors import KNeighborsRegressor

import locdist as ld
from locdist.local.images import Groups, regrouped

Array = NDArray[np.float64]
RNG = np.random.default_rng(7)
X = RNG.normal(size=(90, 3))
Y = np.sin(X[:, 0]) + 0.1 * RNG.normal(size=90)
IMAGE = RNG.random((16, 18))


def _difference(ours: object, theirs: object) -> float:
    return float(np.abs(np.asarray(ours) - np.asarray(theirs)).max())


def _weights(h: float) -> Array:
    kernel = np.exp(-((X[:, None] - X) ** 2).sum(2) / (2 * h * h))
    return np.asarray(kernel / kernel.sum(1, keepdims=True))


def blurring() -> float:
    """A layer of unit rows beside attention."""
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    theirs = torch.nn.functional.scaled_dot_product_attention(*(torch.tensor(rows)[None],) * 3, scale=4.0)
    moved = ld.blurring_mean_shift(0.5, layers=1).loop(ld.Exact, torch.tensor(rows))
    return _difference(moved.keys, theirs[0])


def manifold() -> float:
    """A step across the plane of each row's neighbors."""
    moved = ld.denoise_manifold(2, k=90, bandwidth=1.5, layers=1).loop(ld.Exact, torch.tensor(X)).keys
    theirs = []
    for row, weights in zip(X, _weights(1.5), strict=True):
        mean = weights @ X
        axes = np.linalg.svd(np.sqrt(weights)[:, None] * (X - mean))[2][:2]
        theirs.append(row + (np.eye(3) - axes.T @ axes) @ (mean - row))
    return _difference(moved, theirs)


def stack() -> float:
    """Two local means beside the product of their matrices."""
    methods = [ld.local_mean(None, "gaussian", h).counting() for h in (2.0, 1.0)]
    moved = ld.stack(methods).loop(ld.Exact, torch.tensor(X), torch.tensor(Y)[:, None])
    targets = moved.targets
    assert targets is not None
    return _difference(targets[:, 0], _weights(1.0) @ _weights(2.0) @ Y)


def nonlocal_means() -> float:
    """Beside the local mean over patches."""
    wide = np.pad(IMAGE, 1, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3)).reshape(-1, 9)
    places = np.arange(3) - 1
    taps = np.exp(-(places[:, None] ** 2 + places**2) / (2 * 0.5**2)).ravel()
    weights = np.exp(-((windows[:, None] - windows) ** 2 * taps / taps.sum()).sum(2) / 0.4**2)
    theirs = (weights @ IMAGE.ravel() / weights.sum(1)).reshape(IMAGE.shape)
    return _difference(ld.nonlocal_means(IMAGE, 0.4, 3, 18), theirs)


def bilateral() -> float:
    """Beside OpenCV's."""
    theirs = cv2.bilateralFilter(IMAGE.astype(np.float32), 7, 0.25, 1.5, borderType=cv2.BORDER_REPLICATE)
    return _difference(ld.bilateral(IMAGE, 7, 0.25, 1.5), theirs)


def nonlocal_bayes() -> float:
    """One group of all patches, in both passes; in double precision."""
    image, size, sigma = IMAGE[:10, :9], 3, 0.1

    def passed(guide: Array, clean: bool) -> Array:
        noisy, known = (
            np.lib.stride_tricks.sliding_window_view(part, (size, size)).reshape(-1, size * size)
            for part in (image, guide)
        )
        mean, covariance = known.mean(0), np.cov(known.T, bias=True)
        eye = sigma**2 * np.eye(size * size)
        gain = (
            covariance @ np.linalg.inv(covariance + eye) if clean else _above(covariance, 2 * sigma**2, eye)
        )
        found = (mean + (noisy - mean) @ gain.T).reshape(8, 7, size, size)
        total, count = np.zeros_like(image), np.zeros_like(image)
        for row, column in np.ndindex(8, 7):
            total[row : row + size, column : column + size] += found[row, column]
            count[row : row + size, column : column + size] += 1
        return np.asarray(total / count)

    theirs = passed(passed(image, clean=False), clean=True)
    values, groups = torch.tensor(image)[:, :, None], Groups(size, 1, 10, 56)
    basic = regrouped(values, values, groups, sigma, clean=False)
    return _difference(regrouped(values, basic, groups, sigma, clean=True)[:, :, 0], theirs)


def _above(covariance: Array, floor: float, noise: Array) -> Array:
    """(C - s^2 I) C^-1 on the axes along which the variance is above a floor, else 0."""
    variances, axes = np.linalg.eigh(covariance)
    some = axes[:, variances > floor]
    return np.asarray(some @ some.T @ (covariance - noise) @ np.linalg.inv(covariance))


def lazy_map() -> float:
    """Beside the spectral embedding; one less the correlations."""
    hollow = np.exp(-((X[:, None] - X) ** 2).sum(2) / 2) * (1 - np.eye(len(X)))
    method = ld.local_mean(len(X) - 1, "gaussian", 1.0)
    found = ld.lazy_map(method, X, keep=True, tolerance=1e-14, steps=20_000).values.numpy()
    theirs = spectral_embedding(hollow, n_components=2, eigen_solver="arpack", random_state=0)
    pairs = (np.corrcoef(found[:, axis], theirs[:, axis])[0, 1] for axis in range(2))
    return max(abs(1 - abs(each)) for each in pairs)


def lazy_autoencoder() -> float:
    """What codes say, beside a mean of all rows weighed by the distances of codes."""
    coder = ld.lazy_autoencoder(X, 2, steps=30)
    codes = coder.codes.numpy()
    asked = codes[:20] + 0.1
    peer = KNeighborsRegressor(len(X), weights=lambda away: np.exp(-(away**2) / 2)).fit(codes, X)
    return _difference(coder.decode(asked), peer.predict(asked))


def mgwr() -> float:
    """Parts beside the same sweeps with dense smoothers."""
    places, terms = X[:, :2], np.column_stack([np.ones(90), (X - X.mean(0)) / X.std(0)])[:, :3]
    target = (Y - Y.mean()) / Y.std()
    found = ld.backfit(ld.mgwr(), ld.Exact(places, target, features=terms[:, 1:]))
    (together, *_), *sweeps = found._state.history
    away = np.linalg.norm(places[:, None] - places, axis=2)

    def weights(width: float) -> Array:
        reach = 1.0000001 * np.sort(away, axis=1)[:, int(width) - 1 : int(width)]
        return np.where(away < reach, (1 - (away / reach) ** 2) ** 2, 0)

    slopes = [
        np.linalg.solve((terms * w[:, None]).T @ terms, (terms * w[:, None]).T @ target)
        for w in weights(together)
    ]
    parts = terms * np.array(slopes)
    for widths in sweeps:
        for number, width in enumerate(widths):
            x, left = terms[:, number], target - parts.sum(axis=1) + parts[:, number]
            kernel = weights(width)
            parts[:, number] = x * (kernel @ (x * left)) / (kernel @ x**2)
    return _difference(found.sites.values, parts.sum(axis=1))


def local_ar() -> float:
    """A free run of nearest neighbors beside scikit-learn on the delay matrix."""
    series, order = np.cumsum(RNG.normal(size=200)), 4
    rows = np.lib.stride_tricks.sliding_window_view(series, order + 1)
    model, window = KNeighborsRegressor(6).fit(rows[:, :-1], rows[:, -1]), list(series[-order:])
    for _ in range(20):
        window.append(float(model.predict([window[-order:]])[0]))
    found = ld.forecast(ld.local_ar(order=order, model="knn", k=6), series, steps=20)
    return _difference(found.values, window[order:])
