"""What the tasks of `build_index` do: frozen functions, small enough to travel to any worker."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from locdist.data.artefacts import packed, unpacked
from locdist.data.columns import vectors
from locdist.data.dataset import Dataset
from locdist.data.lengths import Profiles
from locdist.data.source import Span
from locdist.data.store import Store
from locdist.errors import DataError
from locdist.jobs.request import read_batches, rows_told, write_ipc
from locdist.jobs.support import Recipe
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record
from locdist.search import build
from locdist.search.files import array
from locdist.search.lists import Lists, train

BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Profiled:
    """The file of a profile: the name that it was written under, and what it says."""

    name: str
    profiles: Profiles


@dataclass(frozen=True)
class ProfileRows:
    """Profile a span of the support, and keep a seeded sample of about `wanted` of all its rows."""

    support: Dataset
    wanted: int
    seed: int

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.support.source, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Outputs: the sampled rows as they came, and the profile."""
        start, stop = task.inputs
        source, first = self.support.source, start
        schema = pa.schema([source.schema.field(name) for name in self.support.roles.columns])
        profile, kept = Profiles.of(schema.empty_table(), self.support), [schema.empty_table()]
        for table in self.support.read(Span(start, stop), batch_rows=BATCH_ROWS):
            profile = profile.merge(Profiles.of(table, self.support, first))
            numbers = np.arange(first, first + table.num_rows)
            kept.append(table.filter(pa.array(build.sampled(numbers, self.wanted, source.rows, self.seed))))
            first += table.num_rows
        with attempt.writer(task.outputs[0]) as sink:
            write_ipc(sink, task.outputs[0], _one_batch(pa.concat_tables(kept)))
        with attempt.writer(task.outputs[1]) as sink:
            sink.write(packed(asdict(Profiled(task.outputs[1], profile))))
        settled = profile.settled()
        return Record(rows=settled.rows, bad_rows=settled.rows - settled.good)


@dataclass(frozen=True)
class TrainLists:
    """Centroids of the lists, or the split points of an exact index, from the sample."""

    recipe: Recipe
    choice: build.Choice
    seed: int

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is what `AssignRows` needs; the record's data is the search space."""
        samples = [read_ipc(attempt.folder, name) for name in task.inputs]
        stored, _ = self.recipe.columns(pa.Table.from_batches(samples), 0)
        keys = array(stored["key"])
        wanted = 1 if self.choice.codes == "exact" else self.choice.nlist
        if len(keys) < wanted:
            given = f"{len(keys)} in a sample of {sum(map(len, samples))} rows"
            raise DataError(
                f"at least {wanted} good rows of the support",
                f"{given}; the others are bad, or zero vectors once they are centred",
                "Check the key, or choose fewer lists.",
            )
        codes, center, scale = build.search_space(keys, self.choice.codes)
        if self.choice.codes == "exact":
            trained = {"split": _quantiles(stored["tie"], self.choice.nlist)}
        else:
            points = ((keys - center) * scale).astype(np.float32)
            trained = {"centroid": vectors(train(points, self.choice.nlist, self.seed))}
        with attempt.writer(task.outputs[0]) as sink:
            write_ipc(sink, task.outputs[0], pa.RecordBatch.from_pydict(trained))
        return Record(rows=len(keys), data={"codes": codes, "center": center.tolist(), "scale": scale})


@dataclass(frozen=True)
class Space:
    """Codes are (key − center) · scale; an exact index has none, and uses the center alone."""

    center: tuple[float, ...]
    scale: float

    def codes(self, keys: NDArray[Any]) -> NDArray[np.float32]:
        """Keys [n, d] as single-precision points of the search space."""
        points = (keys.astype(np.float64) - np.asarray(self.center)) * self.scale
        return np.ascontiguousarray(points, dtype=np.float32)


