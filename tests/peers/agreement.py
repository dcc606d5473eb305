"""The README's table of methods, measured: `python -m tests.peers.agreement` (`make methods`) writes it.

Each row is a method beside somebody else's code on the same rows, query by query. What stands in the table is
the largest difference |ours - theirs| / (1 + |theirs|) over values, and slopes where there are some.
"""

import re
import sys
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import skfuzzy
import statsmodels.api as sm
import torch
from numpy.typing import NDArray
from scipy.optimize import root
from sklearn.cluster import MeanShift
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.manifold._locally_linear import barycenter_kneighbors_graph
from sklearn.neighbors import KernelDensity, KNeighborsClassifier, KNeighborsRegressor
from sklearn.preprocessing import PolynomialFeatures
from statsmodels.nonparametric.kernel_regression import KernelReg
from statsmodels.stats.weightstats import DescrStatsW

import locdist as ld
from locdist.jobs.restoring.chosen import RESTORE_METHODS
from locdist.local.answers import WANTS
from locdist.methods.coupled import COUPLED_METHODS
from locdist.methods.embedded import EMBED_METHODS
from locdist.methods.labels import LABEL_METHODS
from locdist.methods.layered import LAYERED_METHODS
from locdist.methods.method import Method
from locdist.methods.named import METHODS
from tests.peers import graphs, layers, networks

Array = NDArray[np.float64]
README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- methods: written by `make methods` -->", "<!-- end of methods -->"
SLACK = 30.0  # another processor rounds otherwise; and what is below _FLOOR is rounding
_FLOOR = 1e-11

_RNG = np.random.default_rng(0)
N, D = 240, 3
X = _RNG.normal(size=(N, D))
ETA = 0.5 + X @ [0.8, -0.5, 0.2] + 0.3 * np.sin(2 * X[:, 0])
Y = np.sin(X[:, 0]) + X[:, 1] ** 2 + 0.1 * _RNG.normal(size=N)
COUNTS = _RNG.poisson(np.exp(ETA)).astype(float)
AMOUNTS = _RNG.gamma(3.0, np.exp(ETA) / 3)
YES = (_RNG.random(N) < 1 / (1 + np.exp(-ETA))).astype(int)
KINDS = np.digitize(ETA + _RNG.logistic(size=N), [0.0, 1.2])
Q = _RNG.normal(size=(12, D)) * 0.7
AT = {"k": 90, "kernel": "gaussian", "bandwidth": 1.5}
Near = tuple[Array, NDArray[np.int64], Array]
Peer = Callable[[Array, NDArray[np.int64], Array], object]


