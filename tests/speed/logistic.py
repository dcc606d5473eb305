"""`local_logistic` beside scikit-learn query by query on the same neighbors, which nobody searches in the
time that is told.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import faiss
import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression

from locdist.local.kernels import weigh
from locdist.local.neighborhood import Neighborhood
from locdist.methods.generalized import local_logistic
from locdist.search.exact import Exact
from tests.speed.found import Numbers, answered, squares
from tests.speed.timing import Time, interleaved

K, D, SUPPORT, RIDGE = 128, 8, 20_000, 0.01


@dataclass(frozen=True)
class World:
    """Keys [n, d] of two classes [n], queries [q, d], and the neighbors [q, k] of each."""

    keys: Numbers
    classes: npt.NDArray[np.int64]
    queries: Numbers
    ids: npt.NDArray[np.int64]

    @staticmethod
    def random(queries: int) -> "World":
        rng = np.random.default_rng(0)
        keys, asked = rng.standard_normal((SUPPORT, D)), rng.standard_normal((queries, D))
        eta = keys @ rng.standard_normal(D) * 0.6
        classes = (rng.random(SUPPORT) < 1 / (1 + np.exp(-eta))).astype(np.int64)
        ids = faiss.knn(asked.astype(np.float32), keys.astype(np.float32), K)[1]
        return World(keys, classes, asked, ids)

    @functools.cached_property
    def hood(self) -> Neighborhood:
        """The neighbors and their distances."""
        away = squares(self.keys, self.queries, self.ids)
        return Neighborhood(torch.from_numpy(away), torch.from_numpy(self.ids))

    @functools.cached_property
    def weights(self) -> Numbers:
        """Those of the kernel [q, k]."""
        return weigh(local_logistic(K).layer.kernel, self.hood).weights.numpy()

    def ours(self, workers: int) -> Numbers:
        """The probability of class 1 [q]."""
        method, index = local_logistic(K, ridge=RIDGE), Exact(self.keys, self.classes)
        return answered(method, index, self.queries, self.hood, workers).values[:, 1].numpy()

    def theirs(self, count: int, tolerance: float = 1e-4) -> Numbers:
        """The same by scikit-learn for the first queries, with its default solver and tolerance."""
        return np.array([self._fitted(row, tolerance) for row in range(count)])

    def _fitted(self, row: int, tolerance: float) -> float:
        near, weights = self.ids[row], self.weights[row]
        classes = self.classes[near]
        if len(set(classes[weights > 0])) < 2:
            return float(classes[0])
        model = LogisticRegression(C=1 / RIDGE, tol=tolerance, max_iter=1000)
        model.fit(self.keys[near], classes, sample_weight=weights)
        return float(model.predict_proba(self.queries[row : row + 1])[0, 1])


def times(queries: int, peer_queries: int, workers: int) -> tuple[Time, Time]:
    """Of ours, and of theirs scaled to as many queries."""
    world = World.random(queries)
    count = min(queries, peer_queries)
    assert len(world.weights) == queries  # found before the clock runs
    contenders: dict[str, Callable[[], object]] = {
        "ours": functools.partial(world.ours, workers), "theirs": functools.partial(world.theirs, count)
    }  # fmt: skip
    told = interleaved(contenders)
    ours, theirs, scale = told["ours"], told["theirs"], queries / count
    return ours, Time(theirs.wall * scale, theirs.cpu * scale)
