"""The section of a pipeline file that says where and how it runs."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from locdist.data.filesystems import refuse_credentials
from locdist.pipeline.section import MaxBad, Memory, Section


def _address(given: str) -> str:
    refuse_credentials(given)
    return given


class Amounts(Section):
    """What each task asks of a worker."""

    cpus: Annotated[float, Field(gt=0)] = 1.0
    """Cores; libraries get as many threads."""
    memory: Memory | None = None
    """Memory, 6GiB say; what the plan predicts by default."""
    gpus: Annotated[float, Field(ge=0)] = 0.0
    """Devices, or a share of one."""
    custom: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """Anything else that workers were started with, by the names that the cluster gave it."""


class Run(Section):
    """Where and how it runs. Nothing here changes an answer."""

    executor: Literal["local", "ray", "dask"] = "local"
    """This machine, or a cluster of Ray or Dask."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """Cores to use; all that there are by default."""
    address: Annotated[str, AfterValidator(_address)] | None = None
    """A running cluster of Ray or Dask; without it one is started here, and stopped after."""
    processes: bool = False
    """Local only: spawned processes instead of threads."""
    resources: Amounts | None = None
    """What each task asks of a worker."""
    max_bad: MaxBad | None = None
    """Queries that may be bad, 0.1% or 100; more end in exit code 5, after all is written."""