@dataclass(frozen=True)
class AssignRows:
    """Encode a span of the support and write its rows sorted by list."""

    support: Dataset
    recipe: Recipe
    choice: build.Choice
    space: Space
    trained: str

    def reads(self, task: Task) -> str:
        """What a task reads, in words."""
        return rows_told(self.support.source, *task.inputs)

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """Outputs: the run, and how many rows and what radius each list has in it. The record's data counts
        the rows that the profile took for good, and names the first.
        """
        start, stop = task.inputs
        trained = read_ipc(attempt.folder, self.trained)
        parts = list(self._stored(start, stop))
        late = np.concatenate([rows for _, rows in parts])
        table = pa.concat_tables([pa.Table.from_pydict(stored) for stored, _ in parts]).combine_chunks()
        columns = {name: table.column(name).combine_chunks() for name in table.column_names}
        lists, radii = self._homes(columns, trained)
        run, counts = build.run(columns, lists, self.choice.nlist, radii)
        for name, batches in zip(task.outputs, (build.pieces(run), [counts]), strict=True):
            with attempt.writer(name) as sink:
                write_ipc(sink, name, *batches)
        told = {"late": len(late), "first": int(late[0]) if len(late) else None}
        return Record(rows=stop - start, bad_rows=stop - start - run.num_rows, data=told)

    def _stored(self, start: int, stop: int) -> Iterator[tuple[dict[str, pa.Array], NDArray[np.int64]]]:
        names = self.support.roles.columns
        empty = pa.schema([self.support.source.schema.field(name) for name in names]).empty_table()
        yield self.recipe.columns(empty, start)
        for table in self.support.read(Span(start, stop), batch_rows=BATCH_ROWS):
            yield self.recipe.columns(table, start)
            start += table.num_rows

    def _homes(
        self, columns: dict[str, pa.Array], trained: pa.RecordBatch
    ) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
        if self.choice.codes == "exact":
            return build.split(columns["tie"], trained.column("split")), None
        lists = Lists(array(trained.column("centroid")), (), self.choice.codes)
        return build.home_lists(lists, self.space.codes(array(columns["key"])))


@dataclass(frozen=True)
class PackShard:
    """Merge the lists [first, last) of all runs into one shard."""

    runs: tuple[str, ...]
    choice: build.Choice
    space: Space

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is the shard."""
        first, last = task.inputs
        batches = [batch for name in self.runs for batch in _read_lists(attempt.folder, name, first, last)]
        shard = build.pack(batches, first, last)
        kind = {"fp16": np.float16, "flat": np.float32}.get(self.choice.codes)
        keys = array(shard.column("key"))
        if kind is not None and not (kind == np.float32 and keys.dtype == kind):
            shard = shard.append_column("codes", vectors(self.space.codes(keys).astype(kind)))
        with attempt.writer(task.outputs[0]) as sink:
            write_ipc(sink, task.outputs[0], shard)
        return Record(rows=shard.num_rows, data={"lists": [first, last]})


def read_ipc(folder: Store, name: str) -> pa.RecordBatch:
    """The one batch of an Arrow file, mapped where it can be."""
    with folder.open(name, mmap=True) as stream:
        return read_batches(stream, name)[0]


def _read_lists(folder: Store, name: str, first: int, last: int) -> list[pa.RecordBatch]:
    """The batches of a run that hold lists [first, last), mapped where they can be."""
    with folder.open(name, mmap=True) as stream:
        return read_batches(stream, name, lambda schema: build.overlapping(schema, first, last))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _quantiles(ties: pa.Array, parts: int) -> pa.Array:
    """The `parts` − 1 values that cut a sample into equal parts."""
    ordered = ties.take(pc.sort_indices(ties))
    return ordered.take(pa.array([len(ties) * cut // parts for cut in range(1, parts)], pa.int64()))


def profiles_of(name: str, text: bytes) -> Profiles:
    """What a task of the profile wrote."""
    remedy = "Delete that file and run the same command again, which writes it again."
    told = unpacked(Profiled, text, "a profile as it was written", name, remedy)
    if told.name != name:
        raise DataError(f"a profile that was written as {name!r}", f"one written as {told.name!r}", remedy)
    return told.profiles
