"""The job that fits a backfitted model, below the output of `backfit`.

scales    one task: all sweeps, with a checkpoint after each
hat       a task for some columns of the hat matrices: the same sweeps over unit vectors
told      one task: what is told of each site
"""

import functools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.artefacts import packed, unpacked
from locdist.data.store import Store
from locdist.execute.executor import run
from locdist.jobs.asking.ask import Running
from locdist.jobs.passing import Records, forget_bare, passed, sweep
from locdist.jobs.request import read_batches, write_ipc
from locdist.jobs.scales.fitted import Fitted, Standardized, explained
from locdist.jobs.spreading.whole import batch_of, tensor
from locdist.jobs.telling.kept import REPORT
from locdist.jobs.telling.scales import Scales
from locdist.local.multiscale import State
from locdist.local.tiles import TILE
from locdist.methods.multiscale import BackfitMethod
from locdist.plan.cost import MEASURED, Estimate
from locdist.plan.manifest import Manifest, claimed
from locdist.plan.plan import Attempt, Resources, Stage, Task, holding, remaining
from locdist.plan.records import Record, history
from locdist.plan.versions import versions
from locdist.search.generation import Generation

SCALES, HAT, TOLD = "scales", "hat", "told"
FIT = "_locdist/fit"  # below the output: this job
COLUMNS = 512  # of the hat matrices in one task
SWEEPS, TRIED = 20, 12  # assumed: sweeps, and bandwidths that are tried for a term in each
PAIR, ROW = 1.5e-8, 40  # seconds of a weight of two sites, and bytes for it while a tile is weighed
CHECKPOINT, SITES = "_locdist/checkpoint.arrow", "sites.arrow"
_STATE = passed(SCALES, "state-00000")
_SAID = b"state"


@dataclass(frozen=True)
class Said:
    """What a file says of its state, beside the numbers."""

    history: tuple[tuple[float, ...], ...]
    change: float
    rests: bool


@dataclass(frozen=True)
class FindScales:
    """The bandwidth and the part of each term."""

    method: BackfitMethod
    index: Generation

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output is the state that rests, or that of the last sweep."""
        rows = Standardized.of(self.index)
        state = _begun(attempt.folder)
        for after in self.method.loop.states(rows.sites, rows.target, state):
            state = after
            if state.number and not state.rests:
                with attempt.folder.writer(CHECKPOINT) as sink:
                    write_ipc(sink, CHECKPOINT, _batch(state))
        assert state is not None
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            write_ipc(sink, name, _batch(state))
        return Record(rows=len(state.error), data={"sweeps": state.number})


@dataclass(frozen=True)
class HatColumns:
    """Some columns of the hat matrices."""

    method: BackfitMethod
    index: Generation

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output: of each site and term the sum of the squares of these columns, and the weight of its
        own target where that is one of them.
        """
        rows, state = Standardized.of(self.index), _read(attempt.folder, _STATE)
        squares, own = weighed(self.method, rows, state, slice(*task.inputs))
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            write_ipc(sink, name, batch_of(squares=squares, own=own))
        return Record(rows=task.rows)


def weighed(method: BackfitMethod, rows: Standardized, state: State, some: slice) -> tuple[Tensor, Tensor]:
    """Of some columns of the hat matrices the squares in each coefficient, and each target's own weight in
    its parts: [n, c], 0 for sites of other columns.
    """
    slopes, parts = method.loop.columns(rows.sites, state, some)
    own = torch.zeros_like(state.parts)
    own[some] = parts[some].diagonal(dim1=0, dim2=2).mT
    return slopes.square().sum(2), own


