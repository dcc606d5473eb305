"""`couple` with FedRelax: estimators at the nodes of a graph that agree on shared rows.

profile        every partition: how features are scaled
sort           every partition: its rows by groups of nodes
round-00000    every group: its nodes are fitted on their rows, and say what they think of the shared ones
round-00001    every group: fitted again, with what neighbors said in the round before
...
nodes          every group: what the models of its nodes are made of, kept for `apply`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from locdist.data.source import Source
from locdist.data.store import Store
from locdist.jobs.asking.tally import added
from locdist.jobs.coupling.costs import gather_cost, relax_cost
from locdist.jobs.coupling.edges import NamedEdges
from locdist.jobs.coupling.passes import PROFILE, Passes
from locdist.jobs.coupling.relaxing import Groups, RelaxGroup, SortRows, WriteGroup, kept_files
from locdist.jobs.coupling.stored import Stored
from locdist.jobs.passing import Records, is_bare, passed, sweep
from locdist.jobs.request import unsettle
from locdist.jobs.telling.coupled import CoupleReport, whys
from locdist.jobs.telling.kept import REPORT, spent
from locdist.methods.federated import FedRelax
from locdist.plan.plan import Function, Stage, Task, holding, remaining
from locdist.plan.records import Record

SORT, ROUND, NODES = "sort", "round-", "nodes"
LEAST = 8  # groups of nodes


@dataclass(frozen=True)
class RelaxJob:
    """The job of `couple` with FedRelax."""

    folder: Store
    method: FedRelax
    passes: Passes
    edges: NamedEdges
    shared: Source
    started: float
    notes: tuple[str, ...] = ()

    @cached_property
    def count(self) -> int:
        """Groups of nodes."""
        return max(LEAST, len(self.passes.spans))

    def is_lost(self, records: Records) -> bool:
        """Whether something is missing that was made of files that are gone."""
        if self.folder.exists(REPORT):
            return len(records.get(NODES, {})) < self.count
        return is_bare(records, PROFILE)

    def next_stage(self, records: Records) -> Stage | None:
        """Profile, sort, rounds until nobody changes its mind, nodes."""
        if len(records.get(NODES, {})) == self.count:
            return None
        if remaining(self.passes.profile, records):
            return self.passes.profile
        width, files = self.passes.encoding.width, [(name,) for name in self.passes.files(SORT)]
        sorting = SortRows(self.passes.support, self.passes.encoding, self.count, self.edges.kind)
        sort = self.passes.stage(SORT, sorting, lambda rows: gather_cost(rows, width), files)
        if remaining(sort, records):
            return sort
        number = self._round(records)
        if number <= self.method.rounds and not (number and self._change(records) <= self.method.tolerance):
            refit = RelaxGroup(self._all(number))
            return self._groups(round_name(number), refit, self._said(number), records)
        outputs = [(f"part-{group:05}.parquet", *kept_files(group)) for group in range(self.count)]
        stored = Stored.of(self.passes.encoding, self.passes.support, self.method.spec)
        said = tuple(name for (name,) in self._said(number - 1))
        write = WriteGroup(
            self._all(number - 1), said, self._change(records) <= self.method.tolerance, stored
        )
        return self._groups(NODES, write, outputs, records)

    def finish(self, records: Records) -> CoupleReport:
        """Write the report, and remove what only the job needed."""
        done = [record for stage in records.values() for record in stage.values()]
        nodes, rows = records[NODES].values(), records[SORT].values()
        change = self._change(records)
        report = CoupleReport(
            out=self.folder.uri,
            rows=sum(record.rows for record in rows),
            bad_rows=sum(record.bad_rows for record in rows),
            nodes=sum(record.rows for record in nodes),
            edges=sum(record.data["ends"] for record in nodes) // 2,
            status=reduce(added, (dict(record.data["status"]) for record in nodes)),
            rests=change <= self.method.tolerance,
            steps=1,
            rounds=self._round(records) - 1,
            gap=0.0,
            residual=change,
            objective=None,
            notes=self.notes + whys(self._last(records)),
            **spent(done, self.started),
        )
        report.write(self.folder)
        sweep(self.folder, [name for name in records if name != NODES], records)
        unsettle(self.folder)
        for name in ("edges", "shared"):
            self.folder.child(f"_locdist/{name}").remove_all()
        return report

    def _round(self, records: Records) -> int:
        """The round that is under way."""
        whole = [name for name, done in records.items() if len(done) == self.count]
        return sum(name.startswith(ROUND) for name in whole)

    def _change(self, records: Records) -> float:
        """By how much the last round changed what nodes say."""
        return max(float(record.data["change"]) for record in self._last(records))

    def _last(self, records: Records) -> list[Record]:
        """The tasks of the last round."""
        return [record for _, record in sorted(records[round_name(self._round(records) - 1)].items())]

    def _all(self, number: int) -> Groups:
        """What a round reads."""
        before = tuple(name for (name,) in self._said(number - 1)) if number else ()
        rows = self.passes.files(SORT)
        parts = (self.method.refit, self.edges, self.shared, self.passes.encoding, rows, self.count, before)
        return Groups(*parts)

    def _said(self, number: int) -> list[tuple[str]]:
        stage = round_name(number)
        return [(passed(stage, f"group-{group:05}"),) for group in range(self.count)]

    def _groups(
        self, name: str, function: Function, outputs: Sequence[tuple[str, ...]], records: Records
    ) -> Stage:
        """A task for each group of nodes."""
        tasks = tuple(Task(f"group-{group:05}", files, (group,)) for group, files in enumerate(outputs))
        rows, nodes = -(-self.passes.support.rows // self.count), self._nodes(records)
        cost = relax_cost(
            rows, self.passes.encoding.width, self.edges.count, self.shared.rows, nodes, self.count
        )
        return Stage(name, tasks, function, holding(self.passes.resources, cost.memory), cost.formula)

    def _nodes(self, records: Records) -> int:
        """All nodes: counted in the first round, before it as many as there may be."""
        first = records.get(round_name(0), {})
        if len(first) == self.count:
            return sum(record.rows for record in first.values())
        return sum(int(record.data["nodes"]) for record in records[SORT].values()) + 2 * self.edges.count


def round_name(number: int) -> str:
    """The stage of a round."""
    return f"{ROUND}{number:05}"
