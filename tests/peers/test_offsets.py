"""Offsets of generalized linear models: against statsmodels, query by query, in memory and on files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import statsmodels.api as sm
from statsmodels.genmod.families import Binomial, Gamma, Poisson
from statsmodels.genmod.families.links import Log

import locdist as ld
from locdist.errors import UsageError

_RNG = np.random.default_rng(0)
N, Q = 150, 6
X = _RNG.normal(size=(N, 2))
ADDED = _RNG.normal(size=N)
ETA = 0.3 + X @ [0.5, -0.4] + ADDED
TARGETS = {
    "poisson": _RNG.poisson(np.exp(ETA)).astype(float),
    "gamma": _RNG.gamma(2.0, np.exp(ETA) / 2),
    "binomial": (_RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(float),
}
METHODS = {
    "poisson": ld.local_poisson(80, "gaussian"),
    "gamma": ld.local_gamma(80, "gaussian"),
    "binomial": ld.gwr(80, "gaussian", family="binomial"),
}
PEERS = {"poisson": Poisson(), "gamma": Gamma(Log()), "binomial": Binomial()}
AT, HERE = _RNG.normal(size=(Q, 2)), _RNG.normal(size=Q)


@pytest.mark.parametrize("family", METHODS)
def test_an_offset_is_added_to_the_linear_predictor(family: str):
    index = ld.Exact(X, TARGETS[family], offsets=ADDED)
    answers = METHODS[family](index, AT, offsets=HERE, want=["neighbors", "coefficients", "spread"])
    assert (answers.status == ld.Status.OK).all()
    for row, (ids, weights) in enumerate(zip(answers.ids.numpy(), answers.weights.numpy(), strict=True)):
        terms = np.column_stack([np.ones(len(ids)), X[ids] - AT[row]])
        peer = sm.GLM(TARGETS[family][ids], terms, PEERS[family], offset=ADDED[ids], freq_weights=weights)
        fit = peer.fit(tol=1e-13, maxiter=200)
        np.testing.assert_allclose(answers.coefficients[row, :, 0], fit.params, rtol=1e-6, atol=1e-8)
        here = PEERS[family].link.inverse(fit.params[0] + HERE[row])
        np.testing.assert_allclose(answers.values[row, 0], here, rtol=1e-6)
        gain = answers.values[row, 0] * (1 - answers.values[row, 0] if family == "binomial" else 1)
        np.testing.assert_allclose(answers.spread[row, 0], gain * answers.errors[row, 0, 0], rtol=1e-9)


def test_a_constant_offset_moves_the_intercept_alone():
    fit, counts = METHODS["poisson"], TARGETS["poisson"]
    moved, still = (
        fit(ld.Exact(X, counts, offsets=np.full(N, by)), AT, offsets=np.full(Q, by), want=["coefficients"])
        for by in (2.0, 0.0)
    )
    np.testing.assert_allclose(moved.values, still.values, rtol=1e-9)
    np.testing.assert_allclose(moved.coefficients[:, 1:], still.coefficients[:, 1:], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(moved.coefficients[:, 0], still.coefficients[:, 0] - 2, rtol=1e-9, atol=1e-9)


TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "log_e": ADDED, "y": TARGETS["poisson"]})
ROLES = {"key": ["a", "b"], "target": "y", "offset": "log_e", "scaling": "none"}


@pytest.mark.parametrize("codes", ["exact", "flat"])
def test_offsets_are_a_role_of_files(codes: str, tmp_path: Path):
    index = ld.build_index(ld.dataset(TABLE, **ROLES), tmp_path / "index", codes=codes, nlist=None)
    queries = pa.table({"a": AT[:, 0], "b": AT[:, 1], "log_e": HERE})
    told = ld.predict(METHODS["poisson"], index, queries, recall=1.0)
    in_memory = METHODS["poisson"](ld.Exact(X, TARGETS["poisson"], offsets=ADDED), AT, offsets=HERE)
    np.testing.assert_allclose(told["prediction"], in_memory.values[:, 0], rtol=1e-9)
    bad = ld.predict(
        METHODS["poisson"], index, queries.set_column(2, "log_e", [[None, *HERE[1:]]]), recall=1.0
    )
    assert bad["status"].to_pylist()[0] == "bad_query"
    assert bad["prediction"].to_pylist()[1:] == told["prediction"].to_pylist()[1:]


def test_methods_without_a_linear_predictor_refuse_an_offset(tmp_path: Path):
    index = ld.build_index(ld.dataset(TABLE, **ROLES), tmp_path / "index")
    with pytest.raises(UsageError, match="a linear predictor for an offset"):
        ld.predict("local-linear", index, TABLE)
