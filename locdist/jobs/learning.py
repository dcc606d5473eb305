"""What is learned from a support or chosen by it, as a job of one task: `learn_rules`, `tune` and `select` as
steps of a pipeline, whose results are folders that other steps read.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from locdist.data.dataset import Dataset
from locdist.data.store import Store
from locdist.execute import machine
from locdist.execute.contract import Executor
from locdist.execute.events import Listener
from locdist.execute.executor import run
from locdist.execute.local import Local
from locdist.jobs import plans, rules, tune
from locdist.jobs.chosen import written
from locdist.jobs.extent import Extent
from locdist.jobs.grid import told
from locdist.jobs.passing import Records
from locdist.jobs.request import check_told, inputs, snapshot
from locdist.jobs.select import GWR_ROWS, select
from locdist.jobs.telling.kept import Kept, spent
from locdist.jobs.telling.outlook import JobPlan, stage_plan
from locdist.plan.cost import MEASURED, Estimate
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Attempt, Resources, Stage, Task, holding, remaining
from locdist.plan.records import Record
from locdist.plan.versions import versions
from locdist.search.generation import Generation

METHOD = "method.json"  # what stands for the name of a method, and holds the map of a key
RULES = "part-00000.parquet"
LEARN = "learn"
NUMBER, STEPS = 200, 512 << 20  # bytes: of a number of the rows that are learned from; of what steps hold


@dataclass(frozen=True)
class Lesson:
    """What is learned.

    Parameters
    ----------
    verb : {"rules", "tune", "select"}
    support : Dataset, or Generation for "select"
    options : mapping
        Arguments of `learn_rules`, `tune` or `select` by name, all of them, as a file tells them; of "select"
        also "simplest": whether that is taken, and not the best.
    """

    verb: str
    support: Dataset | Generation
    options: Mapping[str, Any]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The files that the task writes."""
        return (RULES, METHOD) if self.verb == "rules" else (METHOD,)

    @property
    def taken(self) -> tuple[str, ...]:
        """What the output must not touch."""
        given = self.support
        return inputs(given.source) if isinstance(given, Dataset) else (given.folder,)

    @property
    def rows(self) -> int:
        """That there are."""
        return self.support.rows if isinstance(self.support, Dataset) else self.support.layout.rows

    @property
    def manifest(self) -> Manifest:
        """What is pinned in the folder, checked."""
        given, options = self.support, dict(self.options)
        check_told(options)
        if isinstance(given, Generation):
            return Manifest(self.verb, options | {"index": given.fingerprint}, (), versions())
        check = rules.requested if self.verb == "rules" else tune.requested
        check(given, **{name: value for name, value in options.items() if name != "bad"})
        return Manifest(
            self.verb, options | {"roles": given.roles.to_json()}, snapshot(given.source), versions()
        )

    @property
    def cost(self) -> Estimate:
        """Of the task; how many steps it takes is not known before.

        memory = base + 512 MiB + 200 for each number of the rows that are learned from; of rules for each
        rule, as often as candidates are learned at a time
        """
        given = self.support
        width = 1 + (Extent.of(given).width if isinstance(given, Dataset) else given.layout.width)
        sample = self.options["sample"] or GWR_ROWS  # of `select` at most, where it says nothing
        asked, numbers = min(self.rows, sample), width
        if self.verb == "rules":
            counts = (len(self.options[name]) for name in ("rules", "steps", "ridge"))
            numbers *= max(self.options["rules"]) * min(math.prod(counts), machine.cpus())
        memory = MEASURED.base + STEPS + NUMBER * asked * numbers
        formula = f"base {MEASURED.base:,} + {STEPS:,} + {NUMBER} x {asked:,} rows x {numbers}"
        return Estimate(memory, 0, MEASURED.task, formula, 8 * self.rows * width, 0)


