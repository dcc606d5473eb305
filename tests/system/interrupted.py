"""Jobs as processes that stop at a chosen moment, so that a test can kill them there:

python -m tests.system.interrupted < COMMAND

COMMAND is one line of JSON: {"verb", "place", "out", "kind", "name", "signal"}. The process waits for it with
everything imported. At its moment it touches the file `signal` and waits to be killed: when the file `name`
has been "begun" (a few bytes under its temporary name) or is "unsealed" (all bytes, not yet renamed), before
it is "created", or when it has been "committed". With kind "" it runs to the end.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import locdist as ld
from locdist.data.store import Store
from locdist.errors import LocdistError
from locdist.execute.contract import Executor

TASK_ROWS = 50
ROLES = {"key": "embedding", "features": ["f1", "f2"], "target": "y", "id": "id"}
METHOD = ld.local_linear(12)
OF_IMAGES = {"name": "nonlocal-means", "h": 0.2, "patch": 5, "distance": 3}


@contextmanager
def small() -> Iterator[None]:
    """Partitions of 50 rows and shards of 20 kB, where these small data would be one of each."""
    with (
        mock.patch("locdist.jobs.asking.ask.rows_per_task", return_value=TASK_ROWS),
        mock.patch("locdist.jobs.build_index.rows_per_task", return_value=200),
        mock.patch("locdist.jobs.coupling.passes.rows_per_task", return_value=2 * TASK_ROWS),
        mock.patch("locdist.search.build.SHARD_BYTES", 20_000),
        mock.patch("locdist.jobs.clustering.merge.PART_ROWS", 100),
    ):
        yield


def build(place: Path, out: Path) -> ld.Generation:
    support = ld.dataset(place / "support", **ROLES)
    return ld.build_index(support, out, codes="fp16", nlist=16, executor=ld.Local(2))


def predict(place: Path, out: Path) -> object:
    queries, extras = place / "queries", ["spread", "effective", "coefficients"]
    return ld.predict(METHOD, place / "index", queries, out, extras=extras, explain=3, executor=ld.Local(2))


def cluster(place: Path, out: Path, executor: ld.Local | None = None) -> object:
    support = ld.dataset(place / "support", key=["x", "y"], id="id", scaling="none")
    return ld.cluster(ld.mean_shift(1.5), support, out, executor=executor or ld.Local(2))


def move(place: Path, out: Path, executor: ld.Local | None = None) -> object:
    support = ld.dataset(place / "support", key=["x", "y"], id="id", scaling="none")
    return ld.move(ld.denoise_manifold(1, k=25, layers=3), support, out, executor=executor or ld.Local(2))


def label(place: Path, out: Path, partitioned: bool = False) -> object:
    method = {"name": "label-propagation", "sweeps": 6 if partitioned else 25}
    rows, run = place / "rows.parquet", ld.Local(2)
    return ld.label(method, place / "graph", rows, out, target="color", partitioned=partitioned, executor=run)


def couple(place: Path, out: Path) -> object:
    support = ld.dataset(place / "rows", key=["a", "b", "kind"], target="dear", id="site", weight="w")
    method = ld.gtvmin(family="logistic", coupling="squared", ridge=0.1)
    ends = ["from", "to", "much"]
    return ld.couple(method, support, place / "edges.parquet", out, ends=ends, executor=ld.Local(2))


def fold(place: Path, out: Path) -> object:
    support = ld.dataset(place / "rows", key=["a", "b"], target="kind", weight="w", scaling="none")
    method = {"name": "logifold", "estimator": "sklearn.naive_bayes.GaussianNB", "var_smoothing": 1e-6}
    return ld.couple(method, support, None, out, executor=ld.Local(2))


def backfit(place: Path, out: Path, executor: Executor | None = None) -> object:
    roles = {"key": ["east", "north"], "features": ["rooms"], "target": "price", "id": "id"}
    support, run = ld.dataset(place / "sites", scaling={"key": "none"}, **roles), executor or ld.Local(2)
    with mock.patch("locdist.jobs.scales.fit.COLUMNS", 40):
        return ld.backfit(ld.mgwr(), support, out, bad="drop", executor=run)


def forecast(place: Path, out: Path, executor: Executor | None = None) -> object:
    asked, run = {"target": "load", "time": "hour", "id": "meter", "steps": 5}, executor or ld.Local(2)
    with mock.patch("locdist.jobs.forecast.SPAN_ROWS", 120):
        return ld.forecast(ld.local_ar(order=3, k=12), place / "loads", out, executor=run, **asked)


def both(place: Path, out: Path, executor: Executor) -> None:
    """Scales of terms and forecasts of series, in several tasks each."""
    with small():
        backfit(place, out / "terms", executor)
        forecast(place, out / "next", executor)


def restore(place: Path, out: Path, executor: Executor | None = None) -> object:
    run = executor or ld.Local(2)
    with mock.patch("locdist.jobs.restoring.tasks.SPAN_NUMBERS", 150):
        return ld.restore(OF_IMAGES, place / "scans", out, keep="id", executor=run)


def embed(place: Path, out: Path) -> object:
    support = ld.dataset(place, key=["x", "y", "z"], id="name", scaling="none")
    return ld.embed(ld.lazy_coordinates(k=10, steps=200), support, out, executor=ld.Local(2))


VERBS: dict[str, Callable[[Path, Path], object]] = {
    "build": build,
    "predict": predict,
    "cluster": cluster,
    "move": move,
    "label": label,
    "couple": couple,
    "fold": fold,
    "backfit": backfit,
    "forecast": forecast,
    "restore": restore,
    "embed": embed,
    "label-apart": lambda place, out: label(place, out, partitioned=True),
}


@contextmanager
def stopping(kind: str, name: str, signal: Path) -> Iterator[None]:
    """The store, with a stop at one moment: then no other thread may write either."""
    write, create = Store.writer, Store.create
    reached = threading.Event()

    def here(moment: str, path: str) -> None:
        if kind == moment and path.endswith(name):
            reached.set()
            signal.touch()
        if reached.is_set():
            time.sleep(600)

    @contextmanager
    def stopped_writer(store: Store, path: str) -> Iterator[object]:
        with write(store, path) as stream:
            if kind == "begun" and path.endswith(name):
                stream.write(b"PAR1, and no more")
                stream.flush()
            here("begun", path)
            yield stream
            here("unsealed", path)

    def stopped_create(store: Store, path: str, data: bytes) -> bool:
        here("created", path)
        created = create(store, path, data)
        here("committed", path)
        return created

    with (
        mock.patch.object(Store, "writer", stopped_writer),
        mock.patch.object(Store, "create", stopped_create),
    ):
        yield


def main() -> int:
    print("ready", flush=True)  # noqa: T201 - what the test waits for
    command = json.loads(sys.stdin.readline())
    with small(), stopping(command["kind"], command["name"], Path(command["signal"])):
        try:
            VERBS[command["verb"]](Path(command["place"]), Path(command["out"]))
        except LocdistError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
