"""`couple` with an atlas: the charts of a logifold, each fitted on its part of the rows.

profile        every partition: how features are scaled
sort           every partition: its rows by charts, and those that are held out
fit            every chart: its classifier is fitted, and judged by the rows that are held out
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.jobs.asking.tally import added
from locdist.jobs.coupling.charting import FitChart, Name, SortCharts, chart_files, check_count
from locdist.jobs.coupling.costs import fold_cost, gather_cost
from locdist.jobs.coupling.passes import PROFILE, Passes
from locdist.jobs.coupling.stored import Stored
from locdist.jobs.passing import Records, is_bare, sweep
from locdist.jobs.request import unsettle
from locdist.jobs.telling.coupled import FoldReport, whys
from locdist.jobs.telling.kept import REPORT, spent
from locdist.methods.atlas import Atlas
from locdist.plan.plan import Stage, Task, holding, remaining
from locdist.search.layout import Vocabulary

SORT, FIT = "sort", "fit"


@dataclass(frozen=True)
class FoldJob:
    """The job of `couple` with an atlas."""

    folder: Store
    method: Atlas
    passes: Passes
    started: float
    notes: tuple[str, ...] = ()

    def is_lost(self, records: Records) -> bool:
        """Whether something is missing that was made of files that are gone."""
        if self.folder.exists(REPORT):
            return len(records.get(FIT, {})) < len(self._charts(records))
        return is_bare(records, PROFILE)

    def next_stage(self, records: Records) -> Stage | None:
        """Profile, sort, fit."""
        if records.get(FIT) and len(records[FIT]) == len(self._charts(records)):
            return None
        if remaining(self.passes.profile, records):
            return self.passes.profile
        passes, files = self.passes, [(name,) for name in self.passes.files(SORT)]
        sorting = SortCharts(passes.support, passes.encoding, self._classes.array(), self.method)
        width = passes.encoding.width
        sort = passes.stage(SORT, sorting, lambda rows: gather_cost(rows, width), files)
        return sort if remaining(sort, records) else self._fit(records)

    def finish(self, records: Records) -> FoldReport:
        """Write the report, and remove what only the job needed."""
        done = [record for stage in records.values() for record in stage.values()]
        charts, rows = records[FIT].values(), records[SORT].values()
        report = FoldReport(
            out=self.folder.uri,
            rows=sum(record.rows for record in rows),
            bad_rows=sum(record.bad_rows for record in rows),
            charts=len(charts),
            held_out=sum(record.data["held"] for record in rows),
            status=reduce(added, (dict(record.data["status"]) for record in charts)),
            notes=self.notes + whys([record for _, record in sorted(records[FIT].items())]),
            **spent(done, self.started),
        )
        report.write(self.folder)
        sweep(self.folder, [name for name in records if name != FIT], records)
        unsettle(self.folder)
        return report

    def _fit(self, records: Records) -> Stage:
        """A task for each chart."""
        charts, passes = self._charts(records), self.passes
        check_count(len(charts))
        stored = Stored.of(passes.encoding, passes.support, self.method.spec, self._classes)
        function = FitChart(self.method, passes.files(SORT), tuple(charts), stored)
        tasks = tuple(
            Task(f"chart-{number:05}", chart_files(number), (number,), rows)
            for number, rows in enumerate(charts.values())
        )
        held = sum(record.data["held"] for record in records[SORT].values())
        cost = fold_cost(max(charts.values()), held, passes.encoding.width)
        return Stage(FIT, tasks, function, holding(passes.resources, cost.memory), cost.formula)

    @property
    def _classes(self) -> Vocabulary:
        labels = self.passes.recipe.labels
        if labels is None or len(labels.values) < 2:
            given = "one" if labels else "more than are told apart"
            raise UsageError("a target of at least two classes, 10,000 at most", given, "Name another.")
        return labels

    def _charts(self, records: Records) -> Mapping[Name, int]:
        """The names of charts, sorted, and how many rows each has."""
        found: dict[Name, int] = {}
        for record in records.get(SORT, {}).values():
            for name, rows in zip(record.data["charts"], record.data["rows"], strict=True):
                found[name] = found.get(name, 0) + rows
        return dict(sorted(found.items()))
