"""The rows of the support, in one or several shards, and the gathering of neighbors out of them.

A row's id is its position over all shards. Shards of a generation are mapped from Arrow files and shared by
all processes of a machine, so `np.take` reads straight from the page cache; queries sorted by home list make
a tile fall into one or two shards.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.moments import Batch
from locdist.local.neglected import DRAWN, Sample
from locdist.local.neighborhood import Neighborhood
from locdist.search.boxes import MANY, ROWS, WIDE, Boxes
from locdist.search.pairs import distances

NEEDS = {"keys": "key", "features": "feature", "targets": "target", "codes": "label", "shapes": "shape"}
"""What kernels and models ask for, and the column of a shard that has it."""

_BLOCK_ROWS, _BLOCK_BYTES = 16_384, 64 << 20
Shard = Mapping[str, NDArray[Any]]


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The stored rows of a support.

    Parameters
    ----------
    shards : tuple of mapping
        Each maps a column (`key` [n, d], `feature` [n, m], `target` [n, p], `label` [n, 1], `shape` [n, c],
        `weight` [n], `offset` [n], `row` [n]) to its values. All shards have the same columns.
    classes : int
        Number of classes that `label` counts, 0 without one.
    """

    shards: tuple[Shard, ...]
    classes: int = 0

    def __len__(self) -> int:
        return int(self.starts[-1])

    @functools.cached_property
    def starts(self) -> NDArray[np.int64]:
        """[shards + 1] id of each shard's first row, then the number of rows."""
        return np.cumsum([0, *(len(shard["row"]) for shard in self.shards)])

    @functools.cached_property
    def boxes(self) -> Boxes:
        """Rows of one shard with narrow keys, for exact search."""
        return Boxes.of(np.asarray(self.shards[0]["key"]))

    def boxed(self, queries: int, k: int, metric: str) -> bool:
        """Whether so many queries are searched in boxes."""
        keys = self.shards[0]["key"]
        narrow = keys.dtype == np.float64 and keys.shape[1] <= WIDE and metric in ("l2", "haversine")
        large = len(self.shards) == 1 and len(keys) >= max(ROWS, 4 * k)
        return narrow and large and (queries >= MANY or (queries > 0 and "boxes" in vars(self)))

    @functools.cached_property
    def weight(self) -> float:
        """The sum of the rows' weights."""
        if "weight" not in self.shards[0]:
            return float(len(self))
        return float(sum(np.sum(shard["weight"], dtype=np.float64) for shard in self.shards))

    @property
    def width(self) -> int:
        """Key dimension d."""
        return int(self.shards[0]["key"].shape[1])

    def take(self, column: str, ids: Tensor) -> Tensor:
        """Values of `column` for `ids` [q, k] as [q, k, ...]; a missing id (−1) reads some row, which its
        weight of zero hides.
        """
        asked = ids.numpy().reshape(-1)
        if len(asked) and asked.max() >= len(self):
            raise IndexError(f"row {asked.max()} of {len(self)}")
        if len(self.shards) == 1:
            values: NDArray[Any] = np.take(self.shards[0][column], asked, axis=0, mode="clip")
        else:
            values = self._taken(column, np.maximum(asked, 0))
        return torch.from_numpy(values.reshape(*ids.shape, *values.shape[1:]))

    def _taken(self, column: str, wanted: NDArray[np.int64]) -> NDArray[Any]:
        first, last = self._span(wanted)
        if first < last:
            return self._collect(column, wanted)
        found: NDArray[Any] = np.take(self.shards[first][column], wanted - self.starts[first], axis=0)
        return found

    def of_source(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """The ids [s] of rows [start, stop) of the source, as far as they are stored, and these [s], in
        order.
        """
        places = [np.flatnonzero((shard["row"] >= start) & (shard["row"] < stop)) for shard in self.shards]
        ids = np.concatenate([each + first for each, first in zip(places, self.starts, strict=False)])
        rows = np.concatenate(
            [np.take(shard["row"], each) for shard, each in zip(self.shards, places, strict=True)]
        )
        order = rows.argsort(kind="stable")
        return torch.from_numpy(ids[order]), torch.from_numpy(rows[order].astype(np.int64))

    def distances(self, queries: Tensor, ids: Tensor, metric: str) -> Tensor:
        """Distances [q, k] of queries [q, d] to stored rows `ids` [q, k], inf where missing."""
        found = torch.full(ids.shape, torch.inf, dtype=self._precision)
        for home, asked in self._asked(ids.numpy()):
            first, end = self.starts[home : home + 2]
            local = ids[asked] - first  # of earlier shards: negative, missing
            local.masked_fill_(local >= int(end - first), -1)
            here = distances(queries[asked], self.shards[home]["key"], local, metric)
            found[asked] = torch.minimum(found[asked], here)
        return found

    @functools.cached_property
    def _precision(self) -> torch.dtype:
        return torch.float32 if self.shards[0]["key"].dtype == np.float32 else torch.float64

    def _asked(self, ids: NDArray[np.int64]) -> Iterator[tuple[int, Any]]:
        """The shards that rows `ids` [q, k] lie in, each with the queries that have some there: an index of
        many shards costs no more than the few that each query meets.
        """
        first, last = self._span(ids)
        if first == last:
            yield first, slice(None)
            return
        queries, homes = np.nonzero(ids >= 0)[0], self._homes(ids[ids >= 0])
        met = np.unique(homes * len(ids) + queries)
        for home, asked in _groups(met // len(ids)):
            yield home, torch.from_numpy(met[asked] % len(ids))

    def _homes(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The shard of each row."""
        return np.searchsorted(self.starts, ids, side="right") - 1

    def _span(self, ids: NDArray[np.int64]) -> tuple[int, int]:
        """The first and the last shard that rows lie in."""
        ends = np.maximum([ids.min(initial=len(self)), ids.max(initial=0)], 0)
        first, last = np.searchsorted(self.starts, np.minimum(ends, len(self) - 1), side="right") - 1
        return int(first), int(last)

    def _collect(self, column: str, wanted: NDArray[np.int64]) -> NDArray[Any]:
        """Rows that lie in several shards."""
        homes, some = self._homes(wanted), self.shards[0][column]
        values = np.empty((len(wanted), *some.shape[1:]), some.dtype)
        for home, here in _groups(homes):
            values[here] = np.take(self.shards[home][column], wanted[here] - self.starts[home], axis=0)
        return values

    def gather(self, hood: Neighborhood, needs: frozenset[str]) -> Neighborhood:
        """The neighborhood with the columns that a kernel and a model need."""
        self._check(needs)
        found = {need: self.take(self._column(need), hood.ids) for need in needs if need in NEEDS}
        features, asked = found.get("features"), hood.query_features
        if features is not None and asked is not None and features.shape[2] != asked.shape[1]:
            given = f"{asked.shape[1]}"
            raise UsageError(
                f"{features.shape[2]} features of each query", given, "Pass those of the support."
            )
        targets = found.get("codes", found.get("targets"))
        weights = hood.row_weights
        if weights is None and "weight" in self.shards[0]:
            weights = self.take("weight", hood.ids)
        return dataclasses.replace(
            hood,
            support=hood.within(len(self), self.weight) if "density" in needs else hood.support,
            keys=found.get("keys", hood.keys),
            features=found.get("features", hood.features),
            shapes=found.get("shapes", hood.shapes),
            targets=hood.targets if targets is None else targets,
            classes=self.classes if "codes" in needs else hood.classes,
            row_weights=weights,
            offsets=self.take("offset", hood.ids) if "offset" in self.shards[0] else hood.offsets,
        )

    def _check(self, needs: frozenset[str]) -> None:
        """UsageError unless the rows have the columns that `needs` names."""
        missing = [need for need in needs if need in NEEDS and self._column(need) not in self.shards[0]]
        if missing:
            raise UsageError(
                f"a support with {' and '.join(missing)} for this method",
                f"a support with {', '.join(sorted(self.shards[0]))}",
                "Name a target (or a label of few distinct values, for votes) when the dataset is declared.",
            )

    def _column(self, need: str) -> str:
        column = NEEDS[need]
        return "key" if column == "feature" and "feature" not in self.shards[0] else column

    def batches(self, needs: frozenset[str]) -> Iterator[Batch]:
        """All rows with the columns that a kernel and a model need, about 64 MiB of keys at a time."""
        self._check(needs)
        for start, keys in self.blocks():
            home = int(self._homes(np.array([start]))[0])
            first = start - int(self.starts[home])
            shard = {
                name: torch.from_numpy(np.array(values[first : first + len(keys)]))
                for name, values in self.shards[home].items()
            }
            targets = shard.get("target") if "targets" in needs else None
            if "codes" in needs:
                targets = torch.nn.functional.one_hot(shard["label"][:, 0].long(), self.classes).double()
            more = shard.get("weight"), shard.get("shape") if "shapes" in needs else None
            yield Batch(shard["row"].long(), shard["key"], shard.get("feature"), targets, *more)

    @functools.cached_property
    def sample(self) -> Sample:
        """Some rows, always the same ones."""
        total = len(self)
        chosen = np.random.default_rng(0).choice(total, min(DRAWN, total), replace=False)
        ids = torch.from_numpy(np.sort(chosen))
        weights = self.take("weight", ids) if "weight" in self.shards[0] else None
        rows = Batch(self.take("row", ids).long(), self.take("key", ids), row_weights=weights)
        return Sample(ids, rows, total)

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """(id of the first row, keys [b, d]) over all shards, about 64 MiB of single precision at a time."""
        rows = max(_BLOCK_ROWS, _BLOCK_BYTES // (4 * self.width))
        for start, shard in zip(self.starts, self.shards, strict=False):
            keys = shard["key"]
            for first in range(0, len(keys), rows):
                yield int(start) + first, keys[first : first + rows]


def _groups(homes: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each number in `homes` [n], and where it stands."""
    order = np.argsort(homes, kind="stable")
    begins = np.flatnonzero(np.diff(homes[order], prepend=-1))
    for here in np.split(order, begins[1:]):
        yield int(homes[here[0]]), here
