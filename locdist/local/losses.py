"""Losses of the nodes of a network, from the rows that each has: quadratic ones, which add up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from locdist.errors import DataError, UsageError
from locdist.local.families import Family
from locdist.local.graph import Edges, Graph

BLOCK = 4096  # rows whose products are held at once
Array = Tensor | Sequence[Any]  # and arrays of NumPy


def double(given: Array) -> Tensor:
    """Numbers in double precision; arrays that must not be changed are copied."""
    return given.double() if isinstance(given, Tensor) else torch.tensor(given, dtype=torch.float64)


def is_number(given: object) -> bool:
    """Whether users passed a number; true and false are none."""
    return isinstance(given, Real) and not isinstance(given, bool)


def sums_over(groups: Tensor, count: int) -> Graph:
    """The matrix [count, r] that sums rows by their group [r]."""
    ones = torch.ones(len(groups), dtype=torch.float64)
    return Graph.of(Edges(groups, torch.arange(len(groups)), ones), count, len(groups))


@dataclass(frozen=True, eq=False)
class Rows:
    """What nodes know: the node [r] of each row, its features [r, m], targets [r] and weights [r]."""

    nodes: Tensor
    features: Tensor
    targets: Tensor
    weights: Tensor

    @staticmethod
    def of(count: int, nodes: Array, features: Array, targets: Array, weights: Array | None = None) -> "Rows":
        """Rows of `count` nodes, less those that weigh nothing; UsageError for what does not fit, or is not
        finite.
        """
        places, x, y = double(nodes).long(), double(features), double(targets)
        v = torch.ones_like(y) if weights is None else double(weights)
        if x.ndim != 2 or not places.shape == y.shape == v.shape == x.shape[:1]:
            given = ", ".join(str(list(each.shape)) for each in (places, x, y, v))
            raise UsageError("nodes [r], features [r, d], targets [r], weights [r]", given, "Align the rows.")
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < count:
            given = f"from {int(places.min())} to {int(places.max())}"
            raise UsageError(f"nodes from 0 to {count - 1}", given, "Number them as the graph does.")
        if not (x.isfinite().all() and y.isfinite().all() and v.isfinite().all() and (v >= 0).all()):
            raise UsageError("finite rows, with weights of 0 or more", "others", "Leave such rows out.")
        return Rows(places, x, y, v).there

    @property
    def there(self) -> "Rows":
        """Those that weigh something."""
        return self if (self.weights > 0).all() else self.some(self.weights > 0)

    def some(self, which: Tensor) -> "Rows":
        """Those that `which` [r] bool or [s] int64 names."""
        parts = (self.nodes, self.features, self.targets, self.weights)
        return Rows(*(part[which] for part in parts))

    def by_node(self, count: int) -> list["Rows"]:
        """The rows of each node."""
        order = self.nodes.argsort(stable=True)
        sizes = torch.bincount(self.nodes, minlength=count).tolist()
        parts = (self.nodes, self.features, self.targets, self.weights)
        pieces = (torch.split(part[order], sizes) for part in parts)
        return [Rows(*some) for some in zip(*pieces, strict=True)]

    def blocks(self) -> Iterator["Rows"]:
        """A few thousand of them at a time."""
        parts = (self.nodes, self.features, self.targets, self.weights)
        for some in zip(*(torch.split(part, BLOCK) for part in parts), strict=True):
            yield Rows(*some)

    def expansion(self, at: Tensor, family: Family | None) -> Tensor:
        """Second derivatives [m * m], first ones [m], and the value of the loss of each row."""
        x, y = self.features, self.targets
        eta = (x * at[self.nodes]).sum(1)
        if family is None:
            value, slope, curve = (eta - y).square() / 2, eta - y, torch.ones_like(y)
        else:
            value, slope, curve = family.loss(eta, y), family.slope(eta, y), family.curve(eta, y)
        value, slope, curve = (self.weights * each for each in (value, slope, curve))
        bent = (x[:, :, None] * (curve[:, None] * x)[:, None]).flatten(1)
        return torch.cat([bent, slope[:, None] * x, value[:, None]], 1)


@dataclass(frozen=True, eq=False)
class Losses:
    """Quadratic losses f_i(w) = w'Q_i w / 2 - b_i'w + c_i of n nodes.

    Attributes
    ----------
    curve : Tensor [n, m, m] float64
        Q.
    pull : Tensor [n, m]
        b.
    level : Tensor [n]
        c.
    rows : Tensor [n] int64
        Rows that each is made of.
    """

    curve: Tensor
    pull: Tensor
    level: Tensor
    rows: Tensor

    @staticmethod
    def of(rows: "Rows", count: int, at: Tensor | None = None, family: Family | None = None) -> "Losses":
        """Those of the rows of each of `count` nodes: half their sum of squares, or of a family's loss the
        second-order expansion at the parameters `at` [n, m]. Rows that weigh nothing are absent.
        """
        rows = rows.there
        m = rows.features.shape[1]
        at = rows.features.new_zeros(count, m) if at is None else at
        total = rows.features.new_zeros(count, m * m + m + 1)
        for part in rows.blocks():
            total += sums_over(part.nodes, count).times(part.expansion(at, family))
        curve, slope, value = total[:, : m * m].reshape(count, m, m), total[:, m * m : -1], total[:, -1]
        bent = _times(curve, at)
        level = value - (slope * at).sum(1) + (bent * at).sum(1) / 2
        return Losses(curve, bent - slope, level, torch.bincount(rows.nodes, minlength=count))

    def merge(self, other: "Losses") -> "Losses":
        """The sum of both, node by node."""
        parts = zip(self.parts, other.parts, strict=True)
        return Losses(*(one + two for one, two in parts))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is added up when losses are."""
        return self.curve, self.pull, self.level, self.rows

    def penalized(self, ridge: float, first: int) -> "Losses":
        """With ridge |w|^2 / 2 of the parameters from number `first` on, of every node that has rows."""
        more = torch.full_like(self.pull, ridge) * (self.rows > 0)[:, None]
        more[:, :first] = 0.0
        return replace(self, curve=self.curve + torch.diag_embed(more))

    def summed(self, together: Graph) -> "Losses":
        """Those of groups of nodes, by the matrix that sums over them."""
        curve = together.times(self.curve.flatten(1)).reshape(-1, *self.curve.shape[1:])
        level, rows = (together.times(each[:, None].double())[:, 0] for each in (self.level, self.rows))
        return Losses(curve, together.times(self.pull), level, rows.long())

    def values(self, models: Tensor) -> Tensor:
        """f_i(w_i) [n] at the parameters w [n, m]."""
        return (models * (self.bent(models) / 2 - self.pull)).sum(1) + self.level

    def slopes(self, models: Tensor) -> Tensor:
        """The gradients [n, m]."""
        return self.bent(models) - self.pull

    def bent(self, models: Tensor) -> Tensor:
        """Q_i w_i [n, m]."""
        return _times(self.curve, models)

    @cached_property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues [n, m], 0 where they are rounding, and eigenvectors [n, m, m] of each Q."""
        if not (self.curve.isfinite().all() and self.pull.isfinite().all()):
            raise DataError(
                "sums of squares that are finite", "infinite ones", "Change the unit of a feature."
            )
        size, axes = torch.linalg.eigh(self.curve)
        rounding = size.amax(1, keepdim=True) * size.shape[1] * torch.finfo(size.dtype).eps * 8
        return torch.where(size > rounding, size, 0.0), axes

    def solve(self, right: Tensor, more: Tensor) -> Tensor:
        """(Q_i + more_i)^-1 right_i for right [n, m] and more [n] >= 0; of systems without a unique solution
        that of minimum norm.
        """
        size, axes = self.spectrum
        size = size + more[:, None]
        gain = torch.where(size > 0, 1 / size, 0.0)
        return _times(axes, gain * _times(axes.mT, right))


def _times(matrices: Tensor, vectors: Tensor) -> Tensor:
    """The product [n, m] of each matrix [n, m, m] with its vector [n, m]."""
    return torch.bmm(matrices, vectors[:, :, None])[:, :, 0]
