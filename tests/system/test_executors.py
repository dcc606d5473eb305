"""Every executor keeps the contract: threads and processes of this machine, Ray, Dask."""

from collections.abc import Iterator

import pytest

import locdist as ld
from locdist.testing import ExecutorContract
from tests.system.clusters import Cluster, DaskNodes, RayNodes


@pytest.fixture(scope="module")
def ray_nodes() -> Iterator[Cluster]:
    pytest.importorskip("ray")
    yield from started(RayNodes())


@pytest.fixture(scope="module")
def dask_nodes() -> Iterator[Cluster]:
    pytest.importorskip("distributed")
    yield from started(DaskNodes())


def started(cluster: Cluster) -> Iterator[Cluster]:
    cluster.start()
    yield cluster
    cluster.stop()


class TestThreads(ExecutorContract):
    isolated = abandons = False

    def executor(self):
        return ld.Local(2)


class TestProcesses(ExecutorContract):
    def executor(self):
        return ld.Local(2, processes=True)


class TestRay(ExecutorContract):
    """A running cluster of three nodes."""

    @pytest.fixture(autouse=True)
    def cluster(self, ray_nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes = ray_nodes
        ray_nodes.repair()
        monkeypatch.setattr("locdist.execute.ray.PATIENCE", 2.0)

    def executor(self):
        return self.nodes.executor()


class TestDask(ExecutorContract):
    """A running cluster over TLS: a scheduler and two workers under nannies."""

    abandons = False  # Dask cannot stop a function that runs

    @pytest.fixture(autouse=True)
    def cluster(self, dask_nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nodes = dask_nodes
        dask_nodes.repair()
        monkeypatch.setattr("locdist.execute.dask.PATIENCE", 2.0)

    def executor(self):
        return self.nodes.executor()
