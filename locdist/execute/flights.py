"""What executors of clusters share: calls in flight, and what a worker does around a task."""

import math
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from locdist.execute.contract import Calls
from locdist.execute.threads import limit_process, limit_this_thread
from locdist.execute.worker import Finished, attempted, failure_of
from locdist.plan.plan import Attempt, Function, Task
from locdist.plan.versions import check_same

PULSE = 0.5  # seconds after which `map` says that nothing has ended
PATIENCE = 60.0  # seconds to wait for a worker that is large enough: clusters grow

Ref = TypeVar("Ref", bound=Hashable)


def flights(
    calls: Calls,
    slots: Callable[[], int],
    send: Callable[[Task, Attempt, int], Ref],
    landed: Callable[[Collection[Ref], float], Iterable[Ref]],
    end: Callable[[Ref, Task], Finished],
    abandon: Callable[[Collection[Ref]], None],
) -> Iterator[Finished | None]:
    """`Executor.map` of a cluster.

    Parameters
    ----------
    calls : iterator of (Task, Attempt)
    slots : callable () -> int
        How many may be in flight now; asked every second, for clusters grow and shrink.
    send : callable (Task, Attempt, int) -> Ref
        The number is the call's seat, from 0, which no other call in flight has.
    landed : callable (refs, seconds) -> refs
        Those that have ended; waits for the first, but not longer.
    end : callable (Ref, Task) -> Finished
        How one has ended.
    abandon : callable (refs) -> None
        What is done with those in flight when nobody listens any more.
    """
    aloft: dict[Ref, tuple[Task, int]] = {}
    most, asked = 0, -math.inf
    try:
        while True:
            if time.monotonic() - asked > 1.0:
                most, asked = max(1, slots()), time.monotonic()
            while len(aloft) < most and (call := next(calls, None)) is not None:
                seat = min(set(range(len(aloft) + 1)).difference(taken for _, taken in aloft.values()))
                aloft[send(*call, seat)] = call[0], seat
            if not aloft:
                return
            down = list(landed(aloft.keys(), PULSE))
            for ref in down:
                yield end(ref, aloft.pop(ref)[0])
            if not down:
                yield None
    finally:
        if aloft:
            abandon(aloft.keys())


def serve(
    fetch: Callable[[], Function], task: Task, attempt: Attempt, threads: int, driver: Mapping[str, str]
) -> Finished:
    """What a worker does with a call: `attempted`, with so many threads in FAISS, torch and BLAS, where it
    has the versions of its driver. `fetch` gets the function of the stage, which this process keeps.
    """
    try:
        check_same(driver)
        function = fetch()
        limit_process(threads)
        limit_this_thread(threads)
    except Exception as error:  # noqa: BLE001 - a module that is missing here, a class that changed, ...
        return Finished(task, failure_of(error), 0.0)
    return attempted(function, task, attempt)


def counted(finished: Finished) -> dict[str, float]:
    """What a finished call adds to the counters of a worker, by name."""
    record = finished.record
    if record is None:
        return {"failures": 1}
    return {"tasks": 1, "rows": record.rows, "bad_rows": record.bad_rows, "bytes": sum(record.bytes.values())}
