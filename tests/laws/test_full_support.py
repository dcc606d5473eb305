"""k=None: sums over all rows of a support, exact on any partitioning."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.kernels import kernel
from locdist.local.layer import Layer
from locdist.local.moments import Asked, Batch, Sums, sums
from locdist.methods.method import Method
from locdist.search.exact import Exact
from locdist.search.rows import Rows

ROWS = 700
WANT = ("effective", "spread", "coefficients")
METHODS = {
    "mean": lambda k, bandwidth, shape: ld.local_mean(k, shape, bandwidth),
    "vote": lambda k, bandwidth, shape: ld.local_vote(k, shape, bandwidth),
    "linear": lambda k, bandwidth, shape: ld.local_linear(k, shape, bandwidth),
    "ridge": lambda k, bandwidth, shape: ld.local_linear(k, shape, bandwidth, ridge=0.3),
    "quadric": lambda k, bandwidth, shape: ld.local_polynomial(k, shape, bandwidth),
    "variance": lambda k, bandwidth, shape: ld.local_variance(k, shape, bandwidth, unbiased=True),
    "density": lambda k, bandwidth, shape: ld.kde(k, shape, bandwidth),
}
KERNELS = ("gaussian", "laplace", "epanechnikov", "tricube", "uniform")


@pytest.fixture(scope="module")
def index() -> Exact:
    rng = np.random.default_rng(4)
    keys = rng.normal(size=(ROWS, 2))
    return Exact(
        keys,
        rng.integers(0, 3, ROWS),
        features=rng.normal(size=(ROWS, 3)) + keys[:, :1],
        weights=rng.uniform(0, 2, ROWS),
    )


@pytest.fixture(scope="module")
def asked() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(70, 2)), rng.normal(size=(70, 3))


def told(method: Method, index: Exact, asked, **more) -> Answers:
    want = WANT if method.layer.model.tells >= set(WANT) else ("effective",)
    return method(index, asked[0], features=asked[1], want=want, **more)


def assert_same(ours: Answers, theirs: Answers, digits: float = 1e-9) -> None:
    assert ours.status.tolist() == theirs.status.tolist()
    for name in ("values", *WANT, "errors"):
        one, two = getattr(ours, name), getattr(theirs, name)
        assert (one is None) == (two is None), name
        if one is not None:
            torch.testing.assert_close(one, two, rtol=digits, atol=digits, equal_nan=True, msg=name)


@pytest.mark.parametrize("shape", KERNELS)
@pytest.mark.parametrize("name", METHODS)
def test_all_the_support_is_what_all_rows_as_neighbors_are(index, asked, name, shape):
    everywhere, neighbors = (METHODS[name](k, 1.5, shape) for k in (None, ROWS))
    # fewer neighbors than k were found where rows have no weight; nobody asks for k here
    theirs = told(neighbors, index, asked)
    few = theirs.status == int(Status.FEW)
    assert_same(told(everywhere, index, asked), replace(theirs, status=theirs.status.masked_fill(few, 0)))


@pytest.mark.parametrize("name", ["mean", "linear", "density"])
def test_a_row_of_the_support_is_left_out_by_its_id(index, name):
    own = torch.arange(0, ROWS, 11)
    asked = (index.rows.shards[0]["key"][own], index.rows.shards[0]["feature"][own])
    if name == "density":  # the neighbors' one takes a mean weight away, not the row's
        index = Exact(index.keys, index.targets, index.features)
    everywhere, neighbors = (METHODS[name](k, 1.5, "gaussian") for k in (None, ROWS - 1))
    theirs = told(neighbors, index, asked, own=own)
    few = theirs.status == int(Status.FEW)
    assert_same(
        told(everywhere, index, asked, own=own), replace(theirs, status=theirs.status.masked_fill(few, 0))
    )
    assert not torch.allclose(told(everywhere, index, asked).values, theirs.values, rtol=1e-6)


@pytest.mark.parametrize("name", ["mean", "linear", "quadric", "vote"])
def test_shards_and_their_order_do_not_matter(index, asked, name):
    method = METHODS[name](None, 0.7, "gaussian")
    whole = told(method, index, asked)
    (shard,) = index.rows.shards
    cuts = [0, 1, 60, 61, 400, ROWS]
    parts = [
        {name: values[start:end] for name, values in shard.items()} for start, end in itertools.pairwise(cuts)
    ]
    for order in (parts, parts[::-1], [parts[3], parts[0], parts[4], parts[2], parts[1]]):
        pieces = Exact(index.keys, index.targets, index.features, index.weights)
        pieces.__dict__["rows"] = Rows(tuple(order), index.rows.classes)
        assert_same(told(method, pieces, asked), whole, 1e-10)


def test_sums_merge_in_any_grouping():
    rng = np.random.default_rng(6)
    keys, targets = torch.from_numpy(rng.normal(size=(90, 2))), torch.from_numpy(rng.normal(size=(90, 1)))
    asked = Asked(keys[:5], keys[:5])
    parts = []
    for start in (0, 30, 60):
        batch = Batch(
            torch.arange(start, start + 30), keys[start : start + 30], None, targets[start : start + 30]
        )
        found = sums(kernel("gaussian", 0.2), lambda near: near, asked, [batch], "l2", errors=True)
        parts.append(found)
    one = parts[0]
    a, b, c = (replace(part, origin=one.origin) for part in parts)
    left, right, turned = a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b)
    for name in ("peak", "products", "targets", "doubled", "support"):
        for other in (right, turned):
            torch.testing.assert_close(getattr(left, name), getattr(other, name), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("bandwidth", [1e-3, 0.02])
def test_a_query_far_from_everybody_is_answered_by_the_nearest(index, bandwidth):
    """Raw weights underflow by thousands; only ratios matter, in whichever shard the nearest row lies."""
    asked = (np.array([[40.0, -3.0]]), np.zeros((1, 3)))
    numbers = Exact(index.keys, np.arange(ROWS) + 0.5, index.features)
    found = told(ld.local_mean(None, "gaussian", bandwidth), numbers, asked)
    nearest = np.square(index.keys - asked[0]).sum(1).argmin()
    assert found.status.tolist() == [int(Status.LOW_SUPPORT)]
    assert found.values[0, 0] == pytest.approx(nearest + 0.5, abs=1e-6)


def test_nobody_in_reach_is_no_answer_and_a_bad_query_stops_nobody(index, asked):
    queries = np.vstack([asked[0], [[90.0, 90.0], [np.nan, 0.0]]])
    features = np.vstack([asked[1], np.zeros((2, 3))])
    found = told(ld.local_linear(None, "tricube", 1.5), index, (queries, features))
    assert found.status[-2:].tolist() == [int(Status.EMPTY), int(Status.BAD_QUERY)]
    assert found.values[-2:].isnan().all()
    assert_same(found.rows(slice(-2)), told(ld.local_linear(None, "tricube", 1.5), index, asked), 1e-12)


def test_a_feature_without_spread_is_told(index, asked):
    features = np.array(index.features)
    features[:, 1] = 7.0
    flat = Exact(index.keys, np.array(index.keys)[:, 0], features)
    found = told(ld.local_linear(None, "gaussian", 1.0), flat, asked)
    assert set(found.status.tolist()) == {int(Status.RANK_DEFICIENT)}
    fewer = Exact(index.keys, np.array(index.keys)[:, 0], features[:, [0, 2]])
    asked = (asked[0], asked[1][:, [0, 2]])
    torch.testing.assert_close(
        found.values, told(ld.local_linear(None, "gaussian", 1.0), fewer, asked).values
    )


def test_targets_far_from_zero_keep_their_errors(index, asked):
    rng = np.random.default_rng(7)
    noise = rng.normal(size=ROWS)
    near, far = (Exact(index.keys, noise + offset, index.features) for offset in (0.0, 1e7))
    method = ld.local_linear(None, "gaussian", 1.0)
    torch.testing.assert_close(
        told(method, far, asked).spread, told(method, near, asked).spread, rtol=1e-6, atol=0
    )


def test_attention_over_all_the_support(asked):
    rng = np.random.default_rng(8)
    keys, values = rng.normal(size=(ROWS, 2)), rng.normal(size=(ROWS, 4))
    index = Exact(keys, values, metric="ip")
    found = ld.local_mean(None, "dot-product", 2**0.5)(index, asked[0]).values
    tensors = (torch.from_numpy(array)[None] for array in (asked[0], keys, values))
    theirs = torch.nn.functional.scaled_dot_product_attention(*tensors)[0]
    torch.testing.assert_close(found, theirs, rtol=1e-12, atol=1e-12)


def test_cosine_queries_are_directions():
    rng = np.random.default_rng(9)
    index = Exact(rng.normal(size=(50, 3)), rng.normal(size=50), metric="cosine")
    queries = np.vstack([rng.normal(size=(4, 3)) * 100, np.zeros((1, 3))])
    everywhere, neighbors = (ld.local_mean(k, "gaussian", 0.5)(index, queries) for k in (None, 50))
    assert everywhere.status[-1] == neighbors.status[-1] == int(Status.EMPTY)
    torch.testing.assert_close(everywhere.values, neighbors.values, equal_nan=True, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: ld.local_mean(None), "a distance as the bandwidth"),
        (lambda: ld.local_mean(None, "gaussian", {"nearest": 1.0}), "a distance as the bandwidth"),
        (lambda: ld.local_quantile(None, bandwidth=1.0), "model of sums"),
        (lambda: ld.local_gp(None, bandwidth=1.0), "model of sums"),
        (lambda: Layer(0, kernel("gaussian", 1.0), ld.local_mean().layer.model), "k"),
    ],
)
def test_what_needs_neighbors_is_refused_when_it_is_made(make, word):
    with pytest.raises(UsageError, match=word):
        make()


def test_neighbors_of_all_the_support_are_not_listed(index, asked):
    with pytest.raises(UsageError, match="neighbors"):
        ld.local_mean(None, "gaussian", 1.0)(index, asked[0], want=["neighbors"])


def test_sums_of_no_rows_in_reach_are_zero():
    batch = Batch(torch.arange(3), torch.tensor([[9.0], [8.0], [7.0]]), None, torch.ones(3, 1))
    asked = Asked(torch.zeros(1, 1), torch.zeros(1, 1))
    found: Sums = sums(kernel("uniform", 1.0), None, asked, [batch], "l2", errors=False)
    assert found.peak.tolist() == [-float("inf")]
    assert not found.products.any()
