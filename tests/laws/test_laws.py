"""The laws that every kernel and every model obey, over one table of kernels x models."""

import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import WANTS, Answers, Status
from locdist.local.bandwidths import Nearest, SamplePoint, parse_bandwidth, spec
from locdist.local.boosted import Boosted
from locdist.local.density import Density
from locdist.local.families import Gamma, Poisson
from locdist.local.glm import GeneralizedLinear, Logistic
from locdist.local.gp import GaussianProcess, KernelRidge, Prior
from locdist.local.kernels import KERNELS, Kernel, bandwidth_spec, kernel, kernel_spec, weigh
from locdist.local.layer import Layer
from locdist.local.levels import Again, Resampled
from locdist.local.likeness import Likeness
from locdist.local.localized import Localized
from locdist.local.models import Constant, Linear, LocalModel, Polynomial
from locdist.local.neighborhood import Neighborhood, smallest
from locdist.local.parametric import Huber
from locdist.local.quantile import Quantile, Variance, Vote
from locdist.local.shrinkage import Shrinkage
from locdist.local.tangent import Barycenter, OfFeatures, Tangent
from locdist.local.tiles import TILE
from tests.laws.brute import Brute, column

BANDWIDTHS: dict[str, list[object]] = {name: [3.0, "nearest"] for name in KERNELS} | {"dot-product": [2.0]}
EVERY_KERNEL = [kernel(name, width) for name, widths in BANDWIDTHS.items() for width in widths] + [
    kernel("gaussian", {"nearest": 1.0, "rank": 4}),
    kernel("tricube", {"sample-point": 5, "scale": 3.0}),
    kernel({"mixture": [{"weight": 0.3}, {"weight": 0.7, "kernel": "gaussian", "bandwidth": 0.8}]}),
    kernel({"product": [{"columns": 2}, {"columns": 1, "kernel": "gaussian", "bandwidth": 0.8}]}),
]
# Each model with the laws that it obeys beside those that all obey. "constants": constant targets are the
# values, and smoother rows sum to one; "linear": values are linear in the targets.
LAWS: dict[LocalModel, frozenset[str]] = {
    Constant(): frozenset({"constants", "linear"}),
    Vote(): frozenset({"constants"}),
    Linear(): frozenset({"constants", "linear"}),
    Linear(ridge=0.1): frozenset({"constants", "linear"}),
    Polynomial(ridge=0.1): frozenset({"constants", "linear"}),
    Polynomial(3, cross=False, ridge=0.1): frozenset({"constants", "linear"}),
    GaussianProcess(): frozenset({"constants", "linear"}),
    GaussianProcess(Prior(Likeness("rbf", (1.0, 2.0, 0.5))), 0.1, "zero", 2.0): frozenset({"linear"}),
    GaussianProcess(Prior(Likeness("mix", 1.0, 0.4, 0.3), 2.0, 0.1), 0.05, 0.25, 1.5, 0.5, True): frozenset(),
    KernelRidge(Likeness("matern52")): frozenset({"linear"}),
    Logistic(): frozenset({"constants"}),
    GeneralizedLinear(Poisson(), 0.1): frozenset({"constants"}),
    GeneralizedLinear(Gamma(), 0.1): frozenset({"constants"}),
    Quantile(): frozenset({"constants"}),
    Quantile((0.1, 0.5, 0.9)): frozenset({"constants"}),
    Variance(): frozenset({"constants"}),
    Variance(unbiased=True): frozenset({"constants"}),
    Density(): frozenset(),
    Density(log=True): frozenset(),
    Tangent(2): frozenset(),
    Shrinkage(0.5): frozenset(),
    Barycenter(): frozenset({"constants", "linear"}),
    OfFeatures(Constant()): frozenset(),
    Localized(ridge=0.1): frozenset({"constants"}),
    Localized(written=Huber(0.5), ridge=0.1): frozenset({"constants"}),
    Again(Linear(ridge=0.1), kernel("gaussian", 2.0)): frozenset({"constants", "linear"}),
    Boosted(Linear(ridge=0.1), kernel("gaussian", 2.0), 2): frozenset({"constants", "linear"}),
    Again(Vote(), kernel("tricube")): frozenset({"constants"}),
    Resampled(Linear(ridge=0.1), 20): frozenset({"constants", "linear"}),
}
EVERY_MODEL = list(LAWS)
# every kernel meets every way to use weights; models that solve more than that meet some
SOME_KERNELS = [kernel("tricube"), kernel("gaussian", 3.0)]
SIMPLE = (Constant, Vote, Linear)
TABLE = [(k, m) for m in EVERY_MODEL for k in (EVERY_KERNEL if isinstance(m, SIMPLE) else SOME_KERNELS)]
every_pair = pytest.mark.parametrize("kernel, model", TABLE, ids=[f"{k}-{m}" for k, m in TABLE])


