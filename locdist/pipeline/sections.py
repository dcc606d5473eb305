"""The sections of a pipeline file: what each may say, in the words that editors show.

What is wrong with a single section is found here; what does not fit together, in `meaning`.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from locdist.errors import UsageError
from locdist.methods.embedded import embed_method
from locdist.methods.labels import label_method
from locdist.methods.layered import layered_method
from locdist.pipeline.choices import Choice
from locdist.pipeline.running import Run
from locdist.pipeline.section import Place, Places, Section, Texts
from locdist.pipeline.supports import Bad, Codes, Index, Rows, Share, Support

VERBS = ("predict", "neighbors", "transform", "cluster", "move", "graph", "label", "embed", "evaluate")


def _one_verb(schema: dict[str, Any]) -> None:
    """In the schema: one of them, and not null."""
    schema.update(minProperties=1, maxProperties=1)
    for verb in schema["properties"].values():
        del verb["default"]
        verb.update(verb.pop("anyOf")[0])


Name = Annotated[
    str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$", description="What later steps and --set call this step.")
]
Out = Annotated[Place, Field(description="The folder to write, apart from inputs and other outputs.")]
Keep = Annotated[
    Texts | None,
    Field(
        description="Input columns that go to the output, '*' for all. By default the id, or where there is "
        "none each row's file and its number in it."
    ),
]


def _layered(given: str | dict[str, Any]) -> str | dict[str, Any]:
    layered_method(given)
    return given


def _labeling(given: str | dict[str, Any]) -> str | dict[str, Any]:
    label_method(given)
    return given


def _embedding(given: str | dict[str, Any]) -> str | dict[str, Any]:
    embed_method(given)
    return given


Layered = Annotated[str | dict[str, Any], AfterValidator(_layered)]
Labeling = Annotated[str | dict[str, Any], AfterValidator(_labeling)]
Embedding = Annotated[str | dict[str, Any], AfterValidator(_embedding)]
Extra = (
    Literal["spread", "interval", "effective", "coefficients", "parameters", "listwise"]
    | Annotated[str, Field(pattern=r"^interval=0?\.\d+$")]
)
Extras = Annotated[
    tuple[Extra, ...],
    Field(
        strict=False,
        description="More columns: standard error of the prediction, effective number of neighbors, local "
        "coefficients in the units of the data (the value at the query first) as a list, or a column each.",
    ),
]
Explain = Annotated[
    int, Field(ge=0, description="Neighbors to list with each prediction, and what each counted; at most k.")
]
Limit = Annotated[
    Annotated[int, Field(ge=1)] | None,
    Field(description="Only the first so many rows: a trial, into another folder."),
]
Recall = Annotated[
    Share | None,
    Field(description="Share of the true neighbors to find; the target of the index by default."),
]


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


Own = Transform | Cluster | Move | Graph | Embed  # steps with an index of their own


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
    def content(self) -> Predict | Neighbors | Own | Label | Evaluate:
        """How it is done."""
        content: Predict | Neighbors | Own | Label | Evaluate = getattr(self, self.verb)
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
