"""scikit-learn estimators: local models over a support in memory.

They hold an `Exact` and a layer, as `method(ld.Exact(keys, targets), queries)` does, and compute what it
computes. Keys and features are the columns of X as they are: scale them before, with a `StandardScaler` in a
pipeline, say.

What is as scikit-learn has it, and not as `predict` has it:

- A support of fewer than k rows is used whole: a search over k must not fail on a small fold.
- Rows of X without a finite prediction (nobody in reach of a kernel of fixed bandwidth) are nan with a
  warning; a classifier has no nan and raises an error in `predict`.
- A row of sample weight zero is no row, and takes nobody's place among the k. Other weights multiply those of
  the kernel; k counts rows, whatever they weigh. So a weight of 2 is the row twice where the neighborhood
  holds all rows or the kernel's reach ends before its k-th, else nearly.
"""

import functools
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from locdist.errors import DataError, UsageError
from locdist.execute.threads import alone
from locdist.local.answers import Answers
from locdist.local.tiles import TILE
from locdist.methods.method import Method
from locdist.methods.named import method as named
from locdist.search.exact import Exact

try:
    from joblib import effective_n_jobs
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        OneToOneFeatureMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import Tags
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.parallel import Parallel, delayed
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise UsageError("scikit-learn to be installed", str(error), "pip install 'locdist[sklearn]'") from error

Matrix = NDArray[Any]
Bandwidth: TypeAlias = float | str | Mapping[str, float] | None
_FLOATS = (np.float64, np.float32)  # others become float64
_OURS = ("method", "metric", "n_jobs")  # parameters of estimators that are not of their methods


class LocalRegressor(RegressorMixin, BaseEstimator):
    """A local model fitted anew to the neighbors of each row.

    Parameters
    ----------
    method : str or mapping
        A method that predicts numbers, such as "local-mean", "knn" or "local-linear"; or its spec, for
        parameters beyond those below: {"name": "local-polynomial", "degree": 2}. A linear model wants a k of
        several times the columns of X; where it is not, a ridge keeps a neighbor of hardly any weight from
        deciding.
    k : int, optional
        Neighbors; here and below None is the method's own default.
    kernel : str, optional
    bandwidth : float, "nearest" or {"nearest": scale}, optional
    ridge : float, optional
        Of the methods that have one.
    metric : {"l2", "cosine", "ip"}
    n_jobs : int, optional
        Cores that compute predictions; 1 by default, -1 for all.

    Attributes
    ----------
    index_ : Exact
        The support.
    method_ : Method
        The method, with the k in use.
    n_outputs_ : int

    Raises
    ------
    UsageError
        In `fit`: for what the method does not know, such as a kernel of "knn".

    Examples
    --------
    >>> from locdist.sklearn import LocalRegressor
    >>> model = LocalRegressor("knn", k=2).fit([[0.0], [1.0], [9.0]], [1.0, 2.0, 3.0])
    >>> model.predict([[0.4]])
    array([1.5])
    """

    def __init__(
        self,
        method: str | Mapping[str, Any] = "local-mean",
        *,
        k: int | None = None,
        kernel: str | None = None,
        bandwidth: Bandwidth = None,
        ridge: float | None = None,
        metric: str = "l2",
        n_jobs: int | None = None,
    ) -> None:
        self.method = method
        self.k = k
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.ridge = ridge
        self.metric = metric
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "LocalRegressor":
        """Keep X [n, m], y [n] or [n, p] and the weights [n] of the rows, 0 or more."""
        keys, targets = validate_data(self, X, y, dtype=_FLOATS, multi_output=True, y_numeric=True)
        chosen = _method(self, self.method, "targets")
        self.index_ = _support(keys, np.asarray(targets, np.float64), sample_weight, self.metric)
        self.method_ = _within(chosen, self.index_)
        self.n_outputs_ = 1 if targets.ndim == 1 else targets.shape[1]
        self._flat = targets.ndim == 1
        return self

    def predict(self, X: ArrayLike) -> Matrix:
        """Predictions [q], or [q, p] when y had two dimensions or the method has several values."""
        values = _numbers(_answers(self, X).values)
        return values[:, 0] if self._flat and values.shape[1] == 1 else values

    def coefficients(self, X: ArrayLike) -> Matrix:
        """The parameters of the local models: the value at each row, then the slopes by feature.

        Returns
        -------
        array [q, 1 + m], or [q, 1 + m, p] when y had two dimensions
            Of "local-linear" and "gwr"; of a mean the value alone [q, 1].
        """
        answers = _answers(self, X, frozenset({"coefficients"}))
        assert answers.coefficients is not None
        values = _numbers(answers.coefficients)
        return values[:, :, 0] if self._flat else values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # scikit-learn's protocol: each class adds to what it inherits
        tags.target_tags.multi_output = True
        return tags


