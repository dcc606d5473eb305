"""Words that several steps of a pipeline file share, and what they may say."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from locdist.methods.coupled import coupled_method
from locdist.methods.embedded import embed_method
from locdist.methods.labels import label_method
from locdist.methods.layered import layered_method
from locdist.methods.multiscale import backfit_method
from locdist.methods.series import series_method
from locdist.pipeline.section import Place, Texts
from locdist.pipeline.supports import Share

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


def _coupling(given: str | dict[str, Any]) -> str | dict[str, Any]:
    coupled_method(given)
    return given


def _backfitting(given: str | dict[str, Any]) -> str | dict[str, Any]:
    backfit_method(given)
    return given


def _series(given: str | dict[str, Any]) -> str | dict[str, Any]:
    series_method(given)
    return given


Coupling = Annotated[str | dict[str, Any], AfterValidator(_coupling)]
Backfitting = Annotated[str | dict[str, Any], AfterValidator(_backfitting)]
OfSeries = Annotated[str | dict[str, Any], AfterValidator(_series)]
Layered = Annotated[str | dict[str, Any], AfterValidator(_layered)]
Labeling = Annotated[str | dict[str, Any], AfterValidator(_labeling)]
Embedding = Annotated[str | dict[str, Any], AfterValidator(_embedding)]
Extra = (
    Literal["spread", "interval", "effective", "neglected", "coefficients", "parameters", "listwise"]
    | Annotated[str, Field(pattern=r"^interval=0?\.\d+$")]
)
Extras = Annotated[
    tuple[Extra, ...],
    Field(
        strict=False,
        description="More columns: standard error of the prediction, effective number of neighbors, a bound "
        "of the kernel's mass beyond them, local coefficients in the units of the data (the value at the "
        "query first) as a list, or a column each.",
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
