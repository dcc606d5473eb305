"""Houses, for the pipeline files in this folder: made up, the same every time.

`python pipelines/make_data.py [folder]` writes `train/` (20,000 houses that were sold) and `new/` (2,000 that
were sold later) as Parquet, by default below demo-output/houses. A price depends on the place, the rooms and
the area, and on the area more in some places than in others: what a local model is for.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LEVELS = np.array(["cheap", "fair", "dear"])
FILES = 4


def houses(rows: int, seed: int) -> pa.Table:
    """One row a house. Every hundredth has no area: what becomes of it is told in the output."""
    rng = np.random.default_rng(seed)
    longitude, latitude = rng.uniform(-74.3, -73.7, rows), rng.uniform(40.5, 40.9, rows)
    rooms = rng.integers(1, 8, rows)
    area = 20.0 * rooms + rng.gamma(4, 10, rows)  # square meters
    east, north = (longitude + 74) / 0.3, (latitude - 40.7) / 0.2
    meter = 4 + 2 * np.sin(3 * east) * np.cos(2 * north)  # thousands
    price = 50 + meter * area + 10 * rooms + rng.normal(0, 15, rows)
    columns = {
        "house": [f"{seed}-{row:05}" for row in range(rows)],
        "longitude": longitude,
        "latitude": latitude,
        "rooms": rooms,
        "area": pa.array(area, mask=np.arange(rows) % 100 == 99),
        "price": price,
        "level": LEVELS[np.digitize(price, [450, 750])],
    }
    return pa.table(columns)


def main(folder: Path) -> None:
    """Write both folders."""
    for name, rows, seed in (("train", 20_000, 1), ("new", 2_000, 2)):
        table, size = houses(rows, seed), rows // FILES
        (folder / name).mkdir(parents=True, exist_ok=True)
        for part in range(FILES):
            pq.write_table(table.slice(part * size, size), folder / name / f"part-{part}.parquet")
        print(f"{rows:,} houses in {folder / name}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output/houses"))
