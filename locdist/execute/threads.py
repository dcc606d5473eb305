"""How many threads FAISS, torch and BLAS use inside a task.

Parallelism comes from workers; a library that starts threads of its own inside each of them slows all of them
down, and on a busy machine small operations become a hundred times slower. What it takes to limit them, found
by counting the threads that a fresh worker thread starts (torch 2.13, faiss-cpu 1.15, numpy 2.4, both orders
of import):

- Environment variables work only before the libraries are loaded: right for spawned processes, useless for
  threads.
- OpenMP's number is kept for each thread, and a new thread begins with the number of the environment,
  whatever the driver had set. So `threadpoolctl` must be called in every worker thread; that is what limits
  FAISS.
- `threadpoolctl` alone does not hold torch: at its first parallel operation in a thread torch overwrites
  OpenMP's number with its own, process-wide one if anybody ever called `torch.set_num_threads` (observed:
  exp, matmul and Cholesky went back to two threads). And torch's MKL is linked statically, where
  threadpoolctl does not see it. So torch's number is set too.
- BLAS libraries (numpy's OpenBLAS) have one number for the process: set once around the run, and given back.

What belongs to the process is restored when the run ends; what belongs to a worker thread ends with it.
"""

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from locdist.execute import machine
from locdist.local.heap import keep_memory

DUPLICATE = "KMP_DUPLICATE_LIB_OK"
with machine.environment({DUPLICATE: None}):
    # threadpoolctl sets it where nobody has: then a second OpenMP runtime may hang, where it would abort and
    # say why
    from threadpoolctl import ThreadpoolController, threadpool_info

Result = TypeVar("Result")

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def variables(threads: int) -> dict[str, str]:
    """Variables for a process that has not loaded any library yet."""
    return {name: str(threads) for name in VARIABLES}


@contextmanager
def process_limited(threads: int) -> Iterator[None]:
    """Limit what is process-wide while the body runs, and restore the caller's settings; called by the
    driver. Memory is kept from then on (`keep_memory`).
    """
    keep_memory()
    torch = sys.modules.get("torch")  # nothing to limit when the job does not use it
    before = torch.get_num_threads() if torch else 0
    with _libraries(len(sys.modules)).limit(limits=threads, user_api="blas"):
        try:
            if torch:
                torch.set_num_threads(threads)
            yield
        finally:
            if torch:
                torch.set_num_threads(before)


def limit_process(threads: int) -> None:
    """Limit what is process-wide in a process that does nothing but tasks, for good."""
    keep_memory()
    _libraries(len(sys.modules)).limit(limits=threads, user_api="blas")
    torch = sys.modules.get("torch")
    if torch and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def limit_this_thread(threads: int) -> None:
    """Limit OpenMP, and with it FAISS, for the calling worker thread; less than a millisecond."""
    _libraries(len(sys.modules)).limit(limits=threads, user_api="openmp")


@functools.lru_cache(1)
def _libraries(modules: int) -> ThreadpoolController:
    # found in more than a millisecond, so once for so many modules: libraries mostly come with them
    return ThreadpoolController()


def openmp() -> list[tuple[str, str]]:
    """The OpenMP runtimes that this process has loaded: their kind ("libgomp") and file."""
    pools = (pool for pool in threadpool_info() if pool["user_api"] == "openmp")
    return [(pool["prefix"], pool["filepath"]) for pool in pools]


_HOLDING = threading.Lock()
_LIMITS = ExitStack()  # of the process, as long as anybody computes alone
_HOLDERS: list[int] = []


def alone(call: Callable[[], Result]) -> Result:
    """What `call` returns, computed in a thread of its own whose libraries start no others.

    For workers of somebody else's engine, and for several calls at once in one process: the caller's thread
    is as it was, and the last call that ends restores what belongs to the process.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_limited, call).result()


def _limited(call: Callable[[], Result]) -> Result:
    with _HOLDING:
        if not _HOLDERS:
            _LIMITS.enter_context(process_limited(1))
        _HOLDERS.append(threading.get_ident())
    try:
        limit_this_thread(1)
        return call()
    finally:
        with _HOLDING:
            _HOLDERS.remove(threading.get_ident())
            if not _HOLDERS:
                _LIMITS.close()
