"""Convex weights: the exact projection onto the simplex, and the quadratic forms that are minimised on it."""

import torch
from torch import Tensor

STEPS = 20_000
GAP = 1e-12  # of the value, that may be left to gain


def projected(point: Tensor) -> Tensor:
    """The nearest point [l] of the simplex {w >= 0, sum w = 1}.

    Held, Wolfe, Crowder, Validation of subgradient optimization, Mathematical Programming 6, 1974.
    """
    falling = point.sort(descending=True).values
    counts = torch.arange(1, len(point) + 1, dtype=point.dtype, device=point.device)
    shifts = (falling.cumsum(0) - 1) / counts
    last = int((falling > shifts).nonzero()[-1])
    return (point - shifts[last]).clamp_(min=0)


def minimum(gram: Tensor) -> Tensor:
    """Weights w [l] of the simplex where w'Aw is smallest, A [l, l] symmetric and positive semidefinite.

    Accelerated projected gradients (Beck and Teboulle, SIAM Journal on Imaging Sciences 2, 2009), begun again
    where they turn uphill (O'Donoghue and Candès, Foundations of Computational Mathematics 15, 2015), until
    the duality gap w'Aw - min_l (Aw)_l is nothing.
    """
    gram = gram / gram.diagonal().amax().clamp(min=torch.finfo(gram.dtype).tiny)
    length = float(torch.linalg.matrix_norm(gram, 2)) or 1.0
    weights = torch.full_like(gram[0], 1 / len(gram))
    ahead, momentum = weights, 1.0
    for _ in range(STEPS):
        slope = gram @ weights
        value = float(weights @ slope)
        if value - float(slope.min()) <= GAP * value:
            break
        new = projected(ahead - gram @ ahead / length)
        if float((ahead - new) @ (new - weights)) > 0:
            ahead, momentum = weights, 1.0
            new = projected(weights - slope / length)
        following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = new + (momentum - 1) / following * (new - weights)
        weights, momentum = new, following
    return weights
