"""`explain`: the neighbors, weights and coefficients behind one prediction of a finished job.

The query is asked again with everything that explains it, by the method, index and plan that the output
folder records; that the answer equals the stored one is part of the explanation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from locdist.data.columns import decoded
from locdist.data.source import Source
from locdist.data.store import Store
from locdist.errors import UsageError, did_you_mean
from locdist.jobs.asking.places import Asked, pinned_index
from locdist.jobs.asking.tuning import Tuned
from locdist.jobs.evaluate import finished_output, pinned_queries
from locdist.jobs.predict import PredictRows, presentation
from locdist.jobs.telling.explanation import Coefficient, Explanation, Neighbor
from locdist.jobs.telling.verify import check_intact
from locdist.local.answers import Answers
from locdist.local.neighborhood import Neighborhood
from locdist.methods.method import Method
from locdist.methods.named import method as named
from locdist.plan.manifest import Manifest, read_manifest
from locdist.search.generation import Generation

CLOSE = 1e-9  # relative: what another machine's arithmetic may change
ROUNDING = 1e-7  # √(p (1 − p)) is below this when p is 0 or 1 to within rounding


def explain(folder: str | Path, row: int | None = None, id: Any = None) -> Explanation:
    """What is behind one prediction of a finished job.

    Parameters
    ----------
    folder : path or URI
        The output of `predict` or `transform`.
    row : int, optional
        The number of the query in the whole input, from 0.
    id : int or str, optional
        Instead: its id, when the output kept the column that the index was told is the id.

    Returns
    -------
    Explanation

    Raises
    ------
    UsageError
        For a folder without a finished prediction, a row that is not there, or queries that were in memory.
    DataError
        When the index or the queries changed since.
    """
    finished = _Finished(Store.at(folder))
    row = finished.find(row, id)
    check_intact(finished.folder, [finished.output.locate(row)[0]])
    (stored,) = next(finished.output.read(row, row + 1)).to_pylist()
    return _Retold(finished, row, finished.answers(row), stored).explanation


@dataclass(frozen=True)
class _Finished:
    """A finished prediction, opened again."""

    folder: Store

    @cached_property
    def manifest(self) -> Manifest:
        manifest = read_manifest(self.folder)
        if manifest.kind not in ("predict", "transform"):
            given = f"one of {manifest.kind}"
            raise UsageError("a folder with predictions", given, "Name the output of predict or transform.")
        return manifest

    @cached_property
    def output(self) -> Source:
        return finished_output(self.folder)

    @cached_property
    def method(self) -> Method:
        return named(Asked.of(self.manifest).method)

    @cached_property
    def index(self) -> Generation:
        """The index that the job used; DataError when there is another one in its place."""
        return pinned_index(self.folder).probing(Tuned.read(self.folder).nprobe)

    @cached_property
    def question(self) -> PredictRows:
        """The job's question, with all that explains its answers."""
        if self.method.layer.k is None:
            given = f"{self.method.name} over all the support (k=None)"
            raise UsageError("a prediction of k neighbors", given, "All rows that the kernel reaches count.")
        model = self.method.layer.model
        told = model.tells & {"spread", "effective"}
        if len(model.parameters(("slope",))) > 1:
            told |= model.tells & {"coefficients"}
        return PredictRows(
            source=pinned_queries(
                self.folder, "Write them to a file and predict that, or ask predict itself (explain=)."
            ),
            index=self.index,
            keep=(),
            own=self.manifest.kind == "transform",
            method=self.method,
            presentation=presentation(self.method, self.index, sorted(told), self.method.layer.neighbors),
        )

    def find(self, row: int | None, id: Any) -> int:
        """The row that is meant."""
        if (row is None) == (id is None):
            given = "neither" if row is None else "both"
            raise UsageError("the row or the id of a query", given, "Give one: --row 17, or --id NAME.")
        row = self._row_of(id) if row is None else row
        if not self.output.rows:
            raise UsageError(
                "an output with rows", f"none in {self.folder.uri}", "There is nothing to explain."
            )
        if not 0 <= row < self.output.rows:
            wanted = f"a row from 0 to {self.output.rows - 1:,}"
            raise UsageError(wanted, f"{row}", "Rows are numbered over all input files, from 0.")
        return row

    def _row_of(self, id: Any) -> int:
        name, kept = self.index.layout.roles.id, Asked.of(self.manifest).keep
        if name is None or name not in kept:
            listed = ", ".join(kept) or "no kept column"
            given = "no id column in the index" if name is None else f"{listed} without {name!r}"
            raise UsageError("the id column in the output", given, "Give the number of the row (--row).")
        kind, first = decoded(self.output.schema.empty_table().column(name)).type, 0
        for table in self.output.read(columns=[name]):
            column = decoded(table.column(name))
            place = column.index(_as(id, kind, name)).as_py()
            if place >= 0:
                return first + int(place)
            first += table.num_rows
        some = next(self.output.read(0, 8, [name])).column(name).to_pylist() if first else []
        raise UsageError(f"a row whose {name} is {id!r}", "none", did_you_mean(str(id), map(str, some)))

    def answers(self, row: int) -> Answers:
        """The row asked again."""
        question = self.question
        table = pa.concat_tables(list(question.source.read(row, row + 1, question.read_columns)))
        block = question.encoded(table, row)
        own = block.rows if question.own else None
        asked = (block.queries, block.features, own, block.bad, question.presentation.want)
        return self.method.operation(self.index, *asked, offsets=block.offsets)


