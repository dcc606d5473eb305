"""Words that several steps of a pipeline file share, and what they may say."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from locdist.jobs.restoring.chosen import restore_method
from locdist.methods.coupled import coupled_method
from locdist.methods.embedded import embed_method
from locdist.methods.estimators import check_file
from locdist.methods.labels import label_method
from locdist.methods.layered import layered_method
from locdist.methods.multiscale import backfit_method
from locdist.methods.series import series_method
from locdist.pipeline.choices import TAG, Choice
from locdist.pipeline.section import Place, Texts
from locdist.pipeline.supports import OfStep, Share

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


def _read_by(method_of: Callable[[Any], object]) -> AfterValidator:
    """A method that a function can read is kept as it was given."""

    def checked(given: Any) -> Any:
        method_of(given)
        return given

    return AfterValidator(checked)


Chosen = Annotated[
    Annotated[Choice, Tag(f"{TAG}method")] | Annotated[OfStep, Tag(f"{TAG}step")],
    Discriminator(lambda given: f"{TAG}{'step' if _is_of_step(given) else 'method'}"),
]


def _is_of_step(given: Any) -> bool:
    return isinstance(given, OfStep) or (isinstance(given, dict) and "step" in given and "name" not in given)


def _of_nodes(given: Any) -> None:
    check_file(given)
    coupled_method(given)


Coupling = Annotated[str | dict[str, Any], _read_by(_of_nodes)]
Backfitting = Annotated[str | dict[str, Any], _read_by(backfit_method)]
OfImages = Annotated[str | dict[str, Any], _read_by(restore_method)]
OfSeries = Annotated[str | dict[str, Any], _read_by(series_method)]
Layered = Annotated[str | dict[str, Any], _read_by(layered_method)]
Labeling = Annotated[str | dict[str, Any], _read_by(label_method)]
Embedding = Annotated[str | dict[str, Any], _read_by(embed_method)]
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
