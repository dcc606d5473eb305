"""`build_index`: from partitions of a support to an immutable index generation.

    profile   every partition: check rows, fold moments and categories, draw a seeded sample
    train     one task: centroids (or, for an exact index, split points) from the sample
    assign    every partition: encode its rows, find each row's list, write them sorted by list
    pack      every shard: merge the runs of its lists, add codes

Each is a stage of tasks with commit records, so a killed build continues. The manifest is written last: an
index without one is unfinished.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from locdist.data.dataset import Dataset, checked
from locdist.data.lengths import Profiles
from locdist.data.schema import row_bytes
from locdist.data.source import Span
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.extent import Extent
from locdist.jobs.indexing import AssignRows, PackShard, ProfileRows, Space, TrainLists, profiles_of, read_ipc
from locdist.jobs.request import (
    check_recall,
    each_file,
    inputs,
    ipc,
    is_whole,
    read_batches,
    refuse_grown,
    rows_per_task,
    settled,
    snapshot,
    unsettle,
)
from locdist.jobs.support import Fitted, Recipe, damaged, late_error, switched
from locdist.methods.method import plain
from locdist.plan.cost import Estimate
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Resources, Stage, Task, holding, remaining
from locdist.plan.records import Record
from locdist.plan.versions import versions
from locdist.search.build import SAMPLE_ROWS, Choice, check_lists, choose, shard_ranges
from locdist.search.files import array
from locdist.search.generation import Generation, open_index
from locdist.search.layout import LISTS, MANIFEST, Layout, ShardFile, digest

Records = Mapping[str, Mapping[str, Record]]
TRAINED = "build/trained.arrow"
SAMPLE, PROFILE = "build/sample/{}.arrow", "build/profile/{}.json"
RUN, COUNTS = "build/runs/{}.arrow", "build/lists/{}.arrow"


@dataclass(frozen=True)
class Options:
    """What is asked of an index besides its data; see `build_index`."""

    recall: float = 0.99
    codes: str | None = None
    nlist: int | None = None
    bad: str = "raise"
    seed: int = 0

    def __post_init__(self) -> None:
        check_recall(self.recall)
        if self.bad not in ("raise", "drop"):
            raise UsageError(
                "bad as 'raise' or 'drop'", repr(self.bad), "Say what happens to rows that cannot be used."
            )
        if not (is_whole(self.seed) and 0 <= self.seed < 2**31):
            raise UsageError("seed, a whole number from 0 to 2^31 - 1", repr(self.seed), "0 is the default.")
        check_lists(self.codes, self.nlist)
        for name in ("recall", "nlist", "seed"):
            object.__setattr__(self, name, plain(getattr(self, name)))


def build_index(
    support: Dataset,
    out: str | Path,
    *,
    recall: float = 0.99,
    codes: str | None = None,
    nlist: int | None = None,
    bad: str = "raise",
    seed: int = 0,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> Generation:
    """Index a support: an immutable folder that every later job opens.

    Small supports (below 50,000 rows) are stored for exact search. Larger ones get inverted lists, whose
    number of probes is chosen by each `predict` on its own queries to reach `recall`. The same call in the
    same folder continues a stopped build, and opens a finished one.

    Parameters
    ----------
    support : Dataset
        Rows and their roles, from `ld.dataset`.
    out : path or URI
        The index folder; not inside the data.
    recall : float
        Share of the true k nearest neighbors that searches are tuned to find, in (0, 1].
    codes : {"exact", "fp16", "flat"}, optional
        What is scanned: all rows, or lists of half- or single-precision codes. Chosen from rows and width by
        default. Where some key lies so far out that half precision would lose the others, "fp16" becomes
        "flat", and the notes of the index say so.
    nlist : int, optional
        Number of lists; about 2 √n by default. Exact search has none.
    bad : {"raise", "drop"}
        Rows of the support with a null, NaN or infinite key, feature, target or weight, with vectors of
        another length than most, or without a direction where the metric needs one: an error that counts and
        names them, or left out with a count.
    seed : int
        Of the sample and of the k-means; from 0 to 2^31 − 1.
    executor : Executor, optional
        `ld.Local()` by default.
    resources : Resources, optional
        What each task needs: one core by default, and the memory that is predicted.
    overwrite : bool
        Replace what the folder holds.
    listener : callable, optional
        Receives events; `locdist.execute.progress.progress()` shows them.
    command : str
        The command line that continues this build, for `locdist status`.

    Returns
    -------
    Generation

    Raises
    ------
    DataError
        For bad rows (unless dropped), no rows, or files that changed since the build began.
    UsageError
        For a folder that holds something else, or options that do not fit.
    """
    options = Options(recall, codes, nlist, bad, seed)
    folder = Store.at(out)
    manifest = requested(support, options)
    with claimed(folder, manifest, inputs(support.source), overwrite) as claim:
        if claim.resumed and folder.exists(MANIFEST):
            _sweep(folder)  # a driver that died last of all leaves it
            refuse_grown(folder, claim.added)
            return open_index(folder.uri)
        support = replace(support, source=settled(support.source.without(claim.added), folder))
        job = BuildIndex(folder, support, options, resources, claim.notes)
        return run(job, executor or Local(), listener=listener, command=command)


def requested(support: Dataset, options: Options) -> Manifest:
    """What `build_index` pins in its folder; refuses options that do not fit the support."""
    Extent.of(checked(support)).choice(support, options.codes, options.nlist)
    request = {"roles": support.roles.to_json(), **asdict(options)}
    return Manifest("build-index", request, snapshot(support.source), versions())


@dataclass(frozen=True)
class BuildIndex:
    """The job of `build_index`."""

    folder: Store
    support: Dataset
    options: Options
    resources: Resources | None = None
    notes: tuple[str, ...] = ()

    def next_stage(self, records: Records) -> Stage | None:
        """Profile, train, assign, pack; each is planned from the records of those before."""
        for plan in (self._profile, self._train, self._assign, self._pack):
            stage = plan(records)
            if remaining(stage, records):
                return stage
        return None

    def finish(self, records: Records) -> Generation:
        """Write the lists and, last, the manifest; then drop what only the build needed."""
        packed = [record for _, record in sorted(records["pack"].items())]
        lists = ipc(LISTS, self._lists(packed))
        self.folder.write(LISTS, lists)
        source, recipe = self.support.source, self._recipe
        space, choice = _space(records), self._packed(records)
        told = (damaged(source), switched(self._choice.codes, choice.codes), *self.notes)
        layout = Layout(
            rows=sum(record.rows for record in packed),
            width=recipe.key.width,
            nlist=0 if choice.codes == "exact" else choice.nlist,
            metric=recipe.roles.metric,
            codes=choice.codes,
            center=space.center,
            scale=space.scale,
            roles=recipe.roles,
            key=recipe.key,
            features=recipe.features,
            vocabulary=recipe.labels,
            recall=self.options.recall,
            shards=tuple(_shard(record) for record in packed),
            lists=ShardFile(LISTS, choice.nlist, len(lists), digest(lists)),
            source=self.fitted.indexed(source, _late(records)[0], told),
            versions=dict(versions()),
        )
        self.folder.write(MANIFEST, layout.to_json())
        _sweep(self.folder)
        return open_index(self.folder.uri)

    @functools.cached_property
    def spans(self) -> dict[str, Span]:
        """The tasks over rows, by name: the same for `profile` and `assign`."""
        source = self.support.source
        size = row_bytes(source.schema, self.support.roles.columns)
        spans = source.partitions(rows_per_task(source.rows, size))
        return {f"part-{number:05}": span for number, span in enumerate(spans)}

    @functools.cached_property
    def fitted(self) -> Fitted:
        """What all profiles say together, in the order of the partitions; only once they are complete."""
        texts = each_file(self.folder, self._files(PROFILE))
        profiles = reduce(Profiles.merge, (profiles_of(name, text) for name, text in texts))
        return Fitted.of(profiles.settled(), self.support.roles, self.options.bad)

    @functools.cached_property
    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows [nlist] and radius [nlist] of each list over all runs; only once they are complete."""
        rows, radius = np.zeros(self._choice.nlist, np.int64), np.zeros(self._choice.nlist, np.float32)
        for name, text in each_file(self.folder, self._files(COUNTS)):
            (batch,) = read_batches(pa.BufferReader(text), name)
            rows += array(batch.column("rows"))
            np.maximum(radius, array(batch.column("radius")), out=radius)
        return rows, radius

    def _profile(self, records: Records) -> Stage:
        narrow = self._chosen(self.support.rows, 1, 8)  # as if the key were as narrow as can be
        function = ProfileRows(self.support, SAMPLE_ROWS * max(narrow.nlist, 1024), self.options.seed)
        return self._over_rows("profile", function, Extent.of(self.support).profile, SAMPLE, PROFILE)

    def _train(self, records: Records) -> Stage:
        samples, lists = self._files(SAMPLE), self._lists_to_assign
        rows = min(self.support.rows, SAMPLE_ROWS * max(lists, 1024))
        cost = Extent.fitted(self._recipe).train(rows, lists)
        function, needs = TrainLists(self._recipe, self._choice, self.options.seed), cost.memory
        tasks = (Task("train", (TRAINED,), samples),)
        return Stage("train", tasks, function, holding(self.resources, needs), cost.formula)

    def _assign(self, records: Records) -> Stage:
        function = AssignRows(self.support, self._recipe, self._choice, _space(records), TRAINED)
        extent, lists = Extent.fitted(self._recipe), self._lists_to_assign
        return self._over_rows("assign", function, lambda rows: extent.assign(rows, lists), RUN, COUNTS)

    def _pack(self, records: Records) -> Stage:
        late, first = _late(records)
        if late and (self.options.bad == "raise" or not self.counts[0].any()):
            raise late_error(late, self.support, first)
        counts, ranges = self.counts[0], shard_ranges(self.counts[0], self._recipe.row_bytes)
        tasks = tuple(
            Task(f"shard-{number:05}", (f"shards/shard-{number:05}.arrow",), bounds, _rows(counts, bounds))
            for number, bounds in enumerate(ranges)
        )
        choice = self._packed(records)
        largest = Extent.fitted(self._recipe).pack(max(task.rows for task in tasks), choice)
        function = PackShard(self._files(RUN), choice, _space(records))
        return Stage("pack", tasks, function, holding(self.resources, largest.memory), largest.formula)

    def _over_rows(
        self, name: str, function: ProfileRows | AssignRows, cost: Callable[[int], Estimate], *outputs: str
    ) -> Stage:
        """A task for each partition of the support, writing one file of each kind of `outputs`."""
        tasks = tuple(
            Task(part, tuple(each.format(part) for each in outputs), (span.start, span.stop), span.rows)
            for part, span in self.spans.items()
        )
        most = cost(max(task.rows for task in tasks))
        return Stage(name, tasks, function, holding(self.resources, most.memory), most.formula)

    def _files(self, kind: str) -> tuple[str, ...]:
        """The files of one kind, in the order of the partitions."""
        return tuple(kind.format(part) for part in self.spans)

    @property
    def _recipe(self) -> Recipe:
        return self.fitted.recipe

    @property
    def _choice(self) -> Choice:
        return self._chosen(self.fitted.profile.good, self._recipe.key.width, self._recipe.row_bytes)

    def _chosen(self, rows: int, width: int, size: int) -> Choice:
        """The kind of index for so many rows of `size` bytes, with keys of `width` numbers."""
        options, metric = self.options, self.support.roles.metric
        return choose(rows, width, size, metric, options.codes, options.nlist)

    def _packed(self, records: Records) -> Choice:
        """The choice as the sample left it."""
        return replace(self._choice, codes=records["train"]["train"].data["codes"])

    @property
    def _lists_to_assign(self) -> int:
        return 0 if self._choice.codes == "exact" else self._choice.nlist

    def _lists(self, packed: Sequence[Record]) -> pa.RecordBatch:
        """One row a list: its shard, rows, radius and, with lists, its centroid."""
        rows, radius = self.counts
        ends = [record.data["lists"][1] for record in packed]
        shard = np.searchsorted(ends, np.arange(len(rows)), side="right").astype(np.int32)
        columns = {"shard": pa.array(shard), "rows": pa.array(rows), "radius": pa.array(radius)}
        trained = read_ipc(self.folder, TRAINED)
        if "centroid" in trained.schema.names:
            columns["centroid"] = trained.column("centroid")
        return pa.RecordBatch.from_pydict(columns)


def _space(records: Records) -> Space:
    data = records["train"]["train"].data
    return Space(tuple(data["center"]), data["scale"])


def _late(records: Records) -> tuple[int, int]:
    """How many rows turned out bad after the profile, and the first of them (0 without any)."""
    told = [record.data for record in records["assign"].values() if record.data["late"]]
    return sum(data["late"] for data in told), min((data["first"] for data in told), default=0)


def _rows(counts: NDArray[np.int64], bounds: tuple[int, int]) -> int:
    return int(counts[slice(*bounds)].sum())


def _sweep(folder: Store) -> None:
    """Remove what only the build needed."""
    folder.child("build").remove_all()
    unsettle(folder)


def _shard(record: Record) -> ShardFile:
    (name,) = record.bytes
    return ShardFile(name, record.rows, record.bytes[name], record.checksums[name])
