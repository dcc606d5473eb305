"""`build_index`: from partitions of a support to an immutable index generation.

    profile   every partition: check rows, fold moments and categories, draw a seeded sample
    train     one task: centroids (or, for an exact index, split points) from the sample
    assign    every partition: encode its rows, find each row's list, write them sorted by list
    pack      every shard: merge the runs of its lists, add codes

Each is a stage of tasks with commit records, so a killed build continues. The manifest is written last: an
index without one is unfinished.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from locdist.data.dataset import Dataset, Roles
from locdist.data.encoding import Encoding
from locdist.data.profile import Profile, scaling_of
from locdist.data.schema import is_vector
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor, run
from locdist.execute.local import Local
from locdist.jobs.indexing import AssignRows, PackShard, ProfileRows, Space, TrainLists, read_ipc
from locdist.jobs.request import check_recall, inputs, ipc, rows_per_task, snapshot, versions
from locdist.jobs.support import Recipe
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Stage, Task, remaining
from locdist.plan.records import Record
from locdist.search.build import SAMPLE_ROWS, Choice, choose, shard_ranges
from locdist.search.generation import Generation, array, open_index
from locdist.search.layout import LISTS, MANIFEST, Layout, ShardFile, digest

Records = Mapping[str, Mapping[str, Record]]
TRAINED = "build/trained.arrow"
LARGEST_KEY = 1e17  # the sum of 10,000 such squares, four times over for a difference, is a float32


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
        default.
    nlist : int, optional
        Number of lists; about 2 √n by default.
    bad : {"raise", "drop"}
        Rows of the support with a null, NaN or infinite key, feature, target or weight: an error that counts
        and names them, or left out with a count.
    seed : int
        Of the sample and of the k-means.
    executor : Executor, optional
        `ld.Local()` by default.
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
            folder.child("build").remove_all()  # a driver that died last of all leaves it
            return open_index(folder.uri)
        support = replace(support, source=support.source.without(claim.added))
        job = BuildIndex(folder, support, options)
        return run(job, executor or Local(), listener=listener, command=command)


def requested(support: Dataset, options: Options) -> Manifest:
    """What `build_index` pins in its folder."""
    request = {"roles": support.roles.to_json(), **asdict(options)}
    return Manifest("build-index", request, snapshot(support.source), versions())


@dataclass(frozen=True)
class BuildIndex:
    """The job of `build_index`."""

    folder: Store
    support: Dataset
    options: Options

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
        lists = ipc(self._lists(records))
        self.folder.write(LISTS, lists)
        recipe, space, profile = self._recipe(records), self._space(records), self._merged(records)
        choice = self._choice(recipe)
        layout = Layout(
            rows=sum(record.rows for record in packed),
            width=recipe.key.width,
            nlist=0 if choice.codes == "exact" else choice.nlist,
            metric=self.support.roles.metric,
            codes=choice.codes,
            center=space.center,
            scale=space.scale,
            roles=self.support.roles.to_json(),
            key=recipe.key.to_json(),
            features=recipe.features.to_json() if recipe.features else None,
            vocabulary=recipe.labels,
            recall=self.options.recall,
            shards=tuple(_shard(record) for record in packed),
            lists=ShardFile(LISTS, choice.nlist, len(lists), digest(lists)),
            source={
                "fingerprint": self.support.source.fingerprint,
                "files": len(self.support.source.files),
                "rows": profile.rows,
                "dropped": [
                    {"column": bad.column, "reason": bad.reason, "rows": bad.count} for bad in profile.bad
                ],
            },
            versions=versions(),
        )
        self.folder.write(MANIFEST, layout.to_json())
        self.folder.child("build").remove_all()
        return open_index(self.folder.uri)

    def _profile(self, records: Records) -> Stage:
        wanted = SAMPLE_ROWS * max(self._choice(None).nlist, 1024)
        return self._over_rows("profile", ProfileRows(self.support, wanted, self.options.seed), "sample")

    def _train(self, records: Records) -> Stage:
        recipe = self._recipe(records)
        samples = tuple(sorted(name for record in records["profile"].values() for name in record.bytes))
        function = TrainLists(recipe, self._choice(recipe), self.options.seed)
        return Stage("train", (Task("train", (TRAINED,), samples, function),))

    def _assign(self, records: Records) -> Stage:
        recipe = self._recipe(records)
        function = AssignRows(self.support, recipe, self._choice(recipe), self._space(records), TRAINED)
        return self._over_rows("assign", function, "runs", "lists")

    def _pack(self, records: Records) -> Stage:
        recipe = self._recipe(records)
        choice, counts = self._choice(recipe), self._counts(records)[0]
        runs = tuple(f"build/runs/{task}.arrow" for task in sorted(records["assign"]))
        function = PackShard(runs, choice, self._space(records))
        names = [f"shard-{number:05}" for number in range(len(shard_ranges(counts, recipe.row_bytes)))]
        return Stage(
            "pack",
            tuple(
                Task(name, (f"shards/{name}.arrow",), bounds, function, int(counts[slice(*bounds)].sum()))
                for name, bounds in zip(names, shard_ranges(counts, recipe.row_bytes), strict=True)
            ),
        )

    def _over_rows(self, name: str, function: ProfileRows | AssignRows, *outputs: str) -> Stage:
        """A task for each partition of the support, writing one file a task below each of `outputs`."""
        spans = self.support.source.partitions(rows_per_task(self.support.rows, _row_bytes(self.support)))
        tasks = []
        for number, span in enumerate(spans):
            part = f"part-{number:05}"
            files = tuple(f"build/{output}/{part}.arrow" for output in outputs)
            tasks.append(Task(part, files, (span.start, span.stop), function, span.rows))
        return Stage(name, tuple(tasks))

    def _merged(self, records: Records) -> Profile:
        """The profile of the whole support, in the order of its partitions."""
        profiles = [
            Profile.from_json(record.data["profile"]) for _, record in sorted(records["profile"].items())
        ]
        return reduce(Profile.merge, profiles)

    def _recipe(self, records: Records) -> Recipe:
        """How rows are stored; refuses bad rows unless they are to be dropped."""
        profile, roles = self._merged(records), self.support.roles
        if profile.good < profile.rows and self.options.bad == "raise":
            raise DataError(
                "a support whose keys, features, targets and weights are all present and finite",
                _told(profile),
                "Repair these rows, or leave them out with bad='drop' (--bad drop).",
            )
        _check_range(profile, roles)
        features = Encoding.fit(profile, roles, "features") if roles.features else None
        return Recipe(roles, Encoding.fit(profile, roles), features, _vocabulary(profile, roles))

    def _choice(self, recipe: Recipe | None) -> Choice:
        """The kind of index; before the profile (None) as if the key were as narrow as can be."""
        width, row_bytes = (recipe.key.width, recipe.row_bytes) if recipe else (1, 8)
        options = self.options
        return choose(
            self.support.rows, width, row_bytes, self.support.roles.metric, options.codes, options.nlist
        )

    def _space(self, records: Records) -> Space:
        data = records["train"]["train"].data
        return Space(tuple(data["center"]), data["scale"])

    def _counts(self, records: Records) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Rows [nlist] and radius [nlist] of each list over all runs."""
        batches = [read_ipc(self.folder, f"build/lists/{task}.arrow") for task in sorted(records["assign"])]
        rows = sum((array(batch.column("rows")) for batch in batches[1:]), array(batches[0].column("rows")))
        return rows, reduce(np.maximum, (array(batch.column("radius")) for batch in batches))

    def _lists(self, records: Records) -> pa.RecordBatch:
        """One row a list: its shard, rows, radius and, with lists, its centroid."""
        rows, radius = self._counts(records)
        ends = [record.data["lists"][1] for _, record in sorted(records["pack"].items())]
        shard = np.searchsorted(ends, np.arange(len(rows)), side="right").astype(np.int32)
        columns = {"shard": pa.array(shard), "rows": pa.array(rows), "radius": pa.array(radius)}
        trained = read_ipc(self.folder, TRAINED)
        if "centroid" in trained.schema.names:
            columns["centroid"] = trained.column("centroid")
        return pa.RecordBatch.from_pydict(columns)


