"""Networks of models against other solvers: box-constrained least squares, quasi-Newton."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear, minimize

import locdist as ld

_RNG = np.random.default_rng(3)
NODES = 30
HEADS, TAILS = np.triu(_RNG.random((NODES, NODES)) < 0.15, 1).nonzero()
WEIGHTS = _RNG.uniform(0.5, 2.0, len(HEADS))
GRAPH = ld.Graph.of_pairs(HEADS, TAILS, WEIGHTS, nodes=NODES)
INCIDENCE = np.zeros((len(HEADS), NODES))
INCIDENCE[np.arange(len(HEADS)), HEADS], INCIDENCE[np.arange(len(HEADS)), TAILS] = 1, -1


@pytest.mark.parametrize("strength", [0.05, 0.3, 2.0])
def test_one_parameter_is_the_fused_lasso_by_its_dual(strength: float):
    """min |y - w|²/2 + Σ λ_e |w_i - w_j|: w = y - D'u, with the shortest y - D'u of all |u_e| ≤ λ_e."""
    levels = _RNG.normal(size=NODES) + 3 * (np.arange(NODES) > 14)
    reach = strength * WEIGHTS
    dual = lsq_linear(INCIDENCE.T, levels, (-reach, reach), method="bvls", tol=1e-14)
    expected = levels - INCIDENCE.T @ dual.x
    method = ld.gtvmin(strength, intercept=False, tolerance=1e-12)
    found = method(GRAPH, np.arange(NODES), np.ones((NODES, 1)), levels)
    np.testing.assert_allclose(found.values[:, 0], expected, atol=1e-8)
    assert len(np.unique(found.values.numpy().round(6))) < NODES or strength < 0.3


@pytest.mark.parametrize("coupling", ["norm", "squared"])
@pytest.mark.parametrize("family", ["linear", "logistic"])
def test_planes_and_odds_are_those_of_a_quasi_newton_method(coupling: str, family: str):
    owners = np.repeat(np.arange(6), 15)
    x = _RNG.normal(size=(90, 2))
    slopes = np.where(owners[:, None] < 3, [1.0, -1.0], [-2.0, 0.5])
    y = (x * slopes).sum(1) + 0.5 * _RNG.normal(size=90)
    y = y if family == "linear" else (y > 0) * 1.0
    heads, tails = np.triu_indices(6, 1)
    weights = np.where((heads < 3) == (tails < 3), 1.0, 0.2)
    design = np.column_stack([np.ones(90), x])

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        at = flat.reshape(6, 3)
        eta = (design * at[owners]).sum(1)
        loss = (eta - y) ** 2 / 2 if family == "linear" else np.logaddexp(0, eta) - y * eta
        slope = eta - y if family == "linear" else 1 / (1 + np.exp(-eta)) - y
        grad = np.zeros((6, 3))
        np.add.at(grad, owners, slope[:, None] * design)
        grad[:, 1:] += 0.1 * at[:, 1:]
        apart = at[heads] - at[tails]
        length = np.sqrt((apart**2).sum(1) + 1e-12)
        cost, flow = (length, apart / length[:, None]) if coupling == "norm" else (length**2 / 2, apart)
        flow = 0.8 * weights[:, None] * flow
        np.add.at(grad, heads, flow)
        np.add.at(grad, tails, -flow)
        total = loss.sum() + 0.05 * (at[:, 1:] ** 2).sum() + 0.8 * (weights * cost).sum()
        return total, grad.ravel()

    graph = ld.Graph.of_pairs(heads, tails, weights, nodes=6)
    found = ld.gtvmin(0.8, coupling, family, ridge=0.1, tolerance=1e-11)(graph, owners, x, y)
    begin = found.values.numpy().ravel() + 0.3 * _RNG.normal(size=18)
    options = {"maxiter": 400, "maxfun": 600, "ftol": 1e-14, "gtol": 1e-10}
    peer = minimize(value, begin, jac=True, method="L-BFGS-B", options=options)
    assert found.objective <= peer.fun + 1e-9
    np.testing.assert_allclose(found.objective, peer.fun, rtol=1e-5)
    np.testing.assert_allclose(
        found.values.numpy().ravel(), peer.x, atol=2e-2 if coupling == "norm" else 1e-6
    )


def test_clusters_are_found_that_nobody_named():
    """Nodes of two kinds, few rows each, and mostly edges inside a kind: inside a kind the models are one."""
    kind = np.arange(NODES) % 2
    heads, tails = np.triu_indices(NODES, 1)
    weights = np.where(kind[heads] == kind[tails], 1.0, 0.1)
    graph = ld.Graph.of_pairs(heads, tails, weights, nodes=NODES)
    owners = np.repeat(np.arange(NODES), 8)
    x = _RNG.normal(size=(len(owners), 3))
    truth = np.array([[1.0, 0.0, -1.0], [-1.0, 2.0, 0.5]])
    y = (x * truth[kind[owners]]).sum(1) + 0.3 * _RNG.normal(size=len(owners))
    found = ld.gtvmin(0.3, intercept=False)(graph, owners, x, y)
    assert np.unique(found.values.numpy().round(5), axis=0).shape[0] == 2
    alone = ld.gtvmin(0.0, intercept=False)(graph, owners, x, y)
    error = [np.abs(each.values.numpy() - truth[kind]).max() for each in (found, alone)]
    assert error[0] < error[1] / 2
