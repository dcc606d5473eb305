"""Fits in files: what rounds and steps have led to, for the next one, and for a run that goes on."""

from dataclasses import asdict, dataclass

import pyarrow as pa
from torch import Tensor

from locdist.data.artefacts import packed, unpacked
from locdist.data.columns import vectors
from locdist.data.store import Store
from locdist.jobs.request import read_batches, write_ipc
from locdist.jobs.spreading.whole import tensor
from locdist.local.coupled import Fit, State
from locdist.plan.plan import Attempt

CHECKPOINT = "_locdist/checkpoint.arrow"
_TOLD = b"fit"


@dataclass(frozen=True)
class Said:
    """What a file says of a fit, beside its models.

    Parameters
    ----------
    value : float
    done : bool
    steps, rounds : int
    scale, gap, residual : float
    rests : bool
        Whether the certificate is good enough.
    """

    value: float
    done: bool
    steps: int
    rounds: int
    scale: float
    gap: float
    residual: float
    rests: bool


def said(fit: Fit, rests: bool) -> Said:
    """What is said of a fit."""
    state = fit.state
    parts = (fit.value, fit.done, fit.steps, state.rounds, state.scale, state.gap, state.residual)
    return Said(*parts, rests)


def write_fit(attempt: Attempt, name: str, names: pa.Array, fit: Fit, told: Said) -> None:
    """A node a row: its name, null for those behind the names, its model, and the one that is tried next."""
    names = pa.concat_arrays([names, pa.nulls(len(fit.models) - len(names), names.type)])
    models = {"models": vectors(fit.models.numpy()), "tried": vectors(fit.state.models.numpy())}
    batch = pa.RecordBatch.from_pydict({"node": names, **models})
    with attempt.writer(name) as sink:
        write_ipc(sink, name, _with(batch, told))


def read_fit(folder: Store, name: str) -> tuple[pa.Array, Fit]:
    """Names, sorted, and the fit; without flows."""
    with folder.open(name, mmap=True) as stream:
        (batch,) = read_batches(stream, name)
        told = _said(batch, folder.path(name))
        tried = tensor(batch, "tried")
        state = State(tried, tried[:0], told.scale, told.rounds, told.gap, told.residual)
        fit = Fit(tensor(batch, "models"), told.value, state, told.done, told.steps)
        return batch.column("node"), fit


def keep(folder: Store, steps: int, state: State) -> None:
    """Leave a checkpoint of the rounds inside a step."""
    told = said(Fit(state.models, 0.0, state, False, steps), False)
    batches = [pa.RecordBatch.from_pydict({"rows": _rows(each)}) for each in (state.models, state.flows)]
    with folder.writer(CHECKPOINT) as sink:
        write_ipc(sink, CHECKPOINT, _with(batches[0], told), batches[1])


def kept(folder: Store, steps: int) -> State | None:
    """The state of the last checkpoint of a step, if there is one."""
    if not folder.exists(CHECKPOINT):
        return None
    with folder.open(CHECKPOINT, mmap=True) as stream:
        models, flows = read_batches(stream, CHECKPOINT, lambda schema: range(2))
        told = _said(models, folder.path(CHECKPOINT))
        if told.steps != steps:
            return None
        parts = tensor(models, "rows"), tensor(flows, "rows")
        return State(*parts, told.scale, told.rounds, told.gap, told.residual)


def _rows(values: Tensor) -> pa.FixedSizeListArray:
    return vectors(values.numpy())


def _with(batch: pa.RecordBatch, told: Said) -> pa.RecordBatch:
    return batch.replace_schema_metadata({_TOLD: packed(asdict(told))})


def _said(batch: pa.RecordBatch, place: str) -> Said:
    remedy = "Delete it, and run the same command again."
    return unpacked(Said, batch.schema.metadata[_TOLD], "a fit as it was written", place, remedy)
