"""Whether the tasks of a stage fit any worker: told before the first one, because an engine would wait for
ever.
"""

import time
from collections.abc import Callable

from locdist.errors import LocdistError, MachineError, UsageError
from locdist.execute.contract import Executor
from locdist.plan.plan import Resources, Stage

PERIOD = 1.0  # seconds between two looks at a cluster that may grow


def check_fits(
    stage: Stage,
    executor: Executor,
    wait: Callable[[str], None] = lambda lack: None,
    check_stop: Callable[[], None] = lambda: None,
) -> None:
    """Wait for a worker that is large enough, as long as the executor is patient.

    `wait` is told what is awaited, once; `check_stop` is called meanwhile and may raise. Raises UsageError
    when no such worker comes, MachineError when there is none at all.
    """
    told, end = False, time.monotonic() + executor.patience
    while (workers := executor.capacity()) is not None and not _fits(stage.resources, workers):
        lack = _lack(stage.resources, workers) if workers else "no worker"
        if time.monotonic() >= end:
            raise _refusal(stage, lack, executor.patience, bool(workers))
        if not told:
            told = True
            wait(lack)
        check_stop()
        time.sleep(PERIOD)


def _fits(asked: Resources, workers: tuple[Resources, ...]) -> bool:
    return any(worker.over(asked) for worker in workers)


def _refusal(stage: Stage, lack: str, patience: float, populated: bool) -> LocdistError:
    waited = f" after {patience:g} s" if patience else ""
    if stage.formula and lack.startswith("memory"):
        waited += f" (the plan predicts {stage.formula})"
    if not populated:
        remedy = "Start workers, and run the same again."
        return MachineError(f"workers for stage {stage.name!r}", lack + waited, remedy)
    return UsageError(
        f"tasks of stage {stage.name!r} to fit a worker",
        lack + waited,
        "Ask for less, or use larger workers: this would wait forever.",
    )


def _lack(asked: Resources, workers: tuple[Resources, ...]) -> str:
    """What is asked of the best worker in vain."""
    has, need = [_amounts(worker) for worker in workers], _amounts(asked)
    most = {name: max(worker.get(name, 0) for worker in has) for name in need}
    short = {name for name in need if need[name] > most[name]} or set(need)  # or no worker has all at once
    return ", ".join(
        f"{name} {need[name]:,} asked where the largest worker has {most[name]:,}" for name in sorted(short)
    )


def _amounts(resources: Resources) -> dict[str, float]:
    amounts = {"cpus": resources.cpus, "gpus": resources.gpus, "memory": resources.memory}
    return {name: amount for name, amount in {**amounts, **resources.custom}.items() if amount}
