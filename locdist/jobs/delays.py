"""Series as rows: what was before, and what followed."""

from torch import Tensor

from locdist.jobs.forecast import matrix
from locdist.local.series import Delays
from locdist.methods.method import ArrayLike


def delays(series: ArrayLike | Tensor, order: int = 4, lag: int = 1, ahead: int = 1) -> tuple[Tensor, Tensor]:
    """The delay embedding of a series: keys (x_t, x_{t−lag}, …, x_{t−(order−1) lag}) and targets x_{t+ahead},
    for any method.

    Parameters
    ----------
    series : array [n] or [s, n]
        Of several series the rows come one after the other.
    order, lag : int
        Values of a key, and steps from one to the next.
    ahead : int
        Steps to the target.

    Returns
    -------
    keys : Tensor [w, order]
        Newest value first, in the order of time; those with unknown values, or an unknown target, are left
        out.
    targets : Tensor [w]
    """
    keys, targets = Delays(order, lag, (ahead,)).embedded(matrix(series))
    known = keys.isfinite().all(2) & targets.isfinite().all(2)
    return keys[known], targets[known][:, 0]
