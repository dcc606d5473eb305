"""How large the rows of an index build are, and what its tasks need: one prediction, shown before the build
and declared by its stages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from locdist.data.dataset import Dataset
from locdist.data.schema import plain, row_bytes
from locdist.jobs.indexing import BATCH_ROWS
from locdist.jobs.support import Recipe
from locdist.plan.cost import Estimate, assign_cost, pack_cost, train_cost
from locdist.search.build import Choice, choose

KMEANS = 10  # iterations
_CODE: Mapping[str, int] = {"fp16": 2, "flat": 4}  # bytes of a number


@dataclass(frozen=True)
class Extent:
    """Numbers of a key, and bytes of everything else in a row."""

    width: int
    other: int

    @staticmethod
    def of(support: Dataset) -> "Extent":
        """As far as the footers say: a category and a list of any length count one number."""
        schema, key = support.source.schema, dict(support.roles.key)
        kinds = (plain(schema.field(name).type) for name in key)
        width = sum(kind.list_size if pa.types.is_fixed_size_list(kind) else 1 for kind in kinds)
        width = support.roles.map.width if support.roles.map else width
        return Extent(width, row_bytes(schema, [name for name in support.roles.columns if name not in key]))

    @staticmethod
    def fitted(recipe: Recipe) -> "Extent":
        """As the profile found."""
        return Extent(recipe.key.width, recipe.row_bytes - recipe.key.row_bytes)

    @property
    def row_bytes(self) -> int:
        """Of a stored row, codes not counted."""
        return 8 * self.width + self.other

    def choice(self, support: Dataset, codes: str | None, nlist: int | None = None) -> Choice:
        """The kind of index that is built."""
        metric = support.roles.metric
        return choose(support.rows, self.width, self.row_bytes, metric, codes, nlist)

    def profile(self, rows: int) -> Estimate:
        """A task that profiles `rows` rows, a batch at a time."""
        batch = assign_cost(min(rows, BATCH_ROWS), self.width, 0, self.other)
        whole = assign_cost(rows, self.width, 0, self.other)
        return replace(whole, memory=batch.memory, formula=batch.formula, written=0)

    def train(self, rows: int, nlist: int) -> Estimate:
        """The task that clusters a sample of `rows` rows."""
        return train_cost(rows, self.width, nlist, KMEANS, self.other)

    def assign(self, rows: int, nlist: int) -> Estimate:
        """A task that assigns `rows` rows to lists, of which an exact index has 0."""
        return assign_cost(rows, self.width, nlist, self.other)

    def pack(self, rows: int, choice: Choice) -> Estimate:
        """A task that writes a shard of `rows` rows."""
        return pack_cost(rows, self.width, _CODE.get(choice.codes, 0) * self.width, self.other)
