"""The estimators as scikit-learn sees them, beside its own, and as this package computes them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import locdist as ld
from locdist.errors import UsageError
from locdist.methods.named import method as named
from locdist.sklearn import LocalClassifier, LocalRegressor, LocalTransformer

# scikit-learn wants weights to be repeated rows: so neighborhoods of 32 rows and more, all of that check.
# Of a regressor it also wants a score of .5 on data where the plain mean of so many neighbors has less.
CHECKED = [
    LocalRegressor(),
    LocalRegressor("local-mean", k=40, kernel="gaussian", bandwidth={"nearest": 0.3}),
    LocalRegressor("local-mean", k=64, kernel="dot-product", metric="ip"),
    LocalRegressor("local-linear", kernel="gaussian"),
    LocalRegressor("local-linear", k=64, ridge=0.01),
    LocalRegressor("local-linear", kernel="laplace", bandwidth=2.0, ridge=0.1),
    LocalClassifier(),
    LocalClassifier(k=50, kernel="uniform"),
    LocalClassifier(k=64, kernel="laplace", bandwidth=3.0),
    LocalClassifier("local-logistic", k=64, kernel="gaussian", ridge=0.1),
    LocalTransformer(),
    LocalTransformer(k=64, kernel="gaussian", bandwidth=1.0),
]
SKIPPED_BY_SKLEARN = {"check_array_api_input"}  # runs where SCIPY_ARRAY_API is set


@pytest.mark.parametrize("estimator", CHECKED, ids=str)
def test_check_estimator_passes_without_an_expected_failure(estimator):
    checks = check_estimator(estimator, on_skip=None, on_fail="raise")
    assert len(checks) > 50
    left = {check["check_name"] for check in checks if check["status"] != "passed"}
    assert left <= SKIPPED_BY_SKLEARN


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] + rng.normal(0, 0.1, 300), rng.normal(size=(40, 3))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_knn_is_the_regressor_of_scikit_learn(data, metric):
    X, y, queries = data
    both = np.stack([y, -y], axis=1)
    for targets in (y, both):
        ours = LocalRegressor("knn", k=7, metric=metric).fit(X, targets).predict(queries)
        theirs = KNeighborsRegressor(7, metric=metric).fit(X, targets).predict(queries)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
        assert ours.shape == theirs.shape


@pytest.mark.parametrize("labels", [["pear", "apple", "fig"], [7, -1, 2], [True, False, True]])
def test_a_uniform_vote_is_the_classifier_of_scikit_learn(data, labels):
    X, y, queries = data
    classes = np.array(labels)[np.digitize(y, [-1, 1])]
    ours, theirs = (
        LocalClassifier(k=6, kernel="uniform").fit(X, classes),
        KNeighborsClassifier(6).fit(X, classes),
    )
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    np.testing.assert_allclose(ours.predict_proba(queries), theirs.predict_proba(queries), atol=1e-12)
    assert ours.predict(queries).tolist() == theirs.predict(queries).tolist()


def test_local_linear_is_a_weighted_ridge_at_each_query(data):
    X, y, queries = data
    model = LocalRegressor("local-linear", k=len(X), kernel="gaussian", bandwidth=0.7, ridge=0.01).fit(X, y)
    for query, value, coefficients in zip(
        queries, model.predict(queries), model.coefficients(queries), strict=True
    ):
        weights = np.exp(-((X - query) ** 2).sum(axis=1) / 0.7**2 / 2)
        peer = Ridge(0.01).fit(X, y, sample_weight=weights / weights.sum())
        np.testing.assert_allclose(value, peer.predict(query[None])[0], rtol=1e-9)
        np.testing.assert_allclose(coefficients, [value, *peer.coef_], rtol=1e-8)


def test_estimators_compute_what_the_methods_compute(data):
    X, y, queries = data
    method = ld.local_linear(k=20, kernel="epanechnikov")
    ours = LocalRegressor("local-linear", k=20, kernel="epanechnikov").fit(X, y)
    assert ours.predict(queries).tolist() == method(ld.Exact(X, y), queries).values[:, 0].tolist()
    method = named({"name": "local-polynomial", "degree": 2, "k": 40})
    ours = LocalRegressor({"name": "local-polynomial", "degree": 2}, k=40).fit(X, y)
    assert ours.predict(queries).tolist() == method(ld.Exact(X, y), queries).values[:, 0].tolist()
    smoothed = LocalTransformer(k=9).fit(X).transform(queries)
    assert smoothed.tolist() == ld.local_mean(k=9)(ld.Exact(X, X), queries).values.tolist()


def test_several_cores_compute_the_same():
    rng = np.random.default_rng(3)
    X, queries = rng.normal(size=(500, 2)), rng.normal(size=(1500, 2))
    one, two = (LocalRegressor("local-linear", n_jobs=jobs).fit(X, X[:, 0] ** 2) for jobs in (None, 2))
    np.testing.assert_allclose(one.predict(queries), two.predict(queries), rtol=1e-9)


def test_a_weight_is_a_repeated_row_where_all_rows_are_neighbors(data):
    X, y, queries = data
    weights = np.random.default_rng(1).integers(0, 4, len(X))
    again = np.repeat(np.arange(len(X)), weights)
    labels = y > 0
    for estimator, targets, ask in (
        (LocalRegressor("local-linear", k=900, kernel="gaussian"), y, "predict"),
        (LocalRegressor("local-mean", k=900), y, "predict"),
        (LocalClassifier(k=900, kernel="triangular"), labels, "predict_proba"),
        (LocalTransformer(k=900), None, "transform"),
    ):
        one = clone(estimator).fit(X, targets, sample_weight=weights)
        other = clone(estimator).fit(X[again], None if targets is None else targets[again])
        np.testing.assert_allclose(
            getattr(one, ask)(queries), getattr(other, ask)(queries), rtol=1e-8, atol=1e-10
        )


def test_a_row_of_weight_zero_takes_nobodys_place(data):
    X, y, queries = data
    weights = (np.arange(len(X)) % 3 > 0).astype(float)
    one = LocalRegressor("knn", k=5).fit(X, y, sample_weight=weights)
    other = LocalRegressor("knn", k=5).fit(X[weights > 0], y[weights > 0])
    assert one.predict(queries).tolist() == other.predict(queries).tolist()


def test_a_class_without_weight_has_no_chance_and_keeps_its_column(data):
    X, _, queries = data
    classes = np.array(["a", "b", "c"])[np.arange(len(X)) % 3]
    model = LocalClassifier().fit(X, classes, sample_weight=classes != "b")
    chances = model.predict_proba(queries)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert (chances[:, 1] == 0).all()
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert "b" not in model.predict(queries)


def test_a_small_support_is_used_whole(data):
    X, y, queries = data
    model = LocalRegressor("knn", k=50).fit(X[:4], y[:4])
    np.testing.assert_allclose(model.predict(queries), y[:4].mean())
    assert model.method_.spec["k"] == 4


def test_a_grid_searches_methods_in_a_pipeline(data):
    X, y, _ = data
    pipeline = make_pipeline(StandardScaler(), LocalRegressor())
    grid = [
        {"localregressor__method": ["knn"], "localregressor__k": [3, 400]},
        {
            "localregressor__method": ["local-linear"],
            "localregressor__k": [30],
            "localregressor__ridge": [0, 0.1],
        },
    ]
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_["localregressor__method"] == "local-linear"
    assert search.best_score_ > 0.9


def test_a_pipeline_of_two_transformers_is_two_layers(data):
    X, y, queries = data
    labels = y > 0
    pipeline = make_pipeline(LocalTransformer(k=5), LocalTransformer(k=5), LocalClassifier())
    assert cross_val_score(pipeline, X, labels, cv=3).mean() > 0.85
    first = LocalTransformer(k=5).fit(X)
    second = LocalTransformer(k=5).fit(first.transform(X))
    assert (
        pipeline.fit(X, labels)[:2].transform(queries).tolist()
        == second.transform(first.transform(queries)).tolist()
    )


def test_output_keeps_names_and_precision(data):
    X, _, _ = data
    frame = pd.DataFrame(X, columns=["east", "north", "rooms"], index=range(5, 305))
    out = LocalTransformer().set_output(transform="pandas").fit(frame).transform(frame)
    assert list(out.columns) == list(frame.columns)
    assert out.index.equals(frame.index)
    assert LocalTransformer().fit(X.astype("f4")).transform(X.astype("f4")).dtype == np.float32


def test_metadata_is_routed_on_request():
    for estimator in (LocalRegressor(), LocalClassifier(), LocalTransformer()):
        assert "sample_weight" in estimator.get_metadata_routing().fit.requests
    for estimator in (LocalRegressor(), LocalClassifier()):
        assert "sample_weight" in estimator.get_metadata_routing().score.requests


def test_a_fitted_estimator_is_pickled(data):
    X, y, queries = data
    model = LocalRegressor().fit(X, y)
    assert pickle.loads(pickle.dumps(model)).predict(queries).tolist() == model.predict(queries).tolist()


def test_nobody_in_reach_is_nan_with_a_warning_and_an_error_for_labels(data):
    X, y, _ = data
    far = np.full((2, 3), 1e3)
    with pytest.warns(UserWarning, match="2 of 2 rows have no neighbor in reach"):
        values = LocalRegressor(kernel="tricube", bandwidth=0.5).fit(X, y).predict(far)
    assert np.isnan(values).all()
    with pytest.raises(ValueError, match="a neighbor in reach of each row"):
        LocalClassifier(kernel="tricube", bandwidth=0.5).fit(X, y > 0).predict(far)


@pytest.mark.parametrize(
    "estimator, said",
    [
        (LocalRegressor("knn", kernel="gaussian"), "a parameter of knn"),
        (LocalRegressor("local-vote"), "a method for LocalRegressor"),
        (LocalClassifier("knn"), "a method for LocalClassifier"),
        (LocalRegressor("gwr"), "gwr with k"),
        (LocalRegressor(metric="ip"), "the dot-product kernel"),
        (LocalRegressor(k=0), "k, a whole number"),
    ],
    ids=str,
)
def test_parameters_that_do_not_fit_are_told_by_fit(data, estimator, said):
    X, y, _ = data
    with pytest.raises(UsageError, match=said):
        estimator.fit(X, y > 0 if isinstance(estimator, LocalClassifier) else y)
