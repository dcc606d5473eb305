"""The data that every row of the table reads: made once, seeded, in a folder that the caller deletes.

Clusters, each on a plane of its own of a few dimensions: what embeddings and tables look like from near. In
the 64 dimensions of the space they have a little noise, so that no local system is singular by construction.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Matrix = npt.NDArray[np.float32]
CLUSTERS = 100
NOISE = 0.02  # in each dimension, where a cluster's standard deviation is 1 along its plane
KEY, TARGET = "key", "y"
FEW = 4  # queries of a tiny task, and of a row group that it reads


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Parameters
    ----------
    support, queries : int
        Rows.
    width, intrinsic : int
        Dimensions of the space and of each cluster.
    k : int
        Neighbors.
    many : int
        How many times more queries the second run of the memory row has.
    peer_queries : int
        Queries that scikit-learn answers.
    tasks : int
        Tasks of the overhead row.
    long_tasks, long_rows : int
        Tasks on each executor of the rows about clusters, and the queries of each.
    planned : tuple of int
        Rows of the small jobs whose time is predicted.
    kriging : int
        Queries of the rows about Gaussian processes.
    logistic, logistic_peer : int
        Queries of the row about logistic regression, and those that scikit-learn answers.
    sites, regression : int
        Rows of the rows about geographically weighted regression, and about kernel regression and settings.
    clustered : int
        Rows of the row about mean shift.
    denoised, pixels : int
        Images of the rows about denoising, and the largest side that is used of them.
    codes : str, optional
        Of the index; locdist chooses by default.
    """

    support: int = 1_000_000
    queries: int = 200_000
    width: int = 64
    intrinsic: int = 8
    k: int = 32
    many: int = 10
    peer_queries: int = 10_000
    tasks: int = 200
    long_tasks: int = 100
    long_rows: int = 25_000
    planned: tuple[int, ...] = (300, 20_000, 200_000)
    kriging: int = 100_000
    logistic: int = 20_000
    logistic_peer: int = 1_000
    sites: int = 5_000
    regression: int = 20_000
    clustered: int = 10_000
    denoised: int = 12
    pixels: int = 512
    codes: str | None = None


@dataclass(frozen=True)
class Inputs:
    """Folders of Parquet files: the support, the queries, the same many times, and those of tiny tasks."""

    sizes: Sizes
    root: Path

    @property
    def support(self) -> Path:
        return self.root / "support"

    @property
    def queries(self) -> Path:
        return self.root / "queries"

    @property
    def tiny(self) -> Path:
        return self.root / "tiny-queries"

    @property
    def many(self) -> Path:
        return self.root / "many-queries"


def write(sizes: Sizes, root: Path) -> Inputs:
    """Write everything below `root`."""
    inputs, world = Inputs(sizes, root), World.random(sizes)
    _write(world, inputs.support, sizes.support, files=8, seed=1)
    _write(world, inputs.queries, sizes.queries, files=4, seed=2)
    _write(world, inputs.tiny, FEW * sizes.tasks, files=1, seed=3, group=FEW)
    inputs.many.mkdir()
    for copy in range(sizes.many):  # memory does not depend on what the numbers are
        for file in inputs.queries.iterdir():
            (inputs.many / f"{copy:03}-{file.name}").hardlink_to(file)
    return inputs


def read(folder: Path) -> tuple[Matrix, npt.NDArray[np.float64]]:
    """Keys [n, d] and targets [n] of all files, in their order."""
    table = pq.read_table(folder).combine_chunks()
    column = table.column(KEY).combine_chunks()
    keys = column.values.to_numpy().reshape(-1, column.type.list_size).copy()  # torch wants it writable
    return keys, table.column(TARGET).to_numpy()


@dataclass(frozen=True)
class World:
    """Where rows come from: centers [c, d], planes [c, r, d], and the direction [d] of the target."""

    centers: Matrix
    planes: Matrix
    direction: Matrix

    @staticmethod
    def random(sizes: Sizes) -> "World":
        rng = np.random.default_rng(0)
        count = min(CLUSTERS, max(1, sizes.support // 1000))
        centers, direction = _normal(rng, count, sizes.width), _normal(rng, sizes.width)
        planes = _normal(rng, count, sizes.intrinsic, sizes.width) / np.float32(sizes.width**0.5)
        return World(centers, planes, direction / np.linalg.norm(direction))

    def rows(self, count: int, rng: np.random.Generator) -> pa.Table:
        """Rows of random clusters, as they come."""
        clusters = np.sort(rng.integers(len(self.centers), size=count))
        keys = self.centers[clusters]
        ends = np.searchsorted(clusters, np.arange(len(self.centers) + 1))
        for plane, first, last in zip(self.planes, ends[:-1], ends[1:], strict=True):
            keys[first:last] += _normal(rng, last - first, len(plane)) @ plane
        keys += NOISE * _normal(rng, *keys.shape)
        keys = keys[rng.permutation(count)]
        targets = np.sin(2 * (keys @ self.direction).astype(np.float64)) + 0.1 * rng.standard_normal(count)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(keys.reshape(-1)), keys.shape[1])
        return pa.table({KEY: vectors, TARGET: targets})


def _write(world: World, folder: Path, rows: int, files: int, seed: int, group: int | None = None) -> None:
    folder.mkdir()
    for number in range(files):
        rng = np.random.default_rng((seed, number))
        table = world.rows(rows // files, rng)
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=group)


def _normal(rng: np.random.Generator, *shape: int) -> Matrix:
    return rng.standard_normal(shape, np.float32)