SYSTEMS = {
    "local mean, local mode": (
        "local_mean", "local_vote", "local_quantile", "local_variance", "kde", "knn",
    ),
    "the localization trick": (
        "local_linear", "local_polynomial", "local_logistic", "local_poisson", "local_gamma", "localize",
        "gwr",
    ),
    "kernel methods": ("kernel_ridge", "local_gp", "boosted"),
    "lazy learning": ("lazy_map",),
    "MeanShift": ("mean_shift", "blurring_mean_shift"),
    "relaxation labeling": (
        "label_propagation", "label_spreading", "relaxation_labeling", "poisson_learning",
    ),
    "Hopfield networks": ("hopfield",),
    "local linear embedding": ("barycenter", "lle", "spectral"),
    "fuzzy inference": ("fuzzy_inference",),
    "denoising autoencoder": ("denoise", "denoise_manifold", "lazy_autoencoder"),
    "hierarchical local models": ("local_pca", "stack", "mgwr"),
    "non-local models": ("nonlocal_means", "bilateral", "nonlocal_bayes", "local_bayes"),
    "series": ("local_ar",),
    "networks of local models": ("gtvmin", "fed_relax", "dem_learn", "logifold"),
}  # fmt: skip
VERBS: dict[str, Container[str]] = {
    "predict": METHODS,
    "cluster": ("mean-shift",),
    "move": LAYERED_METHODS,
    "label": LABEL_METHODS,
    "embed": EMBED_METHODS,
    "backfit": ("mgwr",),
    "forecast": ("local-ar",),
    "restore": RESTORE_METHODS,
    "couple": COUPLED_METHODS,
}


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Parameters
    ----------
    name : str
    parts : str
        Kernel and local model.
    formula : str
        Of the prediction at x, with w_j the weights of the neighbors.
    reference : str
        Whose code it is compared with.
    differences : callable () -> float
        Measures it.
    """

    name: str
    parts: str
    formula: str
    reference: str
    differences: Callable[[], float]

    def line(self, measured: float) -> str:
        """It as Markdown."""
        told = (self.parts, self.formula, self.reference, f"{measured:.0e}", self.runs, self.system)
        return f"| `{self.name}` | {' | '.join(told)} |"

    @property
    def runs(self) -> str:
        """The verbs that run it from files to files, on every executor."""
        name = self.name.replace("_", "-")
        verbs = [verb for verb, known in VERBS.items() if name in known]
        return ", ".join(f"`{verb}`" for verb in verbs) or "in memory"

    @property
    def system(self) -> str:
        """The part of the theory that it belongs to."""
        return next(system for system, names in SYSTEMS.items() if self.name in names)


def difference(ours: object, theirs: object) -> float:
    """The largest one, relative where numbers are large."""
    one, two = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    return float((np.abs(one - two) / (1 + np.abs(two))).max())


def beside(
    method: Method, targets: object, peer: Peer, ours: str = "values", skipped: int = 0
) -> Callable[[], float]:
    """Answers of a method beside those of a peer that sees a query, its neighbors and their weights."""

    def measure() -> float:
        answers = method(ld.Exact(X, targets), Q, want=WANTS & method.layer.model.tells)
        assert answers.status.tolist() == [0] * len(Q)
        near = zip(Q, answers.ids.numpy(), answers.weights.numpy(), strict=True)
        theirs = np.array([np.ravel(peer(*each)) for each in near])
        mine = getattr(answers, ours).numpy().reshape(len(Q), -1)[:, skipped:]
        return difference(mine[:, : theirs.shape[1]], theirs)

    return measure


def whole(
    method: Method, targets: object, theirs: Callable[[], object], ours: str = "values"
) -> Callable[[], float]:
    """Answers of a method over all rows beside a peer's."""

    def measure() -> float:
        answers = method(ld.Exact(X, targets), Q, want={"coefficients"} & method.layer.model.tells)
        found = np.asarray(theirs(), dtype=float).reshape(len(Q), -1)
        return difference(getattr(answers, ours).numpy().reshape(len(Q), -1)[:, : found.shape[1]], found)

    return measure


def _ridge(alpha: float, degree: int = 1) -> Peer:
    def fit(x: Array, ids: NDArray[np.int64], weights: Array) -> list[float]:
        terms = PolynomialFeatures(degree, include_bias=False).fit_transform(X[ids] - x)
        peer = Ridge(alpha, solver="svd").fit(terms, Y[ids], sample_weight=weights)
        return [peer.intercept_, *peer.coef_[:D]]

    return fit


def _logistic(codes: NDArray[np.int64]) -> Peer:
    def fit(x: Array, ids: NDArray[np.int64], weights: Array) -> Array:
        peer = LogisticRegression(C=1 / 0.05, tol=1e-12, max_iter=10_000)
        return peer.fit(X[ids] - x, codes[ids], sample_weight=weights).predict_proba(np.zeros((1, D)))

    return fit


def _glm(targets: Array, family: sm.families.Family) -> Peer:
    def fit(x: Array, ids: NDArray[np.int64], weights: Array) -> Array:
        peer = sm.GLM(targets[ids], sm.add_constant(X[ids] - x), family=family, freq_weights=weights)
        return peer.fit(tol=1e-13, maxiter=200).params

    return fit


