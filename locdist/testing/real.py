"""A real job of a dozen tasks, and a look at the threads of the libraries inside a task."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from locdist.data.dataset import dataset
from locdist.data.store import Store
from locdist.execute.executor import Executor
from locdist.jobs.build_index import build_index
from locdist.jobs.predict import asked
from locdist.methods.named import local_linear
from locdist.plan.plan import Stage, Task
from locdist.search.exact import Exact
from locdist.testing.tasks import SmallJob

TASK_ROWS = 40


def rows(count: int, seed: int) -> pa.Table:
    """Generated rows: a key of six numbers, and what depends on it."""
    keys = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(keys.ravel()), 6)
    target = np.sin(keys[:, 0]) + keys[:, 1] * keys[:, 2]
    return pa.table({"key": vectors, "y": target.astype(np.float64), "id": np.arange(count)})


def prepare(place: Path, executor: Executor) -> None:
    """Support, queries, and an index with lists that the executor built, below a folder."""
    for name, count, seed in (("support", 800, 1), ("queries", 12 * TASK_ROWS, 2)):
        (place / name).mkdir()
        pq.write_table(rows(count, seed), place / name / "part-0.parquet")
    support = dataset(place / "support", key="key", target="y", id="id")
    build_index(support, place / "index", codes="fp16", nlist=8, executor=executor)


def predict_job(place: Path, out: Path) -> SmallJob:
    """Local linear predictions of what was prepared, in twelve tasks."""
    _, question = asked(local_linear(12), place / "index", place / "queries", extras=["spread"], explain=2)
    names = [f"part-{number:05}" for number in range(12)]
    tasks = tuple(
        Task(name, (f"{name}.parquet",), (number * TASK_ROWS, (number + 1) * TASK_ROWS), TASK_ROWS)
        for number, name in enumerate(names)
    )
    return SmallJob(Store.at(out), (Stage("predict", tasks, question),))


def files(place: Path) -> dict[str, bytes]:
    """The rows and lists of the index by name."""
    return {str(file.relative_to(place)): file.read_bytes() for file in (place / "index").rglob("*.arrow")}


def threads() -> Mapping[str, object]:
    """Searches, multiplies and factorizes; says how many threads each library would use, and how many
    threads came into being.
    """
    before = _alive()
    keys: NDArray[np.float32] = np.random.default_rng(0).normal(size=(4000, 64)).astype(np.float32)
    Exact(keys).search(torch.from_numpy(keys[:500]), 5)
    matrix = torch.from_numpy(keys[:400].astype(np.float64))
    torch.linalg.cholesky_ex(matrix @ matrix.T + 400 * torch.eye(400, dtype=torch.float64))
    torch.exp(torch.zeros(2_000_000))
    pools = {f"{pool['user_api']} {pool['filepath']}": pool["num_threads"] for pool in threadpool_info()}
    return {"new": _alive() - before, "torch": torch.get_num_threads(), **pools}


def _alive() -> int:
    """Threads of this process; 0 on systems without /proc."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
