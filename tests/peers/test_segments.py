"""Segments of images beside scikit-learn and SciPy."""

import numpy as np
import pytest
import torch
from scipy import ndimage
from sklearn.cluster import MeanShift
from sklearn.metrics import adjusted_rand_score

import locdist as ld
from locdist.errors import UsageError
from locdist.local.regions import Regions

RNG = np.random.default_rng(0)
SPACE, COLOR = 16.0, 0.25


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    """Three areas and a spot, with noise."""
    clean = np.zeros((20, 24, 3))
    clean[:, :10], clean[:, 10:] = [0.9, 0.2, 0.1], [0.1, 0.3, 0.8]
    clean[11:, 7:18], clean[3:6, 3:6] = [0.2, 0.8, 0.3], [0.9, 0.9, 0.1]
    return clean + 0.03 * RNG.normal(size=clean.shape)


@pytest.mark.parametrize("grain", [0.0, 0.25])
def test_segments_are_the_clusters_of_scikit_learn(image: np.ndarray, grain: float):
    places = np.indices(image.shape[:2]).reshape(2, -1).T
    rows = np.concatenate([places / SPACE, image.reshape(-1, 3) / COLOR], 1)
    peer = MeanShift(bandwidth=1.0).fit(rows)
    found = ld.segment(image, space=SPACE, color=COLOR, least=1, join=False, grain=grain)
    assert adjusted_rand_score(peer.labels_, found.labels.ravel()) >= 0.98
    assert found.sizes.tolist() == np.bincount(found.labels.ravel()).tolist()
    theirs = COLOR * peer.cluster_centers_[np.bincount(peer.labels_).argsort()[::-1], 2:]
    np.testing.assert_allclose(found.colors, theirs, atol=0.02)


def test_small_segments_go_to_what_they_touch_and_is_nearest_in_color(image: np.ndarray):
    found = ld.segment(image, ld.mean_shift(0.5), space=SPACE, color=COLOR, least=20)
    assert len(found.sizes) == 3
    assert found.labels[4, 4] == found.labels[10, 4]  # the spot lies in the red area
    assert found.image.shape == image.shape
    np.testing.assert_allclose(found.image[0, 0], [0.9, 0.2, 0.1], atol=0.06)


def test_an_even_area_is_one_segment_and_parts_that_do_not_touch_are_two():
    stripes = np.zeros((12, 60))
    stripes[:, 28:32] = 1.0
    found = ld.segment(stripes, space=6.0, color=0.2, least=10)
    assert found.sizes.tolist() == [336, 336, 48]
    cells = ld.segment(stripes, space=6.0, color=0.2, least=1, join=False)
    assert len(cells.sizes) > 3


def test_regions_are_those_of_scipy():
    labels = RNG.integers(0, 3, (15, 17))
    pixels = torch.tensor(10.0 * labels.reshape(-1, 1))
    found = Regions.of(torch.tensor(labels), pixels).connected(pixels, 0.0)
    theirs = sum(ndimage.label(labels == label)[1] for label in range(3))
    assert len(found.sizes) == theirs
    for number in range(theirs):
        own = (found.labels == number).numpy()
        assert ndimage.label(own)[1] == 1
        assert len(set(labels[own])) == 1
    whole = found.absorbed(pixels, 10)
    assert whole.sizes.min() >= 10
    assert whole.sizes.sum() == labels.size
    one = found.absorbed(pixels, labels.size)
    assert one.sizes.tolist() == [labels.size]


def test_segments_do_not_depend_on_the_unit(image: np.ndarray):
    found = ld.segment(image, space=SPACE, color=COLOR)
    larger = ld.segment(256 * image, space=SPACE, color=256 * COLOR)
    np.testing.assert_array_equal(found.labels, larger.labels)
    gray = ld.segment(image[:, :, 0], space=SPACE, color=COLOR)
    assert gray.colors.shape[1] == 1


@pytest.mark.parametrize(
    "words",
    [{"space": 0}, {"color": -1.0}, {"least": 0}, {"grain": 2.0}, {"sample": 0}, {"method": "local-mean"}],
)
def test_what_cannot_be_segmented_is_refused(words: dict[str, object]):
    with pytest.raises(UsageError):
        ld.segment(np.zeros((5, 5)), **words)


@pytest.mark.parametrize("words", [{"color": 1e-13}, {"space": 1e-13}])
def test_what_is_too_many_units_wide_for_a_lattice_is_refused(words: dict[str, float]):
    with pytest.raises(UsageError, match="2\\^40 units"):
        ld.segment(np.eye(5), **words)