def _kriging(x: Array, ids: NDArray[np.int64], _: Array) -> Array:
    peer = GaussianProcessRegressor(2.0 * Matern([1.5, 0.7, 3.0], nu=1.5), alpha=0.1, optimizer=None)
    return peer.fit(X[ids], Y[ids]).predict(x[None])


def _kernel_ridge(x: Array, ids: NDArray[np.int64], weights: Array) -> Array:
    peer = KernelRidge(alpha=0.01, kernel="rbf", gamma=0.5 / 1.5**2)
    return peer.fit(X[ids], Y[ids], sample_weight=weights).predict(x[None])


def _quantiles(x: Array, ids: NDArray[np.int64], weights: Array) -> Array:
    return DescrStatsW(Y[ids], weights=weights).quantile([0.1, 0.5], return_pandas=False)


def _variance(x: Array, ids: NDArray[np.int64], weights: Array) -> list[float]:
    peer = DescrStatsW(Y[ids], weights=weights)
    return [peer.mean, peer.var]


def _tangent(x: Array, ids: NDArray[np.int64], weights: Array) -> list[float]:
    center = weights @ X[ids]
    _, lengths, axes = np.linalg.svd(np.sqrt(weights)[:, None] * (X[ids] - center))
    return [lengths[0] ** 2, *(center + axes[0] * (axes[0] @ (x - center)))]


def _bayes(x: Array, ids: NDArray[np.int64], weights: Array) -> Array:
    center = weights @ X[ids]
    _, lengths, axes = np.linalg.svd(np.sqrt(weights)[:, None] * (X[ids] - center))
    shares = np.maximum(1 - 0.4**2 / lengths**2, 0)
    return center + axes.T @ (shares * (axes @ (x - center)))


def _huber(x: Array, ids: NDArray[np.int64], weights: Array) -> float:
    design = np.column_stack([np.ones(len(ids)), X[ids] - x])

    def slope(theta: Array) -> Array:
        return -design.T @ (weights * np.clip(Y[ids] - design @ theta, -0.3, 0.3))

    start = np.linalg.lstsq(design, Y[ids], rcond=None)[0]
    return float(root(slope, start, tol=1e-14).x[0])


def _barycenters() -> Array:
    graph = barycenter_kneighbors_graph(X, 8, reg=1e-3).toarray()
    return graph @ Y


def _regression(kind: str) -> Callable[[], object]:
    def fit() -> Array:
        peer = KernelReg(Y, X, "c" * D, reg_type=kind, bw=[0.8] * D, rng=np.random.default_rng(0))
        mean, slopes = peer.fit(Q)
        return np.column_stack([mean, slopes]) if kind == "ll" else mean

    return fit


def _twicing() -> Array:
    """Its residuals fitted again, and those of that."""
    value, left = np.zeros(len(Q)), Y
    for _ in range(3):
        peer = KernelReg(left, X, "c" * D, reg_type="lc", bw=[0.8] * D, rng=np.random.default_rng(0))
        value, left = value + peer.fit(Q)[0], left - peer.fit(X)[0]
    return value


def _knn() -> Array:
    return KNeighborsRegressor(7).fit(X, Y).predict(Q)


def _votes() -> Array:
    return KNeighborsClassifier(9).fit(X, KINDS).predict_proba(Q)


def _density() -> Array:
    return np.exp(KernelDensity(bandwidth=0.9, kernel="gaussian", atol=0, rtol=0).fit(X).score_samples(Q))


def _own(method: Method, theirs: Callable[[], Array]) -> Callable[[], float]:
    """A method of the support's own rows, each left out."""

    def measure() -> float:
        return difference(method(ld.Exact(X, Y), X, own=np.arange(N)).values[:, 0], theirs())

    return measure


