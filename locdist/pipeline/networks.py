"""The sections of a pipeline file about models at the nodes of a graph."""

from typing import Annotated, ClassVar

from pydantic import Field

from locdist.pipeline.section import Section, Texts
from locdist.pipeline.supports import Bad, Rows, Support
from locdist.pipeline.words import Coupling, Keep, Limit, Name, Out


class Couple(Section):
    """A model at each node of a graph, drawn to those of its neighbors."""

    keep: ClassVar[Texts | None] = None  # a node has its name
    name: Name = "couple"
    method: Coupling = "gtvmin"
    """gtvmin, or with parameters: {name: gtvmin, strength: 2, coupling: squared}; dem-learn of groups;
    fed-relax and logifold of an estimator, whose parameters stand among theirs: {name: fed-relax, estimator:
    sklearn.tree.DecisionTreeRegressor, max_depth: 4}.
    """
    support: Support | None = None
    """The rows: their key is what models are fitted on, their id names the node of each, or the chart; the
    support of the file by default.
    """
    edges: Rows | None = None
    """A table with an edge a row, or the folder of a graph, or the step that makes it; of dem-learn a table
    with a device a row, and its group at each level; none of logifold.
    """
    ends: Annotated[Texts, Field(min_length=2)] | None = None
    """The columns of both ends of an edge, and of its weight; source, target and weight by default. Of
    dem-learn the device, and each level.
    """
    shared: Rows | None = None
    """Of fed-relax: the rows without targets that nodes agree on."""
    out: Out
    bad: Bad = "raise"


class Apply(Section):
    """What models of nodes say of new rows."""

    name: Name = "apply"
    models: Rows
    """The folder that `couple` wrote, or the step."""
    method: Coupling | None = None
    """Of a folder of fed-relax or logifold, which names no code: the method that it was made with; of a step
    it is that of the step.
    """
    queries: Rows | None = None
    """The rows, which name their node; the queries of the file by default."""
    out: Out
    keep: Keep = None
    limit: Limit = None
