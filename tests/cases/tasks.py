"""What tasks of these tests do, in a module that the workers of every engine can import; as a program, a
parent that forks after it has searched.
"""

import multiprocessing
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import faiss
import numpy as np
import torch
from threadpoolctl import threadpool_info

import locdist as ld
from locdist.execute.contract import Calls, Executor
from locdist.execute.worker import Finished
from locdist.plan.plan import Attempt, Function, Resources, Stage, Task
from locdist.plan.records import Record


@dataclass(frozen=True)
class CountThreads:
    """Computes with every library, and says how many threads each would use."""

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        keys = np.random.default_rng(0).normal(size=(1000, 64)).astype("f4")
        ld.local_linear(20)(ld.Exact(keys, keys[:, 0]), keys[:50])
        pools = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
        threads = {**pools, "torch": torch.get_num_threads(), "faiss": faiss.omp_get_max_threads()}
        return Record(data={"threads": threads, "pid": os.getpid()})


@dataclass(frozen=True)
class LookUp:
    """Says of an index whether its keys lie in a file that is mapped, and in which process."""

    index: ld.Generation

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        address = self.index._files.rows.shards[0]["key"].ctypes.data
        for line in Path("/proc/self/maps").read_text().splitlines():
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= address < end:
                return Record(data={"lies": line.split(maxsplit=5)[-1]})
        return Record(data={"lies": "nowhere"})


class Tiny(Executor):
    """Workers of 1 MiB."""

    def capacity(self) -> tuple[Resources, ...]:
        return (Resources(memory=1 << 20),)

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        raise AssertionError("no task is handed out")


@dataclass(frozen=True)
class WithoutCredentials:
    """A function in a worker that has none."""

    function: Function

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        kept = {name: os.environ.pop(name) for name in names if name in os.environ}
        os.environ |= {"AWS_SHARED_CREDENTIALS_FILE": "/no/such/file", "AWS_EC2_METADATA_DISABLED": "true"}
        try:
            return self.function(task, attempt)
        finally:
            del os.environ["AWS_SHARED_CREDENTIALS_FILE"]
            os.environ |= kept


@dataclass(frozen=True)
class Forgetful(Executor):
    """Workers that have no credentials."""

    executor: Executor

    def map(self, stage: Stage, calls: Calls) -> Iterator[Finished | None]:
        return self.executor.map(replace(stage, function=WithoutCredentials(stage.function)), calls)


def brought_to_length_one(keys: np.ndarray) -> tuple[bool, list[float]]:
    """Searches keys by direction; whether they can be written to, and their lengths afterwards."""
    ld.knn(1)(ld.Exact(keys, keys[:, 0], metric="cosine"), keys)
    return keys.flags.writeable, np.linalg.norm(keys, axis=1).tolist()


def main() -> int:
    """Search with two threads, fork, search in the child; 0 when it ends within 15 seconds."""
    keys = np.random.default_rng(0).normal(size=(20_000, 64)).astype("f4")
    faiss.omp_set_num_threads(2)
    torch.set_num_threads(2)
    index, method = ld.Exact(keys, keys[:, 0]), ld.local_linear(20)
    method(index, keys[:500])
    child = multiprocessing.get_context("fork").Process(target=method, args=(index, keys[:500]))
    child.start()
    child.join(15)
    if child.exitcode is None:
        child.kill()
    return 1 if child.exitcode is None else child.exitcode


if __name__ == "__main__":
    sys.exit(main())
