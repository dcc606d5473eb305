"""Fuzzy inference: a rule base is a support, and a rule is a row."""

from collections.abc import Sequence

from locdist.errors import UsageError
from locdist.local.fuzzy import Affine, Membership
from locdist.local.layer import Layer
from locdist.local.models import Constant
from locdist.methods.method import Method


def fuzzy_inference(
    membership: str | Sequence[str] = "gaussian",
    tnorm: str = "product",
    order: int = 0,
    k: int | None = None,
) -> Method:
    """Fuzzy inference from a table of rules (Takagi-Sugeno-Kang): Σ μ_r(x) f_r(x) / Σ μ_r(x).

    The support is the rule base. The key of a rule is where it holds most, its target what it says there, its
    weight, if there is one, the area of a consequent that is a fuzzy set with its centroid as the target
    (Kosko's standard additive model). Sizes of memberships and slopes of consequents are its shape, columns
    "COLUMN_PART" and "TARGET_by_COLUMN", in this order: see `rule_base`. A query where no rule fires is
    empty.

    With the product of Gaussian memberships of one width and order 0 this is the local mean of the rules with
    a Gaussian kernel of the distance to their centres; with their minimum, of the largest difference in a
    column.

    Parameters
    ----------
    membership : str or sequence of str
        Of each column of the key, or one for all: "gaussian" (width), "triangular" (left, right: from the
        centre to the feet), "trapezoid" (core: half of where it is 1; left, right: from there to the feet),
        "bell" (width: where it is 1/2; slope: 1 / (1 + u^(2 slope))).
    tnorm : {"product", "min"}
        How memberships of columns are joined.
    order : int
        0: a rule says a number. 1: an affine function, f_r(x) = y_r + b_r·(x - c_r).
    k : int, optional
        Rules that count at most, those whose key is nearest; by default all of them.

    Returns
    -------
    Method

    References
    ----------
    Takagi, Sugeno, *Fuzzy Identification of Systems and Its Applications to Modeling and Control*, IEEE
    Transactions on Systems, Man, and Cybernetics 15, 1985; Kosko, *Fuzzy Systems as Universal Approximators*,
    IEEE Transactions on Computers 43, 1994.
    """
    if isinstance(order, bool) or order not in (0, 1):
        raise UsageError("order 0 or 1", repr(order), "1 has a slope of each column in the consequents.")
    forms = (membership,) if isinstance(membership, str) else tuple(membership)
    told = {"membership": membership if isinstance(membership, str) else list(forms), "tnorm": tnorm}
    layer = Layer(k, Membership(forms=forms, tnorm=tnorm), Affine() if order else Constant())
    return Method("fuzzy-inference", tuple((told | {"order": order, "k": k}).items()), layer)
