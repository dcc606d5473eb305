"""Identities of networks of models (theory/identities.py, part E), and what is always true of them."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

import locdist as ld
from locdist.errors import DataError, UsageError
from locdist.local.answers import Status
from locdist.local.charts import Judged, certainty
from locdist.methods.coupled import coupled_method

NODES, WIDTH, EACH = 5, 3, 12
_RNG = np.random.default_rng(0)
FEATURES = _RNG.normal(size=(NODES * EACH, WIDTH))
TARGETS = _RNG.normal(size=NODES * EACH)
OWNERS = np.repeat(np.arange(NODES), EACH)
_HALF = np.triu(_RNG.random((NODES, NODES)), 1)
WEIGHTS = _HALF + _HALF.T
SHARED = _RNG.normal(size=(9, WIDTH))
PLAIN = {"intercept": False, "tolerance": 1e-12}


def linked(weights: np.ndarray) -> ld.Graph:
    """Every edge both ways."""
    heads, tails = weights.nonzero()
    return ld.Graph.of_pairs(heads, tails, weights[heads, tails], nodes=len(weights))


GRAPH = linked(WEIGHTS)


def direct(strength: float, metric: np.ndarray | None = None, weights: np.ndarray = WEIGHTS) -> np.ndarray:
    """The minimum of the squared coupling by one dense solve."""
    laplacian = strength * (np.diag(weights.sum(1)) - weights)
    whole = np.kron(laplacian, np.eye(WIDTH) if metric is None else metric)
    right = np.zeros(len(whole))
    for node in range(NODES):
        here, own = slice(node * WIDTH, (node + 1) * WIDTH), node == OWNERS
        whole[here, here] += FEATURES[own].T @ FEATURES[own]
        right[here] = FEATURES[own].T @ TARGETS[own]
    return np.linalg.solve(whole, right).reshape(NODES, WIDTH)


def models(strength: float, coupling: str, **more: object) -> np.ndarray:
    method = ld.gtvmin(strength, coupling, **{**PLAIN, **more})
    found = method(GRAPH, OWNERS, FEATURES, TARGETS)
    assert not found.status.any()
    return found.values.numpy()


SEPARATE = np.array(
    [np.linalg.lstsq(FEATURES[node == OWNERS], TARGETS[node == OWNERS])[0] for node in range(NODES)]
)
POOLED = np.linalg.lstsq(FEATURES, TARGETS)[0]


@pytest.mark.parametrize("coupling", ["norm", "squared"])
def test_without_strength_nodes_are_alone_and_with_much_they_are_one(coupling: str):
    np.testing.assert_allclose(models(0.0, coupling), SEPARATE, atol=1e-12)
    strength, apart = (1e3, 1e-9) if coupling == "norm" else (1e7, 1e-5)
    np.testing.assert_allclose(models(strength, coupling), np.tile(POOLED, (NODES, 1)), atol=apart)


@pytest.mark.parametrize("strength", [1e-3, 2.0, 1e3])
def test_the_squared_coupling_is_one_linear_system(strength: float):
    np.testing.assert_allclose(models(strength, "squared"), direct(strength), atol=1e-10)


def test_the_squared_minimum_rests_under_block_updates():
    found = models(2.0, "squared")
    for node in range(NODES):
        own, near = node == OWNERS, 2.0 * WEIGHTS[node]
        curve = FEATURES[own].T @ FEATURES[own] + near.sum() * np.eye(WIDTH)
        after = np.linalg.solve(curve, FEATURES[own].T @ TARGETS[own] + near @ found)
        np.testing.assert_allclose(after, found[node], atol=1e-10)


def test_refits_on_shared_rows_are_the_squared_coupling_in_their_metric():
    """Pseudo-labels are replaced: appended ones would weigh more each round."""
    method = ld.fed_relax(LinearRegression(fit_intercept=False), 1.7, tolerance=1e-13, rounds=5000)
    found = method(GRAPH, OWNERS, FEATURES, TARGETS, SHARED)
    slopes = np.array([each.coef_ for each in found.fitted])
    np.testing.assert_allclose(slopes, direct(1.7, SHARED.T @ SHARED / len(SHARED)), atol=1e-9)
    assert not found.status.any()
    answers = found.predict(OWNERS, FEATURES)
    np.testing.assert_allclose(answers.values[:, 0], (FEATURES * slopes[OWNERS]).sum(1), atol=1e-12)


def test_a_node_without_rows_gets_what_its_neighbors_say():
    others = OWNERS != 2
    for method in (ld.gtvmin(1.0), ld.gtvmin(1.0, "squared")):
        found = method(GRAPH, OWNERS[others], FEATURES[others], TARGETS[others])
        assert found.status.tolist() == [0, 0, int(Status.LOW_SUPPORT), 0, 0]
        assert found.values.isfinite().all()
    mean = WEIGHTS[2] @ found.values.numpy() / WEIGHTS[2].sum()
    np.testing.assert_allclose(found.values[2], mean, atol=1e-7)
    trees = ld.fed_relax(DecisionTreeRegressor(max_depth=2, random_state=0), rounds=5)
    relaxed = trees(GRAPH, OWNERS[others], FEATURES[others], TARGETS[others], SHARED)
    assert relaxed.status[2] >= int(Status.LOW_SUPPORT)
    assert relaxed.predict([2], SHARED[:1]).values.isfinite().all()


def test_what_nobody_tells_has_a_status_and_no_number():
    """A pair with rows, one node with too few and alone, a pair without any, one alone without any."""
    graph = ld.Graph.of_pairs([0, 3], [1, 4], nodes=6)
    rows = OWNERS < 1
    owners = np.concatenate([OWNERS[rows], [2]])
    x, y = np.vstack([FEATURES[rows], FEATURES[-1:]]), np.append(TARGETS[rows], 1.0)
    for method in (ld.gtvmin(1.0), ld.gtvmin(1.0, "squared")):
        found = method(graph, owners, x, y)
        names = [Status(code).name for code in found.status.tolist()]
        assert names == ["OK", "LOW_SUPPORT", "RANK_DEFICIENT", "EMPTY", "EMPTY", "EMPTY"]
        assert found.values[3:].isnan().all()
        design = np.append(1.0, FEATURES[-1])
        np.testing.assert_allclose(found.values[2], design / (design @ design), atol=1e-9)  # minimum norm
        answers = found.predict(torch.tensor([0, 2, 3, -1]), torch.tensor(FEATURES[:4]))
        assert answers.status.tolist() == [0, int(Status.RANK_DEFICIENT), *[int(Status.EMPTY)] * 2]
        assert answers.values[2:].isnan().all()
    relaxed = ld.fed_relax(LinearRegression())(graph, owners, x, y, SHARED)
    assert relaxed.status.tolist()[3:] == [int(Status.EMPTY)] * 3


@pytest.mark.parametrize("coupling", ["norm", "squared"])
def test_order_of_rows_and_ways_of_edges_do_not_matter(coupling: str):
    order = np.random.default_rng(1).permutation(len(OWNERS))
    heads, tails = np.triu(WEIGHTS).nonzero()
    once = ld.Graph.of_pairs(tails, heads, WEIGHTS[heads, tails], nodes=NODES)
    method = ld.gtvmin(0.7, coupling, **PLAIN)
    found = method(once, OWNERS[order], FEATURES[order], TARGETS[order])
    np.testing.assert_allclose(found.values, models(0.7, coupling), atol=1e-10)


@pytest.mark.parametrize("coupling", ["norm", "squared"])
def test_rows_and_edges_without_weight_are_absent(coupling: str):
    method = ld.gtvmin(0.7, coupling, **PLAIN)
    x, y = np.vstack([FEATURES, 100 * FEATURES[:3]]), np.append(TARGETS, [1, 2, 3])
    weights = np.append(np.ones(len(OWNERS)), np.zeros(3))
    found = method(GRAPH, np.append(OWNERS, [0, 1, 2]), x, y, weights)
    np.testing.assert_allclose(found.values, models(0.7, coupling), atol=1e-10)


@pytest.mark.parametrize("coupling", ["norm", "squared"])
@pytest.mark.parametrize("family", ["linear", "logistic", "poisson", "gamma"])
def test_no_step_goes_further_down(coupling: str, family: str):
    """Families are convex: where no direction goes down, it is the minimum."""
    targets = {"linear": TARGETS, "logistic": (TARGETS > 0.3) * 1.0}.get(family, np.ceil(np.exp(TARGETS)))
    method = ld.gtvmin(0.4, coupling, family, ridge=0.2)
    found = method(GRAPH, OWNERS, FEATURES, targets)
    assert not found.status.any()

    def value(at: np.ndarray) -> float:
        eta = at[OWNERS, 0] + (FEATURES * at[OWNERS, 1:]).sum(1)
        loss = {
            "linear": (eta - targets) ** 2 / 2, "logistic": np.logaddexp(0, eta) - targets * eta,
            "poisson": np.exp(eta) - targets * eta, "gamma": targets * np.exp(-eta) + eta,
        }[family].sum()  # fmt: skip
        heads, tails = np.triu(WEIGHTS).nonzero()
        apart = np.linalg.norm(at[heads] - at[tails], axis=1)
        cost = (WEIGHTS[heads, tails] * (apart if coupling == "norm" else apart**2 / 2)).sum()
        return loss + 0.1 * (at[:, 1:] ** 2).sum() + 0.4 * cost

    here = value(found.values.numpy())
    assert here == pytest.approx(found.objective, rel=1e-9)
    rng = np.random.default_rng(2)
    for size in (1e-1, 1e-3, 1e-4):
        for _ in range(40):
            step = rng.normal(size=found.values.shape) * (rng.random(found.values.shape[0]) < 0.5)[:, None]
            assert value(found.values.numpy() + size * step) >= here - 1e-9


@pytest.mark.parametrize("coupling", ["norm", "squared"])
def test_what_weighs_nothing_connects_nobody_and_is_no_row(coupling: str):
    """A node at an edge of weight 0, one of rows of weight 0 beside a neighbor, one of such rows alone."""
    graph = ld.Graph.of_pairs([0, 0], [1, 2], [0.0, 1.0], nodes=4)
    some = OWNERS < 1
    owners = np.concatenate([OWNERS[some], [2, 2, 3]])
    x, y = np.vstack([FEATURES[some], FEATURES[:3]]), np.append(TARGETS[some], [-1.0, 2.0, -3.0])
    weights = np.append(np.ones(some.sum()), np.zeros(3))
    for family in ("linear", "poisson"):
        targets = np.where(
            weights > 0, np.abs(y), y
        )  # no counts are below 0; those that weigh nothing may be
        found = ld.gtvmin(1.0, coupling, family, ridge=0.1)(graph, owners, x, targets, weights)
        names = [Status(code).name for code in found.status.tolist()]
        assert names == ["OK", "EMPTY", "LOW_SUPPORT", "EMPTY"]
        assert found.rows.tolist() == [EACH, 0, 0, 0]
        assert found.values[[1, 3]].isnan().all()
    relaxed = ld.fed_relax(Ridge())(graph, owners, x, y, SHARED, weights)
    assert [Status(code).name for code in relaxed.status.tolist()] == names


def test_an_edge_to_oneself_draws_nobody():
    loops = ld.Graph.of_pairs([0, 0, 1], [1, 0, 1], [1.0, 9.0, 9.0], nodes=2)
    plain, some = ld.Graph.of_pairs([0], [1], nodes=2), OWNERS < 2
    found = [
        ld.fed_relax(Ridge(), 3.0)(graph, OWNERS[some], FEATURES[some], TARGETS[some], SHARED).said
        for graph in (loops, plain)
    ]
    torch.testing.assert_close(*found)


class Picky(Ridge):
    """Refuses targets and rows that are large."""

    def fit(self, X: object, y: object, sample_weight: object = None) -> "Picky":
        if np.max(y) > 50:
            raise ValueError("too large")
        return super().fit(X, y, sample_weight)

    def predict(self, X: object) -> object:
        if np.max(X) > 500:
            raise ValueError("too far")
        return super().predict(X) * np.where(np.max(X, 1) > 50, np.inf, 1.0)


def test_a_fit_that_fails_and_numbers_that_overflow_are_told():
    graph = ld.Graph.of_pairs([0, 1], [1, 2], nodes=4)
    owners, y = np.minimum(OWNERS, 3), np.where(OWNERS == 1, 100.0, TARGETS)
    rows = owners < 3
    relaxed = ld.fed_relax(Picky())(graph, owners[rows], FEATURES[rows], y[rows], SHARED)
    assert [Status(code).name for code in relaxed.status.tolist()] == ["OK", "NOT_FINITE", "OK", "EMPTY"]
    alone = ld.fed_relax(Picky(), 0.0)(graph, owners[rows], FEATURES[rows], y[rows], SHARED)
    torch.testing.assert_close(relaxed.said, alone.said, equal_nan=True)  # who says nothing draws nobody
    x = np.ones((7, WIDTH)) * np.array([1, 100, 1000, 1, 1, 1, np.nan])[:, None]
    found = relaxed.predict([0, 0, 2, 1, 3, -1, 0], x)
    told = ["OK", "NOT_FINITE", "NOT_FINITE", "NOT_FINITE", "EMPTY", "EMPTY", "BAD_QUERY"]
    assert [Status(code).name for code in found.status.tolist()] == told
    assert found.values[:, 0].isnan().tolist() == [False] + [True] * 6
    many = ld.gtvmin(family="poisson", ridge=0.1)(GRAPH, OWNERS, FEATURES, np.ceil(np.exp(TARGETS)))
    slopes = many.values[0, 1:].numpy()
    counts = many.predict([0, 0], np.stack([0 * slopes, 800 * slopes / (slopes @ slopes)]))
    assert counts.status.tolist() == [0, int(Status.NOT_FINITE)]
    assert counts.values[:, 0].isnan().tolist() == [False, True]
    with pytest.raises(UsageError, match="sample_weight"):
        ld.fed_relax(KNeighborsRegressor())


def test_estimators_do_not_depend_on_the_order_of_the_rows():
    method = ld.fed_relax(Ridge(), rounds=3)
    there = [0, *np.random.default_rng(5).permutation(len(OWNERS) - 1) + 1]
    parts = [method(GRAPH, OWNERS[o], FEATURES[o], TARGETS[o], SHARED) for o in (range(len(OWNERS)), there)]
    assert torch.equal(parts[0].said, parts[1].said)


def test_answers_do_not_depend_on_the_order_of_the_queries():
    found = ld.fed_relax(DecisionTreeRegressor(max_depth=3, random_state=0), rounds=2)(
        GRAPH, OWNERS, FEATURES, TARGETS, SHARED
    )
    order = np.random.default_rng(4).permutation(len(OWNERS))
    answers = found.predict(OWNERS[order], FEATURES[order]).values
    for node in range(NODES):
        mine = OWNERS[order] == node
        np.testing.assert_array_equal(answers[mine, 0], found.fitted[node].predict(FEATURES[order][mine]))


def test_devices_rest_where_no_slope_is_left_however_hard_groups_pull():
    groups = np.zeros((1, NODES), int)
    for mu in (30.0, 1e6):
        found = ld.dem_learn(mu, intercept=False)(groups, OWNERS, FEATURES, TARGETS)
        at = found.values.numpy()
        left, pulls = mu / NODES * (at - at.mean(0)), np.zeros_like(at)
        for node in range(NODES):
            own = node == OWNERS
            left[node] += FEATURES[own].T @ (FEATURES[own] @ at[node] - TARGETS[own])
            pulls[node] = FEATURES[own].T @ TARGETS[own]
        assert np.linalg.norm(left) < 1e-9 * np.linalg.norm(pulls)
        assert not found.status.any()
        assert found.rows.tolist() == [EACH] * NODES
    np.testing.assert_allclose(at, np.tile(POOLED, (NODES, 1)), atol=1e-4)
    hasty = ld.dem_learn(30.0, tolerance=1e-12, rounds=1)(groups, OWNERS, FEATURES, TARGETS)
    assert set(hasty.status.tolist()) == {int(Status.NOT_CONVERGED)}
    with pytest.raises(UsageError, match="levels"):
        ld.dem_learn()(GRAPH, OWNERS, FEATURES, TARGETS)


def test_a_round_too_few_is_told():
    found = ld.gtvmin(1.0, rounds=1)(GRAPH, OWNERS, FEATURES, TARGETS)
    assert set(found.status.tolist()) == {int(Status.NOT_CONVERGED)}
    assert max(found.gap, found.residual) > 1e-8


def test_levels_of_groups_are_a_squared_coupling():
    groups = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]])
    alike = groups[:, :, None] == groups[:, None]
    weights = (alike / alike.sum(2, keepdims=True) ** 2).sum(0)
    np.fill_diagonal(weights, 0.0)
    found = ld.dem_learn(3.0, intercept=False, tolerance=1e-13)(groups, OWNERS, FEATURES, TARGETS)
    np.testing.assert_allclose(found.values, direct(3.0, weights=weights), atol=1e-10)
    assert not found.status.any()


def test_one_level_is_fedprox_and_without_mu_devices_are_alone():
    alone = ld.dem_learn(0.0, intercept=False)(np.zeros((1, NODES), int), OWNERS, FEATURES, TARGETS)
    np.testing.assert_allclose(alone.values, SEPARATE, atol=1e-12)
    found = ld.dem_learn(10.0, intercept=False, tolerance=1e-14)(
        np.zeros((1, NODES), int), OWNERS, FEATURES, TARGETS
    ).values.numpy()
    for node in range(NODES):
        own, drawn = node == OWNERS, 10.0 / NODES
        curve = FEATURES[own].T @ FEATURES[own] + drawn * np.eye(WIDTH)
        after = np.linalg.solve(curve, FEATURES[own].T @ TARGETS[own] + drawn * found.mean(0))
        np.testing.assert_allclose(after, found[node], atol=1e-10)


LABELS = np.digitize(FEATURES @ [1.0, -0.5, 0.2] + 0.3 * TARGETS, [-0.5, 0.5])
CHARTS = [LogisticRegression().fit(FEATURES[part::3], LABELS[part::3]) for part in range(3)]
VOTES = np.stack([chart.predict_proba(FEATURES) for chart in CHARTS])


def test_charts_without_thresholds_are_the_average():
    np.testing.assert_allclose(ld.logifold(CHARTS)(FEATURES).values, VOTES.mean(0), atol=1e-12)


def test_hard_domains_that_do_not_overlap_ask_one_chart_each():
    place = np.digitize(FEATURES[:, 0], [-0.4, 0.4])
    domains = [lambda rows, part=part: np.digitize(rows[:, 0], [-0.4, 0.4]) == part for part in range(3)]
    found = ld.logifold(CHARTS, domains)(FEATURES)
    np.testing.assert_allclose(found.values, VOTES[place, np.arange(len(place))], atol=1e-12)
    nowhere = ld.logifold(CHARTS[:2], domains[:2])(FEATURES)
    assert (nowhere.status == int(Status.EMPTY)).tolist() == (place == 2).tolist()
    assert nowhere.values[place == 2].isnan().all()


def test_thresholds_are_the_smallest_that_are_right_often_enough():
    folded = ld.logifold(CHARTS).calibrated(FEATURES, LABELS, 0.9)
    sure = VOTES.max(2)
    for chart, threshold in enumerate(folded.thresholds):
        right = VOTES[chart].argmax(1) == LABELS
        good = [t for t in [0.0, *np.sort(sure[chart])] if right[sure[chart] >= t].mean() >= 0.9]
        assert threshold == pytest.approx(good[0], abs=1e-12)
    kept = sure >= np.array(folded.thresholds)[:, None]
    mean = (kept[:, :, None] * VOTES).sum(0) / np.maximum(kept.sum(0), 1)[:, None]
    found = folded(FEATURES)
    some = kept.any(0)
    np.testing.assert_allclose(found.values[some], mean[some], atol=1e-12)
    assert (found.status == int(Status.LOW_SUPPORT)).tolist() == (~some).tolist()
    np.testing.assert_allclose(found.values[~some], VOTES.mean(0)[~some], atol=1e-12)
    torch.testing.assert_close(certainty(torch.tensor(VOTES)), torch.tensor(sure))


def test_a_chart_is_as_right_as_it_says_and_never_by_silence():
    """55 of 100 are 0.55, though 0.55 * 100 > 55; a chart that says nothing says no first class."""
    votes = torch.tensor([[0.8, 0.2]]).double().expand(1, 100, 2)
    judged = Judged.of(votes, torch.ones(1, 100).double(), (torch.arange(100) >= 55).long())
    assert judged.lowest(0.55).tolist() == [0.0]
    assert judged.lowest(0.56).tolist() == [float("inf")]
    silent = Judged.of(votes * torch.nan, torch.ones(1, 100).double(), torch.zeros(100))
    assert silent.hits.sum() == 0
    with pytest.raises(DataError, match="rows that are held out"):
        Judged.of(votes[:, :0], torch.ones(1, 0).double(), torch.zeros(0)).lowest(0.5)


def test_what_charts_are_worth_does_not_depend_on_parts():
    rng = np.random.default_rng(3)
    sure, right = torch.tensor(rng.integers(3, 6, (1, 99)) / 7), torch.tensor(rng.integers(0, 2, (1, 99)))
    seen = torch.tensor(rng.random((1, 99)))
    parts = [
        Judged(sure[:, some], (right * seen)[:, some], seen[:, some]) for some in torch.arange(99).split(9)
    ]
    one, two = Judged.joined(parts), Judged.joined(parts[::-1])
    for name in ("sure", "hits", "seen"):
        assert torch.equal(getattr(one, name), getattr(two, name))


def test_words_and_nothing_are_no_numbers():
    method = LogisticRegression()
    for wrong, make in (
        ("a strength", lambda given: ld.gtvmin(given)),
        ("a tolerance", lambda given: ld.gtvmin(tolerance=given)),
        ("a ridge", lambda given: ld.gtvmin(ridge=given)),
        ("a strength", lambda given: ld.fed_relax(method, given)),
        ("a tolerance", lambda given: ld.fed_relax(method, tolerance=given)),
        ("an accuracy", lambda given: ld.atlas(method, accuracy=given)),
        ("a share to hold out", lambda given: ld.atlas(method, holdout=given)),
    ):
        for given in (None, True, [1]):
            with pytest.raises(UsageError, match=wrong):
                make(given)
    with pytest.raises(UsageError, match="a strength"):
        coupled_method({"name": "gtvmin", "strength": "high"})
    path = "sklearn.tree.DecisionTreeRegressor"
    with pytest.raises(UsageError, match="by name"):
        coupled_method({"name": "fed-relax", "estimator": path, "parameters": 5, "max_depth": 3})


def test_what_does_not_fit_is_refused():
    for wrong, given in (
        ("Align the rows", (GRAPH, OWNERS[:3], FEATURES, TARGETS)),
        ("nodes from 0 to 4", (GRAPH, OWNERS + 1, FEATURES, TARGETS)),
        ("finite rows", (GRAPH, OWNERS, FEATURES * np.nan, TARGETS)),
        ("weights are 0 or more", (linked(-WEIGHTS), OWNERS, FEATURES, TARGETS)),
    ):
        with pytest.raises(UsageError, match=wrong):
            ld.gtvmin()(*given)
    with pytest.raises(UsageError, match="targets that logistic"):
        ld.gtvmin(family="logistic")(GRAPH, OWNERS, FEATURES, TARGETS)
    with pytest.raises(DataError, match="unit of a feature"):
        ld.gtvmin()(GRAPH, OWNERS, FEATURES * 1e200, TARGETS)
    with pytest.raises(UsageError, match="squared"):
        ld.gtvmin(coupling="squard")
    with pytest.raises(UsageError, match="strength"):
        ld.gtvmin(-1.0)
    method = ld.gtvmin(0.5, "squared", ridge=0.1)
    assert coupled_method(method.spec) == method
    with pytest.raises(UsageError, match="same classes"):
        ld.logifold([CHARTS[0], LinearRegression()])


def test_charts_refuse_what_is_no_share_and_no_class():
    for thresholds in (-0.1, 1.5, np.nan, (0.0, np.nan, 0.5)):
        with pytest.raises(UsageError, match="thresholds"):
            ld.logifold(CHARTS, thresholds=thresholds)
    for share in (-0.5, 2.0, np.nan):
        domains = [None, None, lambda rows, share=share: np.full(len(rows), share)]
        with pytest.raises(UsageError, match="shares"):
            ld.logifold(CHARTS, domains)(FEATURES)
    with pytest.raises(UsageError, match="shares"):
        ld.logifold(CHARTS[:1], [lambda rows: np.ones((len(rows), 1))])(FEATURES)
    for labels in (LABELS + 1, LABELS - 1, LABELS + 0.5, LABELS[:5], LABELS * np.nan):
        with pytest.raises(UsageError, match="labels"):
            ld.logifold(CHARTS).calibrated(FEATURES, labels)
    for labels in (LABELS - 1, LABELS + 0.5):
        with pytest.raises(UsageError, match="labels"):
            ld.atlas(LogisticRegression(), 1)(FEATURES, labels)
        with pytest.raises(UsageError, match="labels"):
            ld.fed_relax(LogisticRegression())(GRAPH, OWNERS, FEATURES, labels, FEATURES[:3])
    folded = ld.logifold(CHARTS).calibrated(FEATURES, (LABELS + 1) % 3, 1.0)  # never right
    assert np.isinf(folded.thresholds).any()
    assert ld.logifold(CHARTS, thresholds=folded.thresholds) == folded
