"""Fuzzy rules are a kernel and a model over their prototypes: the identities, and where they end."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import locdist as ld
from locdist.errors import DataError, UsageError
from locdist.local.answers import Answers, Status
from locdist.local.fuzzy import FORMS, Membership, sets
from locdist.local.rules import learn_rules
from locdist.methods.method import Method
from locdist.search.rows import Rows

Array = NDArray[np.float64]
_RNG = np.random.default_rng(0)
RULES, D = 40, 2
CENTERS = _RNG.normal(size=(RULES, D))
SAID = _RNG.normal(size=(RULES, 2))
SLOPES = _RNG.normal(size=(RULES, 2 * D))
AREAS = _RNG.uniform(0.2, 2.0, RULES)
Q = _RNG.normal(size=(70, D))
KINDS = list(itertools.product([*FORMS, ("bell", "trapezoid")], ["product", "min"], [0, 1]))
of_every_kind = pytest.mark.parametrize("membership, tnorm, order", KINDS)


def sizes(membership: str | tuple[str, ...], rules: int = RULES) -> Array:
    forms = (membership,) * D if isinstance(membership, str) else membership
    widths = [_RNG.uniform(0.5, 2.5, (rules, len(FORMS[name].parts))) for name in forms]
    return np.concatenate(widths, 1)


def base(membership: str | tuple[str, ...], order: int, **more: object) -> ld.Exact:
    widths = sizes(membership)
    shapes = np.column_stack([widths, SLOPES]) if order else widths
    return ld.Exact(CENTERS, SAID, shapes=shapes, **more)


def close(one: Answers, other: Answers) -> None:
    assert one.status.tolist() == other.status.tolist()
    for name in ("values", "effective"):
        torch.testing.assert_close(
            getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9, equal_nan=True
        )


def told(method: Method, index: ld.Exact, at: Array = Q) -> Answers:
    answers = method(index, at, want=["effective"])
    few = answers.status == int(Status.FEW)  # of rules without weight
    return replace(answers, status=answers.status.masked_fill(few, 0))


def gauss(queries: Array, h: float) -> Array:
    return np.exp(-((queries[:, None] - CENTERS) ** 2).sum(2) / (2 * h * h))


def test_order_0_with_the_product_of_gaussians_is_the_local_mean_of_the_rules():
    index = ld.Exact(CENTERS, SAID, shapes=np.full((RULES, D), 0.8))
    found = ld.fuzzy_inference()(index, Q).values
    mean = ld.local_mean(None, "gaussian", 0.8)(ld.Exact(CENTERS, SAID), Q).values
    torch.testing.assert_close(found, mean, rtol=1e-12, atol=1e-12)


def test_order_1_is_the_local_mean_of_what_the_rules_say_at_the_query():
    index = ld.Exact(CENTERS, SAID, shapes=np.column_stack([np.full((RULES, D), 0.8), SLOPES]))
    weights = gauss(Q, 0.8)
    away = Q[:, None] - CENTERS
    says = SAID + np.einsum("rpd,qrd->qrp", SLOPES.reshape(RULES, 2, D), away)
    wanted = (weights[:, :, None] * says).sum(1) / weights.sum(1)[:, None]
    for k in (None, RULES):
        found = ld.fuzzy_inference(order=1, k=k)(index, Q).values
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_rules_that_say_one_affine_function_say_it_everywhere():
    slope = np.array([[1.0, -2.0]])
    index = ld.Exact(
        CENTERS, 3 + CENTERS @ slope.T, shapes=np.column_stack([sizes("bell"), 0 * CENTERS + slope])
    )
    far = Q * 1e3
    found = ld.fuzzy_inference("bell", order=1)(index, far).values
    np.testing.assert_allclose(found, 3 + far @ slope.T, rtol=1e-9)


def test_product_sum_centroid_is_the_local_mean_of_equal_areas_and_a_weighted_one_of_others():
    widths, weights = np.full((RULES, D), 0.8), gauss(Q, 0.8)
    for areas in (np.full(RULES, 0.5), AREAS):
        index = ld.Exact(CENTERS, SAID[:, 0], shapes=widths, weights=areas)
        wanted = weights @ (areas * SAID[:, 0]) / (weights @ areas)
        np.testing.assert_allclose(ld.fuzzy_inference()(index, Q).values[:, 0], wanted, rtol=1e-12)
    alike = weights @ SAID[:, 0] / weights.sum(1)
    assert np.abs(alike - wanted).max() > 1e-2


def test_the_minimum_is_the_kernel_of_the_largest_distance_and_not_of_the_euclidean_one():
    index = ld.Exact(CENTERS, SAID, shapes=np.full((RULES, D), 0.8))
    found = ld.fuzzy_inference(tnorm="min")(index, Q).values.numpy()
    weights = np.exp(-(np.abs(Q[:, None] - CENTERS).max(2) ** 2) / (2 * 0.8**2))
    np.testing.assert_allclose(found, weights @ SAID / weights.sum(1, keepdims=True), rtol=1e-12)
    product = ld.fuzzy_inference()(index, Q).values.numpy()
    assert np.abs(found - product).max() > 0.05


def test_in_one_column_both_norms_are_the_same():
    index = ld.Exact(CENTERS[:, :1], SAID, shapes=sizes("triangular")[:, :2])
    both = [ld.fuzzy_inference("triangular", tnorm)(index, Q[:, :1]).values for tnorm in ("product", "min")]
    assert both[0].isfinite().any()
    torch.testing.assert_close(*both, rtol=0, atol=0, equal_nan=True)


@of_every_kind
def test_all_rules_at_once_are_all_rules_as_neighbors(membership, tnorm, order):
    index = base(membership, order, weights=AREAS * (np.arange(RULES) % 5 > 0))
    near, everywhere = (told(ld.fuzzy_inference(membership, tnorm, order, k), index) for k in (RULES, None))
    assert near.values.isfinite().sum() > 100
    close(near, everywhere)


@of_every_kind
def test_neither_order_nor_shards_nor_missing_rules_matter(membership, tnorm, order):
    index = base(membership, order)
    (shard,) = index.rows.shards
    turned = {name: values[::-1].copy() for name, values in shard.items() if name != "row"}
    turned["row"] = np.arange(RULES)
    other = ld.Exact(CENTERS, SAID)
    cuts = [0, 1, 30, RULES]
    pieces = tuple(
        {name: values[start:end] for name, values in turned.items()}
        for start, end in itertools.pairwise(cuts)
    )
    other.__dict__["rows"] = Rows(pieces)
    for k in (None, RULES + 3):
        method = ld.fuzzy_inference(membership, tnorm, order, k)
        close(told(method, index), told(method, other))


def test_a_query_where_no_rule_fires_is_null_and_says_so():
    index = ld.Exact([[0.0], [10.0]], [1.0, 2.0], shapes=[[1.0, 2.0], [1.0, 1.0]])
    at = [[-1.0], [-0.5], [0.0], [1.5], [5.0], [math.nan]]
    for k in (None, 2):
        answers = ld.fuzzy_inference("triangular", k=k)(index, at)
        status = [Status(each) for each in answers.status.tolist()]
        assert status == [Status.EMPTY, Status.OK, Status.OK, Status.OK, Status.EMPTY, Status.BAD_QUERY]
        assert answers.values.isnan().flatten().tolist() == [True, False, False, False, True, True]


def test_far_from_gaussian_rules_the_one_that_fires_most_decides_and_the_status_says_it():
    index = ld.Exact([[0.0], [1.0]], [1.0, 2.0], shapes=[[0.1], [0.1]])
    for k in (None, 2):
        answers = ld.fuzzy_inference(k=k)(index, [[60.0]])
        assert answers.values.tolist() == [[2.0]]
        assert answers.status.tolist() == [int(Status.LOW_SUPPORT)]
        bells = ld.Exact([[0.0], [1.0]], [1.0, 2.0], shapes=[[0.1, 3000.0]] * 2)
        assert ld.fuzzy_inference("bell", k=k)(bells, [[60.0]]).values.tolist() == [[2.0]]


def test_a_membership_without_width_is_a_crisp_value():
    for membership, widths in (
        ("gaussian", [0.0]),
        ("triangular", [0.0, 0.0]),
        ("trapezoid", [1.0, 0.0, 0.0]),
    ):
        index = ld.Exact([[1.0]], [7.0], shapes=[widths])
        answers = ld.fuzzy_inference(membership)(index, [[1.0], [2.5]])
        assert answers.values[0].item() == 7.0
        assert answers.values[1].isnan() or answers.status[1] == int(Status.LOW_SUPPORT)


def test_shapes_that_cannot_be_are_refused():
    negative = ld.Exact([[0.0], [1.0]], [1.0, 2.0], shapes=[[1.0], [-1.0]])
    with pytest.raises(DataError, match="sizes of 0 or more"):
        ld.fuzzy_inference()(negative, [[0.5]])
    with pytest.raises(UsageError, match="2 sizes of each rule"):
        ld.fuzzy_inference("triangular")(negative, [[0.5]])
    without = ld.Exact([[0.0, 0.0]], [[1.0, 2.0]], shapes=[[1.0, 1.0]])
    for k in (None, 1):
        with pytest.raises(UsageError, match="4 slopes of each rule"):
            ld.fuzzy_inference(order=1, k=k)(without, [[0.5, 0.5]])
    with pytest.raises(UsageError, match="a support with shapes"):
        ld.fuzzy_inference()(ld.Exact([[0.0]], [1.0]), [[0.5]])
    with pytest.raises(UsageError, match="one membership for all columns"):
        ld.fuzzy_inference(["bell"] * 3)(base("bell", 0), Q)
    for wrong in ({"membership": "gausian"}, {"tnorm": "max"}, {"order": 2}, {"membership": []}):
        with pytest.raises(UsageError):
            ld.fuzzy_inference(**wrong)


@pytest.mark.parametrize("name", FORMS)
def test_areas_and_centroids_are_integrals(name: str):
    parts = torch.tensor([[0.7, 1.9, 0.4], [1.2, 3.5, 2.0]], dtype=torch.float64)[:, : len(FORMS[name].parts)]
    centers = torch.tensor([0.3, -1.0], dtype=torch.float64)
    reach = 4000.0 if name == "bell" else 12.0
    grid = torch.linspace(-reach, reach, 2_000_001, dtype=torch.float64)
    step = (grid[1] - grid[0]).item()
    centroids, areas = sets(name, centers, parts)
    for rule in range(2):
        member = FORMS[name].log(grid, parts[rule]).exp()
        assert areas[rule].item() == pytest.approx(member.sum().item() * step, rel=1e-5)
        moment = (member * grid).sum().item() * step
        assert centroids[rule].item() == pytest.approx(
            centers[rule].item() + moment / areas[rule].item(), abs=1e-5
        )


def test_sets_without_area_are_refused():
    with pytest.raises(DataError, match="an area and a centroid"):
        sets("triangular", torch.zeros(1), torch.zeros(1, 2))


def surface(at: Array) -> Array:
    return np.sin(2 * at[:, 0]) * at[:, 1] + 0.3 * at[:, 0]


@pytest.mark.parametrize("membership", [*FORMS, ("bell", "gaussian")])
@pytest.mark.parametrize("tnorm", ["product", "min"])
def test_the_gradient_makes_the_error_of_the_clusters_smaller(membership, tnorm):
    keys = torch.from_numpy(_RNG.uniform(-1, 1, (300, 2)))
    targets = torch.from_numpy(surface(keys.numpy()))[:, None]
    forms = (membership,) if isinstance(membership, str) else membership
    kernel = Membership(forms=forms, tnorm=tnorm)
    rough, fine = (learn_rules(keys, targets, kernel, rules=6, steps=steps) for steps in (0, 15))
    assert fine.error < 0.8 * rough.error < 0.2
    index = ld.Exact(fine.keys, fine.targets, shapes=fine.shapes)
    answers = ld.fuzzy_inference(membership, tnorm, order=1)(index, keys)
    missed = (answers.values.nan_to_num(targets.mean().item()) - targets).square().mean().sqrt()
    assert missed.item() == pytest.approx(fine.error, rel=1e-6)


def test_rules_are_learned_the_same_again_and_in_any_unit():
    keys = torch.from_numpy(_RNG.uniform(-1, 1, (300, 2)))
    targets = torch.from_numpy(surface(keys.numpy()))[:, None]
    kernel = Membership(forms=("trapezoid", "bell"))
    one, again = (learn_rules(keys, targets, kernel, rules=5, steps=8, seed=3) for _ in range(2))
    assert torch.equal(torch.cat([one.keys, one.shapes], 1), torch.cat([again.keys, again.shapes], 1))
    units = torch.tensor([100.0, 0.01], dtype=torch.float64)
    other = learn_rules(keys * units + 7, targets * 50 - 3, kernel, rules=5, steps=8, seed=3)
    method = ld.fuzzy_inference(("trapezoid", "bell"), order=1)
    here = method(ld.Exact(one.keys, one.targets, shapes=one.shapes), keys[:40]).values
    there = method(ld.Exact(other.keys, other.targets, shapes=other.shapes), keys[:40] * units + 7).values
    torch.testing.assert_close((there + 3) / 50, here, rtol=1e-3, atol=1e-3)
    assert not torch.equal(one.keys, learn_rules(keys, targets, kernel, rules=5, steps=8, seed=4).keys)


def test_rules_of_order_0_and_of_one_column_are_learned_too():
    keys = torch.linspace(0, 6, 200, dtype=torch.float64)[:, None]
    found = learn_rules(keys, keys.sin(), Membership(), rules=7, order=0, steps=40)
    assert found.shapes.shape == (7, 1)
    assert found.error < 0.01
