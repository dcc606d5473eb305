"""The answers of `predict` for one batch after another, wherever the batches come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.data.encoding import ColumnEncoding
from locdist.data.source import source
from locdist.data.store import Store
from locdist.errors import UsageError
from locdist.execute.threads import alone
from locdist.jobs.asking.ask import kept
from locdist.jobs.asking.places import Asked, Places, pinned_index
from locdist.jobs.asking.tuning import Tuned, tuning_of_support
from locdist.jobs.predict import PredictRows, check, presentation
from locdist.jobs.request import check_recall, is_whole
from locdist.methods.method import Method
from locdist.methods.named import method as named
from locdist.plan.manifest import read_manifest
from locdist.search.generation import Generation, open_index


@dataclass(frozen=True, init=False)
class Predictor:
    """A method on an index as a callable of batches: a row of answers for each row of a batch, in its order.

    An answer does not depend on the batch that its query came in, but for its last bits. A row that cannot be
    answered has null and a `status` that says why. A call computes on one core: make as many at once as there
    are cores. The object is small, can be pickled, and opens the index once in each process.

    `predict` tunes its search on a sample of the queries. Here nobody has seen them yet, so an approximate
    search is tuned on the support's own rows, when the object is made: by a pass over the index, and to the
    same number of lists on every machine. To leave the pass out, and to search as `predict` did, name
    `nprobe` (`report.nprobe`), or take over all of a finished run with `Predictor.of`. An index that is
    searched exactly needs none of it.

    Parameters
    ----------
    method : Method, name or spec
        As in `predict`.
    index : Generation or path
        The support, from `build_index`.
    keep : str or list of str
        Columns of the batches that go along; "*", the default, for all of them. There is no address to keep
        instead, as `predict` has it: a batch does not say where it is from.
    extras : list of {"spread", "effective", "coefficients", "parameters"}
        As in `predict`.
    explain : int
        As in `predict`.
    recall : float, optional
        What the search is tuned to; the index's own target by default.
    nprobe : int, optional
        Lists searched for each query, instead of tuning.

    Raises
    ------
    UsageError
        When method, index and options do not fit.
    """

    method: Method
    index: Generation
    keep: str | tuple[str, ...]
    extras: tuple[str, ...]
    explain: int

    def __init__(
        self,
        method: Method | str | Mapping[str, Any],
        index: Generation | str | Path,
        *,
        keep: str | Sequence[str] = "*",
        extras: Sequence[str] = (),
        explain: int = 0,
        recall: float | None = None,
        nprobe: int | None = None,
    ) -> None:
        chosen = named(method)
        place = index if isinstance(index, Generation) else open_index(index)
        check(chosen, place)
        presentation(chosen, place, extras, explain)
        lists = _probes(place, chosen.layer.neighbors, recall, nprobe)
        parts = {"method": chosen, "index": place.probing(lists), "extras": tuple(extras), "explain": explain}
        parts["keep"] = keep if isinstance(keep, str) else tuple(keep)
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def of(folder: str | Path, keep: str | Sequence[str] = "*") -> "Predictor":
        """What `predict` did, for more queries: its method, index, extras and number of lists.

        Parameters
        ----------
        folder : path or URI
            The output of `predict`.
        keep : str or list of str
            Columns of the batches that go along.

        Raises
        ------
        UsageError
            When the folder is no output of `predict`.
        DataError
            When the index is not there any more, or another one.
        """
        store = Store.at(folder)
        Places.read(store)
        manifest = read_manifest(store)
        if manifest.kind != "predict":
            raise UsageError(
                "the output of predict", f"that of {manifest.kind} in {store.uri}", "Name another folder."
            )
        asked = Asked.of(manifest)
        return Predictor(
            asked.method,
            pinned_index(store),
            keep=keep,
            extras=asked.extras,
            explain=asked.explain,
            nprobe=Tuned.read(store).nprobe or None,
        )

    @property
    def nprobe(self) -> int:
        """Lists searched for each query; 0 when the search is exact."""
        return self.index.nprobe

    @property
    def columns(self) -> tuple[ColumnEncoding, ...]:
        """What is read of a batch for key and features; a column of both is here twice."""
        features = self.index.features
        return (*self.index.key.columns, *(features.columns if features else ()))

    def __call__(self, batch: Any) -> pa.Table:
        """Answers to one batch.

        Parameters
        ----------
        batch : pa.Table, mapping of name to array, or anything with ``__arrow_c_stream__``

        Returns
        -------
        pa.Table
            The kept columns, then those of `predict`.

        Raises
        ------
        UsageError, DataError
            When the batch lacks a column, or has one of another type or width than the support.
        """
        queries = source(batch)
        question = PredictRows(
            source=queries,
            index=self.index,
            keep=kept(self.keep, queries, None),
            method=self.method,
            presentation=presentation(self.method, self.index, self.extras, self.explain),
        )
        answers = alone(lambda: [table for table, _ in question.tables(0, queries.rows)])
        whole = pa.concat_tables([question.schema.empty_table(), *answers])
        return whole if question.keep else whole.select(question.columns().names)


def _probes(index: Generation, k: int, recall: float | None, nprobe: int | None) -> int:
    if nprobe is None:
        target = index.layout.recall if recall is None else recall
        check_recall(target)
        return tuning_of_support(index, k, target).nprobe
    if not (is_whole(nprobe) and nprobe >= 1):
        raise UsageError("nprobe, at least 1 list", repr(nprobe), "Leave it out to have the search tuned.")
    if recall is not None:
        given = f"recall={recall} and nprobe={nprobe}"
        raise UsageError("recall or nprobe", given, "Leave one out: nprobe is what recall is tuned by.")
    return 0 if index.exact else nprobe
