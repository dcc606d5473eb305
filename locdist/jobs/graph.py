"""`graph`: who is a neighbor of whom among the rows of a support, as partitions of a weighted graph.

    edges        every partition: its rows ask the index for their neighbors, never themselves
    symmetrize   where edges are to lead both ways: every partition takes in the edges that lead to it
    summary      one task: degrees and connected components

The edges of a partition are written with a batch for each partition that they lead to, so that no task holds
more than its own edges and those that lead to it.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from locdist.data.dataset import Dataset, checked
from locdist.data.source import Span
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.asking.ask import audit_of, search_of
from locdist.jobs.asking.places import INDEX
from locdist.jobs.asking.spread import spread
from locdist.jobs.asking.tally import added
from locdist.jobs.asking.tuning import PLAN, Tuned, tuning_of_support
from locdist.jobs.build_index import build_index
from locdist.jobs.edges import FindEdges, Summarize, Symmetrize
from locdist.jobs.linking import Linking, both_cost, edges_cost, linking, spans_of, summary_cost
from locdist.jobs.passing import Records, forget_bare, passed, sweep
from locdist.jobs.request import check_recall, check_told, inputs, settled, snapshot
from locdist.jobs.stored import StoredGraph
from locdist.jobs.telling.kept import spent
from locdist.jobs.telling.network import Degrees, GraphReport
from locdist.local.graph import Edges, Graph
from locdist.methods.method import Bandwidth, KernelChoice, Method
from locdist.plan.cost import Estimate
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Resources, Stage, Task, holding, remaining
from locdist.plan.records import history
from locdist.plan.versions import versions
from locdist.search.build import check_lists
from locdist.search.exact import Exact
from locdist.search.files import release
from locdist.search.generation import Generation, open_index

EDGES, SYMMETRIZE, SUMMARY = "edges", "symmetrize", "summary"
TOGETHER = 12_500  # rows that a thread looks at, in memory; fixed, as places in a tile decide last bits


def graph(
    support: Dataset | Generation | Exact | str | Path,
    out: str | Path | None = None,
    *,
    k: int | None = None,
    radius: float | None = None,
    kernel: KernelChoice | None = None,
    bandwidth: Bandwidth | None = None,
    method: Method | str | Mapping[str, Any] | None = None,
    symmetrize: str | None = None,
    bad: str = "raise",
    recall: float | None = None,
    codes: str | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> GraphReport | Graph:
    """The graph of neighbors among the rows of a support; no row is its own neighbor.

    Parameters
    ----------
    support : Dataset, or an index
        From `ld.dataset` (it is indexed below the output first), `ld.build_index` (or its folder) or
        `ld.Exact`.
    out : path or URI, optional
        The output folder; without it the graph is returned, in memory. One row a node, in the order of the
        support: its id, `node` (its number), `neighbors: list<struct<node, id, distance, weight>>`, nearest
        first, and `status`, "empty" for a node without edges.
    k : int, optional
        Neighbors of a row, at most. 15 by default; all within the radius where one is given.
    radius : float, optional
        Leaves out neighbors that are farther away, in units of the (scaled) key.
    kernel, bandwidth : optional
        An edge weighs the kernel's raw value, as in `local_mean`; 1 by default.
    method : Method, name or spec, optional
        Instead: an edge weighs what the neighbor counts in the prediction of a linear smoother, with the
        method's own k and kernel. `ld.barycenter(12)` makes the weights of locally linear embedding.
    symmetrize : {"union", "mutual", "mean"}, optional
        Edges that lead both ways with one weight: "union" keeps an edge that leads either way, with the
        larger weight; "mutual" one that leads both ways, with the smaller; "mean" is (W + W') / 2.
    bad, codes
        As in `build_index`.
    recall : float, optional
        Share of the true neighbors that the search is tuned to find; 0.99, or the target of the index.
    executor, resources, overwrite, listener, command
        As in `predict`.

    Returns
    -------
    GraphReport or Graph
    """
    chosen = linking(k, radius, kernel, bandwidth, method, symmetrize)
    if isinstance(support, Exact):
        if out is not None:
            remedy = "Make one with ld.dataset, or leave `out` away."
            raise UsageError("a dataset or an index in files, for files", "ld.Exact", remedy)
        return _here(support, chosen)
    asked = requested(support, chosen, bad, recall, codes)
    running = (executor or Local(), resources, overwrite, listener, command)
    if out is None:
        with tempfile.TemporaryDirectory(prefix="locdist-") as place:
            _made(asked, Store.at(place), *running)
            found = StoredGraph.at(place).whole()
            if asked.support is not None:
                built = open_index(Store.at(place).child(INDEX).uri)
                release(built.folder, built.fingerprint)
            return found
    return _made(asked, Store.at(out), *running)


@dataclass(frozen=True)
class Asked:
    """What `graph` is asked.

    Parameters
    ----------
    support : Dataset or None
        What is indexed first.
    index : Generation or None
        Instead.
    linking : Linking
    bad, recall, codes
        As in `graph`.
    """

    support: Dataset | None
    index: Generation | None
    linking: Linking
    bad: str
    recall: float
    codes: str | None

    @property
    def rows(self) -> int:
        """Nodes."""
        if self.support is not None:
            return self.support.rows
        assert self.index is not None
        return self.index.layout.source.rows

    @property
    def manifest(self) -> Manifest:
        """What is pinned in the folder."""
        told: dict[str, Any] = {**self.linking.told, "recall": self.recall}
        if self.support is None:
            assert self.index is not None
            return Manifest("graph", told | {"index": self.index.fingerprint}, (), versions())
        told |= {"roles": self.support.roles.to_json(), "bad": self.bad, "codes": self.codes}
        check_told(told)
        return Manifest("graph", told, snapshot(self.support.source), versions())

    @property
    def taken(self) -> tuple[str, ...]:
        """What the output must not touch."""
        if self.support is not None:
            return inputs(self.support.source)
        assert self.index is not None
        return (self.index.folder,)


def requested(
    support: Dataset | Generation | str | Path,
    chosen: Linking,
    bad: str = "raise",
    recall: float | None = None,
    codes: str | None = None,
) -> Asked:
    """What `graph` runs and `plan` describes, checked as far as it is known before there is an index."""
    check_lists(codes, None)
    check_recall(0.99 if recall is None else recall)
    if isinstance(support, str | Path):
        support = open_index(support)
    if isinstance(support, Generation):
        chosen.check(support.metric, support.layout.rows)
        return Asked(None, support, chosen, bad, recall or support.layout.recall, None)
    rows = checked(support)
    chosen.check(rows.roles.metric, rows.rows)
    return Asked(rows, None, chosen, bad, recall or 0.99, codes)


@dataclass(frozen=True)
class GraphJob:
    """The job of `graph`."""

    folder: Store
    index: Generation
    linking: Linking
    plan: Tuned
    started: float
    resources: Resources | None = None
    notes: tuple[str, ...] = ()

    @property
    def spans(self) -> dict[str, Span]:
        """The nodes of each partition."""
        spans = spans_of(self.index.layout.source.rows, self.linking)
        return {f"part-{number:05}": span for number, span in enumerate(spans)}

    def next_stage(self, records: Records) -> Stage | None:
        """Edges, both ways, summary; a stage whose successor is finished is not needed."""
        stages = self.stages
        for stage in stages[1:] if not remaining(stages[-2], records) else stages:
            if remaining(stage, records):
                return stage
        return None

    @property
    def stages(self) -> list[Stage]:
        """All stages."""
        spans, both = self.spans, self.linking.symmetrize is not None
        files = tuple(f"{name}.parquet" for name in spans)
        there, back = (tuple(passed(side, name) for name in spans) for side in ("edges-there", "edges-back"))
        bounds = [(span.start, span.stop) for span in spans.values()]
        cuts = (*(start for start, _ in bounds), bounds[-1][1]) if both else ()
        nodes, layout = self.index.layout.source.rows, self.index.layout
        most = max(span.rows for span in spans.values())
        cost = edges_cost(most, layout.width, search_of(self.index), self.linking)
        outputs = list(zip(there, back, strict=True)) if both else [(name,) for name in files]
        function: FindEdges | Symmetrize = FindEdges(self.index, self.linking.links, cuts)
        found = [self._stage(EDGES, outputs, bounds, function, cost)]
        if self.linking.symmetrize is not None:
            inputs = [(number, *bound) for number, bound in enumerate(bounds)]
            function = Symmetrize(self.index, self.linking.symmetrize, there, back)
            cost = both_cost(most, self.linking)
            found.append(self._stage(SYMMETRIZE, [(name,) for name in files], inputs, function, cost))
        whole = summary_cost(nodes)
        needs, last = holding(self.resources, whole.memory), Task(SUMMARY, (), files, nodes)
        return [*found, Stage(SUMMARY, (last,), Summarize(nodes), needs, whole.formula)]

    def _stage(
        self,
        name: str,
        outputs: Sequence[tuple[str, ...]],
        inputs: Sequence[tuple[int, ...]],
        function: FindEdges | Symmetrize,
        cost: Estimate,
    ) -> Stage:
        """A task for each partition."""
        tasks = [
            Task(part, out, given, span.rows)
            for (part, span), out, given in zip(self.spans.items(), outputs, inputs, strict=True)
        ]
        return Stage(name, tuple(tasks), function, holding(self.resources, cost.memory), cost.formula)

    def finish(self, records: Records) -> GraphReport:
        """Write the report, and remove what only the job needed."""
        final = SYMMETRIZE if self.linking.symmetrize else EDGES
        done = [record for stage in records.values() for record in stage.values()]
        parts = [records[final][name] for name in self.spans]
        told = dict(records[SUMMARY][SUMMARY].data)
        report = GraphReport(
            out=self.folder.uri,
            rows=sum(record.rows for record in parts),
            bad_rows=sum(record.bad_rows for record in parts),
            status=reduce(added, (dict(record.data["status"]) for record in parts)),
            edges=told["edges"],
            symmetrized=self.linking.symmetrize,
            weights=self.linking.words,
            degrees=Degrees(**told["degrees"]),
            components=told["components"],
            sizes=tuple(told["sizes"]),
            recall=self.plan.recall,
            nprobe=self.plan.nprobe,
            notes=self.notes,
            **spent(done, self.started),
        )
        report.write(self.folder)
        sweep(self.folder, [EDGES] if final == SYMMETRIZE else [], records)
        return report


def _made(
    asked: Asked,
    folder: Store,
    executor: Executor,
    resources: Resources | None,
    overwrite: bool,
    listener: Listener | None,
    command: str,
) -> GraphReport:
    started = time.monotonic()
    with claimed(folder, asked.manifest, asked.taken, overwrite) as claim, executor.kept():
        if asked.support is None:
            index = asked.index
            assert index is not None
        else:
            rows = replace(asked.support, source=settled(asked.support.source.without(claim.added), folder))
            index = build_index(
                rows, folder.child(INDEX).uri, recall=asked.recall, codes=asked.codes, bad=asked.bad,
                executor=executor, resources=resources, listener=listener, command=command,
            )  # fmt: skip
        if not folder.exists(PLAN):
            k = asked.linking.links.k or 1
            tuning_of_support(index, min(k, index.layout.rows - 1), asked.recall).write(folder)
        plan = Tuned.read(folder)
        index = index.probing(plan.nprobe)
        job = GraphJob(folder, index, asked.linking, plan, started, resources, claim.notes)
        past = history(folder).records
        if asked.linking.symmetrize is not None and len(past.get(SYMMETRIZE, {})) < len(job.spans):
            forget_bare(folder, {EDGES: past.get(EDGES, {})})
        return run(job, executor, listener=listener, command=command, audit=audit_of(plan))


def _here(index: Exact, chosen: Linking) -> Graph:
    """The graph of rows in memory."""
    rows = len(index.rows)
    chosen.check(index.metric, rows)
    parts = torch.split(torch.arange(rows), TOGETHER)
    found = Graph.of(Edges.together(spread(lambda ids: _edges(index, chosen, ids, rows), parts)), rows)
    return found.symmetrized(chosen.symmetrize) if chosen.symmetrize else found


def _edges(index: Exact, chosen: Linking, ids: Tensor, rows: int) -> Edges:
    """The edges of some of the rows."""
    edges, _ = chosen.links.edges(index, ids, ids, rows)
    return replace(edges, heads=edges.heads + ids[0])
