"""Plans in words and figures: stages, their tasks, bytes, memory, work and time, each with its basis."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from locdist.data.dataset import Dataset
from locdist.data.schema import is_text, is_vector, plain
from locdist.execute.amounts import duration, size
from locdist.jobs.asking.questions import block_rows
from locdist.jobs.build_index import Options
from locdist.jobs.extent import KMEANS, Extent
from locdist.jobs.telling.text import aligned, to_json
from locdist.plan.cost import MEASURED, Estimate, Search, Solve, predict_cost
from locdist.plan.records import Record
from locdist.search.build import EXACT_ROWS, SAMPLE_ROWS, SHARD_BYTES

Records = Mapping[str, Mapping[str, Record]]


@dataclass(frozen=True)
class StagePlan:
    """One stage as predicted.

    Parameters
    ----------
    name : str
    tasks, finished, rows : int
        Tasks in all; those with a record; rows over all tasks.
    memory : int
        Bytes of anonymous memory of a worker at its peak.
    read, written : int
        Bytes of the columns that all tasks read and write, before compression.
    distances : int
        Distances computed by all tasks.
    seconds : float
        Of all tasks on one core.
    basis : str
        What the figures rest on.
    """

    name: str
    tasks: int
    finished: int
    rows: int
    memory: int
    read: int
    written: int
    distances: int
    seconds: float
    basis: str

    def left(self, workers: int) -> float:
        """Seconds that the tasks without a record take on so many workers: whole tasks, one after another."""
        todo = self.tasks - self.finished
        return math.ceil(todo / workers) * self.seconds / self.tasks + MEASURED.stage if todo else 0.0


@dataclass(frozen=True)
class IndexPlan:
    """The index that every worker opens: its bytes and files, and whether it lies on an object store."""

    bytes: int
    files: int
    remote: bool

    def told(self, workers: int) -> str:
        """What it means for the machines."""
        how = "copied to the disk of each machine, and mapped" if self.remote else "mapped"
        spread = f"; {workers} machines of one worker: {size(self.bytes * workers)}" if workers > 1 else ""
        return (
            f"index: {size(self.bytes)} in {self.files:,} files, {how}: once for all workers of a machine "
            f"(one machine: {size(self.bytes)}{spread})"
        )


@dataclass(frozen=True)
class JobPlan:
    """What a job would run.

    Parameters
    ----------
    kind, folder : str
    state : {"new", "continues", "finished", "replaces what the folder holds"}
    files, rows, volume : int
        Of the input; its bytes.
    choices : dict
        What was chosen, and why.
    stages : tuple of StagePlan
    workers : int
        Tasks at a time.
    notes : tuple of str
    index : IndexPlan or None
        What queries are asked of.
    tuning, starting : float
        Seconds of the driver before the first task, and until there are workers.
    """

    kind: str
    folder: str
    state: str
    files: int
    rows: int
    volume: int
    choices: dict[str, str]
    stages: tuple[StagePlan, ...]
    workers: int
    notes: tuple[str, ...] = ()
    index: IndexPlan | None = None
    tuning: float = 0.0
    starting: float = 0.0

    @property
    def seconds(self) -> float:
        """Wall time of what is left, on all workers; right to a factor of about three."""
        left = [stage.left(self.workers) for stage in self.stages]
        return MEASURED.job + self.tuning + sum(left) + (self.starting if any(left) else 0.0)

    @property
    def memory(self) -> int:
        """Bytes of a worker at its peak."""
        return max((stage.memory for stage in self.stages), default=0)

    def to_json(self) -> bytes:
        """The plan as JSON."""
        return to_json({**asdict(self), "seconds": self.seconds, "memory": self.memory})

    def __str__(self) -> str:
        lines = [f"{self.kind} into {self.folder}: {self.state}"]
        lines.append(f"input: {self.rows:,} rows in {self.files:,} files, {size(self.volume)}")
        lines += [f"  {name}: {value}" for name, value in self.choices.items()]
        if self.stages:
            lines += [*aligned([_HEAD, *map(_cells, self.stages)]), self._time, _BASIS]
        lines += [self.index.told(self.workers)] if self.index else []
        lines += [f"{stage.name}: {stage.basis}" for stage in self.stages]
        return "\n".join([*lines, *self.notes, "Nothing was computed or written."])

    @property
    def _time(self) -> str:
        """The expected time, what it is made of, and the memory."""
        tasks = sum(stage.left(self.workers) for stage in self.stages)
        parts = {"to start them": self.starting, "to tune the search": self.tuning, "in tasks": tasks}
        told = ", ".join(f"{duration(seconds)} {what}" for what, seconds in parts.items() if seconds)
        workers = f"{self.workers:,} worker{'s' if self.workers > 1 else ''}"
        return (
            f"about {duration(self.seconds)} on {workers} ({told or 'nothing is left'}), "
            f"{size(self.memory)} a worker"
        )


def ask_stage(
    name: str, sizes: Sequence[int], search: Search, solve: Solve, kept: int, records: Records, basis: str
) -> StagePlan:
    """A stage that answers queries, `sizes` of them in its tasks, with `kept` bytes of input columns each."""
    block = block_rows(solve.k)
    return stage_plan(
        name, sizes, lambda rows: predict_cost(rows, block, search, solve, kept), records, basis
    )


def index_stages(
    support: Dataset, options: Options, sizes: Sequence[int], records: Records
) -> tuple[StagePlan, ...]:
    """The stages of an index build whose tasks over rows have these `sizes`."""
    extent = Extent.of(support)
    rows, choice = support.rows, extent.choice(support, options.codes, options.nlist)
    lists = 0 if choice.codes == "exact" else choice.nlist
    shards = max(1, math.ceil(rows * extent.row_bytes / SHARD_BYTES))
    sample = min(rows, SAMPLE_ROWS * max(lists, 1024))
    kmeans = f"{KMEANS} iterations of k-means on {sample:,} rows" if lists else "split points of a sample"
    homes = f"each row against {lists:,} centroids" if lists else "no lists to assign to"
    whole = f"shards of at most {size(SHARD_BYTES)}"
    return (
        stage_plan("profile", sizes, extent.profile, records, "one pass over all rows, a batch at a time"),
        stage_plan("train", [sample], lambda count: extent.train(count, lists), records, kmeans),
        stage_plan("assign", sizes, lambda count: extent.assign(count, lists), records, homes),
        stage_plan(
            "pack", [rows // shards] * shards, lambda count: extent.pack(count, choice), records, whole
        ),
    )


def index_choices(support: Dataset, options: Options) -> dict[str, str]:
    """What kind of index is built, and why."""
    extent, rows = Extent.of(support), support.rows
    width, choice = extent.width, extent.choice(support, options.codes, options.nlist)
    few, ip = rows < EXACT_ROWS, support.roles.metric == "ip"
    why = "fewer than 50,000 rows" if few else "inner products" if ip else f"{rows:,} rows of width {width}"
    at_least = "" if _certain(support) else "at least "
    told = {
        "key": f"width {at_least}{width}" + ("; categories are counted by the profile" if at_least else ""),
        "codes": f"{choice.codes} ({'asked for' if options.codes else why})",
        "recall": f"{options.recall:g} is what searches will be tuned to",
        "bad rows": "an error" if options.bad == "raise" else "dropped and counted",
    }
    lists = {"nlist": f"{choice.nlist:,} ({'asked for' if options.nlist else 'about 2 √n'})"}
    return told if choice.codes == "exact" else told | lists


def _certain(support: Dataset) -> bool:
    kinds = [support.source.schema.field(name).type for name, _ in support.roles.key]
    return not any(
        is_text(plain(kind))
        or pa.types.is_dictionary(kind)
        or (is_vector(kind) and not pa.types.is_fixed_size_list(plain(kind)))
        for kind in kinds
    )


def stage_plan(
    name: str, sizes: Sequence[int], cost: Callable[[int], Estimate], records: Records, basis: str
) -> StagePlan:
    """A stage whose tasks have these `sizes`, of which each costs what `cost` says."""
    costs = [cost(rows) for rows in sizes]
    largest = max(costs, key=lambda each: each.memory)
    return StagePlan(
        name=name,
        tasks=len(sizes),
        finished=min(len(records.get(name, {})), len(sizes)),
        rows=sum(sizes),
        memory=largest.memory,
        read=sum(each.read for each in costs),
        written=sum(each.written for each in costs),
        distances=sum(each.distances for each in costs),
        seconds=sum(each.seconds for each in costs),
        basis=f"{basis}; memory: {largest.formula}",
    )


_HEAD = ("stage", "tasks", "finished", "rows", "read", "written", "memory", "distances", "core seconds")
_BASIS = (
    "basis: tasks, rows, bytes (of decoded columns, before compression) and distances are counted; seconds "
    "are counts times rates measured on two cores of a shared x86-64 server, right to a factor of three; "
    "memory is an upper bound"
)


def _cells(stage: StagePlan) -> tuple[str, ...]:
    counts = (f"{count:,}" for count in (stage.tasks, stage.finished, stage.rows))
    sizes = (size(count) for count in (stage.read, stage.written, stage.memory))
    return stage.name, *counts, *sizes, f"{stage.distances:.3g}", f"{stage.seconds:,.1f}"
