"""Maps of the key that are learned from data: a scale for each column, and a few directions more.

A map sends a key x to z = (x_1 exp(s_1), ..., x_d exp(s_d), x W) with W [d, r]; distances between z are those
that count. It is learned by stochastic gradients on leave-one-out losses: a step takes a batch of rows, finds
their exact nearest neighbors under the map as it stands (each row known by its number, and never its own
neighbor), and moves the map against the gradient of the mean loss. Who the neighbors are is taken as given
within a step.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.objectives import Objective

STEPS = 300
RATE, LAST = 0.05, 0.02  # of the first step, and what is left of it at the last
BETAS = (0.9, 0.98)
START = 0.01  # standard deviation of W before the first step
_SINGLE = torch.float32  # of the distances that only choose neighbors
_COMPARED = 1 << 20  # of them at once: they stay in the cache


@dataclass(frozen=True)
class Learned:
    """A learned map, and what was learned beside it, as plain numbers.

    Parameters
    ----------
    rows : tuple of tuple of float [d + r, d]
        z = rows x.
    parameters : dict
        Of the objective, as `Objective.told` tells them.
    loss : float
        Mean over the batches of the last tenth of the steps.
    """

    rows: tuple[tuple[float, ...], ...]
    parameters: dict[str, float]
    loss: float


def learn(
    keys: Tensor,
    targets: Tensor,
    objective: Objective,
    *,
    rank: int = 0,
    steps: int = STEPS,
    seed: int = 0,
    tell: Callable[[int], None] = lambda step: None,
) -> Learned:
    """A map that makes the leave-one-out losses of an objective small; the same numbers for the same seed.

    Parameters
    ----------
    keys : Tensor [n, d] float64
        About standardized; at least two rows.
    targets : Tensor [n, p] float64, or codes [n, 1] int64
        About standardized.
    objective : Objective
    rank : int
        Directions besides the scales, 0 or more.
    steps : int
        At least 1.
    seed : int
        Of the batches, and of the first directions.
    tell : callable (int) -> None
        Called before each step with its number, from 0.

    Raises
    ------
    UsageError
        For fewer than two rows, a negative rank, or no steps.
    """
    if len(keys) < 2 or rank < 0 or steps < 1:
        given = f"{len(keys)} rows, rank {rank}, {steps} steps"
        raise UsageError("at least two rows, a rank of 0 or more, and a step", given, "Give more rows.")
    generator = torch.Generator().manual_seed(seed)
    leaves = _leaves(keys.shape[1], rank, objective, generator)
    optimizer = torch.optim.Adam(list(leaves.values()), lr=RATE, betas=BETAS)
    count, losses = min(objective.neighbors, len(keys) - 1), []
    for step, rows in enumerate(_batches(len(keys), objective.batch, steps, generator)):
        tell(step)
        optimizer.param_groups[0]["lr"] = RATE * _share(step, steps)
        optimizer.zero_grad()
        linear = matrix(leaves)
        ids = neighbors(keys, linear.detach(), rows, count)
        near = (keys[ids] - keys[rows][:, None]) @ linear.T
        loss = objective.loss(leaves, near, targets[ids], targets[rows]).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    last = losses[-max(1, steps // 10) :]
    told = objective.told({name: leaves[name].item() for name in objective.start()})
    return Learned(tuple(map(tuple, matrix(leaves).tolist())), told, math.fsum(last) / len(last))


def matrix(leaves: dict[str, Tensor]) -> Tensor:
    """The map [d + r, d] of scales [d] and directions [d, r]."""
    return torch.cat([torch.diag(leaves["scales"].exp()), leaves["directions"].T])


def neighbors(keys: Tensor, linear: Tensor, rows: Tensor, k: int) -> Tensor:
    """Row numbers [b, k] of the nearest to `rows` [b] under a map [e, d], without themselves; in any order.

    Distances are compared in single precision, where those of almost equal length may change places.
    """
    moved = (keys @ linear.T).to(_SINGLE)
    squares = moved.square().sum(1)
    parts = torch.split(rows, max(1, _COMPARED // len(keys)))
    return torch.cat([_nearest(moved, squares, part, k) for part in parts])


def _nearest(moved: Tensor, squares: Tensor, rows: Tensor, k: int) -> Tensor:
    distances = torch.addmm(squares, moved[rows], moved.T, alpha=-2)  # less that of the row, the same
    distances[torch.arange(len(rows)), rows] = torch.inf
    return distances.topk(k, largest=False, sorted=False).indices


def _leaves(d: int, rank: int, objective: Objective, generator: torch.Generator) -> dict[str, Tensor]:
    leaves = {
        "scales": torch.full((d,), -0.5 * math.log(d), dtype=torch.float64),
        "directions": START * torch.randn(d, rank, generator=generator, dtype=torch.float64),
    }
    more = {name: torch.tensor(value, dtype=torch.float64) for name, value in objective.start().items()}
    return {name: leaf.requires_grad_() for name, leaf in (leaves | more).items()}


def _batches(n: int, batch: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    return (torch.randperm(n, generator=generator)[:batch] for _ in range(steps))


def _share(step: int, steps: int) -> float:
    """What is left of the first rate: a cosine from 1 to LAST."""
    return LAST + (1 - LAST) * (1 + math.cos(math.pi * step / steps)) / 2