@dataclass(frozen=True)
class TellSites:
    """What is told of each site."""

    index: Generation
    columns: tuple[str, ...]

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output, in the order of the index; the record has the scales."""
        rows, state = Standardized.of(self.index), _read(attempt.folder, _STATE)
        squares, own = torch.zeros_like(state.parts), torch.zeros_like(state.parts)
        for name in self.columns:
            with attempt.folder.open(name, mmap=True) as stream:
                (batch,) = read_batches(stream, name)
                squares += tensor(batch, "squares")
                own += tensor(batch, "own")
        fitted, scales = explained(rows, state, squares, own)
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            write_ipc(sink, name, batch_of(**vars(fitted)))
        return Record(rows=len(state.error), data=asdict(scales))


@functools.lru_cache(maxsize=2)
def read_fit(folder: str, fingerprint: str) -> Fitted:
    """What the last task wrote; the fingerprint tells it from others in the same place."""
    with Store.at(folder).open(SITES, mmap=True) as stream:
        (batch,) = read_batches(stream, SITES)
        return Fitted(**{name: tensor(batch, name) for name in batch.schema.names})


@dataclass(frozen=True)
class FitJob:
    """The job of one model."""

    folder: Store
    method: BackfitMethod
    index: Generation
    resources: Resources | None = None

    def next_stage(self, records: Records) -> Stage | None:
        """Scales, hat, told."""
        rows, terms = self.index.layout.rows, len((self.index.features or self.index.key).names) + 1
        last = Task(TOLD, (SITES,), (rows,), rows)
        columns = [
            Task(
                f"{HAT}-{number:05}",
                (passed(HAT, f"{HAT}-{number:05}"),),
                (start, min(start + COLUMNS, rows)),
            )
            for number, start in enumerate(range(0, rows, COLUMNS))
        ]
        files = tuple(name for task in columns for name in task.outputs)
        parts = (
            (SCALES, (Task(SCALES, (_STATE,), (rows,), rows),), FindScales(self.method, self.index)),
            (HAT, tuple(columns), HatColumns(self.method, self.index)),
            (TOLD, (last,), TellSites(self.index, files)),
        )
        done = Stage(TOLD, (last,), parts[2][2])
        if not remaining(done, records):
            return None
        for name, tasks, function in parts:
            cost = fit_cost(name, rows, terms)
            stage = Stage(name, tasks, function, holding(self.resources, cost.memory), cost.formula)
            if remaining(stage, records):
                return stage
        return None

    def finish(self, records: Records) -> Scales:
        """Write the scales, and remove what only the job needed."""
        told: dict[str, Any] = {name: _tuples(value) for name, value in records[TOLD][TOLD].data.items()}
        scales = Scales(**told)
        scales.write(self.folder)
        sweep(self.folder, [SCALES, HAT], records)
        self.folder.delete(CHECKPOINT)
        return scales


def fit(folder: Store, method: BackfitMethod, index: Generation, running: Running) -> Scales:
    """Fit a model to an index, in a folder."""
    assert running.executor is not None
    asked = {"method": method.spec, "index": index.fingerprint}
    with claimed(folder, Manifest("fit", asked, (), versions())):
        past = history(folder).records
        if folder.exists(REPORT) and not past.get(TOLD):
            forget_bare(folder, past)
        job = FitJob(folder, method, index, running.resources)
        return run(job, running.executor, listener=running.listener, command=running.command)


def fit_cost(stage: str, rows: int, terms: int) -> Estimate:
    """A task of a stage.

    memory = base + 8 bytes x rows x (terms + 2) x 2 x columns + 40 x a tile of rows x all rows
    """
    columns = min(COLUMNS, rows) if stage == HAT else 1
    memory = MEASURED.base + 16 * rows * (terms + 2) * columns + ROW * TILE * rows
    formula = f"base {MEASURED.base:,} + 16 x {rows:,} rows x {terms + 2} x {columns} columns"
    formula += f" + {ROW} x {TILE} x {rows:,} rows"
    passes = {SCALES: SWEEPS * terms * TRIED, HAT: SWEEPS * terms, TOLD: 0}[stage]
    seconds = MEASURED.task + passes * rows**2 * (PAIR + 2 * columns / MEASURED.solve)
    return Estimate(memory, passes * rows**2, seconds, formula, 8 * rows * terms, 8 * rows * terms * columns)


def _batch(state: State) -> pa.RecordBatch:
    columns = {name: getattr(state, name) for name in ("coefficients", "parts", "error")}
    told = asdict(Said(state.history, state.change, state.rests))
    batch = batch_of(**columns, deficient=state.deficient.double())
    return batch.replace_schema_metadata({_SAID: packed(told)})


def _read(folder: Store, name: str) -> State:
    with folder.open(name, mmap=True) as stream:
        (batch,) = read_batches(stream, name)
        remedy = "Delete it: the sweeps begin again."
        said = unpacked(Said, batch.schema.metadata[_SAID], "a state", folder.path(name), remedy)
        slopes, parts, error = (tensor(batch, each) for each in ("coefficients", "parts", "error"))
        weak = tensor(batch, "deficient") > 0
        return State(slopes, parts, error, said.history, weak, said.change, said.rests)


def _begun(folder: Store) -> State | None:
    """The state of the last checkpoint, if there is one."""
    return _read(folder, CHECKPOINT) if folder.exists(CHECKPOINT) else None


def _tuples(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def columns_of(terms: Iterator[str] | tuple[str, ...]) -> list[str]:
    """The columns of an output, for terms with these names."""
    each = [f"{kind}_{name}" for name in terms for kind in ("estimate", "error", "t")]
    return ["prediction", *each, "residual", "influence"]
