"""What plans predicted, beside what jobs took: small ones, where start-up and rows count, not distances."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from locdist.data.dataset import dataset
from locdist.execute.executor import Executor
from locdist.jobs.build_index import build_index
from locdist.jobs.neighbors import neighbors
from locdist.jobs.plans import plan_index, plan_neighbors, plan_predict
from locdist.jobs.predict import predict
from locdist.jobs.telling.outlook import JobPlan
from locdist.methods.named import knn, local_linear


@dataclass(frozen=True)
class Outcome:
    """Seconds of one job; those of the processor tell a busy machine from a wrong prediction."""

    job: str
    predicted: float
    measured: float
    processor: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured

    def __str__(self) -> str:
        took = f"{self.measured:.2f} s ({self.processor:.2f} s of the processor)"
        return f"{self.job}: predicted {self.predicted:.2f} s, took {took}: {self.ratio:.2f} x"


def outcomes(folder: Path, executor: Executor, sizes: tuple[int, ...]) -> list[Outcome]:
    """An index, and jobs that ask it as many queries as it has rows, for each size."""
    folder.mkdir()
    _table(200, 0, folder / "first")
    warm = dataset(folder / "first", key=["a", "b"], target="y")
    build_index(warm, folder / "first-index", executor=executor)  # libraries start when first used
    return [outcome for rows in sizes for outcome in _of(folder / f"{rows}", rows, executor)]


def _of(folder: Path, rows: int, executor: Executor) -> Iterator[Outcome]:
    folder.mkdir()
    for name, seed in (("support", 1), ("queries", 2)):
        _table(rows, seed, folder / name)
    support = dataset(folder / "support", key=["a", "b", "c"], target="y", id="name")
    index, queries, out = folder / "index", folder / "queries", folder / "out"
    yield _timed(f"index {rows:,}", plan_index(support, index, executor=executor),
                 lambda: build_index(support, index, executor=executor))  # fmt: skip
    for method in (knn(k=5), local_linear(k=32)):
        asked = method, index, queries, out
        plan = plan_predict(*asked, explain=5, executor=executor)
        yield _timed(f"{method.name} {rows:,}", plan,
                     lambda asked=asked: predict(*asked, explain=5, executor=executor))  # fmt: skip
        shutil.rmtree(out)
    yield _timed(f"neighbors {rows:,}", plan_neighbors(index, queries, out, k=10, executor=executor),
                 lambda: neighbors(index, queries, out, k=10, executor=executor))  # fmt: skip


def _timed(job: str, plan: JobPlan, run: Callable[[], object]) -> Outcome:
    start, busy = time.perf_counter(), time.process_time()
    run()
    return Outcome(job, plan.seconds, time.perf_counter() - start, time.process_time() - busy)


def _table(rows: int, seed: int, folder: Path) -> None:
    rng = np.random.default_rng(seed)
    folder.mkdir()
    columns = {name: rng.uniform(size=rows) for name in ("a", "b", "c", "y")}
    pq.write_table(pa.table(columns | {"name": [f"row {row}" for row in range(rows)]}), folder / "a.parquet")
