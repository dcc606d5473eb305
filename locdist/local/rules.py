"""Fuzzy rules that are learned from rows.

Rules begin at the centres of clusters, as wide as these are. With the memberships given the answer is linear
in the consequents, which ridge regression finds; memberships then move against the gradient of the error that
is left, and consequents are found again at each step (the hybrid learning of ANFIS). Rows and targets are
standardized here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.errors import UsageError
from locdist.local.fuzzy import Membership
from locdist.local.shapes import LOWEST

LLOYD = 100  # rounds of k-means, at most
NARROWEST = 0.5  # deviation of a cluster that has none, if rules shared the space evenly
_NUMBERS = 1 << 24  # of a block of rows


@dataclass(frozen=True)
class Rules:
    """Learned rules, in the units of the rows: what an index of them holds.

    Attributes
    ----------
    keys : Tensor [r, d]
        Centres of the memberships.
    targets : Tensor [r, 1]
        Consequents, at the centres.
    shapes : Tensor [r, c]
        Sizes of the memberships of each column; of order 1 then the slopes [d].
    error : float
        Root mean squared error of the rows.
    """

    keys: Tensor
    targets: Tensor
    shapes: Tensor
    error: float


def learn_rules(
    keys: Tensor,
    targets: Tensor,
    membership: Membership,
    *,
    rules: int,
    order: int = 1,
    steps: int = 200,
    ridge: float = 1e-8,
    seed: int = 0,
) -> Rules:
    """Rules that fit rows; the same for the same seed.

    Parameters
    ----------
    keys : Tensor [n, d] float64
    targets : Tensor [n, 1] float64
    membership : Membership
    rules : int
        At least 1 and at most n.
    order : int
        Of the consequents, 0 or 1.
    steps : int
        Of L-BFGS; 0 leaves the memberships to the clusters.
    ridge : float
        Positive; of the consequents, of standardized rows and targets.
    seed : int
        Of the first centres.

    References
    ----------
    Jang, ANFIS: Adaptive-Network-Based Fuzzy Inference System, IEEE Transactions on Systems, Man, and
    Cybernetics 23, 1993.
    """
    if not 1 <= rules <= len(keys) or not 0 < ridge < float("inf") or steps < 0:
        given = f"{rules} rules of {len(keys)} rows, ridge {ridge}, {steps} steps"
        raise UsageError("1 to n rules, a positive ridge and steps of 0 or more", given, "Correct them.")
    (rows, center, scale), (heights, mean, deviation) = _standard(keys), _standard(targets)
    forms = membership.each(keys.shape[1])
    fit = Fit(rows, heights[:, 0], membership, order, ridge)
    start = fit.start(clusters(rows, rules, seed))
    premise = fit.refined(start, steps) if steps else start
    found = fit.consequents(premise).reshape(rules, -1)
    lengths = [
        scale[column].expand(1) if part not in one.unitless else scale.new_ones(1)
        for column, one in enumerate(forms)
        for part in one.parts
    ]
    slopes = found[:, 1:] * (deviation / scale)[: found.shape[1] - 1]
    error = fit.loss(premise, found.flatten()).item() ** 0.5 * deviation.item()
    return Rules(
        premise.centers * scale + center,
        found[:, :1] * deviation + mean,
        torch.cat([premise.sizes * torch.cat(lengths), slopes], 1),
        error,
    )


def _standard(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, deviation = values.mean(0), values.std(0, correction=0)
    deviation = deviation.where(deviation > 0, 1.0)
    return (values - mean) / deviation, mean, deviation


def clusters(rows: Tensor, count: int, seed: int) -> Tensor:
    """Centres [count, d] of k-means from rows drawn by a seed; one that nobody is near stays."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    centers = rows[order[:count]]
    for _ in range(LLOYD):
        near = nearest(rows, centers)
        number = torch.bincount(near, minlength=count)[:, None]
        sums = torch.zeros_like(centers).index_add_(0, near, rows)
        moved = torch.where(number > 0, sums / number.clamp(min=1), centers)
        if torch.equal(moved, centers):
            break
        centers = moved
    return centers


