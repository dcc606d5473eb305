"""The sections of a pipeline file about what is learned from a support, or chosen by it, and its index."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from locdist.jobs.bandwidth import wanted
from locdist.jobs.grid import spaces, told
from locdist.methods.fuzzy import fuzzy_inference
from locdist.methods.learned import LEARNABLE
from locdist.pipeline.section import Section, Texts
from locdist.pipeline.supports import Bad, Building, OfStep, Opened, Support
from locdist.pipeline.words import Name, Out


def _listed(given: Any) -> Any:
    return tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)


def _one_or_more(kind: str, **limits: float) -> tuple[Any, ...]:
    """A number, or a list of them to try."""
    one = {"type": kind, **limits}
    described = WithJsonSchema({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})
    return BeforeValidator(_listed), Field(min_length=1), described


Positive = Annotated[tuple[Annotated[int, Field(ge=1)], ...], *_one_or_more("integer", minimum=1)]
Counted = Annotated[tuple[Annotated[int, Field(ge=0)], ...], *_one_or_more("integer", minimum=0)]
Penalties = Annotated[tuple[Annotated[float, Field(gt=0)], ...], *_one_or_more("number", exclusiveMinimum=0)]
Sample = Annotated[int, Field(ge=5, description="Rows to learn from, at most.")]
Seed = Annotated[int, Field(ge=0, lt=2**31, description="Of all that is drawn.")]


class Build(Building):
    """An index, where a step before decides what is in it: rules that were learned, a map that was tuned."""

    keep: ClassVar[Texts | None] = None
    name: Name = "index"
    support: Support | None = None
    """The rows; the support of the file by default."""
    map: OfStep | None = None
    """The tune step whose map of the key is used."""
    out: Out


class Rules(Section):
    """A table of fuzzy rules, learned from the rows of a support. An index of it answers by fuzzy inference.

    A row is a rule: the columns of the key, the target, and the columns of its shape.
    """

    keep: ClassVar[Texts | None] = None
    name: Name = "rules"
    support: Support | None = None
    """The rows, with a key of numbers and one target; the support of the file by default."""
    out: Out
    rules: Positive = (16,)
    """How many; a list is tried."""
    membership: Annotated[Texts, Field(min_length=1)] = ("gaussian",)
    """gaussian, triangular, trapezoid or bell: one, or of each column of the key."""
    tnorm: Literal["product", "min"] = "product"
    """How the memberships of a rule are joined."""
    order: Annotated[int, Field(ge=0, le=1)] = 1
    """Of what rules say: 0 a number, 1 affine."""
    steps: Counted = (100,)
    """Of the gradient; a list is tried."""
    ridge: Penalties = (1e-8,)
    """Of what rules say; a list is tried."""
    sample: Sample = 20_000
    seed: Seed = 0
    bad: Bad = "raise"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        fuzzy_inference(self.forms, self.tnorm, self.order)
        return self

    @property
    def forms(self) -> str | list[str]:
        """The memberships as `learn_rules` takes them."""
        return self.membership[0] if len(self.membership) == 1 else list(self.membership)


class Tune(Section):
    """Which columns of the key count how much, the parameters of a method, and intervals.

    An index step uses the map, a predict step the method.
    """

    keep: ClassVar[Texts | None] = None
    name: Name = "tune"
    support: Support | None = None
    """The rows, with one target; the support of the file by default."""
    method: Literal[tuple(LEARNABLE)] = "local-gp"  # type: ignore[valid-type]
    """What is learned."""
    out: Out
    k: Annotated[int, Field(ge=1)] | None = None
    """Neighbors of the method; 128 of local-gp, else 64 by default."""
    covariance: Annotated[Texts, Field(min_length=1)] | None = None
    """Of local-gp; matern32 and mix are tried by default."""
    rank: Counted | None = None
    """Directions of the map besides a scale for each column; a list is tried."""
    steps: Positive = (300,)
    """Of the gradient; a list is tried."""
    sample: Sample = 50_000
    seed: Seed = 0
    bad: Bad = "raise"


class Select(Section):
    """A method and its parameters, by how well rows of the support are answered from the others."""

    keep: ClassVar[Texts | None] = None
    name: Name = "select"
    methods: Annotated[tuple[str | dict[str, Any], ...], BeforeValidator(_listed), Field(min_length=1)]
    """Methods to choose among: names, or names and parameters."""
    index: Opened | None = None
    """The index of the support; that of the file by default."""
    out: Out
    grid: dict[str, Any] | None = None
    """Values to try by parameter: {k: [16, 32, 64], kernel: [tricube, gaussian]}, or a range that is
    searched: {k: 8..512}. k from 8 to 256 by default.
    """
    criterion: Literal["loo", "log-likelihood", "aicc", "aic", "bic", "gcv"] | None = None
    """The smaller the better; aicc of gwr, else loo by default."""
    sample: Sample | None = None
    """Rows that are asked; 20,000 of gwr, else 2,000 by default."""
    seed: Seed = 0
    simplest: bool = False
    """Whether the smoothest setting within one standard error of the best is taken."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        values = told(self.grid)
        rest = [choice for choice in self.methods if not wanted(choice, values)]
        _ = spaces(rest, values) if rest else ()
        return self
