"""Passes over the rows of all nodes: how they are cut in tasks, and how their features are scaled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from locdist.data.dataset import Dataset
from locdist.data.encoding import Encoding
from locdist.data.lengths import Profiles
from locdist.data.schema import row_bytes
from locdist.data.store import Store
from locdist.jobs.extent import Extent
from locdist.jobs.indexing import ProfileRows, profiles_of
from locdist.jobs.passing import passed
from locdist.jobs.request import each_file, rows_per_task
from locdist.jobs.support import Fitted, Recipe
from locdist.plan.cost import Estimate
from locdist.plan.plan import Function, Resources, Stage, Task, holding

PROFILE = "profile"


@dataclass(frozen=True)
class Passes:
    """The rows of a job about nodes.

    Parameters
    ----------
    folder : Store
    support : Dataset
    bad : {"raise", "drop"}
    resources : Resources, optional
    """

    folder: Store
    support: Dataset
    bad: str
    resources: Resources | None = None

    @cached_property
    def spans(self) -> dict[str, tuple[int, int]]:
        """The tasks over rows, by name."""
        source = self.support.source
        size = row_bytes(source.schema, self.support.roles.columns)
        spans = source.partitions(rows_per_task(source.rows, size))
        return {f"part-{number:05}": (span.start, span.stop) for number, span in enumerate(spans)}

    @property
    def encoding(self) -> Encoding:
        """Of the features; only once all profiles are complete."""
        return self.recipe.key

    @cached_property
    def recipe(self) -> Recipe:
        """What all profiles together say of the rows; only once they are complete."""
        texts = each_file(self.folder, [_profile(name) for name in self.spans])
        profiles = reduce(Profiles.merge, (profiles_of(name, text) for name, text in texts))
        return Fitted.of(profiles.settled(), self.support.roles, self.bad).recipe

    @property
    def profile(self) -> Stage:
        """The first pass."""
        outputs = [(passed(PROFILE, name), _profile(name)) for name in self.spans]
        cost = Extent.of(self.support).profile
        return self.stage(PROFILE, ProfileRows(self.support, 1, 0), cost, outputs)

    def files(self, stage: str) -> tuple[str, ...]:
        """What the tasks of a stage leave."""
        return tuple(passed(stage, name) for name in self.spans)

    def stage(
        self,
        name: str,
        function: Function,
        cost: Callable[[int], Estimate],
        outputs: Sequence[tuple[str, ...]],
    ) -> Stage:
        """A task for each partition."""
        tasks = [
            Task(part, files, span, span[1] - span[0])
            for (part, span), files in zip(self.spans.items(), outputs, strict=True)
        ]
        most = cost(max(task.rows for task in tasks))
        return Stage(name, tuple(tasks), function, holding(self.resources, most.memory), most.formula)


def _profile(part: str) -> str:
    return f"passing/{PROFILE}/{part}.json"