def _shard(record: Record) -> ShardFile:
    (name,) = record.bytes
    return ShardFile(name, record.rows, record.bytes[name], record.checksums[name])


def _row_bytes(support: Dataset) -> int:
    """About how many bytes a row has in memory, from the schema."""
    widths = [
        kind.list_size * 4 if pa.types.is_fixed_size_list(kind) else 1024 if is_vector(kind) else 8
        for kind in (support.source.schema.field(name).type for name in support.roles.columns)
    ]
    return sum(widths)


def _vocabulary(profile: Profile, roles: Roles) -> pa.Array | None:
    """Classes of a single target that has few distinct values."""
    if len(roles.target) != 1:
        return None
    classes = profile.column(roles.target[0]).classes
    return None if classes is None or classes.overflow else classes.array()


def _check_range(profile: Profile, roles: Roles) -> None:
    """Keys whose squared distances overflow single precision are refused: FAISS ends the process on them."""
    for name, multiplier in roles.key:
        column = profile.column(name)
        largest = multiplier * max(map(abs, column.moments.low + column.moments.high), default=0.0)
        if scaling_of(roles.scaling, column.kind) == "none" and largest > LARGEST_KEY:
            raise DataError(
                f"keys up to {LARGEST_KEY:g} in column {name!r}", f"{largest:g}", "Change their unit."
            )


def _told(profile: Profile) -> str:
    """What is bad, where, with the first examples."""
    firsts = [(bad, bad.examples[0]) for bad in profile.bad]
    found = [
        f"{bad.count:,} {bad.reason} in {bad.column!r} (first: row {first.file_row} of {first.file})"
        for bad, first in firsts
    ]
    return f"{profile.rows - profile.good:,} of {profile.rows:,} rows that are not: {'; '.join(found[:5])}"
