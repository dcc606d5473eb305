"""`local_gp` beside MuyGPyS on the same neighbors, which nobody searches in the time that is told."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import faiss
import numpy as np
import numpy.typing as npt
import torch
from MuyGPyS.gp import MuyGPS
from MuyGPyS.gp.deformation import Isotropy, l2
from MuyGPyS.gp.hyperparameter import FixedScale, Parameter
from MuyGPyS.gp.kernels import Matern
from MuyGPyS.gp.noise import HomoscedasticNoise

from locdist.local.neighborhood import Neighborhood
from locdist.methods.covariance import local_gp
from locdist.methods.method import Method
from locdist.search.exact import Exact
from tests.speed.found import Numbers, answered, squares
from tests.speed.timing import Time, interleaved

K, SUPPORT, SCALE, NUGGET = 50, 20_000, 0.3, 1e-3
BATCH = 1000  # queries that MuyGPyS is given at a time: all of them do not fit into memory


@dataclass(frozen=True)
class World:
    """Keys [n, d] with targets [n, 1], queries [q, d], and the neighbors [q, k] of each."""

    keys: Numbers
    targets: Numbers
    queries: Numbers
    ids: npt.NDArray[np.int64]

    @staticmethod
    def random(d: int, queries: int) -> "World":
        rng = np.random.default_rng(d)
        keys, asked = rng.random((SUPPORT, d)), rng.random((queries, d))
        targets = np.sin(3 * keys.sum(axis=1, keepdims=True)) + 0.03 * rng.standard_normal((SUPPORT, 1))
        ids = faiss.knn(asked.astype(np.float32), keys.astype(np.float32), K)[1]
        return World(keys, targets, asked, ids)

    @functools.cached_property
    def hood(self) -> Neighborhood:
        """The neighbors and their distances."""
        away = squares(self.keys, self.queries, self.ids)
        return Neighborhood(torch.from_numpy(away), torch.from_numpy(self.ids))

    def ours(self, workers: int) -> tuple[Numbers, Numbers]:
        """Values and variances [q]."""
        index = Exact(self.keys, self.targets)
        answers = answered(_method(), index, self.queries, self.hood, workers, ["spread"])
        assert answers.spread is not None
        return answers.values[:, 0].numpy(), answers.spread[:, 0].square().numpy()

    def theirs(self) -> tuple[Numbers, Numbers]:
        """The same by MuyGPyS; its libraries choose their threads."""
        rows = np.arange(len(self.queries))
        parts = [self._batch(rows[at : at + BATCH]) for at in range(0, len(rows), BATCH)]
        means, variances = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def _batch(self, rows: npt.NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        model = MuyGPS(
            kernel=Matern(smoothness=Parameter(1.5), deformation=Isotropy(l2, length_scale=Parameter(SCALE))),
            noise=HomoscedasticNoise(NUGGET),
            scale=FixedScale(),
        )
        away, apart, targets = model.make_predict_tensors(
            rows, self.ids[rows], self.queries, self.keys, self.targets
        )
        cross, matrix = model.kernel(away), model.kernel(apart)
        mean, variance = model.posterior_mean(matrix, cross, targets), model.posterior_variance(matrix, cross)
        return mean.reshape(-1), variance.reshape(-1)


def _method() -> Method:
    return local_gp(K, scales=SCALE, nugget=NUGGET, mean="zero", variance=1.0)


def times(d: int, queries: int, workers: int) -> tuple[Time, Time]:
    """Of ours and theirs."""
    world = World.random(d, queries)
    assert len(world.hood.ids) == queries  # found before the clock runs
    contenders: dict[str, Callable[[], object]] = {
        "ours": functools.partial(world.ours, workers), "theirs": world.theirs
    }  # fmt: skip
    told = interleaved(contenders)
    return told["ours"], told["theirs"]
