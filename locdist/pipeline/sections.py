"""The sections of a pipeline file: what each may say, in the words that editors show.

What is wrong with a single section is found here; what does not fit together, in `meaning`.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from locdist.errors import UsageError
from locdist.pipeline.choices import Choice
from locdist.pipeline.networks import Apply, Couple
from locdist.pipeline.running import Run
from locdist.pipeline.section import Places, Section, Texts
from locdist.pipeline.supports import Bad, Codes, Index, Rows, Share, Support
from locdist.pipeline.words import (
    Backfitting,
    Embedding,
    Explain,
    Extras,
    Keep,
    Labeling,
    Layered,
    Limit,
    Name,
    OfSeries,
    Out,
    Recall,
)

VERBS = (
    "predict",
    "neighbors",
    "transform",
    "cluster",
    "move",
    "graph",
    "label",
    "embed",
    "backfit",
    "forecast",
    "evaluate",
    "couple",
    "apply",
)


def _one_verb(schema: dict[str, Any]) -> None:
    """In the schema: one of them, and not null."""
    schema.update(minProperties=1, maxProperties=1)
    for verb in schema["properties"].values():
        del verb["default"]
        verb.update(verb.pop("anyOf")[0])


class Predict(Section):
    """A local model at every query."""

    name: Name = "predict"
    method: Choice
    """The method: its name, or its name and parameters ({name: local-linear, k: 64, kernel: tricube}).
    `locdist methods` lists them.
    """
    queries: Rows | None = None
    """The rows to predict; the queries of the file by default."""
    out: Out
    keep: Keep = None
    extras: Extras = ()
    explain: Explain = 0
    recall: Recall = None
    limit: Limit = None


class Neighbors(Section):
    """The k nearest rows of the support for every query: the kNN join itself."""

    name: Name = "neighbors"
    k: Annotated[int, Field(ge=1)]
    """Neighbors of each query."""
    queries: Rows | None = None
    """The rows to find neighbors of; the queries of the file by default."""
    out: Out
    keep: Keep = None
    recall: Recall = None
    limit: Limit = None


class Transform(Section):
    """A local model at every row of the support, from the other rows. It has an index of its own."""

    name: Name = "transform"
    method: Choice
    """The method, as in predict."""
    support: Support | None = None
    """The rows; the support of the file by default."""
    out: Out
    keep: Keep = None
    extras: Extras = ()
    explain: Explain = 0
    bad: Bad = "raise"
    recall: Share = 0.99
    """Share of the true neighbors to find."""
    codes: Codes = None
    limit: Limit = None


class Cluster(Section):
    """Rows of a support that climb to the same mode of their density. It has an index of its own."""

    name: Name = "cluster"
    method: Choice
    """How they climb: {name: mean-shift, bandwidth: 0.8, kernel: uniform}."""
    support: Support | None = None
    """The rows; the support of the file by default."""
    out: Out
    grain: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Cells of the lattice that rows climb on, in bandwidths; 0 lets each climb for itself."""
    sample: Annotated[int, Field(ge=1)] = 5_000
    """Rows of the support that climbs on the lattice look at."""
    radius: Annotated[float, Field(gt=0)] | None = None
    """Modes that are no farther apart are one; the bandwidth by default."""
    least: Annotated[int, Field(ge=1)] = 1
    """Rows of a cluster; those of smaller ones are orphans."""
    keep: Keep = None
    bad: Bad = "raise"
    recall: Share = 0.99
    """Share of the true neighbors to find, where the method has k of them."""
    codes: Codes = None


class Move(Section):
    """The rows of a support in layers, each over the rows as the one before left them. It has indexes of its
    own.
    """

    name: Name = "move"
    method: Layered
    """How they move: {name: denoise-manifold, components: 2, k: 30}, blurring-mean-shift, or stack."""
    support: Support | None = None
    """The rows; the support of the file by default."""
    out: Out
    keep: Keep = None
    bad: Bad = "raise"
    recall: Share = 0.99
    """Share of the true neighbors to find."""
    codes: Codes = None


class Graph(Section):
    """The graph of neighbors among the rows of a support. It has an index of its own."""

    keep: ClassVar[Texts | None] = None  # a node has its id
    name: Name = "graph"
    support: Support | None = None
    """The rows; the support of the file by default."""
    out: Out
    k: Annotated[int, Field(ge=1)] | None = None
    """Neighbors of a row, at most; 15 by default, all within the radius where one is given."""
    radius: Annotated[float, Field(gt=0)] | None = None
    """Leaves out neighbors that are farther away."""
    kernel: str | dict[str, Any] | None = None
    """What an edge weighs; 1 by default."""
    bandwidth: float | str | dict[str, float] | None = None
    """Of the kernel: a distance, or adaptive."""
    method: Choice | None = None
    """Instead: an edge weighs what the neighbor counts for this linear smoother, with its own k."""
    symmetrize: Literal["union", "mutual", "mean"] | None = None
    """Edges lead both ways, with one weight: the larger, the smaller, or the mean."""
    bad: Bad = "raise"
    recall: Share = 0.99
    """Share of the true neighbors to find."""
    codes: Codes = None


