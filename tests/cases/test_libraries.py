"""What is loaded, and where it runs: OpenMP, devices, clusters, and the versions of driver and workers."""

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import locdist as ld
from locdist.data.store import Store
from locdist.errors import LocdistError, UsageError
from locdist.execute import doctor
from locdist.execute.contract import Executor
from locdist.execute.events import Connected, Event
from locdist.execute.executor import run
from locdist.plan import versions
from locdist.plan.plan import Resources
from locdist.testing.tasks import Call, Write, small_job
from tests.cases.arrangement import Arrangement, found
from tests.cases.conftest import SOMEBODY

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(0)

BOTH = """
import faiss, torch
torch.randn(500, 500) @ torch.randn(500, 500)
import os, numpy as np, locdist as ld
keys = np.random.default_rng(0).normal(size=(1000, 64)).astype("f4")
ld.predict(ld.knn(3), ld.build_index(ld.dataset({"e": keys, "y": keys[:, 0]}, key="e", target="y"), "index"),
           {"e": keys}, "out")
print(os.environ.get("KMP_DUPLICATE_LIB_OK"))
"""


def test_a_second_openmp_is_told_and_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C53: FAISS and torch in this order and a job, with the wheels of this machine, and nobody has set the
    variable that turns the abort of a second runtime into a hang (a library that is used sets it when it is
    imported, and it is taken back). macOS, where two clash, is replaced by what it would report.
    """
    environment = {name: value for name, value in os.environ.items() if name != doctor.DUPLICATE}
    done = subprocess.run(
        [sys.executable, "-c", BOTH], cwd=tmp_path, env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "None"
    monkeypatch.delenv(doctor.DUPLICATE, raising=False)
    assert doctor.examined().problems == ()
    two = [("libomp", "/a/libomp.dylib"), ("libgomp", "/b/libgomp.so"), ("libomp", "/c/libomp.dylib")]
    monkeypatch.setattr(doctor, "openmp", lambda: two)
    monkeypatch.setenv(doctor.DUPLICATE, "True")
    problem, hidden = doctor.examined().problems
    assert problem.startswith(
        "2 OpenMP runtimes in one process, which abort or hang: /a/libomp.dylib, /c/libomp"
    )
    assert hidden.startswith("KMP_DUPLICATE_LIB_OK is set")


def test_more_neighbors_than_a_device_can_search_are_found(tmp_path: Path) -> None:
    """C66, without a device: the search stays on the cores, so 4,096 neighbors are as good as four, and
    shares of devices that are not there are refused (C48). No machine of the tests has a device.
    """
    keys = RNG.integers(-99, 99, (5000, 32)).astype("f4")
    index = ld.build_index(ld.dataset({"e": keys}, key="e"), tmp_path / "index", codes="flat")
    answers = ld.neighbors(index, {"e": keys[:3]}, k=4096, recall=1.0)
    away = np.sqrt(np.square(keys[:3, None].astype("f8") - keys).sum(axis=2))
    told = [[pair["distance"] for pair in row] for row in answers["neighbors"].to_pylist()]
    np.testing.assert_allclose(told, np.sort(away, axis=1)[:, :4096], 1e-9)
    assert all(len(set(row)) == 4096 for row in found(answers))
    with pytest.raises(UsageError, match=r"gpus 0\.5 asked"):
        ld.neighbors(index, {"e": keys[:3]}, tmp_path / "out", k=3, resources=Resources(gpus=0.5))


GUEST = """
import json, os, ray, locdist as ld
from locdist.execute.executor import run
from locdist.testing.tasks import Store, Write, small_job
places = []
run(small_job(Store.at("out"), Write(), tasks=1), ld.Ray(os.environ["GIVEN"], workers=1),
    listener=lambda event: places.append(getattr(event, "place", None)))
print(json.dumps([place for place in places if place]))
"""


@pytest.mark.parametrize("engine", ["ray"], indirect=True)
def test_a_cluster_of_somebody_else_is_named_before_it_is_used_and_never_stopped(
    engine: Executor, tmp_path: Path
) -> None:
    """C69: a run without an address starts its own cluster, though RAY_ADDRESS names another one; which one
    it is, and whether it was there, is told before the first task. A guest that was given its address leaves
    it running.
    """
    import ray
    from ray._raylet import AuthenticationTokenLoader

    assert os.environ["RAY_ADDRESS"] == SOMEBODY
    engine.start()
    address = ray.get_runtime_context().gcs_address
    assert address != SOMEBODY
    assert engine.place() == f"Ray at {address}, started for this run; nodes with cores: 1"
    environment = {"GIVEN": address, "RAY_AUTH_MODE": "token", "PYTHONPATH": str(ROOT)}
    environment["RAY_AUTH_TOKEN"] = AuthenticationTokenLoader.instance().get_raw_token()
    environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else Ray looks for 127.0.0.1 at another address
    done = subprocess.run(
        [sys.executable, "-c", GUEST], cwd=tmp_path, env={**os.environ, **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [f"Ray at {address}, which was running; nodes with cores: 1"]
    assert ray.get(ray.remote(lambda: 1).remote()) == 1


def test_workers_with_other_versions_or_without_a_module_are_told_on_every_engine(
    placed: Arrangement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C70: nothing is uploaded, whatever lies in the working directory: workers have locdist installed, and
    are refused with both versions where it or a library is another one; builds of one version are the same.
    What they cannot import is named.
    """
    rows = {"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 2.0]}
    index = placed.build(rows, key="x", target="y")
    events: list[Event] = []
    placed.ask(ld.knn(1), index, rows, listener=events.append)
    told = [event.place for event in events if isinstance(event, Connected)]
    assert len(told) == (not isinstance(placed.executor, ld.Local))
    helper = types.ModuleType("helper_of_the_driver")
    exec("def mine(): return {}", helper.__dict__)
    monkeypatch.setitem(sys.modules, helper.__name__, helper)
    with pytest.raises(LocdistError, match=r"No module named 'helper_of_the_driver'"):
        run(small_job(Store.at(placed.place / "small"), Call(helper.mine), tasks=1), placed.executor)
    if isinstance(placed.executor, ld.Dask):  # whose workers would load it again when they start
        done = run(small_job(Store.at(placed.place / "one"), Write(), tasks=1), placed.executor)["write-0"]
        os.kill(done["part-00000"].pid, signal.SIGKILL)
        assert run(small_job(Store.at(placed.place / "two"), Write(0.1), tasks=4), placed.executor)
    other = {"faiss-cpu": "0.1", "torch": versions.versions()["torch"].partition("+")[0] + "+other"}
    mixed = {**versions.versions(), **other}
    if isinstance(placed.executor, ld.Local):
        with pytest.raises(
            UsageError, match=r"what the driver has: faiss-cpu 0\.1; got faiss-cpu \d.*Install"
        ):
            versions.check_same(mixed)
        return
    monkeypatch.setattr(sys.modules[type(placed.executor).__module__], "versions", lambda: mixed)
    with pytest.raises(
        UsageError, match=r"what the driver has: faiss-cpu 0\.1; got faiss-cpu \d.* on .*Install"
    ):
        placed.ask(ld.knn(1), index, rows)