def obeying(law: str) -> pytest.MarkDecorator:
    pairs = [(k, m) for k, m in TABLE if law in LAWS[m]]
    return pytest.mark.parametrize("kernel, model", pairs, ids=[f"{k}-{m}" for k, m in pairs])


K = 9


def support(kernel: Kernel, model: LocalModel, n: int = 60, d: int = 3, **more: Tensor) -> Brute:
    generator = torch.Generator().manual_seed(n + d)
    keys = torch.randn(n, d, generator=generator, dtype=torch.float64)
    targets = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    metric = "ip" if kernel.name == "dot-product" else "l2"
    if "codes" in model.needs:
        codes = torch.randint(4, (n, 1), generator=generator)
        return Brute(keys, codes, classes=4, metric=metric, **more)
    if isinstance(model, GeneralizedLinear):
        targets = targets.exp().round() if isinstance(model.family, Poisson) else targets.exp()
    return Brute(keys, targets, metric=metric, **more)


def asked(q: int = 5, d: int = 3) -> Tensor:
    return torch.randn(q, d, generator=torch.Generator().manual_seed(q), dtype=torch.float64)


def gathered(layer: Layer, index: Brute, queries: Tensor) -> Neighborhood:
    hood = index.search(queries, layer.k, None)
    return index.gather(replace(hood, queries=queries, query_features=queries), layer.needs)


def widened(hood: Neighborhood, extra: dict[str, Tensor]) -> Neighborhood:
    """The neighborhood with further columns, one tensor for each field that it has."""
    columns = {
        name: torch.cat([getattr(hood, name), new], 1)
        for name, new in extra.items()
        if getattr(hood, name) is not None
    }
    return replace(hood, **columns)


def same(one: Answers, other: Answers, rtol: float = 1e-9) -> None:
    assert one.status.tolist() == other.status.tolist()
    for name in ("values", "effective", "spread", "coefficients", "errors"):
        torch.testing.assert_close(
            getattr(one, name), getattr(other, name), rtol=rtol, atol=1e-9, equal_nan=True
        )


def garbage(hood: Neighborhood, count: int) -> dict[str, Tensor]:
    q = len(hood.ids)
    features = torch.full((q, count, 3), float("nan"), dtype=torch.float64)
    reach = {"reach": torch.full((q, count), float("nan"), dtype=torch.float64)}
    if hood.targets is None:
        return {"features": features, "keys": features} | reach
    targets = torch.full((q, count, hood.targets.shape[2]), -7 if hood.classes else float("nan"))
    more = {"targets": targets.to(hood.targets.dtype), "features": features, "keys": features}
    return more | reach


WANT = WANTS - {"neighbors"}


@every_pair
def test_padding_is_invisible(kernel: Kernel, model: LocalModel) -> None:
    layer = Layer(K, kernel, model)
    hood = gathered(layer, support(kernel, model), asked())
    filler = torch.full((5, 4), 3.4e38, dtype=torch.float64)
    padded = widened(hood, {"distances": filler, "ids": torch.full((5, 4), -1)} | garbage(hood, 4))
    same(layer.solve(hood, WANT), layer.solve(padded, WANT))