@dataclass(frozen=True)
class Learn:
    """The task."""

    lesson: Lesson

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The outputs: the method as a file, and of rules their table."""
        method, told = _LEARNED[self.lesson.verb](self.lesson, attempt)
        with attempt.writer(METHOD) as sink:
            sink.write(method)
        return Record(rows=self.lesson.rows, data={"told": told})


@dataclass(frozen=True)
class LearnReport(Kept):
    """What was learned.

    Parameters
    ----------
    out : str
    verb : str
    rows : int
        Of the support.
    status : dict
        Nothing: a row has none.
    told : str
        What was tried, how good each was, and what was taken.
    seconds, work_seconds : float
    peak_memory, tasks : int
    notes : tuple of str
    """

    out: str
    verb: str
    rows: int
    status: dict[str, int]
    told: str
    seconds: float
    work_seconds: float
    peak_memory: int
    tasks: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.told, f"written to {self.out}", *self.notes])


@dataclass(frozen=True)
class LearnJob:
    """The job of one task."""

    folder: Store
    lesson: Lesson
    started: float
    resources: Resources | None = None
    notes: tuple[str, ...] = ()

    def next_stage(self, records: Records) -> Stage | None:
        """Learn."""
        lesson, cost = self.lesson, self.lesson.cost
        task = Task(lesson.verb, lesson.outputs, (lesson.rows,), lesson.rows)
        stage = Stage(LEARN, (task,), Learn(lesson), holding(self.resources, cost.memory), cost.formula)
        return stage if remaining(stage, records) else None

    def finish(self, records: Records) -> LearnReport:
        """Write the report."""
        (done,) = records[LEARN].values()
        report = LearnReport(
            self.folder.uri, self.lesson.verb, done.rows, {}, done.data["told"], notes=self.notes,
            **spent([done], self.started),
        )  # fmt: skip
        report.write(self.folder)
        return report


def learn(
    lesson: Lesson,
    out: str | Path,
    *,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> LearnReport:
    """Learn, unless that is finished.

    Parameters
    ----------
    lesson : Lesson
        Of a support in files.
    out : path or URI
        The output folder: "method.json", and of "rules" a row for each rule in "part-00000.parquet".
    executor, resources, overwrite, listener, command
        As in `predict`.

    Returns
    -------
    LearnReport
    """
    folder, runner, started = Store.at(out), executor or Local(), time.monotonic()
    with claimed(folder, lesson.manifest, lesson.taken, overwrite) as claim, runner.kept():
        job = LearnJob(folder, _without(lesson, claim.added), started, resources, claim.notes)
        return run(job, runner, listener=listener, command=command)


def plan_learn(
    lesson: Lesson,
    out: str | Path,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
) -> JobPlan:
    """What `learn` would run with the same arguments; raises what that would refuse before any work."""
    folder = Store.at(out)
    state, records, claim = plans.standing(folder, lesson.manifest, lesson.taken, overwrite)
    lesson = _without(lesson, claim.added)
    why = "how many steps it takes is not known before, nor how long"
    stage = stage_plan(LEARN, [lesson.rows], lambda rows: lesson.cost, records, why)
    given, told = (
        lesson.support,
        {name: str(each) for name, each in lesson.options.items() if each is not None},
    )
    size = {"files": 0, "rows": lesson.rows, "volume": 0}
    return JobPlan(
        kind=lesson.verb,
        folder=folder.uri,
        state="finished" if state == "continues" and stage.finished else state,
        **(plans.size_of(given.source) if isinstance(given, Dataset) else size),
        choices=told,
        stages=(stage,),
        notes=claim.notes,
        **plans.hands_of(executor, workers, resources),
    )


def _without(lesson: Lesson, added: tuple[str, ...]) -> Lesson:
    """Without files that appeared after it was begun."""
    given = lesson.support
    if isinstance(given, Generation):
        return lesson
    return replace(lesson, support=replace(given, source=given.source.without(added)))


def _rules(lesson: Lesson, attempt: Attempt) -> tuple[bytes, str]:
    assert isinstance(lesson.support, Dataset)
    found = rules.learn_rules(lesson.support, **lesson.options)
    with attempt.writer(RULES) as sink:
        pq.write_table(found.table, sink)
    return written(found.method, found.why), found.summary


def _tuned(lesson: Lesson, attempt: Attempt) -> tuple[bytes, str]:
    assert isinstance(lesson.support, Dataset)
    found = tune.tune(lesson.support, **lesson.options)
    return written(found.method, found.why, found.map), str(found)


def _selected(lesson: Lesson, attempt: Attempt) -> tuple[bytes, str]:
    options = dict(lesson.options)
    simplest, grid = options.pop("simplest"), told(options.pop("grid"))
    found = select(support=lesson.support, grid=grid, **options)
    return written(found.simplest if simplest else found.best, found.why), str(found)


_LEARNED: Mapping[str, Callable[[Any, Attempt], tuple[bytes, str]]] = {
    "rules": _rules, "tune": _tuned, "select": _selected,
}  # fmt: skip
