"""Any model and any loss, localized: against our own closed forms, and peers query by query."""

import pickle
import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy.optimize import minimize
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import HuberRegressor, LogisticRegression, PoissonRegressor, Ridge
from sklearn.tree import DecisionTreeRegressor

import locdist as ld
from locdist.errors import UsageError
from locdist.local.answers import WANTS, Status
from locdist.local.descent import NEWTON
from locdist.local.levels import uniform
from locdist.methods.method import Method
from locdist.methods.named import method
from tests.peers import functions

_RNG = np.random.default_rng(0)
N, D = 150, 3
X = _RNG.normal(size=(N, D))
Y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * _RNG.normal(size=N)
Q = _RNG.normal(size=(8, D))
ETA = 0.5 + X @ [0.8, -0.5, 0.2] + 0.3 * np.sin(2 * X[:, 0])
COUNTS = _RNG.poisson(np.exp(ETA)).astype(float)
YES = (_RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int)
AT = {"k": 60, "kernel": "gaussian", "bandwidth": 2.0}
HERE = "tests.peers.functions"


def ask(chosen: Method, targets: object, queries: object = Q, **index: object) -> ld.Answers:
    return chosen(ld.Exact(X, targets, **index), queries, want=WANTS)


def close(ours: object, theirs: object, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def each(answers: ld.Answers):
    """For each query: itself, its neighbors, their weights."""
    assert (answers.status == Status.OK).all()
    return zip(Q, answers.ids.numpy(), answers.weights.numpy(), strict=True)


# --------------------------------------------------------------------------- closed forms that we have


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_a_plane_with_the_squared_loss_is_local_linear(ridge):
    both = np.column_stack([Y, 1e3 * Y**2])
    ours = ask(ld.localize("linear", **AT, ridge=ridge), both)
    theirs = ask(ld.local_linear(**AT, ridge=ridge), both)
    assert (ours.status == Status.OK).all()
    close(ours.values, theirs.values)
    close(ours.coefficients, theirs.coefficients)


def test_a_constant_with_the_squared_loss_is_the_local_mean():
    close(ask(ld.localize("constant", **AT), Y).values, ask(ld.local_mean(**AT), Y).values)


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
@pytest.mark.parametrize("loss, other", [("logistic", ld.local_logistic), ("poisson", ld.local_poisson)])
def test_a_plane_with_a_likelihood_is_a_generalized_linear_model(loss, other, ridge):
    targets = YES if loss == "logistic" else COUNTS
    ours, theirs = (
        ask(ld.localize("linear", loss, **AT, ridge=ridge), targets),
        ask(other(**AT, ridge=ridge), targets),
    )
    assert (ours.status == Status.OK).all()
    close(ours.values[:, 0], theirs.values[:, -1])
    close(ours.coefficients[:, :, 0], theirs.coefficients[:, :, -1])


def test_amounts():
    amounts = np.exp(ETA) * _RNG.gamma(3.0, size=N)
    close(
        ask(ld.localize("linear", "gamma", **AT), amounts).values, ask(ld.local_gamma(**AT), amounts).values
    )


# --------------------------------------------------------------------------- other losses and functions


@pytest.mark.parametrize("delta", [0.05, 0.5, 50.0])
def test_the_huber_loss_is_minimised(delta):
    """By scipy from several starts, and where nobody is far it is the squared loss."""
    answers = ask(ld.localize("linear", {"huber": delta}, **AT), Y)
    for row, (query, ids, weights) in enumerate(each(answers)):
        design = np.column_stack([np.ones(len(ids)), X[ids] - query])

        def risk(theta, design=design, ids=ids, weights=weights):
            size = np.abs(design @ theta - Y[ids])
            return weights @ np.where(size <= delta, size**2 / 2, delta * (size - delta / 2))

        best = min(
            (minimize(risk, begin, method="BFGS", options={"gtol": 1e-12}) for begin in np.eye(4)),
            key=lambda m: m.fun,
        )
        assert risk(answers.coefficients[row, :, 0].numpy()) <= best.fun + 1e-13
        close(answers.values[row, 0], best.x[0], 1e-4)
    if delta == 50.0:
        close(answers.values, ask(ld.local_linear(**AT), Y).values)


def test_far_targets_hardly_pull_a_robust_plane():
    spoiled = Y.copy()
    spoiled[::15] += 1e6
    answers = ask(ld.localize("linear", {"huber": 0.1}, k=N, kernel="uniform"), spoiled)
    peer = HuberRegressor(epsilon=1.01, alpha=0, tol=1e-9, max_iter=10_000).fit(X, spoiled)
    assert (answers.status == Status.OK).all()
    assert np.abs(answers.values[:, 0].numpy() - peer.predict(Q)).max() < 0.5
    assert np.abs(ask(ld.local_linear(k=N, kernel="uniform"), spoiled).values.numpy()).max() > 1e3


@pytest.mark.parametrize("model", [functions.wave, f"{HERE}:wave"])
def test_a_function_of_the_user_with_a_loss_of_the_user(model):
    loss = functions.pseudo_huber if callable(model) else f"{HERE}:pseudo_huber"
    answers = ask(ld.localize(model, loss, parameters=[0.0, 1.0, 0.0], ridge=1e-3, **AT), Y)
    for row, (query, ids, weights) in enumerate(each(answers)):
        near = X[ids] - query

        def risk(theta, near=near, ids=ids, weights=weights):
            number = theta[0] + theta[1] * np.sin(theta[2] + near[:, 0])
            away = theta - [0.0, 1.0, 0.0]
            return weights @ (np.sqrt(1 + (number - Y[ids]) ** 2) - 1) + 1e-3 / 2 * away @ away

        theta = answers.coefficients[row, 1:, 0].numpy()
        peer = minimize(risk, theta, method="BFGS", options={"gtol": 1e-12})
        assert risk(theta) <= peer.fun + 1e-12
        close(answers.values[row, 0], theta[0] + theta[1] * np.sin(theta[2]), 1e-12)


@pytest.mark.parametrize("width", [3, 12])
def test_a_network_is_localized_from_the_parameters_that_it_has(width):
    """With few parameters by Newton's method, with more by L-BFGS: no gradient is left."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(D, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    count = sum(part.numel() for part in network.parameters())
    assert (count > NEWTON) == (width == 12)
    answers = ask(ld.localize(network, **AT, ridge=0.01), Y)
    begin = torch.nn.utils.parameters_to_vector(network.parameters()).double().detach()
    double = network.double()
    for row, (query, ids, weights) in enumerate(each(answers)):
        theta = answers.coefficients[row, 1:, 0].clone().requires_grad_()
        parts, at = {}, 0
        for name, part in double.named_parameters():
            parts[name] = theta[at : at + part.numel()].reshape(part.shape)
            at += part.numel()
        near = torch.from_numpy(X[ids] - query)
        number = torch.func.functional_call(double, parts, (near,))[:, 0]
        risk = (torch.from_numpy(weights) * (number - torch.from_numpy(Y[ids])) ** 2 / 2).sum()
        risk = risk + 0.01 / 2 * (theta - begin).square().sum()
        (gradient,) = torch.autograd.grad(risk, theta)
        assert gradient.abs().max() < 1e-5
        here = torch.func.functional_call(double, parts, (torch.zeros(1, D, dtype=torch.float64),))
        close(answers.values[row, 0], here.item(), 1e-12)


def test_a_heavy_ridge_leaves_a_network_as_it_is():
    network = functions.NETWORK
    chosen = ld.localize(f"{HERE}:NETWORK", k=20, ridge=1e12)
    answers = chosen(ld.Exact(X[:, :2], Y), Q[:, :2])
    close(answers.values, float(network(torch.zeros(1, 2)).item()), 1e-6)


def test_what_has_no_minimum_is_told():
    """Classes that a plane separates, without a ridge; and targets that the likelihood cannot have."""
    keys = np.linspace(-1, 1, 40)[:, None]
    apart = ld.Exact(keys, (keys[:, 0] > 0).astype(int))
    told = ld.localize("linear", "logistic", k=40)(apart, [[0.5]])
    assert told.status.tolist() == [Status.NOT_CONVERGED]
    assert told.values[0, 0] > 0.999
    wrong = np.ones(40)
    wrong[0] = -1.0
    answers = ld.localize("linear", "poisson", k=10)(ld.Exact(keys, wrong), [[-1.0], [1.0]])
    assert answers.status.tolist() == [Status.NOT_FINITE, Status.OK]
    few = ld.localize("linear", k=2)(ld.Exact(X, Y), Q)
    assert (few.status == Status.RANK_DEFICIENT).all()
    close(few.values, ld.local_linear(k=2)(ld.Exact(X, Y), Q).values, 0.5)


# --------------------------------------------------------------------------- estimators of scikit-learn


@pytest.mark.parametrize(
    "estimator", [Ridge(0.1), DecisionTreeRegressor(max_depth=3, random_state=0)], ids=str
)
def test_an_estimator_is_fitted_with_the_weights(estimator):
    both = np.column_stack([Y, Y**2])
    for targets in (Y, both):
        answers = ask(ld.localize(estimator, **AT), targets)
        for row, (query, ids, weights) in enumerate(each(answers)):
            peer = estimator.fit(X[ids], targets[ids], sample_weight=weights)
            close(answers.values[row], peer.predict(query[None]).reshape(-1), 1e-12)


def test_an_estimator_of_classes_has_probabilities():
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.3 * X[:, 1], [-2.5, 1.0])]
    forest = RandomForestClassifier(5, max_depth=3, random_state=0)
    answers = ask(ld.localize(forest, k=25), labels)
    for row, (query, ids, weights) in enumerate(each(answers)):
        there = weights > 0
        peer = RandomForestClassifier(5, max_depth=3, random_state=0)
        codes = np.searchsorted(["a", "b", "c"], labels[ids][there])
        peer.fit(X[ids][there], codes, sample_weight=weights[there])
        expected = np.zeros(3)
        expected[peer.classes_] = peer.predict_proba(query[None])[0]
        close(answers.values[row], expected, 1e-12)


def test_a_fit_that_fails_spoils_its_own_query():
    keys = np.linspace(-1, 1, 40)[:, None]
    counts = np.ones(40)
    counts[0] = -1.0
    answers = ld.localize(PoissonRegressor(), k=10)(ld.Exact(keys, counts), [[-1.0], [1.0]])
    assert answers.status.tolist() == [Status.NOT_FINITE, Status.OK]
    one = ld.localize(LogisticRegression(), k=5)(
        ld.Exact(keys, (keys[:, 0] > 0).astype(int)), [[-1.0], [1.0]]
    )
    assert one.values.tolist() == [[1.0, 0.0], [0.0, 1.0]]


# --------------------------------------------------------------------------- levels


def gauss(queries: np.ndarray, keys: np.ndarray, h: float) -> np.ndarray:
    return np.exp(-((queries[:, None] - keys) ** 2).sum(axis=2) / (2 * h * h))


def test_two_levels_are_one_with_the_product_of_the_kernels():
    """THEORY B10: without a nonlinearity between, depth adds range."""
    first, second = gauss(Q, X, 1.0), gauss(X, X, 2.0)
    product = (first / first.sum(1, keepdims=True)) @ (second / second.sum(1, keepdims=True))
    mean = ld.local_mean(N, "gaussian", 2.0)
    close(ask(ld.localize(mean, kernel="gaussian", bandwidth=1.0), Y).values[:, 0], product @ Y)
    linear = ld.localize(ld.local_linear(N, "gaussian", 2.0), kernel="gaussian", bandwidth=1.0)
    answers = ask(linear, Y)
    for row, query in enumerate(Q):
        peer = Ridge(0.0, solver="svd").fit(X - query, Y, sample_weight=product[row])
        close(answers.values[row, 0], peer.intercept_)
        close(answers.coefficients[row, 1:, 0], peer.coef_)


def test_what_is_localized_is_localized_again():
    robust = ld.localize("linear", {"huber": 0.5}, k=N, kernel="gaussian", bandwidth=1.0)
    twice = ld.localize(robust, bandwidth=1.5)
    thrice = ld.localize(twice, kernel="gaussian", bandwidth=0.7)
    weights = gauss(Q, X, 1.5)
    around = gauss(X, X, 1.0)
    around = around / around.sum(1, keepdims=True)
    weights = weights / weights.sum(1, keepdims=True) @ around
    answers = ask(twice, Y)
    flat = ld.localize("linear", {"huber": 0.5}, k=N, kernel="uniform")
    for row, query in enumerate(Q[:2]):
        peer = flat(ld.Exact(X, Y, weights=weights[row]), query[None])
        close(answers.values[row], peer.values[0], 1e-7)
    outer = gauss(Q, X, 0.7)
    middle = gauss(X, X, 1.5)
    outer = outer / outer.sum(1, keepdims=True) @ (middle / middle.sum(1, keepdims=True)) @ around
    peer = flat(ld.Exact(X, Y, weights=outer[0]), Q[:1])
    close(ask(thrice, Y).values[0], peer.values[0], 1e-7)
    assert (answers.status == Status.OK).all()


def test_levels_of_votes_scores_products_and_adaptive_bandwidths():
    dot = ld.local_vote(N, "dot-product", 2.0)
    answers = ask(ld.localize(dot), YES, metric="ip")
    first, second = (np.exp(one @ X.T / 2) for one in (Q, X))
    product = (first / first.sum(1, keepdims=True)) @ (second / second.sum(1, keepdims=True))
    close(answers.values[:, 1], product @ YES)
    groups = {
        "product": [{"columns": 1, "bandwidth": 3.0}, {"columns": 2, "kernel": "gaussian", "bandwidth": 1.0}]
    }
    for chosen in (
        ld.local_mean(30, groups),
        ld.local_mean(30),
        ld.local_mean(30, "tricube", {"sample-point": 5}),
    ):
        two = ask(ld.localize(chosen), Y)
        one = ask(chosen, Y)
        assert two.status.equal(one.status)
        assert (two.effective >= one.effective).all()
        assert (two.effective > one.effective).any()


def test_row_weights_are_repetitions_on_both_levels():
    times = np.random.default_rng(1).integers(1, 4, N)
    total = int(times.sum())
    few = ld.localize(ld.local_linear(N, "gaussian", 2.0))(ld.Exact(X, Y, weights=times), Q)
    many = ld.localize(ld.local_linear(total, "gaussian", 2.0))
    close(few.values, many(ld.Exact(X.repeat(times, axis=0), Y.repeat(times)), Q).values)


# --------------------------------------------------------------------------- the Monte-Carlo form


def test_many_draws_tend_to_the_weights():
    whole = ask(ld.local_mean(**AT), Y).values[:, 0].numpy()
    spread = ask(ld.local_variance(**AT), Y).values[:, 1].numpy() ** 0.5
    for draws in (100, 10_000):
        drawn = ask(ld.localize(ld.localize("constant", **AT), **AT), Y)  # another level is no sample
        sampled = ask(ld.localize("constant", **AT, draws=draws), Y).values[:, 0].numpy()
        assert (np.abs(sampled - whole) < 4 * spread / draws**0.5).all()
        assert np.abs(drawn.values[:, 0].numpy() - whole).max() > 1e-3
    tree = DecisionTreeRegressor(max_depth=2, random_state=0)
    assert ask(ld.localize(tree, k=30, draws=50), Y).values.isfinite().all()


def test_draws_follow_from_the_query_and_the_seed():
    chosen = ld.localize("constant", k=30, draws=10)
    index = ld.Exact(X, Y)
    whole = chosen(index, Q, want=WANTS).weights
    alone = torch.cat([chosen(index, query[None], want=WANTS).weights for query in Q[::-1]]).flip(0)
    assert whole.equal(alone)
    close(whole * 10, (whole * 10).round(), 1e-12)
    close(whole.sum(1), 1.0, 1e-12)
    order = np.random.default_rng(0).permutation(N)
    assert not ld.localize("constant", k=30, draws=10, seed=1)(index, Q, want=WANTS).weights.equal(whole)
    assert len(order) == N


def test_drawn_numbers_are_uniform():
    numbers = uniform(torch.from_numpy(X), 1000, 0).numpy()
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, 100, (0, 1))
    expected = numbers.size / 100
    assert ((counts - expected) ** 2 / expected).sum() < 160  # 99 degrees of freedom: 1 in 10,000
    assert abs(np.corrcoef(numbers[:, :-1].ravel(), numbers[:, 1:].ravel())[0, 1]) < 4 / numbers.size**0.5


# --------------------------------------------------------------------------- choices, plans, files


def test_choices_are_data_that_can_be_pickled_and_compared():
    made = [
        ld.localize("linear", {"huber": 2.0}),
        ld.localize(f"{HERE}:wave", f"{HERE}:pseudo_huber", parameters=3),
        ld.localize(functions.wave, functions.pseudo_huber, parameters=3),
        ld.localize(f"{HERE}:NETWORK"),
        ld.localize(Ridge(0.5)),
        ld.localize(ld.localize(ld.local_linear(30)), draws=5),
    ]
    for one in made:
        assert pickle.loads(pickle.dumps(one)) == one
    assert made[1].layer == made[2].layer
    assert made[1].spec["model"] == f"{HERE}:wave"
    assert made[-1].spec["model"]["model"]["name"] == "local-linear"


def test_methods_are_made_again_from_a_file_without_code():
    for one in (
        ld.localize("constant", {"huber": 2.0}, k=9),
        ld.localize(ld.localize(ld.local_mean(9)), draws=5),
    ):
        assert method(one.spec) == one
    for spec in ({"model": f"{HERE}:wave"}, {"loss": f"{HERE}:pseudo_huber"}):
        with pytest.raises(UsageError, match=r"that has a name; got .* Code is given in Python"):
            method("localize", spec)


def test_a_function_by_its_path_runs_in_files_and_one_without_is_refused(tmp_path):
    rows = {"east": X[:, 0], "north": X[:, 1], "price": Y}
    index = ld.build_index(
        ld.dataset(rows, key=["east", "north"], target="price", scaling="none"), tmp_path / "index"
    )
    queries = pa.table({"east": Q[:, 0], "north": Q[:, 1]})
    chosen = ld.localize(functions.wave, parameters=3, k=40, ridge=0.1)
    ld.predict(
        chosen, index, queries, tmp_path / "out", extras=["parameters"], executor=ld.Local(1, processes=True)
    )
    found = pa.parquet.read_table(tmp_path / "out")
    answers = chosen(ld.Exact(X[:, :2], Y), Q[:, :2], want=WANTS)
    close(found["prediction"].to_numpy(), answers.values[:, 0])
    names = ["parameter_value", "parameter_1", "parameter_2", "parameter_3"]
    close(np.column_stack([found[name] for name in names]), answers.coefficients[:, :, 0])
    for model, last in (("constant", "parameter_value"), ("linear", "parameter_north")):
        told = ld.predict(ld.localize(model, k=40), index, queries, extras=["parameters"])
        assert told.column_names[-1] == last
    nameless = ld.localize(lambda x, theta: theta[0] + 0 * x[0], parameters=1, k=40)
    assert ld.predict(nameless, index, queries).num_rows == len(Q)
    with pytest.raises(UsageError, match="parameters that a file can tell"):
        ld.predict(nameless, index, queries, tmp_path / "nameless")


def test_wrong_choices_are_refused():
    with pytest.raises(UsageError, match="Did you mean 'linear'"):
        ld.localize("liner")
    with pytest.raises(UsageError, match="Did you mean 'huber'"):
        ld.localize(loss="hubert")
    with pytest.raises(UsageError, match="positive delta"):
        ld.localize(loss={"huber": -1})
    with pytest.raises(UsageError, match="something to import"):
        ld.localize("tests.peers.functions:nothing", parameters=1)
    with pytest.raises(UsageError, match="a model of torch and its parameters"):
        ld.localize(functions.wave)
    with pytest.raises(UsageError, match="draws"):
        ld.localize(draws=0)
    with pytest.raises(UsageError, match="a loss of its own"):
        ld.localize(ld.local_mean(), ridge=1.0)
    with pytest.raises(UsageError, match="a loss"):
        ld.localize(loss=3)


def test_no_warning_is_left_behind():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(ld.localize("linear", "huber", **AT), Y)
