"""The sections of a pipeline file about rows that move: to the modes of their density, or all together."""

from typing import Annotated

from pydantic import Field

from locdist.pipeline.choices import Choice
from locdist.pipeline.section import Section
from locdist.pipeline.supports import Bad, Codes, Rows, Share, Support
from locdist.pipeline.words import Keep, Layered, Limit, Name, Out, Recall


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


class Assign(Section):
    """New rows to the clusters of a cluster step: each climbs as the clustered rows did."""

    name: Name = "assign"
    clusters: Rows
    """The folder that `cluster` wrote, or the step."""
    queries: Rows | None = None
    """The rows; the queries of the file by default."""
    out: Out
    keep: Keep = None
    recall: Recall = None
    limit: Limit = None


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
