"""A support searched by brute force: what the laws and the peers are tested on, without an index."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from locdist.local.bandwidths import rank_of
from locdist.local.neighborhood import Neighborhood, smallest


@dataclass(frozen=True)
class Brute:
    """Keys [n, d], targets [n, p] or codes [n, 1], and optionally features [n, m] and row weights [n].

    With `shuffle` the neighborhoods come in another order than the queries.
    """

    keys: Tensor
    targets: Tensor
    features: Tensor | None = None
    row_weights: Tensor | None = None
    classes: int = 0
    metric: str = "l2"
    shuffle: bool = False

    @property
    def apart(self) -> bool:
        return self.features is not None

    def search(self, queries: Tensor, k: int, own: Tensor | None) -> Neighborhood:
        assert queries.isfinite().all()
        order = torch.arange(len(queries)).flip(0) if self.shuffle else torch.arange(len(queries))
        queries = queries[order]
        one, other = queries.double()[:, None], self.keys.double()
        distances = -(one * other).sum(-1) if self.metric == "ip" else (one - other).square().sum(-1)
        ids = torch.arange(len(self.keys)).expand_as(distances)
        if own is not None:
            ids = ids.masked_fill(ids == own[order][:, None], -1)
        return Neighborhood(*smallest(distances, ids, k), queries=queries, order=order)

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        rows = hood.ids.clamp(min=0)
        features = self.keys if self.features is None else self.features
        weights = torch.ones(len(self.keys)) if self.row_weights is None else self.row_weights
        return replace(
            hood,
            support=hood.within(len(weights), float(weights.sum())) if "density" in needs else hood.support,
            keys=self.keys[rows] if "keys" in needs else hood.keys,
            reach=self._reach(rank)[rows] if (rank := rank_of(needs)) else hood.reach,
            targets=self.targets[rows] if needs & {"targets", "codes"} else hood.targets,
            classes=self.classes,
            features=features[rows] if "features" in needs else hood.features,
            row_weights=None if self.row_weights is None else self.row_weights[rows],
        )

    def _reach(self, rank: int) -> Tensor:
        apart = torch.cdist(
            self.keys.double(), self.keys.double(), compute_mode="donot_use_mm_for_euclid_dist"
        )
        return apart.square().kthvalue(rank + 1, 1).values


def column(values: object, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers as a column [n, 1]."""
    return torch.as_tensor(values, dtype=dtype).reshape(-1, 1)
