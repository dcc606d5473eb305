"""Dask dataframes: predictions of each partition.

Nothing here imports Dask: a dataframe brings it along.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from locdist.errors import UsageError, did_you_mean
from locdist.jobs.asking.block import STATUSES
from locdist.jobs.batches import Predictor
from locdist.methods.method import Method
from locdist.search.generation import Generation

try:
    import pandas as pd
except ImportError as error:
    raise UsageError("pandas to be installed", str(error), "pip install 'locdist[dask]'") from error

_STATUS = pd.CategoricalDtype(STATUSES.to_pylist())


def predict(
    frame: Any,
    method: Method | str | Mapping[str, Any],
    index: Generation | str | Path,
    *,
    keep: str | Sequence[str] = "*",
    extras: Sequence[str] = (),
    explain: int = 0,
    recall: float | None = None,
    nprobe: int | None = None,
) -> Any:
    """A dataframe of predictions: the kept columns and those of `locdist.predict`, with the index, the
    partitions and the divisions of the queries.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Rows with the columns of the key (and features); found by name. Vectors are objects (arrays or lists)
        or Arrow lists.
    method, index, keep, extras, explain, recall, nprobe
        As in `locdist.ray.Predictor`. The index has to lie where all workers can read it.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy; a row for each row.

    Raises
    ------
    UsageError, DataError
        At once, when a column is missing or of a wrong type. Dask turns objects into strings when a pandas
        dataframe becomes its own: set its option ``dataframe.convert-string`` to False before.
    """
    predictor = Predictor(
        method, index, keep=(), extras=extras, explain=explain, recall=recall, nprobe=nprobe
    )
    answers = functools.partial(_predicted, predictor, _kept(keep, list(frame.columns)))
    return frame.map_partitions(answers, meta=answers(frame._meta))


def _predicted(predictor: Predictor, keep: tuple[str, ...], part: pd.DataFrame) -> pd.DataFrame:
    """A partition with its answers."""
    needed = dict.fromkeys(column.name for column in predictor.columns)
    there = [name for name in needed if name in part.columns]  # of another one the predictor tells
    answers = predictor(pa.Table.from_pandas(part[there], preserve_index=False))
    twice = ", ".join(name for name in keep if name in answers.column_names)
    if twice:
        names = ", ".join(answers.column_names)
        raise UsageError(f"kept columns besides {names}", twice, "Rename them, or keep others.")
    frame = answers.to_pandas(types_mapper=_type).astype({"status": _STATUS}).set_axis(part.index)
    whole: pd.DataFrame = pd.concat([part[list(keep)], frame], axis=1)
    return whole


def _type(kind: pa.DataType) -> Any:
    """The pandas type of integers and booleans. Left alone they would be of another type in a partition where
    one is null, and all partitions have to have the types that Dask was told.
    """
    return pd.ArrowDtype(kind) if pa.types.is_integer(kind) or pa.types.is_boolean(kind) else None


def _kept(keep: str | Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The columns that go along; UsageError when one is not there."""
    if keep == "*":
        return tuple(names)
    asked = (keep,) if isinstance(keep, str) else tuple(keep)
    for name in asked:
        if name not in names:
            raise UsageError("a column of the dataframe to keep", repr(name), did_you_mean(name, names))
    return asked