def _gwr() -> float:
    """Coefficients at the sites themselves, which count among their own neighbors."""
    places, features = X[:, :2], X[:, 2:]
    answers = ld.gwr(60)(
        ld.Exact(places, Y, features), places[:12], features=features[:12], want=["coefficients"]
    )
    theirs = []
    for place in places[:12]:
        apart = np.sqrt(((places - place) ** 2).sum(1))
        share = apart / (np.sort(apart)[59] * 1.0000001)
        weights = np.where(share < 1, (1 - share**2) ** 2, 0.0)
        theirs.append(sm.WLS(Y, sm.add_constant(features), weights=weights).fit().params[1:])
    return difference(answers.coefficients[:, 1:, 0].numpy(), theirs)


def _modes() -> float:
    peer = MeanShift(bandwidth=1.0, seeds=Q, max_iter=10_000).fit(X).cluster_centers_
    found = ld.mean_shift(1.0, "uniform")(ld.Exact(X), Q).values.numpy()
    return max(float(np.abs(found - center).max(1).min()) for center in peer)


def _attention() -> float:
    tensors = [torch.tensor(array)[None] for array in (Q, X, X)]
    theirs = torch.nn.functional.scaled_dot_product_attention(*tensors, scale=1.5)[0]
    return difference(ld.hopfield(1.5, steps=1)(ld.Exact(X, metric="ip"), Q).values, theirs)


def _rules() -> float:
    """Triangles of equal area for what rules say, scaled by how much these fire, added up, defuzzified."""
    grid, said = np.linspace(-6, 6, 1201), Y[:6].round(2)  # corners on the grid make the centroid exact
    sets = np.array([skfuzzy.trimf(grid, [y - 0.5, y, y + 0.5]) for y in said])
    fires = [np.prod([skfuzzy.gaussmf(Q[:, j], c[j], 0.8) for j in range(D)], 0) for c in X[:6]]
    theirs = [skfuzzy.defuzz(grid, one @ sets, "centroid") for one in np.transpose(fires)]
    index = ld.Exact(X[:6], said, shapes=np.full((6, D), 0.8))
    return difference(ld.fuzzy_inference()(index, Q).values[:, 0], theirs)


def _tweedie() -> float:
    at = torch.tensor(Q, requires_grad=True)
    squares = (at[:, None] - torch.tensor(X)).square().sum(2)
    torch.logsumexp(-0.5 * squares / 0.8**2, 1).sum().backward()
    assert at.grad is not None
    return difference(ld.denoise(0.8)(ld.Exact(X), Q).values, Q + 0.8**2 * at.grad.numpy())


