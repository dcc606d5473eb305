"""Rows of a support that are asked of it, with their neighbors: what settings are judged on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.jobs.asking.spread import spread
from locdist.jobs.request import is_whole
from locdist.jobs.telling.selection import Trial
from locdist.local.layer import Layer
from locdist.local.neighborhood import Neighborhood
from locdist.local.select import Asked, Judged, left_out, likelihoods, score
from locdist.local.sweep import judge_all
from locdist.local.tiles import TILE
from locdist.methods.method import Method
from locdist.search.exact import Exact
from locdist.search.generation import Generation

BLOCK_PAIRS = 1 << 21  # neighbors searched at once


def rows_of(index: Exact | Generation) -> int:
    """Rows of a support."""
    return index.layout.rows if isinstance(index, Generation) else len(index.rows)


def drawn(total: int, wanted: int, seed: int) -> Tensor:
    """Ids of a seeded sample, in ascending order."""
    if not (is_whole(wanted) and wanted >= 2):
        raise UsageError("a sample of at least 2 rows", repr(wanted), "2000 is the default.")
    chosen = np.random.default_rng(seed).choice(total, min(wanted, total), replace=False)
    return torch.from_numpy(np.sort(chosen))


@dataclass(frozen=True)
class Sample:
    """Rows of a support, and their neighbors.

    Attributes
    ----------
    index : Exact or Generation
    found : Neighborhood
        The k + 1 nearest rows of each, itself among them.
    own : Tensor [s]
        The id of each.
    total : int
        Rows of the support.
    """

    index: Exact | Generation
    found: Neighborhood
    own: Tensor
    total: int

    @staticmethod
    def of(index: Exact | Generation, k: int, wanted: int, seed: int) -> "Sample":
        """A seeded sample, searched."""
        total = rows_of(index)
        own = drawn(total, wanted, seed)
        itself = Neighborhood(torch.zeros(len(own), 1), own[:, None])
        at = index.gather(itself, frozenset({"keys", "features"}))
        assert at.keys is not None
        assert at.features is not None
        queries, features = at.keys[:, 0], at.features[:, 0]
        offsets = None if at.offsets is None else at.offsets[:, 0]
        size = max(1, min(BLOCK_PAIRS // (k + 1), -(-len(own) // 2)))
        parts = [slice(start, start + size) for start in range(0, len(own), size)]
        hoods = spread(lambda rows: _in_order(index.search(queries[rows], k + 1, None)), parts)
        distances, ids = (torch.cat([getattr(hood, name) for hood in hoods]) for name in ("distances", "ids"))
        found = Neighborhood(distances, ids, queries, query_features=features, query_offsets=offsets)
        return Sample(index, found, own, total)

    def rows(self, part: slice) -> "Sample":
        """Some of its rows."""
        return replace(self, found=self.found.rows(part), own=self.own[part])

    def asked(self, needs: frozenset[str], hollow: bool) -> Asked:
        """The rows with what is needed of their neighbors; `hollow`: each without itself."""
        hood = self.found
        if hollow:
            hood = replace(hood.without(self.own), query_offsets=hood.query_offsets)
        return Asked(self.index.gather(hood, needs), self.own, self.truth("codes" in needs))

    def truth(self, codes: bool) -> Tensor:
        """The target of each row [s], or its code."""
        itself = Neighborhood(torch.zeros(len(self.own), 1), self.own[:, None])
        targets = self.index.gather(itself, frozenset({"codes" if codes else "targets"})).targets
        assert targets is not None
        if targets.shape[2] != 1:
            given = str(targets.shape[2])
            raise UsageError("one target", given, "Select for each target on its own.")
        return targets[:, 0, 0]


def _in_order(hood: Neighborhood) -> Neighborhood:
    """Neighborhoods in the order of the queries."""
    return hood if hood.order is None else hood.rows(hood.order.argsort())


@dataclass(frozen=True)
class Bench:
    """A sample on which methods are tried by a criterion."""

    sample: Sample
    criterion: str

    def trials(self, methods: Sequence[Method]) -> list[Trial]:
        """One trial for each method, in their order."""
        groups: dict[tuple[frozenset[str], bool], list[int]] = {}
        for number, method in enumerate(methods):
            seen = (method.layer.needs, left_out(method.layer, self.criterion))
            groups.setdefault(seen, []).append(number)
        found: dict[int, Trial] = {}
        for (needs, hollow), numbers in groups.items():
            chosen = [methods[number] for number in numbers]
            judged = self._judged([method.layer for method in chosen], needs, hollow)
            truth = self.sample.truth("codes" in needs)
            for number, method, each in zip(numbers, chosen, judged, strict=True):
                logs = likelihoods(method.layer.model, self.criterion)
                told = score(each, truth, self.criterion, self.sample.total, logs)
                found[number] = Trial(method, told)
        return [found[number] for number in range(len(methods))]

    def _judged(self, layers: Sequence[Layer], needs: frozenset[str], hollow: bool) -> list[Judged]:
        def tile(start: int) -> list[Judged]:  # which stays in the cache for all settings
            asked = self.sample.rows(slice(start, start + TILE)).asked(needs, hollow)
            return judge_all(layers, asked, self.criterion)

        parts = spread(tile, range(0, len(self.sample.own), TILE))
        return [Judged.concatenate(part) for part in zip(*parts, strict=True)]
