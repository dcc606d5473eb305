"""Places to run a job that can be broken: this machine's processes, a Ray cluster of three nodes, a Dask
cluster of three processes over TLS. All are started here, on this machine, and stopped by their own ids.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from locdist.execute.executor import Executor
from locdist.execute.local import Local
from locdist.testing.journal import alive
from tests.system.drivers import ROOT, driver_environment

WORKERS = 2


class Cluster(ABC):
    """Two workers of one core each.

    Attributes
    ----------
    victims : tuple of str
        What can be killed besides the driver.
    options : dict
        What a driver in another process needs to find it: arguments of `execute.choose.executor`.
    environment : dict
        Variables of that process.
    """

    victims: tuple[str, ...] = ("worker",)

    def __init__(self) -> None:
        self.options: dict[str, Any] = {"name": "local", "workers": WORKERS, "processes": True}
        self.environment: dict[str, str] = {}

    def start(self) -> None:  # noqa: B027 - this machine runs already
        """Start it; called once."""

    def stop(self) -> None:  # noqa: B027
        """Stop what was started."""

    @abstractmethod
    def executor(self) -> Executor:
        """An executor of it in this process."""

    def kill(self, victim: str, worker: int) -> None:
        """SIGKILL to a worker, or to what stands above it."""
        os.kill(worker if victim == "worker" else parent(worker), signal.SIGKILL)

    def repair(self) -> None:  # noqa: B027 - workers of this machine come with the next run
        """Have two workers again."""


class Machine(Cluster):
    """Spawned processes."""

    def executor(self) -> Executor:
        return Local(WORKERS, processes=True)


class RayNodes(Cluster):
    """A head without cores, to which drivers connect, and two nodes of one core."""

    victims = ("worker", "raylet", "node")

    def start(self) -> None:
        from ray.cluster_utils import Cluster as Nodes

        soon = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500}
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20}
        system = {"_system_config": {**soon, "health_check_failure_threshold": 3}}
        self._nodes = Nodes(initialize_head=True, head_node_args=head | system)
        self.repair()
        self.options = {"name": "ray", "workers": WORKERS, "address": self._nodes.address}

    def kill(self, victim: str, worker: int) -> None:
        """A worker survives its raylet until it has nothing to do; a lost node takes both."""
        with_it = children(parent(worker)) if victim == "node" else []
        Cluster.kill(self, victim, worker)
        for process in with_it:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        import ray

        ray.shutdown()
        self._nodes.shutdown()

    def executor(self) -> Executor:
        from locdist.execute.ray import Ray

        return Ray(self._nodes.address, WORKERS)

    def repair(self) -> None:
        for node in list(self._nodes.worker_nodes):
            if not alive(node.all_processes["raylet"][0].process.pid):
                self._nodes.remove_node(node, allow_graceful=False)
        while len(self._nodes.worker_nodes) < WORKERS:
            self._nodes.add_node(num_cpus=1, object_store_memory=100 << 20)


class DaskNodes(Cluster):
    """A scheduler and two nannies, each with a worker of one thread."""

    victims = ("worker", "nanny")

    def start(self) -> None:
        from distributed import Security

        self._folder = tempfile.TemporaryDirectory(prefix="locdist-tls-")
        self.security = Security.temporary()
        self.environment = _certified(self.security, Path(self._folder.name))
        port = free_port()
        self._address = f"tls://127.0.0.1:{port}"
        here = ("--host", "127.0.0.1", "--protocol", "tls")
        self._scheduler = self._run("scheduler", *here, f"--port={port}", "--no-dashboard", "--no-show")
        self._nannies: list[subprocess.Popen[bytes]] = []
        self.options = {"name": "dask", "workers": WORKERS, "address": self._address}
        self.repair()

    def stop(self) -> None:
        for process in (*self._nannies, self._scheduler):
            process.terminate()
            process.wait(20)
        self._folder.cleanup()

    def executor(self) -> Executor:
        from locdist.execute.dask import Dask

        return Dask(self._address, WORKERS, self.security)

    def repair(self) -> None:
        from distributed import Client

        self._nannies = [nanny for nanny in self._nannies if nanny.poll() is None]
        words = (self._address, "--nthreads=1", "--memory-limit=4GiB", "--no-dashboard", "--death-timeout=60")
        folder = f"--local-directory={self._folder.name}"
        while len(self._nannies) < WORKERS:
            self._nannies.append(self._run("worker", *words, folder))
        with Client(self._address, security=self.security, set_as_default=False, timeout=60) as client:
            until(lambda: len(client.scheduler_info()["workers"]) == WORKERS)

    def _run(self, *words: str) -> subprocess.Popen[bytes]:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = driver_environment() | self.environment
        return subprocess.Popen([sys.executable, "-m", "dask", *words], cwd=ROOT, env=environment, **quiet)


CLUSTERS: dict[str, type[Cluster]] = {"local": Machine, "ray": RayNodes, "dask": DaskNodes}


def _certified(security: Any, folder: Path) -> dict[str, str]:
    """Dask's configuration, as variables, for temporary certificates."""
    below = "DASK_DISTRIBUTED__COMM"
    variables = {f"{below}__REQUIRE_ENCRYPTION": "True", f"{below}__TLS__CA_FILE": "ca"}
    (folder / "ca").write_text(security.tls_ca_file)
    for role in ("scheduler", "worker", "client"):
        for part in ("cert", "key"):
            (folder / f"{role}.{part}").write_text(getattr(security, f"tls_{role}_{part}"))
            variables[f"{below}__TLS__{role.upper()}__{part.upper()}"] = f"{role}.{part}"
    return {name: value if value == "True" else str(folder / value) for name, value in variables.items()}


def free_port() -> int:
    """A port of the loopback that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def parent(pid: int) -> int:
    """The process that started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children(pid: int) -> list[int]:
    """The processes that another one started, in any of its threads."""
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for file in listed for word in file.read_text().split()]


def until(what: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait for something to be true."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise TimeoutError("waited in vain")
        time.sleep(0.005)
