"""`label`: labels of some nodes of a graph spread to all.

    known     every partition: the labels of its nodes, and which classes there are
    spread    one task: all sweeps, with a checkpoint every few of them
    label     every partition: the label of each node, and its scores

A state that fits no worker is cut in partitions, and `spread` becomes

    cut            every partition: its edges, by the partition that they lead to
    sweep-00001    every partition: its state after a sweep, from the states of all before
    ...
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.asking.tally import added
from locdist.jobs.labelled import Labels, joined_classes
from locdist.jobs.passing import PASSING, Records, forget_bare, is_bare, passed, strip, sweep
from locdist.jobs.request import inputs, settled, snapshot, unsettle
from locdist.jobs.spreading.parts import (
    SWEEP,
    Cut,
    SweepPart,
    moved_of,
    part_cost,
    spread_cost,
    states,
    sweep_name,
)
from locdist.jobs.spreading.whole import CHECKPOINT, Classes, SpreadWhole
from locdist.jobs.spreading.written import FindLabels, WriteLabels
from locdist.jobs.stored import StoredGraph
from locdist.jobs.telling.kept import REPORT, spent
from locdist.jobs.telling.spread import LabelReport
from locdist.methods.labels import LabelMethod, label_method
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Function, Resources, Stage, Task, holding, remaining
from locdist.plan.records import history
from locdist.plan.versions import versions

KNOWN, SPREAD, CUT, LABEL = "known", "spread", "cut", "label"
WHOLE = 8 << 30  # bytes of a state, with its graph, that one worker is trusted with
WIDE_STATE = 20  # classes, for predicting memory where nobody has counted them
_STATE = passed(SPREAD, "state-00000")


def label(
    method: LabelMethod | str | Mapping[str, Any],
    graph: StoredGraph | str | Path,
    labels: Any,
    out: str | Path,
    *,
    target: str | Sequence[str],
    id: str | None = None,
    partitioned: bool | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> LabelReport:
    """Labels of some nodes of a graph, spread to all others.

    Parameters
    ----------
    method : LabelMethod, name or spec
        "label-propagation", "label-spreading", "relaxation-labeling" or "poisson-learning".
    graph : path
        The folder of a graph.
    labels : path, table or mapping of names to arrays
        The known labels.
    out : path or URI
        The output folder. One row a node, in the order of the graph: its id and number, `label`,
        `probability_CLASS` for each class (of Poisson learning "score_CLASS"; of more than 20 classes one
        list), and `status`: "empty" for a node that no label reaches, which has null, "not_converged" where
        the sweeps were not enough.
    target : str or list of str
        The column of the classes, null where there is none; or several columns of numbers, the shares of a
        class each, as a prediction has them.
    id : str, optional
        The column of the labels that names a node, by the id of the graph (by its number where the support
        had none). Without it there is a row for each node, in their order.
    partitioned : bool, optional
        Whether every partition of the nodes is swept on its own, with a barrier a sweep. By default only
        where the state does not fit one worker.
    executor, resources, overwrite, listener, command
        As in `predict`.

    Returns
    -------
    LabelReport
    """
    asked, started = requested(method, graph, labels, target, id, partitioned), time.monotonic()
    folder, runner = Store.at(out), executor or Local()
    with claimed(folder, asked.manifest, asked.taken, overwrite) as claim, runner.kept():
        job = LabelJob(folder, asked.settled(folder), started, resources, claim.notes)
        past = history(folder).records
        if job.is_lost(past):
            forget_bare(folder, past)
        return run(job, runner, listener=listener, command=command)


@dataclass(frozen=True)
class Asked:
    """What `label` is asked."""

    method: LabelMethod
    graph: StoredGraph
    labels: Labels
    partitioned: bool

    @property
    def manifest(self) -> Manifest:
        """What is pinned in the folder: `partitioned` too, which decides the last bits."""
        told = {
            "method": self.method.spec, "graph": self.graph.source.fingerprint, "id": self.labels.id,
            "target": list(self.labels.target), "partitioned": self.partitioned,
        }  # fmt: skip
        return Manifest("label", told, snapshot(self.labels.source), versions())

    @property
    def taken(self) -> tuple[str, ...]:
        """What the output must not touch."""
        return (*inputs(self.labels.source), self.graph.folder)

    def settled(self, folder: Store) -> "Asked":
        """The same with labels that tasks can read."""
        rows = Labels(settled(self.labels.source, folder), self.labels.target, self.labels.id)
        return Asked(self.method, self.graph, rows, self.partitioned)


def requested(
    method: LabelMethod | str | Mapping[str, Any],
    graph: StoredGraph | str | Path,
    labels: Any,
    target: str | Sequence[str],
    id: str | None = None,
    partitioned: bool | None = None,
) -> Asked:
    """What `label` runs and `plan` describes, checked."""
    chosen, found = label_method(method), StoredGraph.at(graph)
    if chosen.undirected and found.report.symmetrized is None:
        remedy = "Make it with symmetrize='mean' (--symmetrize mean)."
        raise UsageError(f"a graph whose edges lead both ways, for {chosen.name}", "a directed one", remedy)
    given = Labels.of(labels, target, id, found)
    size = spread_cost(found.nodes, len(given.classes or ()) or WIDE_STATE, found.report.edges).memory
    apart = size > WHOLE if partitioned is None else bool(partitioned)
    report = found.report
    if apart and chosen.balanced and report.components - report.degrees.isolated > 1:
        several = f"{report.components - report.degrees.isolated:,} components"
        raise UsageError(f"a connected graph for {chosen.name} by partitions", several, "Use more neighbors.")
    return Asked(chosen, found, given, apart)


@dataclass(frozen=True)
class LabelJob:
    """The job of `label`."""

    folder: Store
    asked: Asked
    started: float
    resources: Resources | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The partitions, by name."""
        return tuple(f"part-{number:05}" for number in range(len(self.asked.graph.spans)))

    def is_lost(self, records: Records) -> bool:
        """Whether something is missing that was made of files that are gone."""
        if self.folder.exists(REPORT):
            return len(records.get(LABEL, {})) < len(self.parts)
        return is_bare(records, sweep_name(self._swept(records)))

    def next_stage(self, records: Records) -> Stage | None:
        """Known, spread (or cut and sweeps), label; what is before a finished stage is not needed."""
        if len(records.get(LABEL, {})) == len(self.parts):
            return None
        known = self._stage(KNOWN, FindLabels(self.asked.graph, self.asked.labels), self._files(KNOWN))
        if remaining(known, records):
            return known
        between = self._cut(records) if self.asked.partitioned else self._whole(records)
        return between or self._label(records)

    def finish(self, records: Records) -> LabelReport:
        """Write the report, and remove what only the job needed."""
        done = [record for stage in records.values() for record in stage.values()]
        parts, known = records[LABEL].values(), records[KNOWN].values()
        told = self._told(records)
        report = LabelReport(
            out=self.folder.uri,
            rows=sum(record.rows for record in parts),
            known=sum(record.data["known"] for record in known),
            classes=len(self._classes(records).values),
            status=reduce(added, (dict(record.data["status"]) for record in parts)),
            sweeps=told["sweeps"],
            rests=told["rests"],
            change=told["change"],
            flipped=told["flipped"],
            consistency=told["consistency"] / self.asked.graph.nodes,
            partitioned=self.asked.partitioned,
            notes=self.notes,
            **spent(done, self.started),
        )
        report.write(self.folder)
        sweep(self.folder, [name for name in records if name != LABEL], records)
        self.folder.delete(CHECKPOINT)
        unsettle(self.folder)
        return report

    def _whole(self, records: Records) -> Stage | None:
        """All sweeps; None when that is done."""
        method, graph = self.asked.method, self.asked.graph
        function = SpreadWhole(method, graph, self._classes(records), self._files(KNOWN))
        cost = spread_cost(graph.nodes, len(function.classes.values), graph.report.edges)
        task = Task(SPREAD, (_STATE,), (graph.nodes,), graph.nodes)
        stage = Stage(SPREAD, (task,), function, holding(self.resources, cost.memory), cost.formula)
        return stage if remaining(stage, records) else None

    def _cut(self, records: Records) -> Stage | None:
        """The edges cut, or the next sweep; None when the state rests."""
        method, graph, number = self.asked.method, self.asked.graph, self._swept(records)
        if number < 0:
            function = Cut(method, graph, self._classes(records), self._files(KNOWN), self._means(records))
            return self._stage(CUT, function, self._files(CUT), states(graph, 0))
        if number and (self._rests(records, number) or number == method.loop.most):
            return None
        if number > 1:  # the states before are not read any more
            strip(self.folder, sweep_name(number - 1), records)
            self.folder.child(f"{PASSING}/{sweep_name(number - 1)}").remove_all()
        next_ = SweepPart(method, graph, self._files(CUT), states(graph, number))
        return self._stage(sweep_name(number + 1), next_, states(graph, number + 1))

    def _label(self, records: Records) -> Stage:
        method, graph, told = self.asked.method, self.asked.graph, self._told(records)
        apart = self.asked.partitioned
        files = states(graph, told["sweeps"]) if apart else (_STATE,) * len(self.parts)
        means = self._means(records) if apart or not method.balanced else ()
        function = WriteLabels(method, graph, self._classes(records), files, apart, means, told["rests"])
        return self._stage(LABEL, function, tuple(f"{name}.parquet" for name in self.parts))

    def _stage(self, name: str, function: Function, *outputs: Sequence[str]) -> Stage:
        """A task for each partition, which writes one file of each of `outputs`."""
        spans = self.asked.graph.spans
        tasks = [
            Task(part, tuple(files), (number, span.start, span.stop), span.rows)
            for number, (part, span, *files) in enumerate(zip(self.parts, spans, *outputs, strict=True))
        ]
        cost = part_cost(self.asked.graph, WIDE_STATE)
        return Stage(name, tuple(tasks), function, holding(self.resources, cost.memory), cost.formula)

    def _files(self, stage: str) -> tuple[str, ...]:
        return tuple(passed(stage, name) for name in self.parts)

    def _classes(self, records: Records) -> Classes:
        labels, known = self.asked.labels, records[KNOWN]
        found = labels.classes or joined_classes([record.data["classes"] for record in known.values()])
        return Classes(str(labels.type), tuple(found))

    def _means(self, records: Records) -> tuple[float, ...]:
        """The share of each class among the labels."""
        classes = self._classes(records).values
        sums = dict.fromkeys(classes, 0.0)
        for _, record in sorted(records[KNOWN].items()):
            names = self.asked.labels.classes or record.data["classes"]
            for name, count in zip(names, record.data["sums"], strict=True):
                sums[name] += count
        return tuple(value / sum(sums.values()) for value in sums.values())

    def _swept(self, records: Records) -> int:
        """The last sweep of all partitions; 0 where the edges are cut, -1 before."""
        whole = [name for name, done in records.items() if len(done) == len(self.parts)]
        sweeps = [int(name.removeprefix(SWEEP)) for name in whole if name.startswith(SWEEP)]
        return max(sweeps, default=0 if CUT in whole else -1)

    def _rests(self, records: Records, number: int) -> bool:
        before = records.get(sweep_name(number - 1))
        last = moved_of(before) if before else None
        return self.asked.method.loop.rests(moved_of(records[sweep_name(number)]), last)

    def _told(self, records: Records) -> dict[str, Any]:
        """The sweeps, whether the state rests, and what the last sweep did."""
        if not self.asked.partitioned:
            return dict(records[SPREAD][SPREAD].data)
        number = self._swept(records)
        moved = moved_of(records[sweep_name(number)])
        return {"sweeps": number, "rests": self._rests(records, number), **asdict(moved)}
