"""What moves and what looks alike: clusters beside scikit-learn, images beside scikit-image and BM3D.

python -m tests.speed.moving          the table of all images of Set12, sigma 25
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
from skimage.restoration import denoise_nl_means
from sklearn.cluster import MeanShift
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

import locdist as ld
from tests.speed.inputs import Sizes
from tests.speed.selecting import Compared
from tests.speed.timing import Time, timed

Image = npt.NDArray[np.float64]
SET12 = Path(__file__).parents[2].parent / "shared/data/denoise/Set12"
SIGMA = 25 / 255
NLM: dict[str, Any] = {"h": 0.6 * SIGMA, "patch_size": 7, "patch_distance": 11, "sigma": SIGMA}
BM3D = 29.97  # dB, the published mean over Set12 at this noise, for who has not its package


def clusters(sizes: Sizes, workers: int) -> Compared:
    """Rows of eight groups in three dimensions, flat kernel, in memory; the index is built in the time."""
    keys, _ = make_blobs(sizes.clustered, 3, centers=8, cluster_std=1.0, random_state=1)
    bandwidth = ld.estimate_bandwidth(ld.Exact(keys), 0.1)
    peer, found = MeanShift(bandwidth=bandwidth), list[npt.NDArray[np.int64]]()
    method, rows = ld.mean_shift(bandwidth, "uniform"), ld.dataset({"key": keys}, key="key")
    run = ld.Local(workers)
    ld.cluster(
        method, ld.dataset({"key": keys[:100]}, key="key"), executor=run
    )  # what is loaded when first used
    ours = timed(lambda: found.append(ld.cluster(method, rows, executor=run)["cluster"].to_numpy()))
    theirs = timed(lambda: peer.fit(keys))
    alike = adjusted_rand_score(peer.labels_, found[0])
    work = f"mean shift of {sizes.clustered:,} x 3, ARI {alike:.3f} with theirs"
    return Compared(work, ours, "scikit-learn MeanShift", theirs, 50, alike >= 0.98)


def images(sizes: Sizes) -> Iterator[tuple[str, Image, Image]]:
    """Name, image and the image with noise."""
    for path in sorted(SET12.glob("*.png"))[: sizes.denoised]:
        clean = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)[: sizes.pixels, : sizes.pixels] / 255
        yield path.stem, clean, clean + SIGMA * np.random.default_rng(0).normal(size=clean.shape)


def psnr(found: Image, truth: Image) -> float:
    return float(-10 * np.log10(np.square(np.clip(found, 0, 1) - truth).mean()))


Denoiser = Callable[[Image], Image]


def means(noisy: Image) -> Image:
    return ld.nonlocal_means(noisy, NLM["h"], 7, 11, SIGMA)


def bayes(noisy: Image) -> Image:
    return ld.nonlocal_bayes(noisy, SIGMA)


def their_means(noisy: Image) -> Image:
    return np.asarray(denoise_nl_means(noisy, fast_mode=False, **NLM))


def bm3d(noisy: Image) -> Image:
    return np.asarray(__import__("bm3d").bm3d(noisy, SIGMA))


def measured(denoiser: Denoiser, sizes: Sizes) -> tuple[float, Time]:
    """The mean PSNR in dB, and the time of all images."""
    told, wall, cpu = [], 0.0, 0.0
    for _, clean, noisy in images(sizes):
        found = list[Image]()
        time = timed(lambda noisy=noisy, found=found: found.append(denoiser(noisy)))
        told.append(psnr(found[0], clean))
        wall, cpu = wall + time.wall, cpu + time.cpu
    return float(np.mean(told)), Time(wall, cpu)


def alike_means(sizes: Sizes, workers: int) -> Compared:
    """Non-local means."""
    (ours, time), (theirs, peer) = measured(means, sizes), measured(their_means, sizes)
    work = f"non-local means, {sizes.denoised} images: {ours:.2f} dB, theirs {theirs:.2f}"
    return Compared(work, time, "scikit-image denoise_nl_means", peer, 5, ours >= theirs)


def alike_patches(sizes: Sizes, workers: int) -> Compared:
    """Non-local Bayes."""
    (ours, time), (theirs, peer) = measured(bayes, sizes), measured(bm3d, sizes)
    work = f"non-local Bayes, {sizes.denoised} images: {ours:.2f} dB, theirs {theirs:.2f}"
    return Compared(work, time, "bm3d", peer, 1, ours >= theirs - 0.5)


MOVING: dict[str, Callable[[Sizes, int], Compared]] = {
    "mean shift": clusters,
    "non-local means": alike_means,
    "non-local bayes": alike_patches,
}
LACKING = {} if SET12.exists() else dict.fromkeys(("non-local means", "non-local bayes"), f"no {SET12}")
"""Rows that cannot be measured here, and why."""
if SET12.exists() and not importlib.util.find_spec("bm3d"):
    LACKING["non-local bayes"] = "bm3d is not installed (pip install bm3d; its license is for research only)"


def main() -> None:
    """A line for each image, and the means."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    denoisers: dict[str, Denoiser] = {"scikit-image NLM": their_means, "NLM": means, "Bayes": bayes}
    denoisers |= {"BM3D": bm3d} if importlib.util.find_spec("bm3d") else {}
    print("image  " + "  ".join(f"{name:>22}" for name in denoisers))
    rows = []
    for name, clean, noisy in images(Sizes()):
        row = []
        for denoiser in denoisers.values():
            found = list[Image]()
            time = timed(lambda denoiser=denoiser, found=found, noisy=noisy: found.append(denoiser(noisy)))
            row.append((psnr(found[0], clean), time.cpu))
        rows.append(row)
        print(f"{name:5}  " + "  ".join(f"{db:8.2f} dB {cpu:6.1f} s cpu" for db, cpu in row), flush=True)
    whole = np.mean(rows, axis=0)
    print("mean   " + "  ".join(f"{db:8.2f} dB {cpu:6.1f} s cpu" for db, cpu in whole))
    print(f"published mean of BM3D: {BM3D} dB")


if __name__ == "__main__":
    sys.exit(main())
