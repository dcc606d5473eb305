"""What this machine lets us use: limits of containers count, not what is bolted into the rack."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from locdist.plan.plan import Resources

CGROUP = Path("/sys/fs/cgroup")
_ENVIRONMENT = threading.Lock()


def cpus() -> int:
    """Cores that this process may use: its affinity, and the quota of its container (rounded down, at least
    1).
    """
    affinity = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = _numbers("cpu.max") or _numbers("cpu/cpu.cfs_quota_us") + _numbers("cpu/cpu.cfs_period_us")
    if len(quota) == 2 and min(quota) > 0:
        return max(1, min(affinity, quota[0] // quota[1]))
    return affinity


def memory() -> int:
    """Bytes that this process may use: physical memory, or the limit of its container if that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_numbers("memory.max"), *_numbers("memory/memory.limit_in_bytes")])


def gpus() -> int:
    """Devices that torch sees; 0 when nobody has loaded torch, for then nobody uses one."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.device_count()) if torch else 0


def resources(workers: int | None = None) -> Resources:
    """All of it; more cores than there are where so many `workers` are wanted."""
    return Resources(max(cpus(), workers or 1), gpus(), memory())


def device(seat: int, gpus: float) -> str:
    """The torch device of the task in a seat, where tasks take `gpus` devices each, or share one."""
    return f"cuda:{int(seat * gpus)}" if gpus else "cpu"


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Variables that processes see that are started in the body; with None, one that the body may set."""
    with _ENVIRONMENT:  # it belongs to the whole process
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update({name: value for name, value in variables.items() if value is not None})
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _numbers(name: str) -> list[int]:
    """The numbers in a file of the control group; "max" and a missing file mean no limit."""
    try:
        words = (CGROUP / name).read_text().split()
    except OSError:
        return []
    return [int(word) for word in words] if all(word.lstrip("-").isdigit() for word in words) else []
