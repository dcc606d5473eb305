"""Neighbors that were found before the clock runs, for methods that are compared on the same ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from locdist.jobs.asking.spread import spread
from locdist.local.answers import Answers
from locdist.local.neighborhood import Neighborhood
from locdist.methods.method import Method
from locdist.search.exact import Exact

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """An index whose only neighborhoods were found before."""

    index: Exact
    hood: Neighborhood
    metric = "l2"
    apart = False

    def search(self, queries: torch.Tensor, k: int, own: torch.Tensor | None) -> Neighborhood:
        """All of them."""
        return self.hood

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        """The rows of the index."""
        return self.index.gather(hood, needs)


def squares(keys: Numbers, queries: Numbers, ids: npt.NDArray[np.int64]) -> Numbers:
    """Squared distances [q, k] of queries [q, d] to the rows `ids` [q, k] of keys [n, d]."""
    found: Numbers = ((keys[ids] - queries[:, None]) ** 2).sum(2)
    return found


def answered(
    method: Method, index: Exact, queries: Numbers, hood: Neighborhood, workers: int, want: Sequence[str] = ()
) -> Answers:
    """Answers of a method whose neighbors are known: on threads, as a task has them."""
    size = -(-len(queries) // workers)
    parts = [slice(start, start + size) for start in range(0, len(queries), size)]
    return Answers.concatenate(
        spread(lambda part: method(Found(index, hood.rows(part)), queries[part], want=want), parts)
    )
