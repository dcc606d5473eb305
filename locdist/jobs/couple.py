"""`couple`: a model at each node of a graph, drawn to those of its neighbors.

    profile        every partition: how features are scaled
    gather-00000   every partition: what its nodes would minimise, summed over their rows
    couple-00000   one task: all rounds, with checkpoints
    ...            gathered and coupled again, for losses that are not quadratic
    nodes          one task: the models as a table

Rows of a node may lie in any partition: sums over them are all that a linear model needs. They are summed in
the order of the partitions, so no executor changes a bit. Estimators of others have jobs of their own
(`relax`, `fold`).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from locdist.data.dataset import Dataset, checked
from locdist.data.source import Source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.build_index import Options
from locdist.jobs.coupling.checks import check_charts, check_roles, shared_rows
from locdist.jobs.coupling.costs import couple_cost, gather_cost
from locdist.jobs.coupling.edges import NamedEdges
from locdist.jobs.coupling.fits import CHECKPOINT
from locdist.jobs.coupling.gather import GatherRows
from locdist.jobs.coupling.levels import NamedLevels
from locdist.jobs.coupling.passes import PROFILE, Passes
from locdist.jobs.coupling.solve import CoupleNodes, Nodes, WriteNodes
from locdist.jobs.coupling.stored import Stored
from locdist.jobs.fold import FoldJob
from locdist.jobs.passing import Records, forget_bare, is_bare, passed, sweep
from locdist.jobs.relax import RelaxJob
from locdist.jobs.request import (
    OURS,
    check_told,
    inputs,
    left_out,
    settled,
    snapshot,
    unsettle,
)
from locdist.jobs.telling.coupled import CoupleReport, FoldReport
from locdist.jobs.telling.kept import REPORT, spent
from locdist.methods.atlas import Atlas
from locdist.methods.coupled import STEPS, CoupledMethod, OfNodes, coupled_method
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Function, Job, Resources, Stage, Task, holding, remaining
from locdist.plan.records import history
from locdist.plan.versions import versions

GATHER, COUPLE, NODES = "gather-", "couple-", "nodes"
TABLE = "part-00000.parquet"


def couple(
    method: OfNodes | str | Mapping[str, Any],
    support: Dataset,
    edges: Any,
    out: str | Path,
    *,
    ends: Sequence[str] | None = None,
    shared: Any = None,
    bad: str = "raise",
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> CoupleReport | FoldReport:
    """A model at each node of a graph, drawn to those of its neighbors.

    Parameters
    ----------
    method : method, name or spec
        - `ld.gtvmin(strength=0.5)`.
        - `ld.dem_learn(mu=2)`: `edges` are groups of devices.
        - `ld.fed_relax(estimator)` of numbers, or {"name": "fed-relax", "estimator":
          "sklearn.tree.DecisionTreeRegressor", "max_depth": 4}: nodes are fitted in groups, a task each, with
          a barrier a round; the output has rows and status of each node, and what `apply` makes the
          estimators of again, so one that has a `random_state` needs a number as it.
        - `ld.atlas(estimator)` of classes, or {"name": "logifold", "estimator": ...}: the charts of a
          logifold, a task each; without edges. The output has `rows`, `held_out`, and the `accuracy`,
          `threshold` (null where none is high enough) and `status` of each chart.
    support : Dataset
        Rows: their features are the key, `id` names the node of each row, `target` is one column of numbers,
        `weight` says how much a row counts; one of weight 0 only names its node. Features are scaled as a key
        is, and differences of models are measured in these units. Of an atlas the target is a class, and the
        id, if there is one, names the chart.
    edges : path, table, or folder of a graph
        An edge a row, between the names of two nodes. Each counts once, whichever way it leads; of several
        between two nodes the larger weight counts, and one of weight 0 does not. A node with edges needs no
        rows. The graph may be one that `graph` wrote of a support whose ids name the nodes. Of `dem_learn` a
        table with a device a row, and the name of its group at each level, null for none. None of an atlas.
    out : path or URI
        The output folder: a table with a row for each node, sorted by name (of FedRelax in each of its
        files): `rows`, `intercept`, `coefficient_FEATURE` in the units of the data, and `status`: "few" with
        fewer rows than parameters and "low_support" without any, where neighbors have the say; "empty" (and
        null) where no node within reach has a row; "rank_deficient" where the rows within reach do not tell
        the parameters; "not_converged" where the rounds were not enough; of FedRelax "not_finite" where an
        estimator raised an error.
    ends : sequence of str, optional
        The columns of both ends of an edge, and of its weight if it has one: by default "source", "target",
        and "weight" where there is one. Of `dem_learn` the columns of the device and of each level: by
        default the id, and all others.
    shared : path, table or mapping of names to arrays, optional
        The rows that nodes of FedRelax agree on, with all features.
    bad : {"raise", "drop"}
        As in `build_index`.
    executor, resources, overwrite, listener, command
        As in `predict`.

    Returns
    -------
    CoupleReport, or FoldReport of an atlas
    """
    asked, started = requested(method, support, edges, ends, bad, shared), time.monotonic()
    folder, runner = Store.at(out), executor or Local()
    with claimed(folder, asked.manifest, asked.taken, overwrite) as claim, runner.kept():
        ours = asked.settled(folder, claim.added)
        notes = left_out(asked.support.source) + claim.notes
        job = job_of(folder, ours, started, resources, notes)
        past = history(folder).records
        if job.is_lost(past):
            forget_bare(folder, past)
        whole: Job[CoupleReport | FoldReport] = job
        return run(whole, runner, listener=listener, command=command)


@dataclass(frozen=True)
class Asked:
    """What `couple` is asked."""

    method: OfNodes
    support: Dataset
    edges: NamedEdges | NamedLevels | None
    bad: str
    shared: Source | None = None

    @property
    def manifest(self) -> Manifest:
        """What is pinned in the folder."""
        told: dict[str, Any] = {
            "method": self.method.spec, "roles": self.support.roles.to_json(), "bad": self.bad,
        }  # fmt: skip
        if self.edges is not None:
            told |= {"edges": self.edges.source.fingerprint, "ends": list(self.edges.columns)}
        if self.shared is not None:
            told["shared"] = self.shared.fingerprint
        check_told(told)
        return Manifest("couple", told, snapshot(self.support.source), versions())

    @property
    def taken(self) -> tuple[str, ...]:
        """What the output must not touch."""
        shared = inputs(self.shared) if self.shared is not None else ()
        edges = () if self.edges is None else self.edges.folders
        return (*inputs(self.support.source), *edges, *shared)

    def settled(self, folder: Store, added: Sequence[str]) -> "Asked":
        """The same with data that tasks can read."""
        rows = settled(self.support.source.without(added), folder)
        shared = None if self.shared is None else self.shared.spill(folder.child(f"{OURS}/shared"))
        edges = None if self.edges is None else self.edges.settled(folder)
        return replace(self, support=replace(self.support, source=rows), edges=edges, shared=shared)


def requested(
    method: OfNodes | str | Mapping[str, Any],
    support: Dataset,
    edges: Any,
    ends: Sequence[str] | None = None,
    bad: str = "raise",
    shared: Any = None,
) -> Asked:
    """What `couple` runs and `plan` describes, checked."""
    chosen, rows = coupled_method(method), checked(support)
    Options(bad=bad)
    check_roles(rows, chosen)
    if isinstance(chosen, Atlas):
        check_charts(chosen, rows, edges, ends, shared)
        return Asked(chosen, rows, None, bad)
    id = rows.roles.id
    assert id is not None
    kind = rows.source.schema.field(id).type
    if edges is None:
        remedy = "Give a table (EDGES)."
        raise UsageError("edges between nodes, or groups of devices", "none", remedy)
    if isinstance(chosen, CoupledMethod) and shared is not None:
        raise UsageError("shared rows for FedRelax", f"some for {chosen.name}", "Leave them out.")
    if isinstance(chosen, CoupledMethod) and chosen.levels:
        return Asked(chosen, rows, NamedLevels.of(edges, ends, id, kind), bad)
    named = NamedEdges.of(edges, ends, kind)
    if isinstance(chosen, CoupledMethod):
        return Asked(chosen, rows, named, bad)
    return Asked(chosen, rows, named, bad, shared_rows(chosen, rows, shared))


def job_of(
    folder: Store, asked: Asked, started: float, resources: Resources | None, notes: tuple[str, ...]
) -> "CoupleJob | RelaxJob | FoldJob":
    """The job of what is asked."""
    passes, method, edges = Passes(folder, asked.support, asked.bad, resources), asked.method, asked.edges
    if isinstance(method, Atlas):
        return FoldJob(folder, method, passes, started, notes)
    assert edges is not None
    if isinstance(method, CoupledMethod):
        return CoupleJob(folder, method, passes, edges, started, notes)
    assert asked.shared is not None
    assert isinstance(edges, NamedEdges)
    return RelaxJob(folder, method, passes, edges, asked.shared, started, notes)


@dataclass(frozen=True)
class CoupleJob:
    """The job of `couple`."""

    folder: Store
    method: CoupledMethod
    passes: Passes
    edges: NamedEdges | NamedLevels
    started: float
    notes: tuple[str, ...] = ()

    def is_lost(self, records: Records) -> bool:
        """Whether something is missing that was made of files that are gone."""
        if self.folder.exists(REPORT):
            return not records.get(NODES)
        return is_bare(records, PROFILE)

    def next_stage(self, records: Records) -> Stage | None:
        """Profile, gather and couple as often as is needed, and the table."""
        if records.get(NODES):
            return None
        if remaining(self.passes.profile, records):
            return self.passes.profile
        number = self._step(records)
        if number and self._ends(records, number - 1):
            return self._nodes(records, number - 1)
        gather = self._gather(number)
        return gather if remaining(gather, records) else self._couple(records, number)

    def finish(self, records: Records) -> CoupleReport:
        """Write the report and what `apply` needs, and remove what only the job needed."""
        done = [record for stage in records.values() for record in stage.values()]
        last = self._step(records) - 1
        told, rows = (
            records[step_name(COUPLE, last)][COUPLE[:-1]].data,
            records[step_name(GATHER, last)].values(),
        )
        report = CoupleReport(
            out=self.folder.uri,
            rows=sum(record.rows for record in rows),
            bad_rows=sum(record.bad_rows for record in rows),
            nodes=told["nodes"],
            edges=told["edges"],
            status=dict(records[NODES][NODES].data["status"]),
            rests=told["done"] and told["rests"],
            steps=told["steps"],
            rounds=told["rounds"],
            gap=told["gap"],
            residual=told["residual"],
            objective=told["value"],
            notes=self.notes,
            **spent(done, self.started),
        )
        report.write(self.folder)
        sweep(self.folder, [name for name in records if name != NODES], records)
        self.folder.delete(CHECKPOINT)
        unsettle(self.folder)
        self.folder.child("_locdist/edges").remove_all()
        return report

    def _step(self, records: Records) -> int:
        """The step that is under way."""
        return sum(bool(done) for name, done in records.items() if name.startswith(COUPLE))

    def _ends(self, records: Records, number: int) -> bool:
        told = records[step_name(COUPLE, number)][COUPLE[:-1]].data
        return bool(told["done"]) or told["steps"] >= STEPS

    def _gather(self, number: int) -> Stage:
        before = passed(step_name(COUPLE, number - 1), "fit") if number else None
        function = GatherRows(self.passes.support, self.passes.encoding, self.method, self.edges.kind, before)
        stage, width = step_name(GATHER, number), self.passes.encoding.width
        files = [(name,) for name in self.passes.files(stage)]
        return self.passes.stage(stage, function, lambda rows: gather_cost(rows, width), files)

    def _couple(self, records: Records, number: int) -> Stage:
        before = passed(step_name(COUPLE, number - 1), "fit") if number else None
        output = passed(step_name(COUPLE, number), "fit")
        function = CoupleNodes(self._all(number), before)
        return self._one(step_name(COUPLE, number), COUPLE[:-1], output, function, records, number)

    def _nodes(self, records: Records, number: int) -> Stage:
        fit = passed(step_name(COUPLE, number), "fit")
        stored = Stored.of(self.passes.encoding, self.passes.support, self.method.spec)
        function = WriteNodes(self._all(number), fit, stored)
        return self._one(NODES, NODES, TABLE, function, records, number)

    def _one(
        self, stage: str, task: str, output: str, function: Function, records: Records, number: int
    ) -> Stage:
        """A stage of one task over all nodes."""
        nodes = sum(record.data["nodes"] for record in records[step_name(GATHER, number)].values())
        cost = couple_cost(nodes + self.edges.more, self.passes.encoding.width, self.edges.count)
        tasks = (Task(task, (output,), (number,), nodes),)
        return Stage(stage, tasks, function, holding(self.passes.resources, cost.memory), cost.formula)

    def _all(self, number: int) -> Nodes:
        return Nodes(self.method, self.edges, self.passes.files(step_name(GATHER, number)))


def step_name(stage: str, number: int) -> str:
    """The name of a stage of a step."""
    return f"{stage}{number:05}"