class LocalClassifier(ClassifierMixin, BaseEstimator):
    """A local model of the probability of each class: by default a vote, the weight of its neighbors.

    Parameters
    ----------
    method : str or mapping
        A method that predicts classes, such as "local-vote" or "local-logistic".
    k, kernel, bandwidth, ridge, metric, n_jobs
        As in `LocalRegressor`. A vote with kernel="uniform" is the classifier of the k nearest neighbors.

    Attributes
    ----------
    classes_ : array [classes]
        Sorted; ties go to the first.
    index_ : Exact
    method_ : Method
    """

    def __init__(
        self,
        method: str | Mapping[str, Any] = "local-vote",
        *,
        k: int | None = None,
        kernel: str | None = None,
        bandwidth: Bandwidth = None,
        ridge: float | None = None,
        metric: str = "l2",
        n_jobs: int | None = None,
    ) -> None:
        self.method = method
        self.k = k
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.ridge = ridge
        self.metric = metric
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "LocalClassifier":
        """Keep X [n, m], the classes y [n] and the weights [n] of the rows, 0 or more."""
        keys, labels = validate_data(self, X, y, dtype=_FLOATS)
        check_classification_targets(labels)
        chosen = _method(self, self.method, "codes")
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self.index_ = _support(keys, codes, sample_weight, self.metric)
        self.method_ = _within(chosen, self.index_)
        return self

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """The probability [q, classes] of each class."""
        known = _numbers(_answers(self, X).values)
        chances = np.zeros((len(known), len(self.classes_)))
        chances[:, self.index_.vocabulary] = known  # a class of no weight has no chance
        return chances

    def predict(self, X: ArrayLike) -> Matrix:
        """The class [q] with the largest probability."""
        values = _answers(self, X).values.numpy()
        lost = np.isnan(values).any(axis=1)
        if lost.any():
            raise DataError(
                "a neighbor in reach of each row",
                f"{lost.sum()} rows without any, the first of them row {lost.argmax()}",
                "Choose bandwidth='nearest', or a larger one.",
            )
        classes: Matrix = self.classes_[self.index_.vocabulary[values.argmax(axis=1)]]
        return classes


class LocalTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Each row replaced by the local mean of its neighbors: features smoothed along the data.

    Noise across a cloud of points is averaged out while its shape stays, as one step of mean shift does.
    Two of them in a pipeline are two layers, the second over what the first has made of the support. No
    target enters, so nothing of it leaks into a model that comes after; for local parameters as features see
    `LocalRegressor.coefficients`.

    Parameters
    ----------
    k, kernel, bandwidth, metric, n_jobs
        As in `LocalRegressor`, of "local-mean".

    Attributes
    ----------
    index_ : Exact
    method_ : Method
    """

    def __init__(
        self,
        *,
        k: int | None = None,
        kernel: str | None = None,
        bandwidth: Bandwidth = None,
        metric: str = "l2",
        n_jobs: int | None = None,
    ) -> None:
        self.k = k
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.metric = metric
        self.n_jobs = n_jobs

    def fit(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> "LocalTransformer":
        """Keep X [n, m] and the weights [n] of its rows, 0 or more; y is not used."""
        keys = validate_data(self, X, dtype=_FLOATS)
        chosen = _method(self, "local-mean", "targets")
        self.index_ = _support(keys, np.asarray(keys, np.float64), sample_weight, self.metric)
        self.method_ = _within(chosen, self.index_)
        return self

    def transform(self, X: ArrayLike) -> Matrix:
        """The smoothed rows [q, m]. A row of the support is among its own neighbors."""
        smoothed: Matrix = _numbers(_answers(self, X).values)
        return smoothed.astype(self.index_.rows.shards[0]["key"].dtype)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _method(estimator: BaseEstimator, name: str | Mapping[str, Any], need: str) -> Method:
    """The method that the parameters name."""
    given = {
        part: value
        for part, value in estimator.get_params(deep=False).items()
        if value is not None and part not in _OURS
    }
    chosen = named(name, given)
    if need not in chosen.layer.needs:
        raise UsageError(
            f"a method for {type(estimator).__name__}",
            repr(name),
            "LocalRegressor takes methods that predict numbers, LocalClassifier those of classes.",
        )
    chosen.layer.check(estimator.metric)
    return chosen


def _support(keys: Matrix, targets: Matrix, sample_weight: ArrayLike | None, metric: str) -> Exact:
    """The rows that have a weight."""
    if sample_weight is None:
        return Exact(keys, targets, metric=metric)
    weights = _check_sample_weight(sample_weight, keys, dtype=np.float64, ensure_non_negative=True)
    there = weights > 0
    return Exact(keys[there], targets[there], weights=weights[there], metric=metric)


def _within(method: Method, index: Exact) -> Method:
    """The method with a k of at most all rows."""
    if method.layer.k is None:
        return method
    k = min(method.layer.k, len(index.rows))
    parameters = dict(method.parameters) | {"k": k}
    return replace(method, parameters=tuple(parameters.items()), layer=replace(method.layer, k=k))


def _answers(estimator: Any, X: ArrayLike, want: frozenset[str] = frozenset()) -> Answers:
    check_is_fitted(estimator)
    queries = validate_data(estimator, X, dtype=_FLOATS, reset=False)
    jobs = max(1, min(effective_n_jobs(estimator.n_jobs), len(queries) // TILE))
    calls = [
        functools.partial(estimator.method_, estimator.index_, part, want=want)
        for part in np.array_split(queries, jobs)
    ]
    # threads: FAISS and torch release Python's lock, and the support is shared
    parts = Parallel(jobs, prefer="threads")(delayed(alone)(call) for call in calls)
    return Answers.concatenate(parts)


def _numbers(values: Any) -> Matrix:
    """Values of answers, with a word when some are missing."""
    numbers: Matrix = values.numpy()
    lost = int(np.isnan(numbers.reshape(len(numbers), -1)).any(axis=1).sum())
    if lost:
        warnings.warn(f"{lost} of {len(numbers)} rows have no neighbor in reach: nan", stacklevel=3)
    return numbers
