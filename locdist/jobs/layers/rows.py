"""What a layer makes of rows, and what is written of them in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.columns import matrix, numbers, vectors
from locdist.data.dataset import Dataset, Roles, dataset
from locdist.data.moments import Moments
from locdist.data.source import Source
from locdist.data.store import Store
from locdist.jobs.asking.block import STATUS, STATUSES, Block, statuses
from locdist.jobs.asking.present import nullable
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.tally import Counted, merged
from locdist.jobs.clustering.merge import point_names
from locdist.local.models import each_target
from locdist.local.support import BINS, Level, Steps
from locdist.plan.cost import Solve
from locdist.plan.records import history

KIND = "layer"
PLACE, WEIGHT = "place", "weight"


def target_names(count: int) -> list[str]:
    """The columns of moved targets."""
    return [f"target_{number}" for number in range(count)]


def moved_support(folder: Store, roles: Roles) -> Dataset:
    """The support that a layer left: its keys as they are."""
    names = target_names(len(roles.target))
    weight = None if roles.weight is None else WEIGHT
    return dataset(
        folder.uri, key=PLACE, target=names or None, weight=weight, scaling="none", metric=roles.metric
    )


@dataclass(frozen=True, kw_only=True)
class MoveRows(Ask):
    """A layer's answers for each row of its own support, as the next support.

    Parameters
    ----------
    level : Level
    targets : tuple of str
        Columns of the source.
    weight : str, optional
    """

    level: Level
    targets: tuple[str, ...]
    weight: str | None

    @property
    def extra_columns(self) -> tuple[str, ...]:
        """What moves or goes along."""
        return (*self.targets, *((self.weight,) if self.weight else ()))

    def columns(self) -> pa.Schema:
        """Keys, targets and weights of the next support, how far the row moved, and status."""
        number = pa.float64()
        carried = [(name, number) for name in target_names(len(self.targets))]
        weight = [(WEIGHT, number)] if self.weight else []
        place = (PLACE, pa.list_(number, self.index.layout.width))
        return pa.schema([place, *carried, *weight, ("step", number), ("status", STATUS)])

    @property
    def work(self) -> Solve:
        """Of the layer."""
        layer, width = self.level.layer, self.index.layout.width
        k = layer.neighbors
        return Solve(k, width, layer.model.columns(k, width), max(width, len(self.targets)))

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Answers of one block."""
        layer, keys = self.level.layer, block.queries.double()
        own = block.rows if layer.leave_one_out else None
        answers = layer(self.index, block.queries, None, own, block.bad, frozenset(), block.device)
        targets = self._numbers(block, self.targets)
        before = keys if self.level.moves == "keys" else targets
        after = self.level.moved(before, answers)
        keys, targets = (after, targets) if self.level.moves == "keys" else (keys, after)
        keys = keys.masked_fill(block.bad[:, None], float("nan"))
        step = torch.linalg.vector_norm(after - before, dim=1).masked_fill(block.bad, float("nan"))
        carried = [*targets.T, *(self._numbers(block, (self.weight,)).T if self.weight else ())]
        told = [vectors(keys.numpy()), *map(nullable, (*carried, step)), statuses(answers.status)]
        return pa.Table.from_arrays(told, schema=self.columns()), sums_of(Steps.of(step))

    def _numbers(self, block: Block, names: Sequence[str]) -> Tensor:
        columns = [torch.tensor(numbers(block.table.column(name))[0]) for name in names]
        return torch.stack(columns, 1) if columns else block.queries.new_zeros(len(block.queries), 0).double()


def sums_of(steps: Steps) -> dict[str, Moments]:
    """Steps as what tasks add up."""
    counts = {f"bin {number}": Moments(count) for number, count in enumerate(steps.bins) if count}
    mean = Moments(steps.rows, (steps.mean,), (0.0,), (0.0,), (0.0,))
    return {"step": mean, **counts} if steps.rows else {}


def steps_of(folder: Store) -> Steps:
    """The steps of a finished layer."""
    done = [record for _, record in sorted(history(folder).records[KIND].items())]
    empty: Mapping[str, Moments] = {}
    sums = reduce(merged, (Counted.of(record).sums for record in done), empty)
    whole = sums.get("step", Moments())
    bins = tuple(sums.get(f"bin {number}", Moments()).count for number in range(BINS))
    return Steps(whole.count, whole.count * whole.mean[0] if whole.count else 0.0, bins)


@dataclass(frozen=True, kw_only=True)
class TellRows(Ask):
    """Where the rows of a source are after the last layer, in the user's units.

    Parameters
    ----------
    last : Source
        What that layer wrote.
    moves : frozenset of {"keys", "targets"}
    """

    last: Source
    moves: frozenset[str]

    def columns(self) -> pa.Schema:
        """Moved coordinates, predictions, status."""
        number = pa.float64()
        told = [(name, number) for name in (*self._points, *self._predictions)]
        return pa.schema([*told, ("status", STATUS)])

    @property
    def work(self) -> Solve:
        """Nothing is solved."""
        return Solve(1, self.index.layout.width)

    def answer(self, block: Block) -> tuple[pa.Table, dict[str, Moments]]:
        """Answers of one block."""
        names = target_names(len(self._predictions))
        start, stop = block.first, block.first + len(block.queries)
        table = pa.concat_tables(self.last.read(start, stop, [PLACE, *names, "status"]))
        points, _ = matrix(table.column(PLACE), np.float64)
        points[block.bad.numpy()] = np.nan
        own = torch.from_numpy(self.index.key.restore(points))
        told = [nullable(column) for column in own.T] if self._points else []
        told += [nullable(torch.tensor(numbers(table.column(name))[0])) for name in names]
        codes = pa.compute.index_in(table.column("status").cast(pa.string()), STATUSES)
        told.append(statuses(torch.tensor(numbers(codes)[0]).to(torch.int8)))
        return pa.Table.from_arrays(told, schema=self.columns()), {}

    @property
    def _points(self) -> list[str]:
        names = point_names(self.index.key)
        return [f"moved_{name}" for name in names] if "keys" in self.moves else []

    @property
    def _predictions(self) -> tuple[str, ...]:
        targets = self.index.layout.roles.target
        return each_target("prediction", targets) if "targets" in self.moves else ()


def moves(levels: Sequence[Level]) -> frozenset[str]:
    """What moves in some layer."""
    return frozenset(level.moves for level in levels)
