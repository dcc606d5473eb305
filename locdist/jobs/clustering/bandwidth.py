"""A bandwidth for mean shift, from how far rows are from each other."""

import numpy as np
import torch

from locdist.errors import UsageError
from locdist.jobs.request import is_number, is_whole
from locdist.local.modes import apart
from locdist.search.exact import Exact
from locdist.search.generation import Generation, open_index

_ROWS = 500  # compared with all others at once


def estimate_bandwidth(
    index: Generation | Exact | str, quantile: float = 0.3, sample: int = 2000, seed: int = 0
) -> float:
    """The mean distance of a row to the farthest of its nearest rows, a share of all of them, as
    `sklearn.cluster.estimate_bandwidth` has it: the row is the first of them.

    Parameters
    ----------
    index : Generation, Exact or path
        From `ld.build_index` or `ld.Exact`.
    quantile : float
        The share, from 0 to 1.
    sample : int
        Rows that are compared with each other, chosen at random; all where there are no more.
    seed : int
        Of the sample.

    Returns
    -------
    float
        In units of the scaled key, for `ld.mean_shift`.

    Raises
    ------
    UsageError
    """
    if not (is_number(quantile) and 0 <= quantile <= 1):
        raise UsageError("a quantile from 0 to 1", repr(quantile), "0.3 is the default.")
    if not (is_whole(sample) and sample >= 1):
        raise UsageError("a sample of at least one row", repr(sample), "2000 is the default.")
    found = index if isinstance(index, Generation | Exact) else open_index(index)
    if found.metric == "ip":
        raise UsageError("an index of distances", "metric 'ip'", "Index with another metric.")
    rows = found.layout.rows if isinstance(found, Generation) else len(found.rows)
    chosen = np.random.default_rng(seed).choice(rows, min(sample, rows), replace=False)
    ids = torch.from_numpy(np.sort(chosen))
    keys = found.keys(ids) if isinstance(found, Generation) else found.rows.take("key", ids)
    count = max(1, int(len(ids) * quantile))
    parts = [apart(some, keys).kthvalue(count, dim=1).values for some in torch.split(keys, _ROWS)]
    return float(torch.cat(parts).mean())