@every_pair
def test_zero_weight_means_absent(kernel: Kernel, model: LocalModel) -> None:
    layer = Layer(K, kernel, model)
    hood = gathered(layer, support(kernel, model), asked())
    hood = replace(hood, row_weights=torch.ones(5, K, dtype=torch.float64))
    far = {"distances": torch.full((5, 2), 100.0, dtype=torch.float64), "ids": torch.tensor([[70, 71]] * 5)}
    heavier = widened(hood, far | garbage(hood, 2) | {"row_weights": torch.zeros(5, 2, dtype=torch.float64)})
    same(layer.solve(hood, WANT), layer.solve(heavier, WANT))


@every_pair
def test_order_of_neighbors_is_irrelevant(kernel: Kernel, model: LocalModel) -> None:
    layer = Layer(K, kernel, model)
    hood = gathered(layer, support(kernel, model), asked())
    order = torch.randperm(K, generator=torch.Generator().manual_seed(1))
    names = [
        name
        for name in ("distances", "ids", "keys", "targets", "features", "reach")
        if getattr(hood, name) is not None
    ]
    shuffled = replace(hood, **{name: getattr(hood, name)[:, order] for name in names})
    same(layer.solve(hood, WANT), layer.solve(shuffled, WANT))


BITS = ("values", "status", "effective", "spread", "coefficients", "errors", "ids", "weights", "smoother")


def equal(one: Answers, other: Answers) -> None:
    for name in BITS:
        ours, theirs = getattr(one, name), getattr(other, name)
        assert (ours is None) == (theirs is None), name
        assert ours is None or ours.nan_to_num().equal(theirs.nan_to_num()), name


@every_pair
def test_the_number_of_queries_is_irrelevant_to_the_bit(kernel: Kernel, model: LocalModel) -> None:
    layer, index, queries = Layer(K, kernel, model), support(kernel, model), asked(TILE + 20)
    whole = layer(index, queries, want=WANTS)
    equal(whole.rows(slice(7)), layer(index, queries[:7], want=WANTS))


@every_pair
def test_the_batch_is_irrelevant(kernel: Kernel, model: LocalModel) -> None:
    # To the bit unless matrices are multiplied whose rounding depends on where in memory they lie.
    layer, index, queries = Layer(K, kernel, model), support(kernel, model), asked(TILE + 20)
    whole = layer(replace(index, shuffle=True), queries, want=WANTS)
    chosen = torch.tensor([0, 3, TILE - 1, TILE, TILE + 19])
    alone = layer(index, queries[chosen], want=WANTS)
    (equal if isinstance(model, SIMPLE) else same)(whole.rows(chosen), alone)


@obeying("constants")
def test_constants_are_reproduced(kernel: Kernel, model: LocalModel) -> None:
    index = support(kernel, model)
    codes = "codes" in model.needs
    index = replace(index, targets=torch.full_like(index.targets, 3 if codes else 4.25))
    answers = Layer(K, kernel, model)(index, asked(40), want=WANTS)
    there = answers.status < Status.EMPTY
    assert there.any()
    expected = torch.tensor([0.0, 0, 0, 1]) if codes else torch.tensor([4.25, 4.25])
    torch.testing.assert_close(
        answers.values[there][:, : len(expected)],  # a variance comes behind the means
        expected.double().expand(int(there.sum()), -1),
        rtol=1e-12,
        atol=1e-12,
    )
    assert answers.smoother is not None
    torch.testing.assert_close(
        answers.smoother[there].sum(1), torch.ones(int(there.sum()), dtype=torch.float64)
    )


