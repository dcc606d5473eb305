"""Work of the driver itself on all cores of its machine: slices on threads, libraries single-threaded inside
each.

A library's own threads are no substitute: when another process holds a core, every small tensor operation
waits for it.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from locdist.execute.machine import cpus
from locdist.execute.threads import limit_this_thread, process_limited
from locdist.local.neighborhood import Neighborhood
from locdist.search.audit import Tunable

Part = TypeVar("Part")
Result = TypeVar("Result")


@contextmanager
def pool() -> Iterator[ThreadPoolExecutor]:
    """A thread for each core."""
    with (
        process_limited(1),
        ThreadPoolExecutor(cpus(), initializer=limit_this_thread, initargs=(1,)) as threads,
    ):
        yield threads


def spread(call: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """`call` of each part, in order."""
    with pool() as threads:
        return list(threads.map(call, parts))


@dataclass(frozen=True)
class Spread:
    """An index whose comparisons run on all cores: the same answers, as no query depends on another."""

    index: Tunable

    def exactly(self, queries: Tensor, k: int, own: Tensor | None = None) -> Neighborhood:
        """The exact neighbors, in the order of the queries."""
        parts = _slices(queries, own)
        return _joined(spread(lambda part: self.index.exactly(part[0], k, part[1]), parts))

    def probed(self, queries: Tensor, k: int, own: Tensor | None, nprobe: int) -> Neighborhood:
        """What a search of `nprobe` lists finds."""
        parts = _slices(queries, own)
        return _joined(spread(lambda part: self.index.probed(part[0], k, part[1], nprobe), parts))


def _slices(queries: Tensor, own: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    size = -(-len(queries) // cpus())
    starts = range(0, len(queries), max(size, 1))
    return [(queries[at : at + size], None if own is None else own[at : at + size]) for at in starts]


def _joined(parts: list[Neighborhood]) -> Neighborhood:
    starts = functools.reduce(lambda sums, part: [*sums, sums[-1] + len(part.ids)], parts, [0])
    orders = [
        start + (torch.arange(len(part.ids)) if part.order is None else part.order)
        for start, part in zip(starts, parts, strict=False)
    ]
    distances, ids = (torch.cat([getattr(part, name) for part in parts]) for name in ("distances", "ids"))
    return Neighborhood(distances, ids, order=torch.cat(orders))
