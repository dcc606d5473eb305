"""Generated partitions, and answers by brute force: numpy alone, one query at a time, nothing of locdist."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Array = NDArray[np.float64]
BIG = 2**60  # ids that a float64 cannot hold
COLORS = ["red", "green", "blue"]


def table(rows: int, seed: int, width: int = 6) -> pa.Table:
    """Rows with every kind of column: a vector, scalars of different units, a category, ids, labels."""
    rng = np.random.default_rng(seed)
    embedding = rng.normal(size=(rows, width)).astype(np.float32)
    a, b = rng.uniform(-1, 1, rows), rng.normal(1000, 50, rows)
    f1, f2 = rng.normal(size=rows), rng.normal(5, 20, rows)
    signal = np.sin(3 * a) + b / 100 + f1 - 0.05 * f2
    place = rng.permutation(rows)
    columns = {
        "id": BIG + place,
        "name": [f"row {number:05}" for number in place],
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(embedding.ravel()), width),
        "a": a,
        "b": b,
        "color": np.array(COLORS)[rng.integers(0, 3, rows)],
        "f1": f1,
        "f2": f2,
        "w": np.where(rng.random(rows) < 0.1, 0.0, rng.uniform(0.5, 2, rows)),
        "y": signal + 0.1 * rng.normal(size=rows),
        "z": embedding[:, 0] + 0.1 * rng.normal(size=rows),
        "word": np.array(["pear", "apple", "fig"])[np.digitize(a, [-0.3, 0.4])],
        "number": np.digitize(a, [-0.3, 0.4]) * 7 - 7,
        "flag": a > 0.1,
    }
    return pa.table(columns)


def write(whole: pa.Table, folder: Path, files: int = 3) -> Path:
    """The rows in files of uneven sizes, each with several row groups."""
    folder.mkdir(parents=True)
    cuts = [round(whole.num_rows * (part / files) ** 1.3) for part in range(files + 1)]
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        rows = whole.slice(start, stop - start)
        pq.write_table(rows, folder / f"part-{number}.parquet", row_group_size=max(1, len(rows) // 2))
    return folder


def sites_and_loads(place: Path, rows: int = 64, meters: int = 7, hours: int = 60) -> Path:
    """Prices at places, one of them unknown, and series of loads, in five files each."""
    rng = np.random.default_rng(0)
    east, north, rooms = rng.uniform(0, 9, (3, rows))
    price = np.sin(east) * 3 + rooms + rng.normal(size=rows)
    price[7] = np.nan
    sites = pa.table({"id": range(rows), "east": east, "north": north, "rooms": rooms, "price": price})
    loads = np.sin(np.arange(hours) / 3 + np.arange(meters)[:, None]) + 0.1 * rng.normal(size=(meters, hours))
    times = {"meter": np.repeat(np.arange(meters), hours), "hour": np.tile(np.arange(hours), meters)}
    for name, whole in (("sites", sites), ("loads", pa.table({**times, "load": loads.reshape(-1)}))):
        (place / name).mkdir()
        size = -(-whole.num_rows // 5)
        for part in range(5):
            pq.write_table(whole.slice(part * size, size), place / name / f"{part}.parquet")
    return place


def scans(place: Path) -> Path:
    """14 images of several sizes in two files; the fourth is null, and three more are none."""
    rng = np.random.default_rng(0)
    images: list[object] = [rng.random((12 + row % 3, 10 + row % 4)).tolist() for row in range(14)]
    images[3], images[9], images[11] = None, [[0.5, 0.5]], [[0.5] * 9] * 9 + [[0.5] * 8]
    images[7][2][2] = np.nan  # type: ignore[index]
    (place / "scans").mkdir()
    for part, rows in enumerate((slice(0, 6), slice(6, 14))):
        table = pa.table({"id": range(rows.start, rows.stop), "image": images[rows]})
        pq.write_table(table, place / "scans" / f"{part}.parquet")
    return place


def parts(folder: Path) -> dict[str, bytes]:
    """Name and bytes of every data file of an output folder."""
    return {file.name: file.read_bytes() for file in sorted(folder.glob("part-*.parquet"))}


def read(folder: Path) -> pa.Table:
    """All rows of an output folder, in order."""
    return pa.concat_tables(pq.read_table(file) for file in sorted(folder.glob("part-*.parquet")))


def numbers(rows: pa.Table, *names: str) -> Array:
    """Columns as [n, m]; a column of vectors is spread out."""
    return np.column_stack([np.array(rows[name].to_pylist(), dtype=np.float64) for name in names])


def standard(rows: pa.Table, support: pa.Table, *names: str) -> Array:
    """Columns less their mean in the support, over its standard deviation."""
    known = numbers(support, *names)
    return (numbers(rows, *names) - known.mean(axis=0)) / known.std(axis=0)


def colors(rows: pa.Table) -> Array:
    """One column a color; two colors are at distance 1."""
    return np.sqrt(0.5) * (np.array(rows["color"].to_pylist())[:, None] == np.array(sorted(COLORS)))


def unit(values: Array) -> Array:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


KERNELS: dict[str, Callable[[Array], Array]] = {
    "uniform": lambda u: (u <= 1) * 1.0,
    "triangular": lambda u: np.clip(1 - u, 0, None),
    "epanechnikov": lambda u: np.clip(1 - u**2, 0, None),
    "bisquare": lambda u: np.clip(1 - u**2, 0, None) ** 2,
    "tricube": lambda u: np.clip(1 - u**3, 0, None) ** 3,
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "laplace": lambda u: np.exp(-u),
}


def nearest(
    keys: Array, queries: Array, k: int, own: Sequence[int] | None = None
) -> tuple[NDArray[np.int64], Array]:
    """Rows and distances [q, k] of the nearest keys, of equal ones the first; `own` rows left out."""
    away = np.linalg.norm(keys[None] - queries[:, None], axis=2)
    if own is not None:
        away[np.arange(len(queries)), own] = np.inf
    rows = np.argsort(away, axis=1, kind="stable")[:, :k]
    return rows, np.take_along_axis(away, rows, axis=1)


def weigh(
    kernel: str, away: Array, bandwidth: float | None = None, row_weights: Array | None = None
) -> Array:
    """Normalized weights [q, k]; without a bandwidth it is the last distance of a row that counts."""
    if bandwidth is None:
        counted = away if row_weights is None else np.where(row_weights > 0, away, 0)
        last = counted.max(axis=1, keepdims=True) * 1.0000001
    raw = KERNELS[kernel](away / (last if bandwidth is None else bandwidth))
    raw = raw if row_weights is None else raw * row_weights
    return raw / raw.sum(axis=1, keepdims=True)


def plane(features: Array, targets: Array, weights: Array, at: Array) -> tuple[Array, Array, float]:
    """Weighted least squares at one query: coefficients [1 + m] (first the value there), smoother row [k],
    and the standard error of the value.
    """
    design = np.column_stack([np.ones(len(features)), features - at])
    root = np.sqrt(weights)[:, None]
    operator = np.linalg.pinv(root * design) * root.T
    residual = targets - design @ (operator @ targets)
    freedom = np.trace(np.diag(weights) @ (np.eye(len(weights)) - design @ operator))
    variance = float(weights @ residual**2) / freedom
    return operator @ targets, operator[0], float(np.sqrt(variance * (operator[0] ** 2).sum()))