@obeying("linear")
def test_values_are_linear_in_the_targets(kernel: Kernel, model: LocalModel) -> None:
    index, layer = support(kernel, model), Layer(K, kernel, model)
    answers = layer(index, asked(), want=WANTS)
    assert answers.ids is not None
    assert answers.smoother is not None
    again = torch.bmm(answers.smoother[:, None], index.targets[answers.ids.clamp(min=0)])[:, 0]
    valued = answers.status < Status.EMPTY
    torch.testing.assert_close(answers.values[valued], again[valued], rtol=1e-9, atol=1e-9)
    other = replace(index, targets=index.targets.square())
    both = layer(replace(index, targets=2 * index.targets + other.targets), asked()).values
    torch.testing.assert_close(both, 2 * answers.values + layer(other, asked()).values, equal_nan=True)


@pytest.mark.parametrize("model", [Linear(), Polynomial(), Polynomial(3, cross=False)], ids=str)
@pytest.mark.parametrize("kernel", SOME_KERNELS, ids=str)
def test_affine_targets_are_reproduced(kernel: Kernel, model: LocalModel) -> None:
    index = support(kernel, model, n=200)
    slopes = torch.tensor([[2.0, 0.5], [-1.0, 3.0], [0.25, 0.0]], dtype=torch.float64)
    index = replace(index, targets=1.5 + index.keys @ slopes)
    queries = asked(60)
    answers = Layer(30, kernel, model)(index, queries, want=WANTS)
    ok = (answers.status == Status.OK) | (answers.status == Status.FEW)
    assert ok.sum() > 30
    torch.testing.assert_close(answers.values[ok], (1.5 + queries @ slopes)[ok], rtol=1e-8, atol=1e-8)
    assert answers.coefficients is not None
    torch.testing.assert_close(
        answers.coefficients[ok][:, 1:], slopes.expand(int(ok.sum()), -1, -1), rtol=1e-6, atol=1e-6
    )


@every_pair
def test_a_bad_query_or_target_stops_nobody(kernel: Kernel, model: LocalModel) -> None:
    layer = Layer(K, kernel, model)
    index, queries = support(kernel, model), asked(6)
    good = layer(index, queries, want=WANTS)
    queries = queries.clone()
    queries[1, 0], queries[4, 2] = float("nan"), float("inf")
    answers = layer(index, queries, bad=torch.tensor([False, False, True, False, False, False]), want=WANTS)
    assert answers.status[[1, 2, 4]].tolist() == [Status.BAD_QUERY] * 3
    assert answers.values[[1, 2, 4]].isnan().all()
    rest = torch.tensor([0, 3, 5])
    same(answers.rows(rest), good.rows(rest), rtol=0)
    assert answers.ids is not None
    assert (answers.ids[1] == -1).all()


@pytest.mark.parametrize("model", [m for m in EVERY_MODEL if "targets" in m.needs], ids=str)
def test_a_target_that_is_not_finite_is_the_trouble_of_its_neighbors(model: LocalModel) -> None:
    index = support(EVERY_KERNEL[0], model)
    queries = torch.cat([index.keys[:1], index.keys[:1] + 100])
    targets = index.targets.clone()
    targets[0] = float("inf")
    answers = Layer(K, kernel("gaussian"), model)(replace(index, targets=targets), queries)
    assert answers.status[0] == Status.NOT_FINITE
    assert answers.values[0].isnan().all()
    assert answers.values[1].isfinite().all()


@pytest.mark.parametrize("model", [m for m in EVERY_MODEL if "features" in m.needs], ids=str)
def test_a_feature_that_is_not_finite_stops_nobody(model: LocalModel) -> None:
    index = support(EVERY_KERNEL[0], model)
    features = index.keys.clone()
    features[0] = float("nan")
    queries = torch.stack([index.keys[0], -index.keys[0]])
    layer = Layer(K, kernel("gaussian"), model)
    answers = layer(replace(index, features=features), queries, queries)
    assert answers.status[0] == Status.NOT_FINITE
    assert answers.status[1] < Status.EMPTY


