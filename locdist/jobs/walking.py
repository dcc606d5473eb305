"""Coordinates of a lazy map in one task, with a checkpoint every few steps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from locdist.data.artefacts import packed, unpacked
from locdist.data.store import Store
from locdist.jobs.eigen import Axes
from locdist.jobs.request import read_batches, write_ipc
from locdist.jobs.spreading.whole import CHECKPOINT, batch_of, tensor
from locdist.local.graph import Graph
from locdist.local.lazy import Rested, Settling, Walk
from locdist.methods.embedded import EmbedMethod
from locdist.plan.plan import Attempt

EVERY = 50  # steps
_TOLD = b"state"


def walked_axes(graph: Graph, method: EmbedMethod, attempt: Attempt | None) -> Axes:
    """What a step of the walk on a connected graph leaves most of; an attempt goes on from the checkpoint in
    its folder.
    """
    told: dict[str, Any] = dict(method.parameters)
    loop = Settling(Walk(graph), told["tolerance"], told["steps"])
    values = np.random.default_rng(told["seed"]).normal(size=(len(graph), method.components))
    state = (begun(attempt.folder) if attempt else None) or Rested(torch.from_numpy(values), None, 0, False)
    for after in loop.states(state):
        state = after
        if attempt and state.steps % EVERY == 0 and not state.rests:
            attempt.check_wanted()
            keep(attempt.folder, state)
    found = loop.turned(state)
    assert found.shares is not None
    return Axes(found.values, tuple(found.shares.tolist()), found.rests)


@dataclass(frozen=True)
class Said:
    """What a checkpoint says of its state, beside the values."""

    steps: int
    shares: tuple[float, ...]


def keep(folder: Store, state: Rested) -> None:
    """Leave a checkpoint."""
    assert state.shares is not None
    text = packed({"steps": state.steps, "shares": state.shares.tolist()})
    with folder.writer(CHECKPOINT) as sink:
        write_ipc(sink, CHECKPOINT, batch_of(values=state.values).replace_schema_metadata({_TOLD: text}))


def begun(folder: Store) -> Rested | None:
    """The state of the last checkpoint, if there is one."""
    if not folder.exists(CHECKPOINT):
        return None
    with folder.open(CHECKPOINT, mmap=True) as stream:
        (batch,) = read_batches(stream, CHECKPOINT)
        text, place = batch.schema.metadata[_TOLD], folder.path(CHECKPOINT)
        said = unpacked(Said, text, "a checkpoint", place, "Delete it: the steps begin again.")
        return Rested(
            tensor(batch, "values"), torch.tensor(said.shares, dtype=torch.float64), said.steps, False
        )
