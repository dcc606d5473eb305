"""The rows of the table: what is measured, against what, and its reach."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from locdist.data.dataset import dataset
from locdist.data.store import Store
from locdist.execute.local import Local
from locdist.execute.machine import cpus
from locdist.jobs.asking.ask import Report
from locdist.jobs.build_index import build_index
from locdist.methods.named import local_linear, local_mean, method
from locdist.plan.records import history
from locdist.search.generation import Generation
from tests.speed.clusters import Pace, pace
from tests.speed.inputs import KEY, TARGET, Inputs, Matrix, Sizes, read
from tests.speed.jobs import Job, Watch, empty_tasks, long_tasks, milliseconds_a_task, tiny_tasks
from tests.speed.kriging import times as kriging
from tests.speed.logistic import times as logistic
from tests.speed.moving import MOVING
from tests.speed.outlook import outcomes
from tests.speed.peers import Faiss, Sklearn
from tests.speed.selecting import COMPARED, Compared
from tests.speed.timing import Time, interleaved, timed

METHODS = {"local mean": local_mean, "local linear": local_linear}


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Parameters
    ----------
    work, ours, against, theirs, ratio, reach : str
        Its cells.
    met : bool
        Whether the ratio is within reach.
    figures : dict
        What the cells were made of, for the JSON.
    """

    work: str
    ours: str
    against: str
    theirs: str
    ratio: str
    reach: str
    met: bool
    figures: dict[str, Any]


@dataclass
class Bench:
    """What rows share: the inputs, the index, the tuned jobs, the peers; each made when needed.

    Parameters
    ----------
    inputs : Inputs
    workers : int
        Threads or processes of ours, threads of the peers.
    figures : dict
        What the lines above the table say, for the JSON.
    """

    inputs: Inputs
    workers: int = field(default_factory=cpus)
    figures: dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def index(self) -> Generation:
        """Built here; its time is noted."""
        sizes, out = self.inputs.sizes, self.inputs.root / "index"
        support = dataset(self.inputs.support, key=KEY, target=TARGET)
        executor = Local(self.workers)
        time = timed(lambda: build_index(support, out, codes=sizes.codes, executor=executor))
        index = build_index(support, out, codes=sizes.codes)
        self.note(
            "build", f"index of {sizes.support:,} rows, {index.layout.nlist} lists: {time.told}", time.wall
        )
        return index

    @functools.cached_property
    def queries(self) -> Matrix:
        return read(self.inputs.queries)[0]

    @functools.cached_property
    def mean(self) -> tuple[Job, Report]:
        return self.prepared("local mean", self.inputs.queries)

    @functools.cached_property
    def linear(self) -> tuple[Job, Report]:
        return self.prepared("local linear", self.inputs.queries)

    @functools.cached_property
    def faiss(self) -> Faiss:
        return Faiss.of(self.index, self.queries, self.inputs.sizes.k, self.mean[1].nprobe, self.workers)

    @functools.cached_property
    def sklearn(self) -> Sklearn:
        peer = Sklearn.of(self.inputs, self.queries, self.workers)
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in peer.tried.items())
        self.note("scikit-learn", f"scikit-learn on a few queries: {told}", peer.tried)
        return peer

    def prepared(self, name: str, queries: Path) -> tuple[Job, Report]:
        """A job after its first run, in which it was tuned and the page cache got warm."""
        out = self.inputs.root / f"{name} of {queries.name}".replace(" ", "-")
        job = Job(METHODS[name](k=self.inputs.sizes.k), self.index, queries, out, self.workers)
        report, before = job.first()
        told = f"{name}, {report.rows:,} queries: tuning and audit {before:.1f} s, recall {report.recall}"
        recall = report.recall.mean if report.recall else 1.0
        self.note(job.out.name, f"{told}, nprobe {report.nprobe}", {"tuning": before, "recall": recall})
        return job, report

    def contender(self, name: str) -> Callable[[], object]:
        """What is timed under a name."""
        makers: dict[str, Callable[[], Callable[[], object]]] = {
            "mean": lambda: self.mean[0].again,
            "linear": lambda: self.linear[0].again,
            "search": lambda: self.faiss.search,
            "slices": lambda: self.faiss.slices,
            "scikit-learn": lambda: self.sklearn.predict,
        }
        return makers[name]()

    @functools.cached_property
    def paces(self) -> dict[str, Pace]:
        """What was measured by executor."""
        return {}

    def pace(self, name: str) -> Pace:
        """How an executor gets through tasks of about a second; measured once."""
        if name not in self.paces:
            job, report = self.mean
            index, sizes = self.index.probing(report.nprobe), self.inputs.sizes
            stage = long_tasks(job.method, index, self.inputs.queries, sizes.long_tasks, sizes.long_rows)
            self.paces[name] = pace(name, stage, self.inputs.root / f"long-{name}", self.workers)
        return self.paces[name]

    def note(self, name: str, told: str, figure: Any) -> None:
        """A line above the table, and its figure."""
        print(told, flush=True)
        self.figures[name] = figure


