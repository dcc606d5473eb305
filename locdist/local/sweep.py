"""Many numbers of neighbors at the price of a few: local linear fits from running sums.

A compact kernel with an adaptive bandwidth h, the distance to the k-th neighbor, is a polynomial in d / h, so

    sum_{j <= k} K(d_j / h) p_j = sum_e a_e h^-e  sum_{j <= k} d_j^e p_j

for any products p of a neighbor's terms and target. The inner sums run over the sorted neighbors once, for
all k. Terms are centred at the query; where a pivot shows that digits were lost the fit is made with care.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locdist.local.bandwidths import Nearest
from locdist.local.kernels import Kernel
from locdist.local.layer import Layer
from locdist.local.models import Linear
from locdist.local.select import Asked, Judged, judge, left_out, squares
from locdist.local.shapes import Biweight, Epanechnikov, Triangular, Tricube, Uniform
from locdist.local.solve import factored, offsets

WORTH = 8  # settings that running sums are worth for
POLYNOMIALS: dict[type[Kernel], dict[int, float]] = {
    Uniform: {0: 1.0},
    Triangular: {0: 1.0, 1: -1.0},
    Epanechnikov: {0: 1.0, 2: -1.0},
    Biweight: {0: 1.0, 2: -2.0, 4: 1.0},
    Tricube: {0: 1.0, 3: -3.0, 6: 3.0, 9: -1.0},
}
_SURE = 1e-7  # a squared pivot that leaves enough digits

Kind = tuple[type[Kernel], Linear, float, bool]


def kind_of(layer: Layer, criterion: str) -> Kind | None:
    """What settings have in common that can be swept; None for others."""
    width = layer.kernel.bandwidth
    adaptive = isinstance(width, Nearest) and width.rank is None and type(layer.kernel) in POLYNOMIALS
    if not (adaptive and isinstance(layer.model, Linear) and criterion != "log-likelihood"):
        return None
    assert isinstance(width, Nearest)
    if width.scale < 1:  # then some of the k are beyond the kernel's edge
        return None
    return type(layer.kernel), layer.model, width.scale, left_out(layer, criterion)


def judge_all(layers: Sequence[Layer], asked: Asked, criterion: str) -> list[Judged]:
    """What each setting makes of one tile of rows, all of which see the rows in the same way."""
    kinds = [kind_of(layer, criterion) for layer in layers]
    swept = {kind for kind in kinds if kind is not None and kinds.count(kind) >= WORTH}
    found: dict[int, Judged] = {}
    for kind in swept:
        numbers = [number for number, each in enumerate(kinds) if each == kind]
        some = [layers[number] for number in numbers]
        found |= dict(zip(numbers, _swept(some, asked, criterion), strict=True))
    return [found[n] if n in found else judge(layer, asked, criterion) for n, layer in enumerate(layers)]


@dataclass(frozen=True)
class Running:
    """Sums over the first neighbors of each query, for some numbers of them.

    Attributes
    ----------
    moments : Tensor [q, l, c]
        Of the products, weighed.
    squares : Tensor [q, l]
        Of the weights.
    """

    moments: Tensor
    squares: Tensor


def _swept(layers: Sequence[Layer], asked: Asked, criterion: str) -> list[Judged]:
    layer, ks = layers[0], torch.tensor([layer.neighbors for layer in layers])
    assert isinstance(layer.model, Linear)
    assert asked.hood.query_features is not None
    running, width = _running(layer, ks, asked), asked.hood.query_features.shape[1] + 1
    mass = running.moments[:, :, 0]
    moments = running.moments / mass[:, :, None]
    matrix, right = moments[:, :, : width**2].reshape(-1, width, width), moments[:, :, width**2 :]
    matrix.diagonal(dim1=1, dim2=2)[:, 1:] += layer.model.ridge
    factor, pivot = factored(matrix)
    first = torch.zeros_like(matrix[:, :, :1])
    first[:, 0] = 1
    solved = torch.cholesky_solve(torch.cat([right.reshape(-1, width, 1), first], 2), factor)
    values, lever = solved[:, 0].reshape(*mass.shape, 2).unbind(2)
    leverage = torch.zeros_like(lever)
    if not left_out(layer, criterion):
        mine = asked.hood.ids == asked.own[:, None]
        weight = mine.double() if asked.hood.row_weights is None else mine * asked.hood.row_weights
        leverage = weight.cumsum(1)[:, ks - 1] / mass * lever
    loss = squares(values, asked.truth[:, None], leverage, criterion)
    sure = (pivot.reshape(mass.shape) > _SURE).all(0)
    told = zip(layers, loss.T, leverage.T, (mass.square() / running.squares).T, sure, strict=True)
    return [
        Judged(one, other, number) if good else judge(layer, asked, criterion)
        for layer, one, other, number, good in told
    ]


def _running(layer: Layer, ks: Tensor, asked: Asked) -> Running:
    hood, polynomial = asked.hood, POLYNOMIALS[type(layer.kernel)]
    assert hood.features is not None
    assert hood.query_features is not None
    assert hood.targets is not None
    assert isinstance(layer.kernel.bandwidth, Nearest)
    absent = hood.absent
    near = offsets(hood.features, hood.query_features, absent)
    terms = torch.cat([torch.ones_like(near[:, :, :1]), near], 2)
    targets = hood.targets.double().masked_fill(absent[:, :, None], 0.0)
    counts = (~absent).double()
    weights = counts if hood.row_weights is None else hood.row_weights.double().masked_fill(absent, 0.0)
    products = torch.cat([(terms[:, :, :, None] * terms[:, :, None]).flatten(2), terms * targets], 2)
    products *= weights[:, :, None]
    away = hood.distances.double().masked_fill(absent, 0.0).sqrt()
    unit = away.amax(1, keepdim=True)
    unit = unit.where(unit > 0, 1.0)  # powers of a share do not underflow before they do not matter
    away, last = away / unit, (away / unit).cummax(1).values[:, ks - 1] * layer.kernel.bandwidth.scale
    inverse = last.reciprocal().masked_fill(last == 0, 0.0)

    def summed(values: Tensor, powers: dict[int, float]) -> Tensor:
        total = torch.zeros_like(values[:, ks - 1])
        for power, factor in powers.items():
            sums = (values * (away**power)[:, :, None]).cumsum(1)[:, ks - 1]
            total += sums * (factor * inverse**power)[:, :, None]
        return total

    doubled: dict[int, float] = {}
    for one, factor in polynomial.items():
        for other, another in polynomial.items():
            doubled[one + other] = doubled.get(one + other, 0.0) + factor * another
    return Running(summed(products, polynomial), summed(weights.square()[:, :, None], doubled)[:, :, 0])
