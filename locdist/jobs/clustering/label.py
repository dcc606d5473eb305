"""The third stage: the cluster of every row; and of new rows, which climb first."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.data.columns import matrix, numbers
from locdist.data.moments import Moments
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.jobs.asking.block import STATUS, STATUSES, Block, statuses
from locdist.jobs.asking.questions import Ask
from locdist.jobs.clustering.climb import Climb, ClimbRows
from locdist.jobs.clustering.merge import CELLS, CLUSTERS, MERGED, point_names, side
from locdist.local.answers import Status
from locdist.local.modes import cells, located, nearest
from locdist.plan.cost import Solve
from locdist.search.layout import digest


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters, and the places that belong to them.

    Parameters
    ----------
    table : pa.Table
        cluster, rows, effective, mode_COLUMN.
    places : Tensor [m, d]
    cluster : Tensor [m]
        -1 for those of orphans.
    """

    table: pa.Table
    places: Tensor
    cluster: Tensor

    def of(self, ends: Tensor, radius: float) -> Tensor:
        """The cluster [n] of climbs that ended at `ends` [n, d]: that of the place in the same cell, else of
        the nearest one; -1 where none is within the radius.
        """
        own = side(radius)
        which = located(cells(ends, own), cells(self.places, own))
        new = (which < 0).nonzero()[:, 0]
        if len(new) and len(self.places):
            distance, near = nearest(ends[new], self.places)
            which[new] = torch.where(distance <= radius, near, -1)
        return torch.cat([self.cluster, torch.full((1,), -1)])[which]


@functools.lru_cache(maxsize=4)
def read_clusters(folder: str, fingerprint: str) -> Clusters:
    """What the merge wrote; the fingerprint tells what a folder held at other times apart."""
    store = Store.at(folder)
    with store.open(CLUSTERS) as clusters, store.open(CELLS) as kept:
        table, known = pq.read_table(clusters), pq.read_table(kept)
    places, _ = matrix(known.column("place"), np.float64)
    return Clusters(table, torch.from_numpy(places), torch.tensor(known.column("cluster").to_numpy()))


@dataclass(frozen=True, kw_only=True)
class LabelRows(Ask):
    """Cluster, mode and status of each row.

    Parameters
    ----------
    climb : Climb
    merged, fingerprint : str
        Folder of the clusters, and what `fingerprint_of` says of it.
    climbed : Source, optional
        Where the rows' climbs ended; without it they climb.
    """

    climb: Climb
    merged: str
    fingerprint: str
    climbed: Source | None = None

    def columns(self) -> pa.Schema:
        """A cluster is null where there is none."""
        modes = [pa.field(f"mode_{name}", pa.float64()) for name in point_names(self.index.key)]
        return pa.schema([pa.field("cluster", pa.int64()), *modes, pa.field("status", STATUS)])

    @property
    def work(self) -> Solve:
        """Of one step of the climb, or none."""
        climbing = self._climbing.work
        return climbing if self.climbed is None else replace(climbing, k=1)

    @property
    def block_rows(self) -> int:
        """As of the climb."""
        return self._climbing.block_rows

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Answers of one block."""
        ends, status = self._ends(block)
        found = read_clusters(self.merged, self.fingerprint)
        there = status < int(Status.EMPTY)
        cluster = found.of(torch.where(there[:, None], ends, 0.0), self.climb.radius).masked_fill(~there, -1)
        alone = ((cluster < 0) & there).to(torch.int8) * int(Status.LOW_SUPPORT)
        status = torch.maximum(status.to(torch.int8), alone)
        names = pa.array(cluster.numpy(), mask=(cluster < 0).numpy())
        modes = found.table.select(self._modes).take(names)
        told = [names, *(column.combine_chunks() for column in modes.columns), statuses(status)]
        return pa.Table.from_arrays(told, schema=self.columns()), {}

    def _ends(self, block: Block) -> tuple[Tensor, Tensor]:
        """Where climbs ended [q, d], and their status [q]."""
        if self.climbed is None:
            found = self.climb(self.index, block.queries, block.bad, block.device)
            return found.values, found.status
        span = block.first, block.first + len(block.queries)
        tables = pa.concat_tables(self.climbed.read(*span, ["place", "status"]))
        places, _ = matrix(tables.column("place"), np.float64)
        codes = pa.compute.index_in(tables.column("status").cast(pa.string()), STATUSES)
        return torch.from_numpy(places), torch.from_numpy(numbers(codes)[0]).to(torch.int8)

    @property
    def _climbing(self) -> ClimbRows:
        return ClimbRows(source=self.source, index=self.index, keep=(), climb=self.climb)

    @property
    def _modes(self) -> Sequence[str]:
        return [f"mode_{name}" for name in point_names(self.index.key)]


def fingerprint_of(merged: Store) -> str:
    """A hash of what belongs to which cluster."""
    return digest(merged.read(CELLS))


def climbed(folder: Store) -> Source:
    """What the climb wrote."""
    return source(folder.uri)


def merged_in(folder: Store) -> Store:
    """Where the clusters of an output folder are; UsageError when it has none."""
    merged = folder.child(MERGED)
    if not merged.exists(CLUSTERS):
        given, remedy = f"{folder.uri} without {MERGED}/{CLUSTERS}", "Check the path, or run the job first."
        raise UsageError("the output folder of cluster", given, remedy)
    return merged