ROWS: tuple[Row, ...] = (
    Row(
        "knn",
        "uniform × constant",
        "mean of y_j",
        "scikit-learn `KNeighborsRegressor`",
        whole(ld.knn(7), Y, _knn),
    ),
    Row(
        "local_mean",
        "any × constant",
        "Σ w_j y_j",
        'statsmodels `KernelReg("lc")`, all rows',
        whole(ld.local_mean(None, "gaussian", 0.8), Y, _regression("lc")),
    ),
    Row(
        "local_vote",
        "any × vote",
        "P(c) = Σ w_j 1[y_j = c]",
        "scikit-learn `KNeighborsClassifier`",
        whole(ld.local_vote(9, "uniform"), KINDS, _votes),
    ),
    Row(
        "local_quantile",
        "any × weighted quantile",
        "argmin_t Σ w_j ρ_τ(y_j − t)",
        "statsmodels `DescrStatsW.quantile`",
        beside(ld.local_quantile(**AT, levels=(0.1, 0.5)), Y, _quantiles),
    ),
    Row(
        "local_variance",
        "any × mean and variance",
        "Σ w_j (y_j − Σ w y)²",
        "statsmodels `DescrStatsW`",
        beside(ld.local_variance(**AT), Y, _variance),
    ),
    Row(
        "kde",
        "any × density",
        "Σ K_h(x − x_j) / n",
        "scikit-learn `KernelDensity`, all rows",
        whole(ld.kde(None, "gaussian", 0.9), Y, _density),
    ),
    Row(
        "local_linear",
        "any × plane",
        "a of min Σ w_j (y_j − a − b·(x_j − x))² + ridge·\\|b\\|²",
        "scikit-learn `Ridge(sample_weight)`: a and b",
        beside(ld.local_linear(**AT, ridge=0.05), Y, _ridge(0.05), "coefficients"),
    ),
    Row(
        "local_linear",
        "over all the support",
        "the same, `k=None`",
        'statsmodels `KernelReg("ll")`: a and b',
        whole(ld.local_linear(None, "gaussian", 0.8), Y, _regression("ll"), "coefficients"),
    ),
    Row(
        "local_polynomial",
        "any × quadric",
        "the same on monomials of x_j − x",
        "scikit-learn `PolynomialFeatures`, `Ridge`",
        beside(ld.local_polynomial(**AT, ridge=0.05), Y, _ridge(0.05, 2), "coefficients"),
    ),
    Row(
        "local_logistic",
        "any × logistic",
        "σ(a) of min Σ w_j log-loss_j + ridge/2·\\|b\\|²",
        "scikit-learn `LogisticRegression(sample_weight)`",
        beside(ld.local_logistic(**AT, ridge=0.05), YES, _logistic(YES)),
    ),
    Row(
        "local_logistic",
        "any × softmax",
        "softmax(a) of the same, three classes",
        "scikit-learn `LogisticRegression(sample_weight)`",
        beside(ld.local_logistic(**AT, ridge=0.05), KINDS, _logistic(KINDS)),
    ),
    Row(
        "local_poisson",
        "any × Poisson",
        "exp a of min Σ w_j (exp η_j − y_j η_j)",
        "statsmodels `GLM`: a and b",
        beside(ld.local_poisson(**AT), COUNTS, _glm(COUNTS, sm.families.Poisson()), "coefficients"),
    ),
    Row(
        "local_gamma",
        "any × gamma",
        "exp a of min Σ w_j (y_j exp(−η_j) + η_j)",
        "statsmodels `GLM`: a and b",
        beside(
            ld.local_gamma(**AT),
            AMOUNTS,
            _glm(AMOUNTS, sm.families.Gamma(sm.families.links.Log())),
            "coefficients",
        ),
    ),
    Row(
        "local_gp",
        "uniform × Gaussian process",
        "c'(K + nugget)⁻¹ y, or kriging",
        "scikit-learn `GaussianProcessRegressor`",
        beside(ld.local_gp(60, "uniform", None, "matern32", (1.5, 0.7, 3.0), 0.05, "zero", 2.0), Y, _kriging),
    ),
    Row(
        "kernel_ridge",
        "any × kernel ridge",
        "c'(K + ridge W⁻¹)⁻¹ y",
        "scikit-learn `KernelRidge(sample_weight)`",
        beside(ld.kernel_ridge(**AT, scales=1.5), Y, _kernel_ridge),
    ),
    Row(
        "local_pca",
        "any × tangent plane",
        "μ + v v'(x − μ), v of the largest eigenvalue of Σ w_j (x_j − μ)(x_j − μ)'",
        "NumPy `svd`",
        beside(ld.local_pca(**AT), Y, _tangent, skipped=1),
    ),
    Row(
        "barycenter",
        "uniform × weights of LLE",
        "Σ s_j y_j, s of min \\|x − Σ s_j x_j\\|²",
        "scikit-learn `barycenter_kneighbors_graph`",
        _own(ld.barycenter(8), _barycenters),
    ),
    Row(
        "gwr", "bisquare of the place × plane", "local linear in other columns", "statsmodels `WLS`: b", _gwr
    ),
    Row(
        "localize",
        "any × any model and loss",
        "f(0, θ) of min Σ w_j l(f(x_j − x, θ), y_j)",
        "SciPy `root` of the gradient, Huber loss",
        beside(ld.localize("linear", {"huber": 0.3}, **AT), Y, _huber),
    ),
    Row(
        "boosted",
        "any × any linear smoother",
        "s (I + (I − S) + ... + (I − S)^rounds) y",
        "statsmodels `KernelReg`, its residuals fitted again",
        whole(ld.boosted(ld.local_mean(N, "gaussian", 0.8), rounds=2), Y, _twicing),
    ),
    Row(
        "fuzzy_inference",
        "t-norm of memberships × what rules say",
        "Σ μ_r(x) f_r(x) / Σ μ_r(x)",
        "scikit-fuzzy `defuzz`, product and sum",
        _rules,
    ),
    Row(
        "mean_shift",
        "any × local mean of the rows themselves",
        "x ← x + α (Σ w_j x_j − x), until it rests",
        "scikit-learn `MeanShift`",
        _modes,
    ),
    Row(
        "hopfield",
        "dot product × the same",
        "x ← Σ softmax(β x·x_j) x_j, until it rests",
        "torch `scaled_dot_product_attention`, one step",
        _attention,
    ),
    Row(
        "denoise",
        "Gaussian × the same",
        "E(z \\| x) = Σ w_j x_j",
        "torch autograd: x + σ² ∇ log p(x)",
        _tweedie,
    ),
    Row(
        "local_bayes",
        "any × a Gaussian and noise",
        "μ + (C − σ² I)₊ C⁻¹ (x − μ)",
        "NumPy `svd`",
        beside(ld.local_bayes(0.4, **AT), Y, _bayes),
    ),
    Row(
        "label_propagation",
        "a graph × local mean of labels, kept where known",
        "F_u = (I − P_uu)⁻¹ P_ul Y_l, P = D⁻¹ W",
        "scikit-learn `LabelPropagation`",
        graphs.propagation,
    ),
    Row(
        "label_spreading",
        "a graph × local mean and the label",
        "(1 − α)(I − α D^-½ W D^-½)⁻¹ Y",
        "scikit-learn `LabelSpreading`",
        graphs.spreading,
    ),
    Row(
        "relaxation_labeling",
        "a graph × local mode, reinforced",
        "p_i(a) ← p_i(a) s_i(a) / Σ_b p_i(b) s_i(b), s = W p r'",
        "NumPy, written out",
        graphs.relaxation,
    ),
    Row(
        "poisson_learning",
        "a graph × local mean and sources",
        "(D − W) u = Σ_j (y_j − ȳ) δ_j",
        "SciPy `spsolve`",
        graphs.poisson,
    ),
    Row(
        "lle",
        "barycenters × eigenvectors",
        "min ‖Z − W Z‖², Z'Z = I",
        "scikit-learn `LocallyLinearEmbedding`: ZZ'",
        graphs.lle,
    ),
    Row(
        "spectral",
        "a graph × eigenvectors",
        "D⁻¹ W z = λ z",
        "scikit-learn `spectral_embedding`",
        graphs.spectral,
    ),
    Row(
        "blurring_mean_shift",
        "any × local mean, all rows move",
        "X ← X + α (D⁻¹ K(X) X − X)",
        "torch `scaled_dot_product_attention`, one layer",
        layers.blurring,
    ),
    Row(
        "denoise_manifold",
        "any × tangent plane, all rows move",
        "x ← x + α (I − V V')(μ − x)",
        "NumPy `svd`, one layer",
        layers.manifold,
    ),
    Row(
        "stack",
        "any × any, layer on layer",
        "K₁ (K₂ y) for two local means",
        "NumPy: product of the matrices",
        layers.stack,
    ),
    Row(
        "nonlocal_means",
        "Gaussian of patches × local mean",
        "Σ_j w_ij v_j / Σ_j w_ij",
        "NumPy, all pairs of pixels",
        layers.nonlocal_means,
    ),
    Row(
        "bilateral",
        "place × value, self-local mean",
        "w = exp(−\\|Δx\\|²/2σ_s² − \\|Δv\\|²/2σ_c²)",
        "OpenCV `bilateralFilter`, single precision",
        layers.bilateral,
    ),
    Row(
        "nonlocal_bayes",
        "groups of alike patches × a Gaussian and noise",
        "μ + C (C + σ² I)⁻¹ (z − μ), C of (C₀ − σ² I)₊ C₀⁻¹ …",
        "NumPy `inv`, one group of all patches",
        layers.nonlocal_bayes,
    ),
    Row(
        "lazy_map",
        "any × any linear smoother, of its own rows",
        "Y ← S Y, mean and scale kept",
        "scikit-learn `spectral_embedding`: 1 − correlation",
        layers.lazy_map,
    ),
    Row(
        "lazy_autoencoder",
        "Gaussian × local mean, of codes that are learned",
        "x(z) = Σ_j w_j(z) x_j, z of min Σ_i ‖x_i − x₋ᵢ(z_i)‖²",
        "scikit-learn `KNeighborsRegressor` of the codes",
        layers.lazy_autoencoder,
    ),
    Row(
        "mgwr",
        "any, each with its bandwidth × single terms",
        "Σ_m x_m b_m(place), by backfitting",
        "NumPy, the same sweeps with dense smoothers",
        layers.mgwr,
    ),
    Row(
        "local_ar",
        "any × any, of the delays of a series",
        "x_{t+1} = Σ_s w_s x_{s+1}, and so on",
        "scikit-learn `KNeighborsRegressor`, a free run",
        layers.local_ar,
    ),
    Row(
        "gtvmin",
        "a linear model at each node × its neighbors'",
        "min Σ_i f_i(w_i) + λ Σ_ij A_ij φ(w_i − w_j)",
        "NumPy `solve`, SciPy `lsq_linear` of the dual",
        networks.gtvmin,
    ),
    Row(
        "fed_relax",
        "any estimator at each node × its neighbors'",
        "… + λ Σ_ij A_ij mean_r (h_i(x_r) − h_j(x_r))²",
        "NumPy `solve`, for linear models",
        networks.fed_relax,
    ),
    Row(
        "dem_learn",
        "a linear model of each device × means of its groups",
        "min F_i(w) + μ/2 Σ_k ‖w − w⁽ᵏ⁾‖² / N_k",
        "NumPy `solve`",
        networks.dem_learn,
    ),
    Row(
        "logifold",
        "classifiers × where they are certain",
        "Σ_c μ_c [max p_c ≥ t_c] p_c / Σ_c μ_c [max p_c ≥ t_c]",
        "scikit-learn `VotingClassifier`, without thresholds",
        networks.logifold,
    ),
)


@cache
def measured(row: Row) -> float:
    """What a row's comparison gives here, once."""
    return row.differences()


def table(lines: Iterator[str]) -> str:
    """The table of some lines."""
    names = (
        "method", "kernel × local model", "prediction at x", "checked against", "largest difference",
        "files to files by", "part of the theory",
    )  # fmt: skip
    return "\n".join([BEGIN, f"| {' | '.join(names)} |", "|---" * len(names) + "|", *lines, END])


def written() -> str:
    """The table as it stands in the README."""
    text = README.read_text()
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def allowed() -> list[float]:
    """What the table says, line by line."""
    return [
        float(told) for told in re.findall(r"\| (\d+e[+-]\d+) \| [^|]+ \| [^|]+ \|$", written(), re.MULTILINE)
    ]


def main() -> None:
    """Measure, and write the table."""
    fresh = table(row.line(measured(row)) for row in ROWS)
    README.write_text(README.read_text().replace(written(), fresh))
    sys.stdout.write(f"{fresh}\n")


if __name__ == "__main__":
    main()
