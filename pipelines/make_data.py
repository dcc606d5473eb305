"""Houses, for the pipeline files in this folder: made up, the same every time.

`python pipelines/make_data.py [folder] [rows]` writes Parquet, by default below demo-output/houses:

    train/      20,000 houses that were sold (or so many rows)
    new/        a tenth as many that were sold later
    sites/      400 of another year, or fewer
    districts/  which districts touch, an edge a row
    regions/    the regions that each district is in
    common/     60 houses that everybody may see, without a price
    meters/     what twelve houses took of electricity in the hours of ten days
    photos/     24 of roofs, seen from above in bad light; one is missing

A price depends on the place, the rooms and the area, and on the area more in some places than in others: what
a local model is for.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LEVELS = np.array(["cheap", "fair", "dear"])
FILES = 4
COLUMNS, ROWS = 6, 4  # of districts


def houses(rows: int, seed: int) -> pa.Table:
    """One row a house. Every hundredth has no area: what becomes of it is told in the output."""
    rng = np.random.default_rng(seed)
    longitude, latitude = rng.uniform(-74.3, -73.7, rows), rng.uniform(40.5, 40.9, rows)
    rooms = rng.integers(1, 8, rows)
    area = 20.0 * rooms + rng.gamma(4, 10, rows)  # square meters
    east, north = (longitude + 74) / 0.3, (latitude - 40.7) / 0.2
    meter = 4 + 2 * np.sin(3 * east) * np.cos(2 * north)  # thousands
    price = 50 + meter * area + 10 * rooms + rng.normal(0, 15, rows)
    districts = [f"{column}-{row}" for column, row in zip(*places(longitude, latitude), strict=True)]
    columns = {
        "house": [f"{seed}-{row:05}" for row in range(rows)],
        "longitude": longitude,
        "latitude": latitude,
        "district": districts,
        "rooms": rooms,
        "area": pa.array(area, mask=np.arange(rows) % 100 == 99),
        "price": price,
        "level": LEVELS[np.digitize(price, [450, 750])],
    }
    return pa.table(columns)


def places(longitude: np.ndarray, latitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The column and the row of the district of each place."""
    east, north = (longitude + 74.3) / 0.6, (latitude - 40.5) / 0.4
    return (east * COLUMNS).astype(int), (north * ROWS).astype(int)


def districts() -> pa.Table:
    """Which districts touch: one ends where the next begins."""
    pairs = [((x, y), (x + 1, y)) for x in range(COLUMNS - 1) for y in range(ROWS)]
    pairs += [((x, y), (x, y + 1)) for x in range(COLUMNS) for y in range(ROWS - 1)]
    ends = zip(*([f"{x}-{y}" for x, y in pair] for pair in pairs), strict=True)
    return pa.table(dict(zip(("source", "target"), map(list, ends), strict=True)))


def regions() -> pa.Table:
    """A row for each district: a strip of the coast, and whether it is north."""
    named = [(f"{x}-{y}", f"strip {x // 2}", y >= ROWS / 2) for x in range(COLUMNS) for y in range(ROWS)]
    return pa.table(
        dict(zip(("district", "strip", "north"), map(list, zip(*named, strict=True)), strict=True))
    )


def meters(houses: int, hours: int, seed: int) -> pa.Table:
    """A row for each house and hour: more in the evening, and in each house at its own time."""
    rng = np.random.default_rng(seed)
    hour, late = np.arange(hours), rng.uniform(0, 4, houses)[:, None]
    day = 2 * np.pi * (hour - late) / 24
    load = 1.5 - np.cos(day) + 0.4 * np.sin(2 * day) + 0.1 * rng.normal(size=(houses, hours))
    columns = {
        "meter": np.repeat([f"meter-{number:02}" for number in range(houses)], hours),
        "hour": pa.array(np.tile(hour * 3600, houses)).cast(pa.timestamp("s")),
        "load": load.reshape(-1),
    }
    return pa.table(columns)


def photos(count: int, seed: int) -> pa.Table:
    """A row for each photo, of several sizes: a bright roof on dark ground, and noise."""
    rng = np.random.default_rng(seed)
    images: list[list[list[float]] | None] = []
    for high, wide in rng.integers(20, 36, (count, 2)):
        image = 0.2 + 0.02 * rng.normal(size=(high, wide))
        image[4 : high - 6, 5 : wide - 4] += 0.5
        images.append((image + 0.1 * rng.normal(size=image.shape)).tolist())
    images[count // 2] = None
    return pa.table({"photo": [f"roof-{number:02}" for number in range(count)], "image": images})


def write(table: pa.Table, folder: Path, files: int) -> None:
    """Write a table in some files."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-table.num_rows // files)
    for part in range(files):
        pq.write_table(table.slice(part * size, size), folder / f"part-{part}.parquet")
    print(f"{table.num_rows:,} rows in {folder}")


def main(folder: Path, rows: int) -> None:
    """Write all folders."""
    for name, count, seed in (("train", rows, 1), ("new", rows // 10, 2), ("sites", min(rows, 400), 3)):
        write(houses(count, seed), folder / name, FILES)
    write(districts(), folder / "districts", 1)
    write(regions(), folder / "regions", 1)
    write(houses(60, 5).drop(["price", "level"]), folder / "common", 1)
    write(meters(12, 240, 4), folder / "meters", FILES)
    write(photos(24, 6), folder / "photos", FILES)


if __name__ == "__main__":
    place, count, *_ = [*sys.argv[1:], *("demo-output/houses", "20000")[len(sys.argv) - 1 :]]
    main(Path(place), int(count))
