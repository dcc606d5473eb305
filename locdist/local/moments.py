"""The sums of a kernel over all rows of a support, for k=None: a state that merges.

Each query has sums of raw weights times products of terms and targets. Rows come in any number of batches, in
any order: a batch gives such sums, and two of them add up to those of both, once both are relative to the
larger of their peaks (the logarithm of the largest raw weight). A local mean, a vote, a density, a variance
and a local polynomial are read off these sums.

The terms of a row are 1 and the model's own in its features less those of the query: centred where the
weights are, so that the normal equations lose few digits.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from locdist.local.kernels import LOWEST, Kernel
from locdist.local.metrics import distances
from locdist.local.neighborhood import Neighborhood
from locdist.local.solve import WEAK, factored, inverse

_QUERIES = 32  # of a tile, whose products of terms fit the cache with so many numbers:
_NUMBERS = 1 << 16
_ZERO = 1e-13  # an eigenvalue, relative to the largest, of a direction in which nothing varies

Terms = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """Some rows of a support.

    Attributes
    ----------
    rows : Tensor [n] int64
        What a query names as its own.
    keys : Tensor [n, d]
    features : Tensor [n, m], optional
        The keys, where there are none.
    targets : Tensor [n, p], optional
        float64; of classes one column for each, 1 in that of the row's.
    row_weights : Tensor [n], optional
    shapes : Tensor [n, c], optional
        What a row's own kernel and model are made of.
    """

    rows: Tensor
    keys: Tensor
    features: Tensor | None = None
    targets: Tensor | None = None
    row_weights: Tensor | None = None
    shapes: Tensor | None = None

    @property
    def features_or_keys(self) -> Tensor:
        """What a local model is fitted on [n, m]."""
        return self.keys if self.features is None else self.features

    def to(self, device: str) -> "Batch":
        """The same rows on a torch device."""
        return self._each(lambda tensor: tensor.to(device))

    def cut(self, size: int) -> Iterator["Batch"]:
        """The rows, at most `size` at a time."""
        for start in range(0, len(self.rows), size):
            yield self.at(slice(start, start + size))

    def at(self, places: slice) -> "Batch":
        """Some of the rows."""
        return self._each(operator.itemgetter(places))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        there = {name: tensor for name, tensor in vars(self).items() if tensor is not None}
        return Batch(**{name: change(tensor) for name, tensor in there.items()})

    def around(self, asked: "Asked", metric: str) -> tuple[Neighborhood, Tensor | None]:
        """All rows as the neighbors of each query, and where they are none [q, n] bool: of a query without a
        direction, and a query's own row.
        """
        shape = (len(asked.queries), len(self.rows))
        away = distances(asked.queries, self.keys, metric)
        missing = away.isnan() if metric == "cosine" else None
        if asked.own is not None:
            own = self.rows == asked.own[:, None]
            missing = own if missing is None else missing | own
        hood = Neighborhood(
            away,
            self.rows.expand(shape),
            queries=asked.queries,
            keys=self.keys.expand(*shape, -1),
            shapes=None if self.shapes is None else self.shapes[None],
        )
        return hood, missing


@dataclass(frozen=True)
class Asked:
    """Queries [q, d], their features [q, m], and the row of the support that each is, -1 for none [q]."""

    queries: Tensor
    features: Tensor
    own: Tensor | None = None

    def to(self, device: str) -> "Asked":
        """The same queries on a torch device."""
        own = None if self.own is None else self.own.to(device)
        return Asked(self.queries.to(device), self.features.to(device), own)

    def cut(self, size: int) -> list["Asked"]:
        """The queries, `size` at a time."""
        spans = [slice(start, start + size) for start in range(0, len(self.queries), size)]
        return [
            Asked(self.queries[span], self.features[span], None if self.own is None else self.own[span])
            for span in spans
        ]


@dataclass(frozen=True)
class Sums:
    """Sums over some rows j for each query, of r_j = exp(log w_j - peak) with the terms b_j (the first is 1).

    Attributes
    ----------
    peak : Tensor [q]
        The largest log weight; -inf where nobody counts.
    products : Tensor [q, B, B]
        sum r b b'.
    targets : Tensor [q, B, p]
        sum r b (y - origin)'.
    squares : Tensor [q, p]
        sum r (y - origin)^2.
    doubled : Tensor [q, B, B], optional
        sum r^2 b b', for standard errors.
    origin : Tensor [p]
        What is taken from the targets before they are squared; the same for all that is merged.
    support : Tensor [q]
        Weight of the rows, the query's own apart.
    features : int
    volume : Tensor [q], optional
        Logarithm of the kernel's integral, for densities.
    """

    peak: Tensor
    products: Tensor
    targets: Tensor
    squares: Tensor
    doubled: Tensor | None
    origin: Tensor
    support: Tensor
    features: int
    volume: Tensor | None = None

    @property
    def mass(self) -> Tensor:
        """Sum r [q]; 1 where nobody counts."""
        return self.products[:, 0, 0].masked_fill(self.peak.isneginf(), 1.0)

    @property
    def total(self) -> Tensor:
        """Logarithm of the sum of the raw weights [q]; -inf where nobody counts."""
        return self.peak + self.mass.log()

    def merge(self, other: "Sums") -> "Sums":
        """The sums over the rows of both."""
        top = torch.maximum(self.peak, other.peak)
        mine, yours = ((each.peak - top.clamp(min=LOWEST)).exp() for each in (self, other))

        def added(name: str, mine: Tensor, yours: Tensor) -> Tensor:
            one, two = getattr(self, name), getattr(other, name)
            shape = (-1,) + (1,) * (one.ndim - 1)
            return torch.addcmul(one * mine.reshape(shape), two, yours.reshape(shape))

        return replace(
            self,
            peak=top,
            products=added("products", mine, yours),
            targets=added("targets", mine, yours),
            squares=added("squares", mine, yours),
            doubled=None if self.doubled is None else added("doubled", mine.square(), yours.square()),
            support=self.support + other.support,
        )

    @staticmethod
    def concatenate(parts: list["Sums"]) -> "Sums":
        """The sums of the queries of all parts."""
        each = ("peak", "products", "targets", "squares", "doubled", "support")
        there = [name for name in each if getattr(parts[0], name) is not None]
        joined: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in there}
        return replace(parts[0], **joined)


def sums(
    kernel: Kernel, terms: Terms | None, asked: Asked, batches: Iterable[Batch], metric: str, errors: bool
) -> Sums:
    """The sums over all rows, in one pass over the batches, of which there is at least one.

    Parameters
    ----------
    kernel : Kernel
    terms : callable (features less those of the query [q, m, n]) -> [q, B - 1, n], optional
        The model's terms besides the constant.
    asked : Asked
    batches : iterable of Batch
    metric : str
    errors : bool
        Whether `doubled` is wanted.
    """
    found = list[Sums]()
    for batch in batches:
        origin = found[0].origin if found else _origin(batch)
        terms_width = 0 if terms is None else terms(asked.features[:1, :, None].double()).shape[1]
        size = max(16, _NUMBERS // (_QUERIES * (1 + terms_width)))
        pieces, more = list(batch.cut(size)), max(1, size // len(batch.rows))  # queries, of few rows
        of = partial(_sums, kernel, terms, metric, errors, origin)
        tiles = [reduce(Sums.merge, map(partial(of, tile), pieces)) for tile in asked.cut(_QUERIES * more)]
        found.append(Sums.concatenate(tiles))
    return reduce(Sums.merge, found)


def _origin(batch: Batch) -> Tensor:
    if batch.targets is None:
        return batch.keys.new_zeros(0, dtype=torch.float64)
    return batch.targets.double().mean(0)


def _sums(
    kernel: Kernel,
    terms: Terms | None,
    metric: str,
    errors: bool,
    origin: Tensor,
    asked: Asked,
    batch: Batch,
) -> Sums:
    # few and small arrays: memory that is given back and taken again costs more than what is done with it
    hood, missing = batch.around(asked, metric)
    logs, there = kernel.log_weights(hood), batch.row_weights
    there = torch.ones_like(batch.rows, dtype=torch.float64) if there is None else there.double()
    if batch.row_weights is not None:
        logs += there.log()
    if missing is not None:
        logs.masked_fill_(missing, float("-inf"))
        support = there.expand_as(logs).masked_fill(missing, 0.0).sum(1)
    else:
        support = there.sum().expand(len(logs))
    peak = logs.amax(1)
    raw = logs.sub_(peak[:, None].clamp(min=LOWEST)).exp_()
    basis = raw.new_ones(1, 1, 1).expand(len(raw), 1, raw.shape[1])
    if terms is not None:
        near = batch.features_or_keys.double().mT - asked.features[:, :, None].double()
        basis = torch.cat([basis, terms(near)], 1)
    weighted = basis * raw[:, None]
    targets = raw.new_zeros(len(batch.rows), 0) if batch.targets is None else batch.targets.double() - origin
    return Sums(
        peak,
        torch.bmm(weighted, basis.mT),
        weighted @ targets,
        raw @ targets.square(),
        torch.bmm(weighted, weighted.mT) if errors else None,
        origin,
        support,
        asked.features.shape[1],
    )


@dataclass(frozen=True)
class Regression:
    """A weighted least-squares fit of the targets on the terms, at each query.

    Attributes
    ----------
    value : Tensor [q, p]
        At the query, where all terms but the first are 0.
    slopes : Tensor [q, B - 1, p]
    deficient : Tensor [q] bool
    effective : Tensor [q], optional
    squares : Tensor [q, B], optional
        sum_j s_j^2 of the value and of each slope, as linear in the targets.
    variance, freedom : Tensor [q, p], [q], optional
        sum_j w_j e_j^2 of the residuals, and the degrees of freedom, as `LinearSmoother` has them.
    """

    value: Tensor
    slopes: Tensor
    deficient: Tensor
    effective: Tensor | None = None
    squares: Tensor | None = None
    variance: Tensor | None = None
    freedom: Tensor | None = None


def regression(found: Sums, ridge: float) -> Regression:
    """The fit with a ridge on all terms but the first."""
    products, right = (part / found.mass[:, None, None] for part in (found.products, found.targets))
    mean, height = products[:, 1:, 0], right[:, 0]
    spread = products[:, 1:, 1:] - mean[:, :, None] * mean[:, None]
    covariance = right[:, 1:] - mean[:, :, None] * height[:, None]
    solver, deficient = _inverted(spread, ridge, products.diagonal(dim1=1, dim2=2)[:, 1:])
    slopes = solver @ covariance
    value = height - (mean[:, None] @ slopes)[:, 0] + found.origin
    if found.doubled is None:
        return Regression(value, slopes, deficient)
    double = found.doubled / found.mass.square()[:, None, None]
    lever = solver @ mean[:, :, None]
    rows = torch.cat(
        [torch.cat([1 + mean[:, None] @ lever, -lever.mT], 2), torch.cat([-lever, solver], 2)], 1
    )
    squares = ((rows @ double) * rows).sum(2)
    first = double[:, 0, 1:]
    crossed = first[:, :, None] * mean[:, None]
    centred = double[:, 1:, 1:] - crossed - crossed.mT + double[:, :1, :1] * mean[:, :, None] * mean[:, None]
    leverage = (solver * centred).sum((1, 2))
    level = found.squares / found.mass[:, None] - height.square()
    fitted = (slopes * (spread @ slopes - 2 * covariance)).sum(1)
    return Regression(
        value,
        slopes,
        deficient,
        double[:, 0, 0].reciprocal(),
        squares,
        (level + fitted).clamp(min=0),
        1 - double[:, 0, 0] - leverage - ridge * squares[:, 1:].sum(1),
    )


def _inverted(spread: Tensor, ridge: float, squares: Tensor) -> tuple[Tensor, Tensor]:
    """(S + ridge I)^-1, without the directions in which nothing varies, and whether there are such: S is the
    difference of two numbers, of which the first has the diagonal `squares` [q, B - 1].
    """
    matrix = spread + ridge * torch.eye(spread.shape[1], dtype=spread.dtype, device=spread.device)
    if not matrix.shape[1]:
        return matrix, torch.zeros(len(matrix), dtype=torch.bool, device=matrix.device)
    factor, pivot = factored(matrix)
    found, deficient = inverse(factor, pivot), torch.zeros_like(pivot, dtype=torch.bool)
    rounding = _ZERO * squares
    level = (matrix.diagonal(dim1=1, dim2=2) <= rounding).any(1)
    weak = ((level | ~(pivot > WEAK)) & matrix.isfinite().all(2).all(1)).nonzero()[:, 0]
    if len(weak):
        values, vectors = torch.linalg.eigh(matrix[weak])
        kept = values > torch.maximum(_ZERO * values[:, -1:], rounding[weak].amax(1, keepdim=True))
        share = torch.where(kept, values.reciprocal(), 0.0)
        found[weak] = (vectors * share[:, None]) @ vectors.mT
        deficient[weak] = ~kept.all(1)
    return found, deficient
