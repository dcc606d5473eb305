"""The second stage: places where climbs ended become clusters.

A task for each partition keeps one place of each small cell; one task more merges them. Clusters do not
depend on how rows were cut into partitions: places are ranked by their heights, and by their coordinates
where these are equal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from locdist.data.columns import matrix, numbers, vectors
from locdist.data.encoding import Encoding
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.execute.executor import run
from locdist.jobs.asking.ask import Running
from locdist.jobs.asking.tuning import PLAN, Tuned
from locdist.jobs.clustering.climb import Climb
from locdist.jobs.request import rows_told
from locdist.local.modes import gathered, nearest, ranked, strongest
from locdist.plan.cost import MEASURED
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Attempt, Resources, Stage, Task, holding, remaining
from locdist.plan.records import Record
from locdist.plan.versions import versions
from locdist.search.exact import Exact
from locdist.search.generation import Generation

MERGED = "_locdist/clusters"  # below the output: this job
CLUSTERS, CELLS = "clusters.parquet", "cells.parquet"
_FINE = 100  # cells of a radius
PART_ROWS = 1 << 20
Records = Mapping[str, Mapping[str, Record]]


def side(radius: float) -> float:
    """Of the cells of which one place is kept."""
    return radius / _FINE


@dataclass(frozen=True)
class Ends:
    """Places [n, d], their heights [n], and of how many rows [n]."""

    places: Tensor
    heights: Tensor
    rows: Tensor

    @staticmethod
    def of(table: pa.Table) -> "Ends":
        """Those of a table that are places."""
        places, bad = matrix(table.column("place"), np.float64)
        heights, _ = numbers(table.column("effective"))
        rows = numbers(table.column("rows"))[0] if "rows" in table.schema.names else np.ones(len(places))
        good = ~bad
        return Ends(*(torch.from_numpy(each[good]) for each in (places, heights, rows)))

    def at(self, which: Tensor) -> "Ends":
        """Some of them."""
        return Ends(self.places[which], self.heights[which], self.rows[which])

    def gathered(self, radius: float) -> "Ends":
        """One of each cell, ranked."""
        which, rows = gathered(self.places, self.heights, self.rows, side(radius))
        return replace(self.at(which), rows=rows)

    def table(self) -> pa.Table:
        """What `of` reads."""
        told = {"place": vectors(self.places.numpy()), "effective": self.heights.numpy()}
        return pa.table(told | {"rows": self.rows.numpy()})


@dataclass(frozen=True)
class KeepCells:
    """One place of each cell in which climbs of a partition ended."""

    climbed: Source
    radius: float

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.climbed, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Places, heights and numbers of rows."""
        start, stop = task.inputs
        tables = self.climbed.read(start, stop, ["place", "effective"], batch_rows=PART_ROWS)
        parts = [Ends.of(table).gathered(self.radius).table() for table in tables]
        kept = Ends.of(pa.concat_tables(parts)).gathered(self.radius)
        _write(attempt, task.outputs[0], kept.table())
        return Record(rows=int(kept.rows.sum()), data={"cells": len(kept.rows)})


