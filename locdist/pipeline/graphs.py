"""The sections of a pipeline file about graphs of neighbors, and what is made of them."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from locdist.pipeline.choices import Choice
from locdist.pipeline.section import Section, Texts
from locdist.pipeline.supports import Bad, Codes, Rows, Share, Support
from locdist.pipeline.words import Embedding, Keep, Labeling, Limit, Name, Out, Recall


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
    """lle, spectral, lazy-map or lazy-autoencoder, or with parameters: {name: lle, k: 12, components: 2}."""
    support: Support | None = None
    """The rows; the support of the file by default."""
    out: Out
    bad: Bad = "raise"
    recall: Share = 0.99
    """Share of the true neighbors to find."""
    codes: Codes = None


class Place(Section):
    """New rows in the coordinates of an embed step, by those of their neighbors."""

    name: Name = "place"
    embedding: Rows
    """The folder that `embed` wrote, or the step."""
    queries: Rows | None = None
    """The rows; the queries of the file by default."""
    out: Out
    keep: Keep = None
    recall: Recall = None
    limit: Limit = None
