"""What a machine has to compute with, and what of it does not go together: `locdist doctor`."""

import json
import os
from dataclasses import asdict, dataclass
from importlib.util import find_spec

import locdist.search.exact  # noqa: F401 - loads torch and FAISS, each with its OpenMP
from locdist.execute import machine
from locdist.execute.threads import DUPLICATE, openmp
from locdist.plan.versions import versions

APART = ("libomp", "libiomp")  # LLVM's and Intel's: a second copy in a process aborts or hangs it


@dataclass(frozen=True)
class Health:
    """What a machine has.

    Parameters
    ----------
    versions : dict
    engines : tuple of str
        Clusters that can be started here.
    cpus, memory : int
        What this process may use; bytes.
    openmp : tuple of str
        The OpenMP runtimes that torch, FAISS and NumPy have loaded, by file.
    problems : tuple of str
        What does not go together, each with what to do.
    """

    versions: dict[str, str]
    engines: tuple[str, ...]
    cpus: int
    memory: int
    openmp: tuple[str, ...]
    problems: tuple[str, ...]

    def to_json(self) -> bytes:
        """The same for programs."""
        return json.dumps(asdict(self), indent=1).encode()

    def __str__(self) -> str:
        told = [", ".join(f"{name} {version}" for name, version in self.versions.items())]
        told.append(f"executors: {', '.join(('local', *self.engines))}")
        told.append(f"{self.cpus} cores, {self.memory / (1 << 30):.1f} GiB of memory")
        told += [f"OpenMP: {path}" for path in self.openmp]
        return "\n".join([*told, *self.problems, *(() if self.problems else ("no problem found",))])


def examined() -> Health:
    """What this process has, with everything loaded that computes."""
    engines = {"ray": "ray", "dask": "distributed"}
    loaded = openmp()
    clashing = [path for kind, path in loaded if kind in APART]
    return Health(
        dict(versions()),
        tuple(name for name, package in engines.items() if find_spec(package)),
        machine.cpus(),
        machine.memory(),
        tuple(path for _, path in loaded),
        (*_two_runtimes(clashing), *_hidden()),
    )


def _two_runtimes(paths: list[str]) -> tuple[str, ...]:
    if len(paths) < 2:
        return ()
    remedy = "Install torch and FAISS from one source, both by pip or both by conda."
    return (
        f"{len(paths)} OpenMP runtimes in one process, which abort or hang: {', '.join(paths)}. {remedy}",
    )


def _hidden() -> tuple[str, ...]:
    if not os.environ.get(DUPLICATE):
        return ()
    return (f"{DUPLICATE} is set: it turns the abort of a second OpenMP runtime into a hang. Unset it.",)