def nearest(rows: Tensor, centers: Tensor) -> Tensor:
    """The number of the nearest centre of each row [n]."""
    blocks = torch.split(rows, max(1, _NUMBERS // len(centers)))
    return torch.cat([torch.cdist(block, centers).argmin(1) for block in blocks])


@dataclass(frozen=True)
class Premise:
    """Where rules hold: centres [r, d] and sizes [r, c] of their memberships."""

    centers: Tensor
    sizes: Tensor


@dataclass(frozen=True, eq=False)
class Fit:
    """Standardized rows [n, d] and targets [n], and what is fitted to them."""

    rows: Tensor
    heights: Tensor
    membership: Membership
    order: int
    ridge: float

    def start(self, centers: Tensor) -> Premise:
        """Rules at centres, as wide as their clusters."""
        count, width = centers.shape
        near = nearest(self.rows, centers)
        squares = torch.zeros_like(centers).index_add_(0, near, (self.rows - centers[near]).square())
        number = torch.bincount(near, minlength=count)[:, None].clamp(min=1)
        deviations = (squares / number).sqrt().clamp(min=NARROWEST * count ** (-1 / width))
        sizes = [
            deviations[:, column] * factor
            if part not in one.unitless
            else deviations.new_full((count,), factor)
            for column, one in enumerate(self.membership.each(width))
            for part, factor in zip(one.parts, one.start, strict=True)
        ]
        return Premise(centers, torch.stack(sizes, 1))

    def terms(self, rows: Tensor, premise: Premise) -> Tensor:
        """What the answers at rows are linear in [n, r (1 + d)]: shares of the rules, and times x - c."""
        logs = self.membership.logs(rows, premise.centers, premise.sizes)
        raw = (logs - logs.detach().amax(1, keepdim=True).clamp(min=LOWEST)).exp()
        shares = (raw / raw.sum(1, keepdim=True).clamp(min=1))[:, :, None]
        if self.order == 0:
            return shares[:, :, 0]
        return torch.cat([shares, shares * (rows[:, None] - premise.centers)], 2).flatten(1)

    @torch.no_grad()
    def consequents(self, premise: Premise) -> Tensor:
        """Those of the smallest error plus ridge, [r (1 + d)]."""
        products, right = [], []
        for rows, heights in self._blocks(premise):
            terms = self.terms(rows, premise)
            products.append(terms.mT @ terms)
            right.append(terms.mT @ heights)
        gram = torch.stack(products).sum(0) / len(self.rows)
        gram.diagonal().add_(self.ridge)
        # of a system that overflowed or has no solution come numbers that are not finite, and so is the error
        found: Tensor = torch.linalg.solve_ex(gram, torch.stack(right).sum(0) / len(self.rows)).result
        return found

    def loss(self, premise: Premise, found: Tensor) -> Tensor:
        """Mean squared error."""
        with torch.no_grad():
            parts = [self._squares(premise, found, *block) for block in self._blocks(premise)]
            return torch.stack(parts).sum() / len(self.rows)

    def refined(self, start: Premise, steps: int) -> Premise:
        """The memberships of the least error on the way; sizes stay positive, as their logarithms move."""
        centers = start.centers.clone().requires_grad_()
        logs = start.sizes.log().requires_grad_()
        descent = torch.optim.LBFGS([centers, logs], max_iter=steps, line_search_fn="strong_wolfe")
        best, least = start, torch.inf

        def closure() -> float:
            # at the best consequents the error does not change with them: the gradient need not follow
            nonlocal best, least
            descent.zero_grad()
            now = Premise(centers, logs.exp())
            found, total = self.consequents(now), 0.0
            for block in self._blocks(now):
                part = self._squares(Premise(centers, logs.exp()), found, *block) / len(self.rows)
                part.backward()  # type: ignore[no-untyped-call]
                total += part.item()
            total += self.ridge * found.square().sum().item()
            if total < least:  # never where it is no number
                best, least = Premise(centers.detach().clone(), logs.detach().exp()), total
            return total

        descent.step(closure)  # type: ignore[no-untyped-call]
        return best

    def _squares(self, premise: Premise, found: Tensor, rows: Tensor, heights: Tensor) -> Tensor:
        return (heights - self.terms(rows, premise) @ found).square().sum()

    def _blocks(self, premise: Premise) -> list[tuple[Tensor, Tensor]]:
        count, width = premise.centers.shape
        size = max(1, _NUMBERS // (count * (1 + width)))
        return list(zip(torch.split(self.rows, size), torch.split(self.heights, size), strict=True))
