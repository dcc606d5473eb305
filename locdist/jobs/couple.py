"""`couple`: a model at each node of a graph, drawn to those of its neighbors.

    profile        every partition: how features are scaled
    gather-00000   every partition: what its nodes would minimise, summed over their rows
    couple-00000   one task: all rounds, with checkpoints
    ...            gathered and coupled again, for losses that are not quadratic
    nodes          one task: the models as a table

Rows of a node may lie in any partition: sums over them are all that a linear model needs. They are summed in
the order of the partitions, so no executor changes a bit.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from locdist.data.dataset import Dataset, checked
from locdist.data.encoding import Encoding
from locdist.data.lengths import Profiles
from locdist.data.schema import row_bytes
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.build_index import Options
from locdist.jobs.coupling.costs import couple_cost, gather_cost
from locdist.jobs.coupling.edges import NamedEdges
from locdist.jobs.coupling.fits import CHECKPOINT
from locdist.jobs.coupling.gather import GatherRows
from locdist.jobs.coupling.solve import CoupleNodes, Nodes, WriteNodes
from locdist.jobs.coupling.stored import Stored
from locdist.jobs.extent import Extent
from locdist.jobs.indexing import ProfileRows, profiles_of
from locdist.jobs.passing import Records, forget_bare, is_bare, passed, sweep
from locdist.jobs.request import (
    check_told,
    each_file,
    inputs,
    left_out,
    rows_per_task,
    settled,
    snapshot,
    unsettle,
)
from locdist.jobs.support import Fitted, numeric
from locdist.jobs.telling.coupled import CoupleReport
from locdist.jobs.telling.kept import REPORT
from locdist.methods.coupled import STEPS, CoupledMethod, coupled_method
from locdist.plan.cost import Estimate
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Function, Resources, Stage, Task, holding, remaining
from locdist.plan.records import history
from locdist.plan.versions import versions

PROFILE, GATHER, COUPLE, NODES = "profile", "gather-", "couple-", "nodes"
TABLE = "part-00000.parquet"


def couple(
    method: CoupledMethod | str | Mapping[str, Any],
    support: Dataset,
    edges: Any,
    out: str | Path,
    *,
    ends: Sequence[str] | None = None,
    bad: str = "raise",
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> CoupleReport:
    """A model at each node of a graph, drawn to those of its neighbors.

    Parameters
    ----------
    method : CoupledMethod, name or spec
        `ld.gtvmin(strength=0.5)`.
    support : Dataset
        Rows: their features are the key, `id` names the node of each row, `target` is one column of numbers,
        `weight` says how much a row counts. Features are scaled as a key is, and differences of models are
        measured in these units.
    edges : path, table, or folder of a graph
        An edge a row, between the names of two nodes. Each counts once, whichever way it leads; of edges that
        lead both ways the larger weight counts. A node with edges needs no rows. The graph may be one that
        `graph` wrote of a support whose ids name the nodes.
    out : path or URI
        The output folder: a table with a row for each node, sorted by name: `rows`, `intercept`,
        `coefficient_FEATURE` in the units of the data, and `status`: "few" with fewer rows than parameters
        and "low_support" without any, where neighbors have the say; "empty" (and null) where no node within
        reach has a row; "rank_deficient" where the rows within reach do not tell the parameters;
        "not_converged" where the rounds were not enough.
    ends : sequence of str, optional
        The columns of both ends of an edge, and of its weight if it has one: by default "source", "target",
        and "weight" where there is one.
    bad : {"raise", "drop"}
        As in `build_index`.
    executor, resources, overwrite, listener, command
        As in `predict`.

    Returns
    -------
    CoupleReport
    """
    asked, started = requested(method, support, edges, ends, bad), time.monotonic()
    folder, runner = Store.at(out), executor or Local()
    with claimed(folder, asked.manifest, asked.taken, overwrite) as claim, runner.kept():
        ours = asked.settled(folder, claim.added)
        notes = left_out(asked.support.source) + claim.notes
        job = CoupleJob(folder, ours, started, resources, notes)
        past = history(folder).records
        if job.is_lost(past):
            forget_bare(folder, past)
        return run(job, runner, listener=listener, command=command)


@dataclass(frozen=True)
class Asked:
    """What `couple` is asked."""

    method: CoupledMethod
    support: Dataset
    edges: NamedEdges
    bad: str

    @property
    def manifest(self) -> Manifest:
        """What is pinned in the folder."""
        told = {
            "method": self.method.spec, "roles": self.support.roles.to_json(), "bad": self.bad,
            "edges": self.edges.source.fingerprint, "ends": list(self.edges.columns),
        }  # fmt: skip
        check_told(told)
        return Manifest("couple", told, snapshot(self.support.source), versions())

    @property
    def taken(self) -> tuple[str, ...]:
        """What the output must not touch."""
        return (*inputs(self.support.source), *self.edges.folders)

    def settled(self, folder: Store, added: Sequence[str]) -> "Asked":
        """The same with data that tasks can read."""
        rows = settled(self.support.source.without(added), folder)
        return replace(self, support=replace(self.support, source=rows), edges=self.edges.settled(folder))


def requested(
    method: CoupledMethod | str | Mapping[str, Any],
    support: Dataset,
    edges: Any,
    ends: Sequence[str] | None = None,
    bad: str = "raise",
) -> Asked:
    """What `couple` runs and `plan` describes, checked."""
    chosen, rows = coupled_method(method), checked(support)
    Options(bad=bad)
    roles, schema = rows.roles, rows.source.schema
    if roles.id is None:
        raise UsageError("a column that names the node of each row", "none", "Name it, as the id (--node).")
    if len(roles.target) != 1 or not numeric(schema.field(roles.target[0]).type):
        given = ", ".join(f"{name} of type {schema.field(name).type}" for name in roles.target) or "none"
        raise UsageError("one column of numbers as the target", given, "Name it.")
    if roles.features or roles.map is not None or roles.offset is not None or roles.metric != "l2":
        given = "features, a map, an offset, or another metric"
        raise UsageError("features as the key, with metric 'l2' and no map or offset", given, "Leave it out.")
    named = NamedEdges.of(edges, ends, schema.field(roles.id).type)
    return Asked(chosen, rows, named, bad)


@dataclass(frozen=True)
class CoupleJob:
    """The job of `couple`."""

    folder: Store
    asked: Asked
    started: float
    resources: Resources | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def spans(self) -> dict[str, tuple[int, int]]:
        """The tasks over rows, by name."""
        source = self.asked.support.source
        size = row_bytes(source.schema, self.asked.support.roles.columns)
        spans = source.partitions(rows_per_task(source.rows, size))
        return {f"part-{number:05}": (span.start, span.stop) for number, span in enumerate(spans)}

    @cached_property
    def encoding(self) -> Encoding:
        """Of the features, from all profiles together; only once they are complete."""
        texts = each_file(self.folder, [_profile(name) for name in self.spans])
        profiles = reduce(Profiles.merge, (profiles_of(name, text) for name, text in texts))
        return Fitted.of(profiles.settled(), self.asked.support.roles, self.asked.bad).recipe.key

    def is_lost(self, records: Records) -> bool:
        """Whether something is missing that was made of files that are gone."""
        if self.folder.exists(REPORT):
            return not records.get(NODES)
        return is_bare(records, PROFILE)

    def next_stage(self, records: Records) -> Stage | None:
        """Profile, gather and couple as often as is needed, and the table."""
        if records.get(NODES):
            return None
        outputs = [(passed(PROFILE, name), _profile(name)) for name in self.spans]
        profile = ProfileRows(self.asked.support, 1, 0)
        first = self._over_rows(PROFILE, profile, Extent.of(self.asked.support).profile, outputs)
        if remaining(first, records):
            return first
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
        method, roles = self.asked.method, self.asked.support.roles
        assert roles.id is not None
        node = str(self.asked.support.source.schema.field(roles.id).type)
        Stored(self.encoding, roles.id, node, roles.target[0], method.spec).write(self.folder)
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
            seconds=time.monotonic() - self.started,
            work_seconds=sum(record.seconds for record in done),
            peak_memory=max(record.peak_memory for record in done),
            tasks=len(done),
            notes=self.notes,
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
        function = GatherRows(self.asked.support, self.encoding, self.asked.method, before)
        files, width = [(name,) for name in self._files(number)], self.encoding.width
        return self._over_rows(
            step_name(GATHER, number), function, lambda rows: gather_cost(rows, width), files
        )

    def _couple(self, records: Records, number: int) -> Stage:
        before = passed(step_name(COUPLE, number - 1), "fit") if number else None
        output = passed(step_name(COUPLE, number), "fit")
        function = CoupleNodes(self._all(number), before)
        return self._one(step_name(COUPLE, number), COUPLE[:-1], output, function, records, number)

    def _nodes(self, records: Records, number: int) -> Stage:
        node = self.asked.support.roles.id
        assert node is not None
        fit = passed(step_name(COUPLE, number), "fit")
        function = WriteNodes(self._all(number), fit, self.encoding, node)
        return self._one(NODES, NODES, TABLE, function, records, number)

    def _one(
        self, stage: str, task: str, output: str, function: Function, records: Records, number: int
    ) -> Stage:
        """A stage of one task over all nodes."""
        nodes = sum(record.data["nodes"] for record in records[step_name(GATHER, number)].values())
        cost = couple_cost(nodes, self.encoding.width, self.asked.edges.source.rows)
        tasks = (Task(task, (output,), (number,), nodes),)
        return Stage(stage, tasks, function, holding(self.resources, cost.memory), cost.formula)

    def _over_rows(
        self,
        stage: str,
        function: Function,
        cost: Callable[[int], Estimate],
        outputs: Sequence[tuple[str, ...]],
    ) -> Stage:
        """A task for each partition."""
        tasks = [
            Task(name, names, span, span[1] - span[0])
            for (name, span), names in zip(self.spans.items(), outputs, strict=True)
        ]
        most = cost(max(task.rows for task in tasks))
        return Stage(stage, tuple(tasks), function, holding(self.resources, most.memory), most.formula)

    def _all(self, number: int) -> Nodes:
        return Nodes(self.asked.method, self.asked.edges, self._files(number))

    def _files(self, number: int) -> tuple[str, ...]:
        return tuple(passed(step_name(GATHER, number), name) for name in self.spans)


def step_name(stage: str, number: int) -> str:
    """The name of a stage of a step."""
    return f"{stage}{number:05}"


def _profile(part: str) -> str:
    return f"passing/{PROFILE}/{part}.json"
