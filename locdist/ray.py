"""Ray Data: predictions of a dataset that Ray reads, transforms and writes.

Nothing here imports Ray: a dataset brings it along.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from locdist.jobs.batches import Predictor as Predictor
from locdist.methods.method import Method
from locdist.search.generation import Generation


def predict(
    dataset: Any,
    method: Method | str | Mapping[str, Any],
    index: Generation | str | Path,
    *,
    keep: str | Sequence[str] = "*",
    extras: Sequence[str] = (),
    explain: int = 0,
    recall: float | None = None,
    nprobe: int | None = None,
) -> Any:
    """A dataset of predictions: `dataset.map_batches` of a `Predictor`, in Ray tasks of one CPU.

    Tasks, and not a pool of actors: actors hold their CPUs for as long as the dataset runs, and as many of
    them as there are CPUs leave none for the tasks that read, so that both wait for ever (ray #44687). A task
    gives its CPU back; what an actor would keep, the opened index, stays in the worker process anyway.

    Parameters
    ----------
    dataset : ray.data.Dataset
        Rows with the columns of the key (and features); found by name.
    method, index, keep, extras, explain, recall, nprobe
        As in `Predictor`. The index has to lie where all nodes can read it.

    Returns
    -------
    ray.data.Dataset
        Lazy, as Ray's datasets are; a row for each row.
    """
    predictor = Predictor(
        method, index, keep=keep, extras=extras, explain=explain, recall=recall, nprobe=nprobe
    )
    return dataset.map_batches(predictor, batch_format="pyarrow", batch_size=None, num_cpus=1)
