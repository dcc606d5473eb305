"""Executors by name, as the command line and pipeline files choose them."""

from locdist.errors import UsageError, did_you_mean
from locdist.execute.contract import Executor
from locdist.execute.local import Local

EXECUTORS = ("local", "ray", "dask")


def executor(
    name: str, *, workers: int | None = None, processes: bool = False, address: str | None = None
) -> Executor:
    """An executor.

    Parameters
    ----------
    name : {"local", "ray", "dask"}
    workers : int, optional
        Cores to use; all that there are by default.
    processes : bool
        Local only: spawned processes instead of threads.
    address : str, optional
        Ray and Dask only: a running cluster. Without it one is started on this machine and stopped at the
        end.

    Raises
    ------
    UsageError
        An unknown name, an option that does not go with it, or a library that is not installed.
    """
    if name not in EXECUTORS:
        raise UsageError(f"an executor: {', '.join(EXECUTORS)}", repr(name), did_you_mean(name, EXECUTORS))
    if address == "":
        raise UsageError("the address of a cluster", "an empty one", "Is a variable unset? Or leave it out.")
    if name == "local":
        _refuse(name, "address", address)
        return Local(workers, processes)
    _refuse(name, "processes", processes)
    # Imported here because Ray and Dask are optional, and each takes a while.
    if name == "ray":
        from locdist.execute.ray import Ray  # noqa: PLC0415

        return Ray(address, workers)
    from locdist.execute.dask import Dask  # noqa: PLC0415

    return Dask(address, workers)


def _refuse(name: str, option: str, given: object) -> None:
    if given:
        raise UsageError(f"no {option} with executor {name!r}", f"{option} {given!r}", f"Leave {option} out.")