@dataclass(frozen=True)
class _Retold:
    """Answers [1] to one query, and what the output stored of them, in words."""

    finished: _Finished
    row: int
    answers: Answers
    stored: dict[str, Any]

    @property
    def explanation(self) -> Explanation:
        finished, told = self.finished, self.told
        names = list(told)
        values = {name: told[name] for name in names[: names.index("status")]}
        spread = {name: self._seen(value) for name, value in told.items() if name.startswith("spread")}
        names_kept = Asked.of(finished.manifest).keep or ("file", "row")
        kept = {name: value for name, value in self.stored.items() if name in names_kept}
        return Explanation(
            folder=finished.folder.uri,
            row=self.row,
            query=kept,
            method=finished.method.spec,
            status=told["status"],
            prediction=self._by_class(values),
            spread=spread,
            stored_equal=all(_equal(value, self.stored[name]) for name, value in values.items()),
            effective=told["effective"],
            coefficients=self._coefficients(list(values)),
            neighbors=self._neighbors(),
        )

    @cached_property
    def told(self) -> dict[str, Any]:
        """The output columns of the answer."""
        (told,) = self.finished.question.presentation.table(self.answers, self.finished.index).to_pylist()
        return dict(told)

    @property
    def _classes(self) -> pa.Array | None:
        return self.finished.question.presentation.classes

    def _seen(self, spread: float | None) -> float | None:
        """The spread of a number, or of a probability without what rounding makes of a certain one."""
        rounding = self._classes is not None and spread is not None and spread < ROUNDING
        return 0.0 if rounding else spread

    def _by_class(self, values: dict[str, Any]) -> dict[str, Any]:
        """Probabilities by name where the output has one list of them."""
        if self._classes is None or "probability" not in values:
            return values
        chances = values["probability"] or [None] * len(self._classes)
        names = [f"probability_{name}" for name in self._classes.to_pylist()]
        return {"label": values["label"], **dict(zip(names, chances, strict=True))}

    def _coefficients(self, columns: Sequence[str]) -> dict[str, tuple[Coefficient, ...]]:
        index, answers = self.finished.index, self.answers
        if answers.coefficients is None or answers.errors is None:
            return {}
        shown = self.finished.question.presentation
        values, errors = (
            shown.own_units(part, index, part is answers.errors)[0].T
            for part in (answers.coefficients, answers.errors)
        )
        return {
            column: tuple(map(Coefficient, shown.parameters, map(_finite, own), map(_finite, wrong)))
            for column, own, wrong in zip(columns, values.tolist(), errors.tolist(), strict=True)
        }

    def _neighbors(self) -> tuple[Neighbor, ...]:
        ids = self.answers.ids
        assert ids is not None
        targets = self._targets(ids[ids >= 0][None])
        listed = self.told["neighbors"] or []
        return tuple(Neighbor(**each, target=target) for each, target in zip(listed, targets, strict=True))

    def _targets(self, ids: Tensor) -> list[Any]:
        """First targets of stored rows [1, k]; None without any."""
        index = self.finished.index
        if not ids.numel():
            return []
        if self._classes is None and index.numeric:
            return list(index.outcomes(ids)[0].tolist())
        if index.vocabulary is None:
            return [None] * ids.numel()
        codes = index.gather(Neighborhood(torch.zeros(ids.shape), ids), frozenset({"codes"})).targets
        assert codes is not None
        return list(index.vocabulary.take(pa.array(codes.reshape(-1).numpy())).to_pylist())


def _as(id: Any, kind: pa.DataType, name: str) -> pa.Scalar:
    """An id in the type of its column."""
    try:
        return pa.scalar(id).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UsageError(f"an id of type {kind}, as {name!r} has", repr(id), "Correct the id.") from error


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and bool(np.allclose(one, other, rtol=CLOSE, atol=CLOSE))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE**2)
    return bool(one == other)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
