"""`move`: the rows of a support, layer after layer, each over the rows as the one before left them."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.data.dataset import Dataset, checked
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.events import Listener
from locdist.execute.executor import Executor
from locdist.execute.local import Local
from locdist.jobs.asking.ask import Request, Running, ask, ask_here, kept
from locdist.jobs.asking.places import INDEX
from locdist.jobs.asking.questions import Ask
from locdist.jobs.asking.report import Report
from locdist.jobs.build_index import build_index
from locdist.jobs.layers.rows import (
    KIND,
    MoveRows,
    TellRows,
    moved_support,
    moves,
    steps_of,
    target_names,
)
from locdist.jobs.support import numeric
from locdist.jobs.telling.kept import REPORT
from locdist.methods.layered import LayeredMethod, layered_method
from locdist.plan.plan import Resources
from locdist.search.build import check_lists
from locdist.search.files import release
from locdist.search.generation import Generation

LAYER, BELOW = "_locdist/layers/{:03}", "_locdist/indexes/{:03}"  # of the output: jobs, and what they search


def move(
    method: LayeredMethod | str | Mapping[str, Any],
    support: Dataset,
    out: str | Path | None = None,
    *,
    keep: str | Sequence[str] | None = None,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
    max_bad: float | None = None,
    executor: Executor | None = None,
    resources: Resources | None = None,
    overwrite: bool = False,
    listener: Listener | None = None,
    command: str = "",
) -> Report | pa.Table:
    """Move the rows of a support together: blurring mean shift, denoising, local models in layers.

    Each layer has a new index, of the rows as the layer before left them. The same call continues a stopped
    job, between layers and inside of one. What earlier layers wrote is removed when it is not needed.

    Parameters
    ----------
    method : LayeredMethod, name or spec
        `ld.blurring_mean_shift(0.5)`, `ld.denoise_manifold(2)`, `ld.stack([...])`.
    support : Dataset
        From `ld.dataset`, without features apart from its key.
    out : path or URI, optional
        The output folder. Without it the rows are returned as a table.
    keep, bad, recall, codes, max_bad, executor, resources, overwrite, listener, command
        As in `transform`.

    Returns
    -------
    Report or pa.Table
        Columns are those kept, `moved_COLUMN` in the user's units where keys moved, `prediction` (or
        `prediction_TARGET`) where targets did, and `status`, of the last layer.

    Raises
    ------
    UsageError, DataError, MachineError, TooManyBadRows
    """
    chosen, support = layered_method(method), checked(support)
    request = requested(chosen, support, keep, bad, recall, codes)
    runner = executor or Local()
    running = Running(runner, resources, overwrite, None, max_bad, listener, command)
    told = list[str]()

    def prepare(folder: Store, source: Source) -> Ask:
        rows = replace(support, source=source)
        layers = Layers(folder, rows, chosen, request, bad, codes, running)
        last, why = layers.finished()
        told.append(why)
        return TellRows(
            source=source, index=layers.first, keep=request.choices["keep"], own=True, last=last,
            moves=moves(chosen.loop.levels),
        )  # fmt: skip

    if out is None:
        with tempfile.TemporaryDirectory(prefix="locdist-") as place, runner.kept():
            question = prepare(Store.at(place), support.source)
            answers = ask_here(request, question, running)
            release(question.index.folder, question.index.fingerprint)
            return answers
    with runner.kept():  # for all layers
        report = ask(request, prepare, out, running)
    return replace(report, notes=(told[0], *report.notes))


@dataclass(frozen=True)
class Layers:
    """The layers of a job, in its folder."""

    folder: Store
    support: Dataset
    method: LayeredMethod
    request: Request
    bad: str
    codes: str | None
    running: Running

    @property
    def first(self) -> Generation:
        """The index of the support as it was given."""
        return self._index(self.support, INDEX, self.bad)

    def finished(self) -> tuple[Source, str]:
        """What the last layer wrote, and how many there were and why no more, in words."""
        loop = self.method.loop
        number = max((each for each in range(loop.most) if self._done(each)), default=-1)
        self._forget(number)
        why = self._rests(number)
        while number + 1 < loop.most and not why:
            number += 1
            self._move(number)
            self._forget(number)
            why = self._rests(number)
        mean = steps_of(self._place(number)).mean
        told = f"{number + 1} layers, the last with a mean step of {mean:.3g}"
        return source(self._place(number).uri), f"{told}: {why}" if why else told

    def _place(self, number: int) -> Store:
        return self.folder.child(LAYER.format(number))

    def _done(self, number: int) -> bool:
        return self._place(number).exists(REPORT)

    def _rests(self, number: int) -> str:
        if number < 0:
            return ""
        before = steps_of(self._place(number - 1)) if number and self._done(number - 1) else None
        return self.method.loop.rests(before, steps_of(self._place(number)))

    def _move(self, number: int) -> None:
        """A layer: its index, and its answers at all rows."""
        level, roles, place = self.method.loop.level(number), self.support.roles, self._place(number)
        below = self.support if not number else moved_support(self._place(number - 1), roles)
        index = self.first if not number else self._index(below, BELOW.format(number), "drop")
        targets = roles.target if not number else tuple(target_names(len(roles.target)))
        question = MoveRows(
            source=below.source, index=index, keep=(), own=True, level=level, targets=targets,
            weight=below.roles.weight,
        )  # fmt: skip
        asked = {"method": self.method.spec, "number": number, "index": index.fingerprint}
        request = Request(KIND, below.source, level.layer.neighbors, asked, self.request.recall)
        quiet = replace(self.running, overwrite=False, max_bad=None)
        ask(request, lambda folder, pinned: replace(question, source=pinned), place.uri, quiet)
        if number:
            release(index.folder, index.fingerprint)

    def _forget(self, number: int) -> None:
        """Remove what nobody reads any more when a layer is finished."""
        if number > 0:
            self.folder.child(BELOW.format(number)).remove_all()
        if number > 1:
            self._place(number - 2).remove_all()

    def _index(self, support: Dataset, name: str, bad: str) -> Generation:
        run = self.running
        return build_index(
            support, self.folder.child(name).uri, recall=self.request.recall, codes=self.codes, bad=bad,
            executor=run.executor, resources=run.resources, listener=run.listener, command=run.command,
        )  # fmt: skip


def requested(
    method: LayeredMethod,
    support: Dataset,
    keep: str | Sequence[str] | None = None,
    bad: str = "raise",
    recall: float = 0.99,
    codes: str | None = None,
) -> Request:
    """What `move` pins in its folder."""
    check_lists(codes, None)
    _check(method, support)
    choices = {
        "method": method.spec,
        "roles": support.roles.to_json(),
        "keep": kept(keep, support.source, support.roles.id),
        "bad": bad,
        "codes": codes,
    }
    return Request("move", support.source, 0, choices, recall)


def _check(method: LayeredMethod, support: Dataset) -> None:
    """What the layers will check, as far as it is known before there is an index."""
    roles, schema = support.roles, support.source.schema
    if roles.metric == "haversine" or roles.features or roles.offset:
        given = f"metric {roles.metric!r}" if roles.metric == "haversine" else "features or an offset"
        remedy = "Rows move in the space of the key; leave these out."
        raise UsageError("a support that is its key, and targets, to move", given, remedy)
    for level in method.loop.levels:
        level.layer.check(roles.metric)
        most = support.rows - level.layer.leave_one_out
        if level.layer.neighbors > most:
            given = str(level.layer.neighbors)
            raise UsageError(f"k of at most {most}, the neighbors of a row", given, "Choose a smaller k.")
        if "targets" in level.layer.needs:
            kinds = [schema.field(name).type for name in roles.target]
            if not kinds or not all(map(numeric, kinds)):
                given = f"targets {list(roles.target) or 'none'}"
                raise UsageError("targets of numbers, to move", given, "Name a numeric target.")
