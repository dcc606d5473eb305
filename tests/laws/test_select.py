"""What selections share is what each setting does alone: running sums, and sums over all rows at once."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import locdist as ld
from locdist.jobs.bandwidth import Sites
from locdist.jobs.sample import Bench, Sample
from locdist.local.bandwidths import Nearest
from locdist.local.kernels import kernel
from locdist.local.layer import Layer
from locdist.local.models import Linear
from locdist.local.neighborhood import Neighborhood
from locdist.local.select import Judged, judge, score
from locdist.local.sweep import POLYNOMIALS, WORTH, judge_all, kind_of

N, K = 300, 80
_RNG = np.random.default_rng(0)
X, F = _RNG.normal(size=(N, 2)), _RNG.normal(size=(N, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 3.0]
Y = X[:, 0] * F[:, 1] + F[:, 0] + _RNG.normal(size=N)
WEIGHTS = _RNG.integers(0, 3, N).astype(float)
INDEXES = {
    "plain": ld.Exact(X, Y, features=F),
    "weights": ld.Exact(X, Y, features=F, weights=WEIGHTS),
    "one place": ld.Exact(np.repeat(X[:75], 4, axis=0), Y, features=F),
    "earth": ld.Exact(X * [40, 20], Y, features=F, metric="haversine"),
}
CRITERIA = ["loo", "aicc"]


def same(one: Judged, other: Judged, rtol: float = 1e-8) -> None:
    for name in ("loss", "leverage", "effective"):
        torch.testing.assert_close(
            getattr(one, name), getattr(other, name), rtol=rtol, atol=1e-9, equal_nan=True
        )


@pytest.mark.parametrize("name", ["uniform", "triangular", "epanechnikov", "biweight", "tricube"])
def test_compact_kernels_are_the_polynomials_of_their_running_sums(name: str):
    u = torch.linspace(0, 0.999, 50, dtype=torch.float64)[None]
    shape = kernel(name, 1.0)
    weights = shape.log_weights(Neighborhood(u.square(), torch.zeros_like(u, dtype=torch.int64))).exp()
    powers = POLYNOMIALS[type(shape)].items()
    torch.testing.assert_close(sum(factor * u**power for power, factor in powers), weights)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("counted", [False, True], ids=["left out", "counted"])
@pytest.mark.parametrize("name", INDEXES)
def test_running_sums_judge_as_each_setting_does(name: str, counted: bool, ridge: float, criterion: str):
    sample = Sample.of(INDEXES[name], K, 64, 0)
    layers = [
        Layer(k, kernel(shape), Linear(ridge), leave_one_out=not counted)
        for shape in ("bisquare", "tricube", "uniform")
        for k in range(12, K + 1, 8)
    ]
    layers += [Layer(30, kernel("gaussian"), Linear(ridge), leave_one_out=not counted)]
    asked = sample.asked(layers[0].needs, hollow=not counted and criterion == "loo")
    for layer, swept in zip(layers, judge_all(layers, asked, criterion), strict=True):
        same(swept, judge(layer, asked, criterion), 1e-6)  # of few places hardly more is certain


def test_settings_that_are_no_polynomial_of_the_neighbors_are_not_swept():
    model = Linear()
    assert kind_of(Layer(9, kernel("tricube"), model), "loo") is not None
    for width in (0.5, Nearest(0.5), Nearest(1.0, 4)):
        assert kind_of(Layer(9, kernel("tricube", width), model), "loo") is None
    assert kind_of(Layer(9, kernel("gaussian"), model), "loo") is None
    assert kind_of(Layer(9, kernel("tricube"), model), "log-likelihood") is None


def test_slopes_that_are_not_identified_are_solved_with_care():
    flat = ld.Exact(
        X, Y, features=np.column_stack([F[:, 0], 2 * F[:, 0], np.where(X[:, 0] > 0, F[:, 1], 7.0)])
    )
    sample = Sample.of(flat, K, 64, 0)
    layers = [Layer(k, kernel("bisquare"), Linear()) for k in range(20, 20 + 2 * WORTH, 2)]
    asked = sample.asked(layers[0].needs, hollow=False)
    for layer, swept in zip(layers, judge_all(layers, asked, "aicc"), strict=True):
        same(swept, judge(layer, asked, "aicc"))
    wide, near = (Sites(flat, "aicc", 64, 0), Bench(Sample.of(flat, N, 64, 0), "aicc"))
    assert wide.trials([ld.gwr(200)])[0].score.value == pytest.approx(
        near.trials([ld.gwr(200)])[0].score.value, rel=1e-9
    )


SHAPES = [
    ("bisquare", None), ("tricube", None), ("gaussian", {"nearest": 1.0, "rank": 40}), ("bisquare", 1.5),
    ("exponential", 0.7),
]  # fmt: skip


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize("shape, width", SHAPES)
def test_sums_over_all_rows_judge_as_neighbors_do(shape: str, width: object, name: str, criterion: str):
    width = 1500.0 * width if name == "earth" and isinstance(width, float) else width
    setting = ld.gwr(120 if width is None else N, shape, width)
    sites = Sites(INDEXES[name], criterion, 64, 0)
    assert sites._wide(setting.layer) == (
        name != "weights" or width is not None
    )  # where rows count for nothing
    (screened,) = sites.trials([setting])
    (alone,) = Bench(Sample.of(INDEXES[name], N, 64, 0), criterion).trials([setting])
    for part in ("value", "error", "effective"):
        assert getattr(screened.score, part) == pytest.approx(getattr(alone.score, part), rel=1e-8)


def test_a_search_grows_until_the_bottom_is_inside():
    places = _RNG.uniform(0, 100, (2600, 2))
    slope = np.sin(places[:, 0] / 8)
    feature = _RNG.normal(size=(2600, 1))
    index = ld.Exact(places, slope * feature[:, 0] + 0.3 * _RNG.normal(size=2600), features=feature)
    found = ld.select("gwr", index, sample=600)
    tried = sorted(trial.method.layer.k for trial in found.trials)
    assert tried[0] < found.best.layer.k < tried[-1]
    assert tried[-1] < 1000
    every = ld.select("gwr", index, grid={"k": range(20, 300)}, sample=600, criterion="aicc")
    assert min(t.score.value for t in found.trials) <= min(t.score.value for t in every.trials) + 1e-6


def test_choices_of_both_kinds_are_compared():
    found = ld.select(["gwr", ld.local_linear(40)], INDEXES["plain"], criterion="aicc", sample=N)
    assert {trial.method.name for trial in found.trials} == {"gwr", "local-linear"}
    assert replace(found, trials=found.trials[:1]).best == found.trials[0].method


@pytest.mark.parametrize("criterion", ["aicc", "aic", "bic", "gcv"])
def test_a_criterion_has_a_value_where_parameters_leave_no_freedom(criterion: str):
    squares, leverage = torch.full((20,), 0.5).double(), torch.full((20,), 0.95).double()
    found = score(Judged(squares, leverage, leverage), squares, criterion, 20, False).value
    assert found == float("inf") if criterion == "aicc" else np.isfinite(found)