@every_pair
def test_leave_one_out_goes_by_id(kernel: Kernel, model: LocalModel) -> None:
    index = support(kernel, model)
    index = replace(index, keys=torch.cat([index.keys[:30], index.keys[:30]]))  # every row twice
    own = torch.tensor([35, 2, -1])
    layer = Layer(K, kernel, model, leave_one_out=True)
    answers = layer(index, index.keys[own], own=own, want=WANTS)
    assert answers.ids is not None
    assert not (answers.ids[:2] == own[:2, None]).any()
    kept = torch.tensor([i for i in range(60) if i != 35])
    without = replace(index, keys=index.keys[kept], targets=index.targets[kept])
    if isinstance(kernel.bandwidth, SamplePoint):
        return  # whose bandwidths belong to the whole support
    same(answers.rows(slice(1)), layer(without, index.keys[own[:1]], want=WANTS))


def test_without_leave_one_out_the_own_row_counts() -> None:
    index = support(EVERY_KERNEL[0], Constant())
    answers = Layer(K, kernel("gaussian"), Constant())(
        index, index.keys[:1], own=torch.tensor([0]), want=WANTS
    )
    assert answers.ids is not None
    assert answers.ids[0, 0] == 0


IDS = st.lists(st.integers(-1, 9), min_size=1, max_size=8)


def small(chosen: list[int]) -> Neighborhood:
    # the distance of an id is a function of the id, as in one support; several ids share one distance
    ids = torch.tensor([[i for place, i in enumerate(chosen) if i < 0 or i not in chosen[:place]]])
    return Neighborhood((ids % 4).float(), ids).nearest(len(chosen))


@settings(max_examples=60, deadline=None)
@given(IDS, IDS, IDS, st.integers(1, 12))
def test_merge_is_associative_and_commutative(a: list[int], b: list[int], c: list[int], k: int) -> None:
    one, two, three = small(a), small(b), small(c)
    expected = sorted({(i % 4, i) for i in a + b + c if i >= 0})[:k]
    for merged in (
        one.merge(two).merge(three),
        one.merge(two.merge(three)),
        three.merge(one).merge(two),
        one.merge(one).nearest(k).merge(two.nearest(k)).merge(three.nearest(k)),
    ):
        best = merged.nearest(k)
        found = best.found[0]
        assert (
            list(zip(best.distances[0][found].tolist(), best.ids[0][found].tolist(), strict=True)) == expected
        )
        assert best.distances[0][~found].isinf().all()
        assert found.tolist() == sorted(found.tolist(), reverse=True)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=30, max_size=30), st.integers(1, 40))
def test_smallest_breaks_ties_by_id(values: list[int], k: int) -> None:
    ids = torch.arange(30).flip(0)[None]
    distances, found = smallest(torch.tensor([values], dtype=torch.float32), ids, k)
    pairs = sorted(zip(values, ids[0].tolist(), strict=True))[:k]
    assert found[0].tolist() == [i for _, i in pairs] + [-1] * (k - len(pairs))
    assert distances[0, : len(pairs)].tolist() == [d for d, _ in pairs]


def test_without_and_pad() -> None:
    hood = Neighborhood(torch.tensor([[0.0, 1, 2], [0, 1, 2]]), torch.tensor([[5, 6, 7], [5, 6, 7]]))
    assert hood.without(torch.tensor([5, -1])).ids.tolist() == [[6, 7, -1], [5, 6, 7]]
    assert hood.pad(4).ids.tolist() == [[5, 6, 7, -1], [5, 6, 7, -1]]
    with pytest.raises(UsageError, match="one shape"):
        Neighborhood(torch.zeros(1, 2), torch.zeros(1, 3, dtype=torch.int64))


