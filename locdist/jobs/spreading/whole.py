"""All sweeps in one task, with a checkpoint every few of them: while the state fits one worker."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.artefacts import packed, unpacked
from locdist.data.columns import vectors
from locdist.data.store import Store
from locdist.jobs.labelled import shares_of
from locdist.jobs.request import read_batches, write_ipc
from locdist.jobs.spreading.order import near_order, reordered
from locdist.jobs.stored import StoredGraph
from locdist.local.targets import Moved, State
from locdist.methods.labels import LabelMethod, component_means
from locdist.plan.plan import Attempt, Task
from locdist.plan.records import Record
from locdist.search.files import array

CHECKPOINT, EVERY = "_locdist/checkpoint.arrow", 10  # sweeps
_TOLD = b"state"


@dataclass(frozen=True)
class SpreadWhole:
    """The state that rests.

    Parameters
    ----------
    method : LabelMethod
    graph : StoredGraph
    classes : Classes
    known : tuple of str
        Files of the labels, one for each partition of the graph.
    """

    method: LabelMethod
    graph: StoredGraph
    classes: "Classes"
    known: tuple[str, ...]

    def __call__(self, task: Task, attempt: Attempt) -> Record:
        """The output has the state of each partition as a batch, and for a balanced method the means of
        labels.
        """
        batches = [read_known(attempt.folder, name) for name in self.known]
        known = torch.cat([shares_of(batch, self.classes.array()) for batch in batches])
        graph, method = self.graph.whole(), self.method
        means = component_means(known, graph.components()) if method.balanced else known[:0]
        given = method.given(known, graph.degrees, means)
        order = near_order(graph, known.shape[1])
        walk = reordered(graph.normalized(method.normalized) if method.normalized else graph, order)
        del graph
        given, state = given[order], begun(attempt.folder) or State(method.begun(known)[order])
        for after in method.loop.states(walk, given, state):
            state = after
            if state.number % EVERY == 0 and not state.rests:
                attempt.check_wanted()
                keep(attempt.folder, state)
        (name,) = task.outputs
        with attempt.writer(name) as sink:
            values = torch.empty_like(state.values)
            values[order] = state.values
            write_ipc(sink, name, *_parts(self.graph, values, means))
        return Record(rows=len(known), data=told(state))


@dataclass(frozen=True)
class Classes:
    """The classes: their type, in Arrow's words, and sorted values."""

    type: str
    values: tuple[str | int | bool, ...]

    def array(self) -> pa.Array:
        """The classes as an Arrow array."""
        return pa.array(self.values, pa.type_for_alias(self.type))


def read_known(folder: Store, name: str) -> pa.RecordBatch:
    """The labels of a partition, as the first stage left them."""
    with folder.open(name, mmap=True) as stream:
        return read_batches(stream, name)[0]


def batch_of(**columns: Tensor) -> pa.RecordBatch:
    """Numbers [n], and rows of numbers [n, c]."""
    return pa.RecordBatch.from_pydict(
        {
            name: vectors(each.numpy()) if each.ndim == 2 else pa.array(each.numpy())
            for name, each in columns.items()
        }
    )


def tensor(batch: pa.RecordBatch, name: str) -> Tensor:
    """A column as a tensor."""
    return torch.from_numpy(array(batch.column(name)).copy())


@dataclass(frozen=True)
class Said:
    """What a checkpoint says of its state, beside the values."""

    sweeps: int
    rests: bool
    change: float
    flipped: int
    consistency: float


def told(state: State) -> dict[str, object]:
    """What is said of a state, as JSON."""
    assert state.moved is not None
    return {"sweeps": state.number, "rests": state.rests, **asdict(state.moved)}


def keep(folder: Store, state: State) -> None:
    """Leave a checkpoint."""
    batch = batch_of(values=state.values)
    batch = batch.replace_schema_metadata({_TOLD: packed(told(state))})
    with folder.writer(CHECKPOINT) as sink:
        write_ipc(sink, CHECKPOINT, batch)


def begun(folder: Store) -> State | None:
    """The state of the last checkpoint, if there is one."""
    if not folder.exists(CHECKPOINT):
        return None
    with folder.open(CHECKPOINT, mmap=True) as stream:
        (batch,) = read_batches(stream, CHECKPOINT)
        text, place = batch.schema.metadata[_TOLD], folder.path(CHECKPOINT)
        said = unpacked(Said, text, "a checkpoint", place, "Delete it: the sweeps begin again.")
        moved = Moved(said.change, said.flipped, said.consistency)
        return State(tensor(batch, "values"), said.sweeps, moved)


def _parts(graph: StoredGraph, values: Tensor, means: Tensor) -> Iterator[pa.RecordBatch]:
    for span in graph.spans:
        here = slice(span.start, span.stop)
        more = {"means": means[here]} if len(means) else {}
        yield batch_of(values=values[here], **more)
