"""The sections of a pipeline file about answers: to queries, to the rows of a support, to series."""

from typing import Annotated, ClassVar

from pydantic import Field

from locdist.pipeline.choices import Choice
from locdist.pipeline.section import Places, Section, Texts
from locdist.pipeline.supports import Bad, Codes, Opened, Rows, Share, Support
from locdist.pipeline.words import (
    Backfitting,
    Chosen,
    Explain,
    Extras,
    Keep,
    Limit,
    Name,
    OfSeries,
    Out,
    Recall,
)


class Predict(Section):
    """A local model at every query."""

    name: Name = "predict"
    method: Chosen
    """The method: its name, or its name and parameters ({name: local-linear, k: 64, kernel: tricube});
    `locdist methods` lists them. Or the step that found it: {step: tune}.
    """
    index: Opened | None = None
    """The index; that of the file by default."""
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
    index: Opened | None = None
    """The index; that of the file by default."""
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


class Evaluate(Section):
    """How good a prediction is: rmse, mae and r2, or log-loss, Brier score and accuracy."""

    name: Name = "evaluate"
    step: str | None = None
    """The step whose predictions are scored; the last predict, transform or apply above by default."""
    target: str | None = None
    """The column of the truth; the target of the index by default."""
    truth: Places | None = None
    """Where it is, if neither in the output nor in the queries: as many rows, in the same order."""
