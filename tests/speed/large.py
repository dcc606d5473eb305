"""One learned configuration in memory and over millions of rows:

python -m tests.speed.large [--rows 10000000]

A support of five columns that turns fast along one, slowly along others, with one column of noise: tuned on a
sample, indexed with the learned map, predicted from files. Beside it the same method on the same rows in
memory, exactly searched, for the first queries.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import locdist as ld
from locdist.search.generation import Generation

KEY = ["a", "b", "c", "d", "noise"]
PART = 500_000
NOISE = 0.1


def signal(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """What is to be learned, of columns in [0, 1]."""
    return np.sin(12 * x[:, 0]) + x[:, 1] ** 2 + 2 * np.maximum(x[:, 2] + x[:, 3] - 1, 0)


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(rows, len(KEY)))
    y = signal(x) + NOISE * rng.normal(size=rows)
    return pa.table({name: x[:, column].astype(np.float32) for column, name in enumerate(KEY)} | {"y": y})


def written(folder: Path, rows: int, seed: int) -> Path:
    """Rows in partitions of half a million."""
    folder.mkdir()
    for part, start in enumerate(range(0, rows, PART)):
        pq.write_table(table(min(PART, rows - start), seed + part), folder / f"part-{part:03}.parquet")
    return folder


def in_memory(index: Generation, support: Path) -> ld.Exact:
    """The same rows as points, in the space of the index."""
    tables = [pq.read_table(file) for file in sorted(support.iterdir())]
    keys = np.concatenate([index.key.encode(each)[0] for each in tables])
    return ld.Exact(keys, np.concatenate([each["y"].to_numpy() for each in tables]))


def rmse(found: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean((found - truth) ** 2)))


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--exact", type=int, default=2_000, help="queries that are asked in memory, too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="locdist-large-") as name:
        compare(Path(name), given.rows, given.queries, given.exact)


def compare(place: Path, rows: int, asked: int, exact: int) -> None:
    start = time.perf_counter()

    def tell(text: str) -> None:
        nonlocal start
        now = time.perf_counter()
        sys.stdout.write(f"{now - start:7.1f} s  {text}\n")
        sys.stdout.flush()
        start = time.perf_counter()

    support, queries = written(place / "support", rows, 0), written(place / "queries", asked, 10_000)
    tell(f"{rows:,} rows and {asked:,} queries written")
    tuned = ld.tune(ld.dataset(support, key=KEY, target="y"), sample=20_000)
    told = ", ".join(f"{name} {scale:.2f}" for name, scale in tuned.scales.items())
    tell(f"tuned on 20,000 rows: {tuned.method.name}, scales {told}")
    index = ld.build_index(ld.dataset(support, key=KEY, target="y", map=tuned.map), place / "index")
    tell(f"indexed: {index.layout.nlist:,} lists of {index.layout.codes}")
    report = ld.predict(tuned.method, index, queries, place / "out", keep="*", extras=["interval"])
    tell(f"predicted, recall {report.recall}, {report.peak_memory / 2**20:,.0f} MiB a worker")
    out = pq.read_table(place / "out")
    clean = signal(np.column_stack([out[column].to_numpy() for column in KEY]).astype(float))
    held = (out["lower"].to_numpy() <= out["y"].to_numpy()) & (out["y"].to_numpy() <= out["upper"].to_numpy())
    found = out["prediction"].to_numpy()
    rest = index.key.encode(out.slice(0, exact))[0]
    memory = tuned.method(in_memory(index, support), rest).values[:, 0].numpy()
    tell(f"the same method in memory, exactly searched, {exact:,} queries")
    sys.stdout.write(
        f"RMSE against the signal: files {rmse(found[:exact], clean[:exact]):.5f}, "
        f"memory {rmse(memory, clean[:exact]):.5f} (the first {exact:,}); "
        f"files {rmse(found, clean):.5f} (all); noise {NOISE}\n90 % intervals hold {held.mean():.4f}\n"
    )


if __name__ == "__main__":
    main()