@every_pair
def test_no_queries_have_answers_of_the_right_shape(kernel: Kernel, model: LocalModel) -> None:
    answers = Layer(K, kernel, model)(support(kernel, model), asked(5)[:0], want=WANTS)
    outputs = model.outputs(("a", "b"), ("x", "y", "z"))
    assert answers.values.shape == (0, 4 if "codes" in model.needs else len(outputs))
    assert answers.status.shape == (0,)


@every_pair
def test_choices_are_values(kernel: Kernel, model: LocalModel) -> None:
    layer = Layer(K, kernel, model)
    assert pickle.loads(pickle.dumps(layer)) == layer
    assert hash(layer) == hash(Layer(K, kernel, model))


@pytest.mark.parametrize("each", EVERY_KERNEL, ids=str)
def test_kernels_are_read_back_from_json(each: Kernel) -> None:
    assert kernel(kernel_spec(each), bandwidth_spec(each)) == each
    assert kernel(each) == each


@pytest.mark.parametrize(
    "wrong", [0, -1.0, float("nan"), float("inf"), True, None, "near", {"nearest": 0}, {"scale": 1}, [1]]
)
def test_a_wrong_bandwidth_is_refused(wrong: object) -> None:
    with pytest.raises(UsageError, match=r"expected a positive, finite"):
        parse_bandwidth(wrong)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(UsageError, match="Did you mean 'gaussian'"):
        kernel("gausian")
    with pytest.raises(UsageError, match="one bandwidth"):
        kernel(kernel("gaussian", 1), 2)
    with pytest.raises(UsageError, match="temperature"):
        kernel("dot-product", "nearest")
    with pytest.raises(UsageError, match="ridge"):
        Linear(-1.0)
    for k in (0, -1, 2.5, True):
        with pytest.raises(UsageError, match="whole number"):
            Layer(k, kernel("uniform"), Constant())  # type: ignore[arg-type]
    layer, index = Layer(2, kernel("uniform"), Constant()), support(EVERY_KERNEL[0], Constant())
    with pytest.raises(UsageError, match=r"queries \[q, d\]"):
        layer(index, asked()[0])
    with pytest.raises(UsageError, match="as many features"):
        layer(index, asked(), asked(4))
    with pytest.raises(UsageError, match="want of"):
        layer(index, asked(), want=frozenset({"speed"}))


def test_parsed_bandwidths() -> None:
    assert parse_bandwidth(5) == parse_bandwidth(5.0) == 5.0
    assert parse_bandwidth("nearest") == Nearest()
    assert parse_bandwidth({"nearest": 2}) == Nearest(2.0)
    assert parse_bandwidth({"nearest": 2, "rank": 3}) == Nearest(2.0, 3)
    assert parse_bandwidth({"sample-point": 3}) == SamplePoint(3)
    for width in (Nearest(2.0), Nearest(2.0, 3), SamplePoint(3, 0.5)):
        assert parse_bandwidth(spec(width)) == width


def test_weights_of_nobody_are_zero() -> None:
    hood = Neighborhood(torch.tensor([[4.0], [0.5]]), torch.tensor([[3], [3]]))
    weights = weigh(kernel("epanechnikov", 1.0), hood)
    assert weights.weights.tolist() == [[0.0], [1.0]]
    assert weights.peak[0] == float("-inf")
    answers = Layer(1, kernel("epanechnikov", 1.0), Constant())(
        Brute(column([0.0]), column([7.0])), column([2.0, 0.5]), want=WANTS
    )
    assert answers.status.tolist() == [Status.EMPTY, Status.OK]
    assert answers.effective is not None
    assert answers.effective.tolist() == [0.0, 1.0]
    assert answers.values[0].isnan().all()


def test_features_of_the_support_ask_for_those_of_the_queries() -> None:
    index = support(EVERY_KERNEL[0], Linear())
    layer, queries = Layer(K, kernel("gaussian"), Linear()), index.keys[:2]
    with pytest.raises(UsageError, match="features of the queries"):
        layer(replace(index, features=index.keys), queries)
