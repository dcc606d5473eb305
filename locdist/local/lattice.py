"""A query loop on a lattice: queries that meet go on as one.

A step of a loop is a map of the space into itself. On the cells of a lattice, each with the cell that its
center is led to, it is a graph in which every cell has one successor: each is asked once, however many
queries pass through, and the end of every path is found by following it in strides of powers of two. Where a
query ends depends on the query alone, not on those that came with it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.answers import Answers, Status
from locdist.local.layer import Index, Layer
from locdist.local.loops import Update
from locdist.local.modes import distinct, located
from locdist.local.moments import Batch
from locdist.local.neighborhood import Neighborhood


@dataclass(frozen=True)
class Thinned:
    """Every so many-th row of a support stands for all of them, where all count (k=None); read once.

    Parameters
    ----------
    index : Index
    held : tuple of Batch
    """

    index: Index
    held: tuple[Batch, ...]

    @staticmethod
    def of(index: Index, every: int, needs: frozenset[str]) -> "Thinned":
        """Every so many-th row of an index."""
        held, before = list[Batch](), 0
        for batch in index.batches(needs):
            held.append(batch.at(slice(-before % every, None, every)))
            before += len(batch.rows)
        return Thinned(index, tuple(held))

    @property
    def metric(self) -> str:
        """That of the index."""
        return self.index.metric

    @property
    def apart(self) -> bool:
        """As the index says."""
        return self.index.apart

    def search(self, queries: Tensor, k: int, own: Tensor | None) -> Neighborhood:
        """Neighbors among all rows."""
        return self.index.search(queries, k, own)

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        """Columns of all rows."""
        return self.index.gather(hood, needs)

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """The rows that are kept."""
        return iter(self.held)


@dataclass(frozen=True)
class Lattice:
    """A layer whose queries move from cell to cell until they rest, in a cell or in a cycle of cells.

    Values are the center of the cell, of a cycle the first one in the order of coordinates; everything else
    is told of that cell. Where the thinned support leaves a query alone, the whole one is asked.

    Parameters
    ----------
    layer : Layer
        As of a `QueryLoop`.
    side : float
        Of a cell, in units of the queries; > 0.
    update : Update

    Raises
    ------
    UsageError
        If the side is not positive.
    """

    layer: Layer
    side: float
    update: Update

    def __post_init__(self) -> None:
        if isinstance(self.side, bool) or not 0 < self.side < float("inf"):
            raise UsageError("a positive side of the cells", repr(self.side), "A quarter bandwidth, say.")

    def __call__(
        self,
        index: Index,
        every: int,
        queries: Tensor,
        bad: Tensor | None = None,
        want: frozenset[str] = frozenset(),
        device: str = "cpu",
    ) -> Answers:
        """Where the queries [q, d] come to rest on the lattice, in their order.

        Parameters
        ----------
        index : Index
        every : int
            The support is thinned to every so many-th row.
        queries, bad, want, device
            As of a `Layer`.
        """
        lost = ~queries.isfinite().all(1) if bad is None else bad | ~queries.isfinite().all(1)
        start = self._cells(queries.double().masked_fill(lost[:, None], 0.0))
        thin = every > 1 and self.layer.k is None
        some = Thinned.of(index, every, self.layer.needs) if thin else index
        told = list[Answers]()

        def step(cells: Tensor) -> Tensor:
            found = self._moved(index, some, self._centers(cells).to(queries.dtype), want, device)
            told.append(found)
            return self._cells(found.values)

        cells, rest = followed(step, start)
        answers = Answers.concatenate(told)
        answers = replace(answers, values=self._centers(cells)).rows(rest)
        return answers.refuse(lost, Status.BAD_QUERY) if lost.any() else answers

    def _moved(self, index: Index, some: Index, at: Tensor, want: frozenset[str], device: str) -> Answers:
        """Answers whose values are where points [c, d] are led; without an answer they stay."""
        found = self.layer(some, at, want=want, device=device)
        alone = (found.status >= int(Status.EMPTY)).nonzero()[:, 0]
        if len(alone) and some is not index:
            asked = self.layer(index, at[alone], want=want, device=device)
            places = torch.cat([(found.status < int(Status.EMPTY)).nonzero()[:, 0], alone])
            found = Answers.concatenate([found.rows(places[: len(at) - len(alone)]), asked]).reorder(places)
        point = found.values[:, -at.shape[1] :].to(at.dtype)
        point = torch.where(point.isfinite().all(1, keepdim=True), point, at)
        return replace(found, values=self.update(at, point))

    def _cells(self, places: Tensor) -> Tensor:
        return (places.double() / self.side).round().long()

    def _centers(self, cells: Tensor) -> Tensor:
        return cells.double() * self.side


def followed(step: Callable[[Tensor], Tensor], start: Tensor) -> tuple[Tensor, Tensor]:
    """Where paths through cells end.

    Parameters
    ----------
    step : callable (Tensor [c, d] int64) -> Tensor [c, d] int64
        The successors of distinct cells; called for each cell once.
    start : Tensor [s, d] int64

    Returns
    -------
    Tensor [c, d], Tensor [s]
        The cells that were asked, in that order, and which of them each path ends in.
    """
    cells, onto = start[:0], start[:0]
    fresh, _ = distinct(start)
    while len(fresh):
        found = step(fresh)
        cells, onto = torch.cat([cells, fresh]), torch.cat([onto, found])
        fresh = _new(found, cells)
    _, place = distinct(torch.cat([cells, onto, start]))
    here, there, begin = place[: len(cells)], place[len(cells) : 2 * len(cells)], place[2 * len(cells) :]
    after = torch.empty_like(here).scatter_(0, here, there)
    lowest = torch.minimum(torch.arange(len(after)), after)
    for _ in range(max(1, len(after)).bit_length() + 1):
        after, lowest = after[after], torch.minimum(lowest, lowest[after])
    return cells, here.argsort()[lowest[after[begin]]]


def _new(found: Tensor, known: Tensor) -> Tensor:
    """The distinct cells among `found` [f, d] that are not `known` [c, d], which are distinct."""
    rows, _ = distinct(found)
    return rows[located(rows, known) < 0]
