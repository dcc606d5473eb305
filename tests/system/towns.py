"""Small finished jobs for the tests of what comes after: a support of towns, queries with gaps, outputs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import locdist as ld

CLASSES = ("high", "low", "middle")


@dataclass(frozen=True)
class Towns:
    """Folders of one small world."""

    support: Path
    queries: Path
    index: Path
    root: Path


def table(rows: int, seed: int) -> pa.Table:
    """Towns with coordinates, a price, whether it is dear, a class, and an id."""
    rng = np.random.default_rng(seed)
    east, north, rooms = rng.uniform(0, 10, rows), rng.uniform(0, 5, rows), rng.integers(1, 6, rows)
    price = 3 * east - north + 10.0 * rooms + rng.normal(0, 1, rows)
    level = np.digitize(price, [30, 50])
    return pa.table(
        {
            "town": [f"t{seed}-{row}" for row in range(rows)],
            "east": east,
            "north": north,
            "rooms": rooms,
            "price": price,
            "dear": price > 40,
            "level": np.array(["low", "middle", "high"])[level],
        }
    )


def gapped(rows: int, seed: int) -> pa.Table:
    """Towns of which row 3 lacks a coordinate, row 4 its price and class, row 5 both."""
    whole = table(rows, seed)
    row = np.arange(rows)
    gaps = {"east": [3, 5], "price": [4, 5], "level": [4, 5], "dear": [4, 5]}
    for name, missing in gaps.items():
        place = whole.schema.get_field_index(name)
        values = pa.array(whole.column(name).to_pylist(), mask=np.isin(row, missing))
        whole = whole.set_column(place, name, values)
    return whole


def towns(root: Path, target: str = "price", features: list[str] | None = None) -> Towns:
    """Write support and queries, and build an index."""
    world = Towns(root / "support", root / "queries", root / "index", root)
    for folder in (world.support, world.queries):
        folder.mkdir()
    pq.write_table(table(200, 1), world.support / "a.parquet")
    pq.write_table(table(100, 2), world.support / "b.parquet")
    whole = gapped(90, 3)
    pq.write_table(whole.slice(0, 50), world.queries / "1.parquet")
    pq.write_table(whole.slice(50), world.queries / "2.parquet")
    support = ld.dataset(
        world.support, key=["east", "north", "rooms"], features=features, target=target, id="town"
    )
    ld.build_index(support, world.index)
    return world
