"""`local_logistic` beside scikit-learn query by query on the same neighbors, which nobody searches in the
time that is told.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import faiss
import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression

from locdist.execute.threads import limit_this_thread, process_limited
from locdist.local.answers import Answers
from locdist.local.kernels import weigh
from locdist.local.layer import TILE, Layer
from locdist.local.neighborhood import Neighborhood
from locdist.methods.generalized import local_logistic
from tests.speed.timing import Time, interleaved

K, D, SUPPORT, RIDGE = 128, 8, 20_000, 0.01
Numbers = npt.NDArray[np.float64]


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
    def weights(self) -> Numbers:
        """Those of the kernel [q, k]."""
        away = ((self.keys[self.ids] - self.queries[:, None]) ** 2).sum(2)
        hood = Neighborhood(torch.from_numpy(away), torch.from_numpy(self.ids))
        return weigh(local_logistic(K).layer.kernel, hood).weights.numpy()

    def ours(self, workers: int) -> Numbers:
        """The probability of class 1 [q]: tiles on threads, as a task has them."""
        starts, layer = range(0, len(self.queries), TILE), local_logistic(K, ridge=RIDGE).layer
        with (
            process_limited(1),
            ThreadPoolExecutor(workers, initializer=limit_this_thread, initargs=(1,)) as pool,
        ):
            answers = Answers.concatenate(list(pool.map(lambda at: self._tile(layer, at), starts)))
        return answers.values[:, 1].numpy()

    def _tile(self, layer: Layer, start: int) -> Answers:
        ids = torch.from_numpy(self.ids[start : start + TILE])
        asked = torch.from_numpy(self.queries[start : start + TILE])
        keys, codes = (torch.from_numpy(values)[ids] for values in (self.keys, self.classes))
        away = (keys - asked[:, None]).square().sum(2)
        hood = Neighborhood(away, ids, queries=asked, query_features=asked, targets=codes[:, :, None])
        return layer.solve(replace(hood, features=keys, classes=2))

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
