"""Mean shift with a Gaussian kernel, files to files: seconds, and whether clusters are the groups that rows
were drawn from.

python -m tests.speed.peaks                       1,000,000 x 8; some minutes
python -m tests.speed.peaks --rows 50000
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import adjusted_rand_score

import locdist as ld
from tests.speed.bench import conditions

GROUPS, FILES, BANDWIDTH = 40, 8, 1.0  # groups have a standard deviation of 1 in each column


def written(folder: Path, rows: int, width: int) -> np.ndarray:
    """Rows in files below a folder; which group each was drawn from."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-10, 10, (GROUPS, width))
    group = rng.integers(0, GROUPS, rows)
    keys = centers[group] + rng.standard_normal((rows, width))
    names = [f"x{column}" for column in range(width)]
    table = pa.table(dict(zip(names, keys.T, strict=True)))
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(rows), FILES)):
        pq.write_table(table.slice(part[0], len(part)), folder / f"part-{number}.parquet")
    return group


def main() -> None:
    """Print the conditions and a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=8)
    given = parser.parse_args()
    print("\n".join(f"{name}: {value}" for name, value in conditions().items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="locdist-peaks-") as place:
        group = written(Path(place, "rows"), given.rows, given.width)
        names = [f"x{column}" for column in range(given.width)]
        support = ld.dataset(f"{place}/rows", key=names, scaling="none")
        started = time.perf_counter()
        report = ld.cluster(ld.mean_shift(BANDWIDTH, "gaussian"), support, f"{place}/out")
        seconds = time.perf_counter() - started
        found = pq.read_table(f"{place}/out", columns=["cluster"])["cluster"].to_numpy()
        ari = adjusted_rand_score(group, found)
        print(report)
        print(
            f"mean shift, {given.rows:,} x {given.width}, files to files: {seconds:.1f} s, "
            f"{len(np.unique(found))} clusters of {GROUPS} groups, ARI {ari:.4f}"
        )


if __name__ == "__main__":
    main()