Times = dict[str, Time]


def mean_row(bench: Bench, times: Times) -> Row:
    ours, name = times["mean"], min(("search", "slices"), key=lambda each: times[each].wall)
    mode = {"search": "one call", "slices": "a slice a thread"}[name]
    recall = bench.mean[1].recall
    enough = recall is None or recall.mean >= 0.99
    return _row(
        "predict, files to files, local mean", ours, f"FAISS search, {mode}", times[name], 1.3, enough
    )


def linear_row(bench: Bench, times: Times) -> Row:
    work = "the same with local linear"
    return _row(work, times["linear"], "the local mean job", times["mean"], 1.5)


def sklearn_row(bench: Bench, times: Times) -> Row:
    sizes, peer, ours = bench.inputs.sizes, times["scikit-learn"], times["mean"]
    scale = sizes.queries / min(sizes.peer_queries, sizes.queries)
    scaled, algorithm = Time(peer.wall * scale, peer.cpu * scale), bench.sklearn.model.algorithm
    faster = scaled.wall / ours.wall
    against = f"scikit-learn, {algorithm}, {sizes.peer_queries:,} queries scaled"
    figures = _figures(ours, scaled) | {"faster": faster}
    return Row(
        "the same local mean job", ours.told, against, scaled.told,
        f"{faster:.1f} x faster", ">= 20 x faster", faster >= 20, figures,
    )  # fmt: skip


def memory_row(bench: Bench, times: Times) -> Row:
    few = _peak(bench, bench.mean[0])
    many = _peak(bench, bench.prepared("local mean", bench.inputs.many)[0])
    ratio, rows = max(few) / max(many), bench.inputs.sizes.queries
    bench.note(
        "RssAnon", f"anonymous memory by /proc: {few[1] >> 20} and {many[1] >> 20} MiB", [few[1], many[1]]
    )
    figures = {"few": few, "many": many, "ratio": 1 / ratio}
    return Row(
        f"memory of a worker, {rows * bench.inputs.sizes.many:,} queries",
        f"{max(many) >> 20} MiB", f"{rows:,} queries", f"{max(few) >> 20} MiB",
        f"{1 / ratio:.2f} x", "within 10 %", 0.9 <= 1 / ratio <= 1.1, figures,
    )  # fmt: skip


def overhead_row(bench: Bench, times: Times) -> Row:
    count, mean = bench.inputs.sizes.tasks, method("local-mean", {"k": bench.inputs.sizes.k})
    stages = {
        "empty": empty_tasks(count),
        "4 queries": tiny_tasks(mean, bench.index, bench.inputs.tiny, count),
    }
    spent = {}
    for place, processes in (("threads", False), ("processes", True)):
        for name, stage in stages.items():
            folder = bench.inputs.root / f"tasks-{place}-{name[0]}"
            spent[f"{name}, {place}"] = milliseconds_a_task(stage, folder, Local(bench.workers, processes))
    bench.note("tasks", "ms a task: " + "; ".join(f"{name} {ms:.1f}" for name, ms in spent.items()), spent)
    worst = max(spent.values())
    ours = f"{spent['4 queries, threads']:.1f} / {spent['4 queries, processes']:.1f} ms"
    return Row(
        "overhead a task: 4 queries; threads / processes", ours, "-", "-",
        f"{worst:.1f} ms", "<= 50 ms", worst <= 50, spent,
    )  # fmt: skip


def cluster_row(bench: Bench, times: Times, name: str) -> Row:
    ours, local = bench.pace(name), bench.pace("local")
    ratio, count = ours.seconds / local.seconds, bench.inputs.sizes.long_tasks
    overhead = {which: 1000 * (bench.workers * pace.seconds - pace.inside) for which, pace in
                (("local", local), (name, ours))}  # fmt: skip
    told = [f"{which}: {ms:.0f} ms a task outside of it" for which, ms in overhead.items()]
    sizes = f"driver {ours.driver >> 20} MiB, worker {ours.worker >> 20} MiB"
    bench.note(
        f"{name} tasks", f"{name}: start-up {ours.startup:.1f} s, {sizes}; {'; '.join(told)}", overhead
    )
    return Row(
        f"{count} tasks of {local.inside:.1f} s on {name}", f"{ours.seconds * count:.1f} s",
        "local", f"{local.seconds * count:.1f} s", f"{ratio:.2f} x", "<= 1.25 x", ratio <= 1.25,
        asdict(ours) | {"ratio": ratio, "local": asdict(local), "overhead": overhead},
    )  # fmt: skip


