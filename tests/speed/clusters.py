"""Ray and Dask beside the local executor: the same tasks of about a second, start-up apart."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from locdist.data.store import Store
from locdist.execute.contract import Executor
from locdist.execute.dask import Dask
from locdist.execute.executor import run
from locdist.execute.local import Local
from locdist.execute.ray import Ray
from locdist.execute.worker import METER
from locdist.plan.plan import Stage
from tests.speed.jobs import Clock, ManyTasks

EXECUTORS: dict[str, Callable[[int], Executor]] = {
    "local": Local,
    "ray": lambda workers: Ray(workers=workers),
    "dask": lambda workers: Dask(workers=workers),
}


@dataclass(frozen=True)
class Pace:
    """How an executor got through a stage.

    Parameters
    ----------
    seconds : float
        From the moment when each worker had done two tasks to the last task, for each of the tasks between.
    inside : float
        Seconds that workers spent inside a task, on average over the same tasks.
    startup : float
        Until the first task began.
    driver, worker : int
        Bytes of anonymous memory at the peak: of this process, and of the largest worker.
    """

    seconds: float
    inside: float
    startup: float
    driver: int
    worker: int


def pace(name: str, stage: Stage, folder: Path, workers: int) -> Pace:
    """Run a stage with single-core workers."""
    clock, meter = Clock(), METER.start()
    records = run(ManyTasks(Store.at(folder), stage), EXECUTORS[name](workers), listener=clock)
    ended, warm = clock.ended, 2 * workers
    inside = sorted(record.seconds for record in records.values())[:-warm]  # the first ones open the index
    return Pace(
        seconds=(ended[-1] - ended[warm - 1]) / (len(ended) - warm),
        inside=sum(inside) / len(inside),
        startup=clock.began - clock.called,
        driver=METER.stop(meter),
        worker=max(record.peak_memory for record in records.values()),
    )
