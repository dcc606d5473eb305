"""Fuzzy rules: memberships as a kernel over the prototypes of rules, and affine consequents as a model.

A rule "if x is near c then y" is a row of the support. How much it fires at x is its membership there, a
t-norm of memberships in each column of the key; what is inferred is the mean of the consequents with the
memberships as weights. So a rule base is a local model, and its rules are read off a table.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

import torch
from torch import Tensor

from locdist.errors import DataError, UsageError, did_you_mean
from locdist.local.answers import Answers
from locdist.local.models import Constant, LocalModel
from locdist.local.neighborhood import Neighborhood
from locdist.local.shapes import Kernel

TNORMS = ("product", "min")
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Form:
    """A family of membership functions of one column.

    Parameters
    ----------
    parts : tuple of str
        What a rule says besides the centre; all of them 0 or more.
    unitless : frozenset of str
        Those of them that are no lengths.
    log : callable (Tensor [...], Tensor [..., parts]) -> Tensor [...]
        Logarithm of the membership of x - centre.
    area, shift : callable (Tensor [n, parts]) -> Tensor [n]
        Its integral, and its centroid less the centre.
    start : tuple of float
        What learning starts from: lengths as multiples of the deviation of the rows around the centre. Wide
        sets overlap, which makes rules that also hold between the rows.
    """

    parts: tuple[str, ...]
    log: Callable[[Tensor, Tensor], Tensor]
    area: Callable[[Tensor], Tensor]
    shift: Callable[[Tensor], Tensor]
    start: tuple[float, ...]
    unitless: frozenset[str] = frozenset()


def _relative(away: Tensor, size: Tensor) -> Tensor:
    return away / size.clamp(min=_TINY)  # of a set without any width only the centre is a member


def _gaussian(away: Tensor, parts: Tensor) -> Tensor:
    return _relative(away, parts[..., 0]).square() / -2


def _bell(away: Tensor, parts: Tensor) -> Tensor:
    # -log(1 + u^(2b)) with u^(2b) = exp(b log u^2), which may overflow
    square = _relative(away, parts[..., 0]).square().clamp(min=_TINY)
    power = parts[..., 1] * square.log()
    return -torch.logaddexp(power.new_zeros(()), power)


def _slope(beyond: Tensor, away: Tensor, left: Tensor, right: Tensor) -> Tensor:
    share = _relative(beyond, torch.where(away < 0, left, right))
    inside = share < 1  # chosen before the logarithm, whose derivative is infinite at the foot
    return torch.where(inside, torch.where(inside, share, 0.0).neg().log1p(), -math.inf)


def _trapezoid(away: Tensor, parts: Tensor) -> Tensor:
    core, left, right = parts.unbind(-1)
    return _slope((away.abs() - core).clamp(min=0), away, left, right)


def _triangular(away: Tensor, parts: Tensor) -> Tensor:
    left, right = parts.unbind(-1)
    return _slope(away.abs(), away, left, right)


def _half(parts: Tensor) -> Tensor:
    return parts[:, -2:].sum(1) / 2


def _trapezoid_shift(parts: Tensor) -> Tensor:
    core, left, right = parts.unbind(1)
    moment = (right - left) * (core + (left + right) / 3) / 2
    return moment / (2 * core + (left + right) / 2)


def _bell_area(parts: Tensor) -> Tensor:
    turn = math.pi / (2 * parts[:, 1])
    return 2 * parts[:, 0] * turn / turn.sin()


def _gaussian_area(parts: Tensor) -> Tensor:
    return parts[:, 0] * math.sqrt(2 * math.pi)


def _trapezoid_area(parts: Tensor) -> Tensor:
    return 2 * parts[:, 0] + _half(parts)


def _triangular_shift(parts: Tensor) -> Tensor:
    return (parts[:, 1] - parts[:, 0]) / 3


def _none(parts: Tensor) -> Tensor:
    return torch.zeros_like(parts[:, 0])


FORMS: Mapping[str, Form] = {
    "gaussian": Form(("width",), _gaussian, _gaussian_area, _none, (2.5,)),
    "triangular": Form(("left", "right"), _triangular, _half, _triangular_shift, (6.0, 6.0)),
    "trapezoid": Form(
        ("core", "left", "right"), _trapezoid, _trapezoid_area, _trapezoid_shift, (1.0, 6.0, 6.0)
    ),
    "bell": Form(("width", "slope"), _bell, _bell_area, _none, (3.0, 2.0), frozenset({"slope"})),
}


def form(name: str) -> Form:
    """A family by its name; UsageError for an unknown one."""
    if name not in FORMS:
        raise UsageError("the name of a membership", repr(name), did_you_mean(str(name), FORMS))
    return FORMS[name]


@dataclass(frozen=True)
class Membership(Kernel):
    """How much rules fire: a t-norm of memberships, each of one column of the key.

    The product of Gaussian memberships of one width is the Gaussian kernel of the distance to the prototype,
    their minimum that of the largest difference in a column.

    Parameters
    ----------
    forms : tuple of str
        Names of `FORMS`: one for each column of the key, or one for all.
    tnorm : {"product", "min"}

    References
    ----------
    Jang, ANFIS: Adaptive-Network-Based Fuzzy Inference System, IEEE Transactions on Systems, Man, and
    Cybernetics 23, 1993 (memberships, table of t-norms).
    """

    forms: tuple[str, ...] = ("gaussian",)
    tnorm: str = "product"
    name: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[str]] = frozenset({"keys", "shapes"})
    adaptive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.forms:
            raise UsageError("at least one membership", "none", f"Choose among {', '.join(FORMS)}.")
        for name in self.forms:
            form(name)
        if self.tnorm not in TNORMS:
            raise UsageError("tnorm 'product' or 'min'", repr(self.tnorm), did_you_mean(self.tnorm, TNORMS))

    def shape(self, key: Sequence[str]) -> tuple[str, ...]:
        pairs = zip(key, self.each(len(key)), strict=True)
        return tuple(f"{column}_{part}" for column, one in pairs for part in one.parts)

    def each(self, width: int) -> tuple[Form, ...]:
        """The family of each column of a key."""
        names = self.forms * width if len(self.forms) == 1 else self.forms
        if len(names) != width:
            given = f"{len(names)} memberships for a key of {width} columns"
            raise UsageError("one membership for all columns, or one for each", given, "Correct the list.")
        return tuple(FORMS[name] for name in names)

    def log_weights(self, hood: Neighborhood) -> Tensor:
        assert hood.queries is not None
        assert hood.keys is not None
        assert hood.shapes is not None
        shapes = hood.shapes[:, :, : self.parts(hood.keys.shape[2], hood.shapes.shape[2])].double()
        negative = shapes < 0
        if negative.any() and (negative & ~hood.absent[:, :, None]).any():
            raise DataError("sizes of 0 or more of all memberships", "a negative one", "Repair the rules.")
        return self.logs(hood.queries.double(), hood.keys, shapes)

    def logs(self, queries: Tensor, centers: Tensor, sizes: Tensor) -> Tensor:
        """Logarithms of the memberships [q, n] of queries [q, d] in rules of centres [.., n, d] and sizes
        [.., n, c].
        """
        forms = self.each(centers.shape[-1])
        parts = torch.split(sizes, [len(one.parts) for one in forms], -1)
        each = (
            one.log(queries[:, column, None] - centers[..., column], part)
            for column, (one, part) in enumerate(zip(forms, parts, strict=True))
        )
        return reduce(torch.add if self.tnorm == "product" else torch.minimum, each)

    def parts(self, width: int, known: int) -> int:
        """How many numbers of each rule are sizes; UsageError where fewer are known."""
        count = sum(len(one.parts) for one in self.each(width))
        if known < count:
            wanted = ", ".join(part for one in self.each(width) for part in one.parts)
            raise UsageError(f"{count} sizes of each rule ({wanted})", str(known), "Give them as its shape.")
        return count


@dataclass(frozen=True)
class Affine(LocalModel):
    """Consequents that are affine, sum_j w_j (y_j + b_j'(x - c_j)): a local mean of planes that are given.

    The slopes b [p, d] are the last numbers of a row's shape, those of the first target first.

    References
    ----------
    Takagi, Sugeno, Fuzzy Identification of Systems and Its Applications to Modeling and Control, IEEE
    Transactions on Systems, Man, and Cybernetics 15, 1985.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"targets", "keys", "shapes"})
    tells: ClassVar[frozenset[str]] = frozenset({"effective", "neighbors"})

    def shape(self, key: Sequence[str], targets: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{target}_by_{column}" for target in targets for column in key)

    def predict(self, hood: Neighborhood, weights: Tensor, want: frozenset[str] = frozenset()) -> Answers:
        assert hood.queries is not None
        assert hood.keys is not None
        assert hood.targets is not None
        assert hood.shapes is not None
        away = hood.queries.double()[:, None] - hood.keys.double()
        slopes = slopes_of(hood.shapes.double(), hood.targets.shape[2], away.shape[2])
        heights = hood.targets + (slopes @ away[..., None])[..., 0]
        return Constant().predict(replace(hood, targets=heights), weights, want)


def slopes_of(shapes: Tensor, targets: int, width: int) -> Tensor:
    """The slopes [..., p, d] of consequents among the shapes [..., c] of rules."""
    count = targets * width
    if shapes.shape[-1] < count:
        given = f"{shapes.shape[-1]} numbers a rule"
        raise UsageError(f"{count} slopes of each rule at the end of its shape", given, "Or choose order 0.")
    return shapes[..., -count:].reshape(*shapes.shape[:-1], targets, width)


def sets(name: str, centers: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
    """Centroids and areas [n] of consequents that are fuzzy sets: with areas as weights of rows, the local
    mean of the centroids is product implication, summed, and its centroid taken (Kosko's standard additive
    model).

    Parameters
    ----------
    name : str
        Of `FORMS`.
    centers : Tensor [n]
    parts : Tensor [n, c]

    References
    ----------
    Kosko, Fuzzy Systems as Universal Approximators, IEEE Transactions on Computers 43, 1994.
    """
    family = form(name)
    areas, bells = family.area(parts), parts[:, 1:] if name == "bell" else parts[:0]
    if (parts < 0).any() or not (areas > 0).all() or (bells <= 1).any():
        given = "a negative size, a set of no area, or a bell whose slope is not over 1"
        raise DataError("consequents with an area and a centroid", given, "Repair the rules.")
    return centers + family.shift(parts), areas
