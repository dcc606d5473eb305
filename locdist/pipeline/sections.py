"""The sections of a pipeline file: what each may say, in the words that editors show.

What is wrong with a single section is found here; what does not fit together, in `meaning`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from locdist.errors import UsageError
from locdist.pipeline.asking import Backfit, Evaluate, Forecast, Neighbors, Predict, Transform
from locdist.pipeline.graphs import Embed, Graph, Label, Place
from locdist.pipeline.learning import Build, Rules, Select, Tune
from locdist.pipeline.moving import Assign, Cluster, Move
from locdist.pipeline.networks import Apply, Couple
from locdist.pipeline.pictures import Restore
from locdist.pipeline.running import Run
from locdist.pipeline.section import Section
from locdist.pipeline.supports import Index, Rows, Support

VERBS = (
    "predict",
    "neighbors",
    "transform",
    "cluster",
    "assign",
    "move",
    "graph",
    "label",
    "embed",
    "place",
    "backfit",
    "forecast",
    "restore",
    "evaluate",
    "couple",
    "apply",
    "rules",
    "tune",
    "select",
    "index",
)


def _one_verb(schema: dict[str, Any]) -> None:
    """In the schema: one of them, and not null."""
    schema.update(minProperties=1, maxProperties=1)
    for verb in schema["properties"].values():
        del verb["default"]
        verb.update(verb.pop("anyOf")[0])


Own = Transform | Cluster | Move | Graph | Embed | Backfit | Couple | Build | Rules | Tune
"""Steps with a support of their own."""
Asked = Predict | Neighbors | Assign | Place | Apply
"""Steps that answer queries."""
Writing = Own | Asked | Label | Forecast | Restore | Select
"""Steps that write a folder."""


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
    assign: Assign | None = None
    """New rows among those that climb."""
    move: Move | None = None
    """Rows that move together, layer after layer."""
    graph: Graph | None = None
    """Who is a neighbor of whom."""
    label: Label | None = None
    """Labels that spread from neighbor to neighbor."""
    embed: Embed | None = None
    """Coordinates in which neighbors stay neighbors."""
    place: Place | None = None
    """The coordinates of new rows."""
    backfit: Backfit | None = None
    """A bandwidth for each term of a model."""
    forecast: Forecast | None = None
    """What follows series."""
    restore: Restore | None = None
    """What is made of images."""
    couple: Couple | None = None
    """A model at each node of a graph."""
    apply: Apply | None = None
    """What these say of new rows."""
    rules: Rules | None = None
    """Fuzzy rules, learned."""
    tune: Tune | None = None
    """A metric and a method, learned."""
    select: Select | None = None
    """A method, chosen."""
    index: Build | None = None
    """An index of what a step before has made."""
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
    def content(self) -> Writing | Evaluate:
        """How it is done."""
        content: Writing | Evaluate = getattr(self, self.verb)
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
