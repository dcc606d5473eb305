"""Every executor keeps the contract: threads and processes of this machine, Ray, Dask."""

from collections.abc import Iterator

import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.execute.executor import Executor
from locdist.testing import ExecutorContract
from locdist.testing.calls import data_of, ended
from locdist.testing.tasks import Write, small_job
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

    def test_a_cluster_of_our_own_before_it_leaves_nothing(self, subject: Executor, folder: Store):
        """Ray remembers that it asked for tokens; the workers of the next cluster have none."""
        subject.close()
        own = ld.Ray(workers=1)
        own.start()
        own.close()
        (stage,) = small_job(folder, Write(), tasks=2).stages
        assert all(data_of(end) for end in ended(subject, stage, folder))


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