class Label(Section):
    """Labels of some nodes of a graph, spread to all."""

    name: Name = "label"
    method: Labeling = "label-propagation"
    """How they spread: label-propagation, label-spreading, relaxation-labeling or poisson-learning."""
    graph: Rows
    """The folder of a graph, or the step that makes it."""
    labels: Rows
    """The known labels."""
    target: Annotated[Texts, Field(min_length=1)]
    """The column of the classes, or several columns of their shares."""
    id: str | None = None
    """The column of the labels that names a node; without it there is a row for each, in order."""
    out: Out
    partitioned: bool | None = None
    """Whether partitions are swept apart; by default only where one worker is too small."""


class Embed(Section):
    """Coordinates in which neighbors stay neighbors. It has a graph and an index of its own."""

    keep: ClassVar[Texts | None] = None  # a row has its id
    name: Name = "embed"
    method: Embedding
    """lle or spectral, or with parameters: {name: lle, k: 12, components: 2}."""
    support: Support | None = None
    """The rows; the support of the file by default."""
    out: Out
    bad: Bad = "raise"
    recall: Share = 0.99
    """Share of the true neighbors to find."""
    codes: Codes = None


class Backfit(Section):
    """A sum of local models at the rows of a support, each with its bandwidth. It has an index of its own."""

    name: Name = "backfit"
    method: Backfitting = "mgwr"
    """mgwr, or with parameters: {name: mgwr, kernel: gaussian}."""
    support: Support | None = None
    """The rows; the support of the file by default. Key and features apart, one target."""
    out: Out
    keep: Keep = None
    bad: Bad = "raise"


class Forecast(Section):
    """What follows series, by local models of their own past."""

    keep: ClassVar[Texts | None] = None  # a row has its series and step
    name: Name = "forecast"
    method: OfSeries = "local-ar"
    """local-ar, or with parameters: {name: local-ar, order: 24, k: 32}."""
    series: Rows
    """The rows of all series."""
    target: str
    """The column of the values."""
    time: str | None = None
    """The column that puts the rows of a series in order."""
    id: str | None = None
    """The column that names a row's series."""
    steps: Annotated[int, Field(ge=1)]
    """How far."""
    out: Out


Own = Transform | Cluster | Move | Graph | Embed | Backfit | Couple  # steps with a support of their own


class Evaluate(Section):
    """How good a prediction is: rmse, mae and r2, or log-loss, Brier score and accuracy."""

    name: Name = "evaluate"
    step: str | None = None
    """The step whose predictions are scored; the last predict or transform above by default."""
    target: str | None = None
    """The column of the truth; the target of the index by default."""
    truth: Places | None = None
    """Where it is, if neither in the output nor in the queries: as many rows, in the same order."""


class Step(Section):
    """One step: its verb, and what it is to do."""

    model_config = ConfigDict(json_schema_extra=_one_verb)

    predict: Predict | None = None
    """A local model at every query."""
    neighbors: Neighbors | None = None
    """The k nearest rows of the support for every query."""
    transform: Transform | None = None
    """A local model at every row of the support."""
    cluster: Cluster | None = None
    """Rows that climb to the same mode."""
    move: Move | None = None
    """Rows that move together, layer after layer."""
    graph: Graph | None = None
    """Who is a neighbor of whom."""
    label: Label | None = None
    """Labels that spread from neighbor to neighbor."""
    embed: Embed | None = None
    """Coordinates in which neighbors stay neighbors."""
    backfit: Backfit | None = None
    """A bandwidth for each term of a model."""
    forecast: Forecast | None = None
    """What follows series."""
    couple: Couple | None = None
    """A model at each node of a graph."""
    apply: Apply | None = None
    """What these say of new rows."""
    evaluate: Evaluate | None = None
    """Metrics of an earlier prediction."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [verb for verb in VERBS if getattr(self, verb) is not None]
        if len(given) != 1:
            wanted, told = f"one of {', '.join(VERBS)} in a step", " and ".join(given) or "none"
            raise UsageError(wanted, told, "Begin each step with a dash.")
        return self

    @property
    def verb(self) -> str:
        """What is done."""
        return next(verb for verb in VERBS if getattr(self, verb) is not None)

    @property
    def content(self) -> Predict | Neighbors | Own | Label | Forecast | Apply | Evaluate:
        """How it is done."""
        content: Predict | Neighbors | Own | Label | Forecast | Apply | Evaluate = getattr(self, self.verb)
        return content


class File(Section):
    """A pipeline of locdist: a support, an index, queries, and steps that read and write partitions."""

    version: Literal[1]
    """Of the form of this file."""
    name: str | None = None
    """What people call it."""
    support: Support | None = None
    """The rows that may be neighbors."""
    queries: Rows | None = None
    """The rows to answer."""
    index: Index | None = None
    """The index of the support."""
    steps: Annotated[tuple[Step, ...], Field(strict=False, min_length=1)]
    """What is done, in this order. Each step may read what an earlier one wrote."""
    run: Run = Run()
    """Where and how it runs."""


def schema() -> dict[str, Any]:
    """The JSON Schema of a pipeline file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **File.model_json_schema()}
