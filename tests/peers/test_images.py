"""Images: non-local means, the bilateral filter, non-local models and Bayes, beside peers and written out."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from skimage.restoration import denoise_nl_means

import locdist as ld
from locdist.errors import UsageError
from locdist.local.images import Groups, patches, regrouped
from locdist.local.shrinkage import shrunk

RNG = np.random.default_rng(0)
GRAY, COLOR = RNG.random((16, 18)), RNG.random((12, 14, 3))
SET12 = Path(__file__).parents[2].parent / "shared/data/denoise/Set12"
SIGMA = 25 / 255


def psnr(found: np.ndarray, truth: np.ndarray) -> float:
    return float(-10 * np.log10(np.square(np.clip(found, 0, 1) - truth).mean()))


def test_nonlocal_means_is_the_formula_written_out():
    size, distance, h, sigma = 3, 4, 0.4, 0.1
    places = np.arange(3) - 1
    taps = np.exp(-(places[:, None] ** 2 + places**2) / (2 * 0.5**2))
    wide = np.pad(GRAY, 1, mode="reflect")
    theirs = np.zeros_like(GRAY)
    for row, column in np.ndindex(GRAY.shape):
        mine, total, mass = wide[row : row + size, column : column + size], 0.0, 0.0
        for down in range(max(0, row - distance), min(16, row + distance + 1)):
            for right in range(max(0, column - distance), min(18, column + distance + 1)):
                squares = (mine - wide[down : down + size, right : right + size]) ** 2
                apart = (taps / taps.sum() * squares).sum() - 2 * sigma**2
                weight = np.exp(-max(apart, 0) / h**2)
                total, mass = total + weight * GRAY[down, right], mass + weight
        theirs[row, column] = total / mass
    np.testing.assert_allclose(ld.nonlocal_means(GRAY, h, size, distance, sigma), theirs, atol=1e-12)


@pytest.mark.parametrize("image, channel", [(0.1 * GRAY, None), (0.1 * COLOR, -1)])
def test_nonlocal_means_is_that_of_scikit_image_up_to_its_fast_exponential(image, channel):
    words = {"patch_size": 3, "patch_distance": 4, "h": 0.4, "sigma": 0.0, "fast_mode": False}
    theirs = denoise_nl_means(image, channel_axis=channel, **words)
    np.testing.assert_allclose(ld.nonlocal_means(image, 0.4, 3, 4), theirs, atol=5e-4)


def test_the_bilateral_filter_is_that_of_opencv():
    theirs = cv2.bilateralFilter(GRAY.astype(np.float32), 7, 0.25, 1.5, borderType=cv2.BORDER_REPLICATE)
    np.testing.assert_allclose(ld.bilateral(GRAY, 7, 0.25, 1.5), theirs, atol=1e-6)


def test_colors_are_compared_as_points_by_the_bilateral_filter():
    found, radius = ld.bilateral(COLOR, 5, 0.3, 1.2), 2
    wide = np.pad(COLOR, ((2, 2), (2, 2), (0, 0)), mode="edge")
    places = np.arange(5) - radius
    square = places[:, None] ** 2 + places**2
    near = np.exp(-square / (2 * 1.2**2)) * (square <= radius**2)
    for row, column in ((0, 0), (5, 7), (11, 13)):
        window = wide[row : row + 5, column : column + 5]
        weights = near * np.exp(-((window - COLOR[row, column]) ** 2).sum(2) / (2 * 0.3**2))
        theirs = (weights[:, :, None] * window).sum((0, 1)) / weights.sum()
        np.testing.assert_allclose(found[row, column], theirs, atol=1e-12)


@pytest.mark.parametrize("image", [GRAY, COLOR])
def test_a_local_mean_with_patches_for_keys_is_non_local_means(image):
    keys, h = ld.patches(image, 3), 0.4
    pixels = image.reshape(len(keys), -1)
    found = ld.local_mean(None, "gaussian", h / np.sqrt(2))(ld.Exact(keys, pixels), keys).values.numpy()
    np.testing.assert_allclose(found.reshape(image.shape), ld.nonlocal_means(image, h, 3, 18), atol=1e-9)


@pytest.mark.parametrize("image", [GRAY, COLOR])
def test_a_constant_over_alike_pixels_is_non_local_means(image):
    whole = ld.nonlocal_model(image, ld.local_mean(9, "gaussian", 1.0), 0.4, 3, 4, similar=81, reach=0)
    np.testing.assert_allclose(whole, ld.nonlocal_means(image, 0.4, 3, 4), atol=1e-12)


def test_a_model_of_the_pixel_alone_is_the_local_model():
    method = ld.local_linear(9, "gaussian", 1.0)
    found = ld.nonlocal_model(GRAY, method, 0.4, 3, 4, similar=1, reach=1)
    places = np.indices(GRAY.shape).reshape(2, -1).T.astype(float)
    local = method(ld.Exact(places, GRAY.ravel()), places).values[:, 0].numpy().reshape(GRAY.shape)
    np.testing.assert_allclose(found[1:-1, 1:-1], local[1:-1, 1:-1], atol=1e-9)


def test_pooled_models_are_one_weighted_fit():
    h, size, reach = 0.5, 3, 1
    found = ld.nonlocal_model(GRAY, ld.local_linear(9, "gaussian", 1.0), h, size, 2, similar=5, reach=reach)
    row, column = 8, 9
    wide = np.pad(GRAY, 1, mode="reflect")
    places = np.arange(3) - 1
    taps = np.exp(-(places[:, None] ** 2 + places**2) / (2 * 0.5**2))
    taps /= taps.sum()
    near = [(row + down, column + right) for down in range(-2, 3) for right in range(-2, 3)]
    mine = wide[row : row + 3, column : column + 3]
    apart = [(taps * (mine - wide[down : down + 3, right : right + 3]) ** 2).sum() for down, right in near]
    design, values, weights = [], [], []
    for place in np.argsort(apart, kind="stable")[:5]:
        for down in (-1, 0, 1):
            for right in (-1, 0, 1):
                design.append([1, down, right])
                values.append(GRAY[near[place][0] + down, near[place][1] + right])
                weights.append(np.exp(-apart[place] / h**2 - (down**2 + right**2) / 2))
    root = np.sqrt(weights)
    fit = np.linalg.lstsq(root[:, None] * np.array(design), root * values, rcond=None)[0]
    assert found[row, column] == pytest.approx(fit[0], abs=1e-9)


def test_patches_are_the_surroundings_in_the_reflected_image():
    found = patches(torch.tensor(COLOR), 3)
    wide = np.pad(COLOR, ((1, 1), (1, 1), (0, 0)), mode="reflect")
    assert found.shape == (12, 14, 3, 3, 3)
    np.testing.assert_array_equal(found[4, 6], wide[4:7, 6:9].transpose(2, 0, 1))


def test_shrunk_rows_are_the_posterior_means_of_a_gaussian():
    rows, asked = torch.tensor(RNG.normal(size=(2, 40, 3))), torch.tensor(RNG.normal(size=(2, 4, 3)))
    even = torch.full((2, 1), 1 / 40, dtype=torch.float64)
    for clean in (True, False):
        found = shrunk(rows, even, asked, 0.3, clean)
        for group in range(2):
            mean, covariance = rows[group].mean(0), torch.cov(rows[group].T, correction=0)
            eye = torch.eye(3, dtype=torch.float64)
            gain = (
                covariance @ torch.linalg.inv(covariance + 0.09 * eye)
                if clean
                else (covariance - 0.09 * eye) @ torch.linalg.inv(covariance)
            )
            np.testing.assert_allclose(found[group], mean + (asked[group] - mean) @ gain.T, atol=1e-12)


def test_groups_hold_the_patches_that_are_most_alike():
    image, groups = torch.tensor(GRAY), Groups(3, 4, 3, 6)
    found, there = groups.places(image)
    assert there.all()
    corners = [(row, column) for row in (0, 4, 8, 12, 13) for column in (0, 4, 8, 12, 15)]
    assert len(found) == len(corners)
    for (row, column), places in zip(corners, found.tolist(), strict=True):
        apart = {}
        for down in range(max(0, row - 3), min(13, row + 3) + 1):
            for right in range(max(0, column - 3), min(15, column + 3) + 1):
                mine, theirs = (
                    GRAY[row : row + 3, column : column + 3],
                    GRAY[down : down + 3, right : right + 3],
                )
                apart[18 * down + right] = ((mine - theirs) ** 2).sum()
        assert sorted(places) == sorted(sorted(apart, key=apart.get)[:6])


def test_near_an_edge_groups_are_smaller():
    _, there = Groups(3, 20, 2, 20).places(torch.tensor(GRAY))
    assert there.sum(1).tolist() == [9, 9, 9, 9]


def test_little_noise_changes_an_image_little():
    found = regrouped(torch.tensor(COLOR), torch.tensor(COLOR), Groups(3, 2, 4, 30), 1e-9, clean=False)
    np.testing.assert_allclose(found, COLOR, atol=1e-9)


@pytest.mark.skipif(not SET12.exists(), reason="the images of Set12 are not there")
def test_real_images_are_denoised_as_others_do():
    image = cv2.imread(str(SET12 / "01.png"), cv2.IMREAD_GRAYSCALE)[64:192, 64:192] / 255
    noisy = image + SIGMA * np.random.default_rng(0).normal(size=image.shape)
    words = {"patch_size": 7, "patch_distance": 11, "h": 0.6 * SIGMA, "sigma": SIGMA}
    peer = psnr(denoise_nl_means(noisy, fast_mode=False, **words), image)
    means = psnr(ld.nonlocal_means(noisy, 0.6 * SIGMA, 7, 11, SIGMA), image)
    bayes = psnr(ld.nonlocal_bayes(noisy, SIGMA), image)
    assert means >= peer
    assert bayes >= means + 0.5


def test_an_even_image_stays_as_it_is():
    even = np.full((12, 15), 0.25)  # of which all patches are equal: each pixel is in one that is asked
    np.testing.assert_allclose(ld.nonlocal_bayes(even, 0.1), even, atol=1e-7)


def test_what_all_pixels_have_in_common_costs_no_digits():
    noisy = np.random.default_rng(7).random((16, 16))
    high = ld.nonlocal_bayes(1e7 + noisy, 0.3) - 1e7
    np.testing.assert_allclose(high, ld.nonlocal_bayes(noisy, 0.3), atol=1e-6)


def test_small_variances_of_few_rows_are_noise():
    rows = torch.tensor(RNG.normal(size=(1, 60, 25)))
    even = torch.full((1, 1), 1 / 60, dtype=torch.float64)
    found = [shrunk(rows, even, rows, 1.0, False, floor).square().mean() for floor in (1.0, 2.0, 3.0)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.05  # the mean of the rows alone: 1 / 60


def test_color_is_denoised_and_bad_values_are_not_taken():
    clean = np.stack([np.tile(np.linspace(0, 1, 40), (40, 1))] * 3, 2) * [1.0, 0.5, 0.2]
    noisy = clean + 0.1 * RNG.normal(size=clean.shape)
    found = ld.nonlocal_bayes(noisy, 0.1)
    assert found.shape == clean.shape
    assert psnr(found, clean) > psnr(noisy, clean) + 8


def test_rows_of_a_table_come_back_to_their_plane():
    plane = RNG.normal(size=(500, 2)) @ RNG.normal(size=(2, 6))
    noisy = plane + 0.2 * RNG.normal(size=plane.shape)
    found = ld.local_bayes(0.2, k=120)(ld.Exact(noisy), noisy).values.numpy()
    assert np.square(found - plane).mean() < 0.6 * np.square(noisy - plane).mean()


@pytest.mark.parametrize(
    "make",
    [
        lambda: ld.nonlocal_means(np.zeros(9)),
        lambda: ld.nonlocal_means(GRAY, patch=4),
        lambda: ld.nonlocal_means(GRAY, patch=33),
        lambda: ld.nonlocal_means(GRAY, h=0),
        lambda: ld.nonlocal_means(GRAY, distance=0),
        lambda: ld.nonlocal_means(np.full((9, 9), np.nan)),
        lambda: ld.bilateral(GRAY, sigma_color=-1),
        lambda: ld.bilateral(GRAY, window=2),
        lambda: ld.nonlocal_bayes(GRAY, 0.0),
        lambda: ld.nonlocal_bayes(GRAY, 0.1, patch=40),
        lambda: ld.nonlocal_bayes(GRAY, 0.1, stride=0),
        lambda: ld.nonlocal_bayes(GRAY, 0.1, patch=3, stride=4),
        lambda: ld.nonlocal_bayes(GRAY, 0.1, similar=(60,)),
        lambda: ld.patches(GRAY, 4),
        lambda: ld.patches(GRAY, 35),
        lambda: ld.nonlocal_model(GRAY, ld.local_vote(5)),
        lambda: ld.nonlocal_model(GRAY, ld.local_mean(5)),
        lambda: ld.nonlocal_model(GRAY, ld.local_mean(5, "gaussian", 1.0), similar=0),
        lambda: ld.local_bayes(0.0),
    ],
)
def test_what_is_no_image_is_refused(make):
    with pytest.raises(UsageError):
        make()
