"""What leave-one-out errors say about a spread: how large it has to be, and how far errors go beyond it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
LEAST_DF, MOST_DF = 2.0, math.exp(8.0)  # there is a standard deviation; beyond it is Gaussian
MOST_SHARE = (
    0.99  # neighborhoods of equal targets have no variance of their own: the rest keeps theirs positive
)
_STEPS = 100


@dataclass(frozen=True)
class Calibration:
    """The errors of a model as a Student-t: with v the variance that the model says and w the one that the
    targets of the neighborhood say, error / sqrt(scale ((1 - share) v + share w)) has df degrees of freedom.

    Parameters
    ----------
    scale : float
    share : float
        From 0 to MOST_SHARE.
    df : float
        Above 2.
    """

    scale: float
    share: float
    df: float

    @property
    def multiples(self) -> tuple[float, float]:
        """Of v and of w, whose sum is the variance of the error."""
        spread = self.scale * self.df / (self.df - 2)
        return spread * (1 - self.share), spread * self.share


def calibrated(errors: Tensor, said: Tensor, local: Tensor) -> Calibration:
    """The calibration of the largest likelihood.

    Parameters
    ----------
    errors : Tensor [n] float64
    said, local : Tensor [n]
        v, positive, and w, at least 0.
    """
    typical = errors.square().mean().clamp(min=torch.finfo(errors.dtype).tiny)
    errors, said, local = errors / typical.sqrt(), said / typical, local / typical
    point = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([point], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        scale, share, df = _parts(point)
        squares = scale * ((1 - share) * said + share * local)
        constant = torch.lgamma((df + 1) / 2) - torch.lgamma(df / 2) - (df * math.pi).log() / 2
        likelihoods = constant - squares.log() / 2 - (df + 1) / 2 * (errors.square() / (df * squares)).log1p()
        value = -likelihoods.mean()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    scale, share, df = (part.item() for part in _parts(point))
    return Calibration(scale, share, df)


def _parts(point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    df = LEAST_DF + (point[2] + 1).clamp(-4, math.log(MOST_DF)).exp()
    return point[0].exp(), MOST_SHARE * point[1].sigmoid(), df


def conformal(errors: Tensor, spreads: Tensor, levels: Sequence[float] = LEVELS) -> dict[float, float]:
    """Multiples of the spread that hold the share `level` of new errors, for each level.

    The level of a multiple is exact for a row that is exchangeable with these n: it is the
    ceil((n + 1) level)-th of the scores |error| / spread, the largest where there are too few (Lei, G'Sell,
    Rinaldo, Tibshirani and Wasserman, Distribution-free predictive inference for regression, JASA 2018).

    Parameters
    ----------
    errors, spreads : Tensor [n]
        Rows where either is not finite do not count.
    """
    known = errors.isfinite() & spreads.isfinite()
    scores = (errors[known].abs() / spreads[known]).nan_to_num(0.0, torch.inf).sort().values
    n = len(scores)
    ranks = {level: min(n, math.ceil((n + 1) * level)) for level in levels}
    return {level: float(scores[rank - 1]) for level, rank in ranks.items()} if n else {}