@dataclass(frozen=True)
class MergeCells:
    """All cells: which cluster each one belongs to, and the clusters."""

    climb: Climb
    index: Generation
    least: int

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Cells and clusters."""
        read = (attempt.folder.open(name) for name in task.inputs)
        ends = Ends.of(pa.concat_tables([pq.read_table(stream) for stream in read])).gathered(
            self.climb.radius
        )
        modes, cluster = merged(self.climb, self.index, ends, self._precision, attempt.device)
        rows = torch.zeros(len(modes.rows), dtype=torch.float64).index_add_(0, cluster, ends.rows)
        order = rows.argsort(descending=True, stable=True)
        order = order[rows[order] >= self.least]
        names = torch.full((len(rows) + 1,), -1).index_copy_(0, order, torch.arange(len(order)))
        told = {"place": vectors(ends.places.numpy()), "cluster": names[cluster].numpy()}
        _write(attempt, CELLS, pa.table(told))
        clusters = replace(modes.at(order), rows=rows[order])
        _write(attempt, CLUSTERS, _told(clusters, self.index))
        orphans = int(ends.rows.sum() - clusters.rows.sum())
        return Record(rows=int(ends.rows.sum()), data={"clusters": len(order), "orphans": orphans})

    @property
    def _precision(self) -> torch.dtype:
        return torch.float32 if self.index.key.dtype == "float32" else torch.float64


def merged(
    climb: Climb, index: Generation | Exact, ends: Ends, precision: torch.dtype, device: str = "cpu"
) -> tuple[Ends, Tensor]:
    """Modes, and which one each end belongs to. Ends on a lattice lie near modes: of several that are close
    together one climbs on, for all of them, over all rows of the index.
    """
    radius = climb.radius
    seeds = strongest(ends.places, radius / 2 if climb.grain else radius)
    tops = ends.at(seeds)
    if climb.grain:
        answers = climb.exactly(index, tops.places.to(precision), device)
        assert answers.effective is not None
        there = answers.values.isfinite().all(1)
        places = torch.where(there[:, None], answers.values, tops.places)
        tops = replace(tops, places=places, heights=torch.where(there, answers.effective, tops.heights))
    order = ranked(tops.places, tops.heights)
    modes = tops.at(order[strongest(tops.places[order], radius)])
    mode = nearest(tops.places, modes.places)[1]
    return modes, mode[nearest(ends.places, ends.places[seeds])[1]]


@dataclass(frozen=True)
class Merge:
    """The job of this stage."""

    folder: Store
    climbed: Source
    climb: Climb
    index: Generation
    least: int
    resources: Resources | None = None

    def next_stage(self, records: Records) -> Stage | None:
        """The cells of each partition, then all."""
        resources = holding(self.resources, MEASURED.base)
        parts = [
            Task(f"cells-{number:05}", (f"cells-{number:05}.parquet",), (span.start, span.stop), span.rows)
            for number, span in enumerate(self.climbed.partitions(PART_ROWS))
        ]
        cells = Stage("cells", tuple(parts), KeepCells(self.climbed, self.climb.radius), resources)
        whole = Task("merge", (CELLS, CLUSTERS), tuple(task.outputs[0] for task in parts))
        merge = Stage("merge", (whole,), MergeCells(self.climb, self.index, self.least), resources)
        return next((stage for stage in (cells, merge) if remaining(stage, records)), None)

    def finish(self, records: Records) -> Mapping[str, Any]:
        """How many clusters and orphans."""
        return records["merge"]["merge"].data


def merge(
    folder: Store, climbed: Store, climb: Climb, index: Generation, least: int, running: Running
) -> tuple[Generation, Mapping[str, Any]]:
    """Merge what a climb wrote; returns the index as it was searched, and how many clusters and orphans."""
    assert running.executor is not None
    index = index.probing(Tuned.read(climbed).nprobe) if climbed.exists(PLAN) else index
    asked = {"method": climb.method.spec, "grain": climb.grain, "sample": climb.sample}
    asked |= {"radius": climb.radius, "least": least, "index": index.fingerprint}
    with claimed(folder, Manifest("merge", asked, (), versions())):
        job = Merge(folder, source(climbed.uri), climb, index, least, running.resources)
        told = run(job, running.executor, listener=running.listener, command=running.command)
    return index, told


def point_names(encoding: Encoding) -> list[str]:
    """A name for each coordinate of a point: columns, or axes of the map."""
    return list(encoding.names) if encoding.map is None else [f"map[{n}]" for n in range(encoding.width)]


def _told(clusters: Ends, index: Generation) -> pa.Table:
    """Sizes, heights, and modes in the user's units."""
    own = index.key.restore(clusters.places.numpy())
    told = {"cluster": np.arange(len(own)), "rows": clusters.rows.numpy().astype(np.int64)}
    modes = {f"mode_{name}": own[:, axis] for axis, name in enumerate(point_names(index.key))}
    return pa.table(told | {"effective": clusters.heights.numpy()} | modes)


def _write(attempt: Attempt, name: str, table: pa.Table) -> None:
    with attempt.writer(name) as sink:
        pq.write_table(table, sink, compression="zstd")