def plan_row(bench: Bench, times: Times) -> Row:
    told = outcomes(bench.inputs.root / "planned", Local(bench.workers), bench.inputs.sizes.planned)
    for outcome in told:
        bench.note(outcome.job, str(outcome), outcome.ratio)
    ratios = sorted(max(each.ratio, 1 / each.ratio) for each in told)
    return Row(
        f"plans of {len(told)} small jobs: predicted time", f"{sum(each.predicted for each in told):.1f} s",
        "measured", f"{sum(each.measured for each in told):.1f} s",
        f"within {ratios[-1]:.1f} x", "within 3 x each", ratios[-1] <= 3,
        {each.job: each.ratio for each in told},
    )  # fmt: skip


def kriging_row(bench: Bench, times: Times, d: int) -> Row:
    count = bench.inputs.sizes.kriging
    ours, theirs = kriging(d, count, bench.workers)
    faster = theirs.wall / ours.wall
    return Row(
        f"local-gp, k=50, d={d}, {count:,} queries", ours.told, "MuyGPyS, the same neighbors", theirs.told,
        f"{faster:.1f} x faster", ">= 3 x faster", faster >= 3, _figures(ours, theirs) | {"faster": faster},
    )  # fmt: skip


def logistic_row(bench: Bench, times: Times) -> Row:
    count, fewer = bench.inputs.sizes.logistic, bench.inputs.sizes.logistic_peer
    ours, theirs = logistic(count, fewer, bench.workers)
    faster = theirs.wall / ours.wall
    against, figures = f"scikit-learn one by one, {fewer:,} queries scaled", _figures(ours, theirs)
    return Row(
        f"local-logistic, k=128, d=8, {count:,} queries", ours.told, against, theirs.told,
        f"{faster:.0f} x faster", ">= 100 x faster", faster >= 100, figures | {"faster": faster},
    )  # fmt: skip


def compared_row(bench: Bench, times: Times, make: Callable[[Sizes, int], Compared]) -> Row:
    told = make(bench.inputs.sizes, bench.workers)
    faster = told.theirs.wall / told.ours.wall
    return Row(
        told.work, told.ours.told, told.against, told.theirs.told, f"{faster:.2f} x faster",
        f">= {told.least:g} x faster", told.valid and faster >= told.least,
        _figures(told.ours, told.theirs) | {"faster": faster},
    )  # fmt: skip


ROWS: dict[str, tuple[tuple[str, ...], Callable[[Bench, Times], Row]]] = {
    "mean": (("mean", "search", "slices"), mean_row),
    "linear": (("mean", "linear"), linear_row),
    "scikit-learn": (("mean", "scikit-learn"), sklearn_row),
    "memory": ((), memory_row),
    "overhead": ((), overhead_row),
    "plan": ((), plan_row),
    "kriging 2": ((), functools.partial(kriging_row, d=2)),
    "kriging 8": ((), functools.partial(kriging_row, d=8)),
    "logistic": ((), logistic_row),
    **{
        name: ((), functools.partial(compared_row, make=make))
        for name, make in {**COMPARED, **MOVING}.items()
    },
    "ray": ((), functools.partial(cluster_row, name="ray")),
    "dask": ((), functools.partial(cluster_row, name="dask")),
}
"""What each row has timed, and how it is made of the times."""


def measured(bench: Bench, names: Iterable[str]) -> list[Row]:
    """The rows with these names; what they have timed runs in turns."""
    chosen = [ROWS[name] for name in names]
    contenders = dict.fromkeys(name for needed, _ in chosen for name in needed)
    times = interleaved({name: bench.contender(name) for name in contenders})
    return [make(bench, times) for _, make in chosen]


def _row(work: str, ours: Time, against: str, theirs: Time, most: float, valid: bool = True) -> Row:
    ratio = ours.wall / theirs.wall
    figures = _figures(ours, theirs) | {"ratio": ratio}
    return Row(
        work,
        ours.told,
        against,
        theirs.told,
        f"{ratio:.2f} x (cpu {ours.cpu / theirs.cpu:.2f})",
        f"<= {most} x",
        valid and ratio <= most,
        figures,
    )


def _figures(ours: Time, theirs: Time) -> dict[str, float]:
    return {"ours": ours.wall, "theirs": theirs.wall, "ours_cpu": ours.cpu, "theirs_cpu": theirs.cpu}


def _peak(bench: Bench, job: Job) -> tuple[int, int]:
    """The largest anonymous memory of a worker process in bytes: as records and as the kernel tell."""
    with Watch() as watch:
        job.again(processes=True)
    records = history(Store.at(job.out)).records["predict"]
    return max(record.peak_memory for record in records.values()), watch.peak
