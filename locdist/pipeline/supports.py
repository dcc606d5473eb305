"""The sections of a pipeline file about rows: where they are, what their columns are for, and their index."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from locdist.data.dataset import Roles
from locdist.errors import UsageError
from locdist.jobs.chosen import read_map
from locdist.pipeline.choices import TAG
from locdist.pipeline.section import Columns, Place, Places, Section, Texts

_PATH_OR_STEP = ConfigDict(json_schema_extra={"oneOf": [{"required": ["path"]}, {"required": ["step"]}]})
Share = Annotated[float, Field(gt=0, le=1)]
Codes = Annotated[
    Literal["exact", "fp16", "flat"] | None,
    Field(description="How the keys are kept for the search; chosen from their number and width by default."),
]
Bad = Annotated[
    Literal["raise", "drop"],
    Field(description="Support rows that cannot be used: an error that names them, or left out and counted."),
]

ScalingWord = Literal["standard", "none"]


class ScalingOf(Section):
    """Scaling of the key and of the features, each on its own."""

    key: ScalingWord | None = None
    """Of the key."""
    features: ScalingWord | None = None
    """Of the features."""


Scaling = Annotated[
    Annotated[ScalingWord, Tag(f"{TAG}both")] | Annotated[ScalingOf, Tag(f"{TAG}each")],
    Discriminator(lambda given: f"{TAG}each" if isinstance(given, dict | ScalingOf) else f"{TAG}both"),
]


class Rows(Section):
    """Where rows are: files, or what an earlier step wrote."""

    model_config = _PATH_OR_STEP

    path: Places | None = None
    """A folder, a file, a pattern (data/2026-*/*.parquet), or a list of these. Relative to the working
    directory.
    """
    step: str | None = None
    """Instead: the name of an earlier step, whose output is read."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        _path_or_step(self.path, self.step)
        return self


class OfStep(Section):
    """What an earlier step found."""

    step: str
    """The name of that step."""


class Opened(Section):
    """An index: its folder, or the step that builds it."""

    model_config = _PATH_OR_STEP

    path: Place | None = None
    """Its folder."""
    step: str | None = None
    """Instead: the name of the `index` step."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        _path_or_step(self.path, self.step)
        return self


class Support(Section):
    """The rows that may be neighbors, and what their columns are for."""

    model_config = _PATH_OR_STEP

    path: Places | None = None
    """A folder, a file, a pattern (data/2026-*/*.parquet), or a list of these. Relative to the working
    directory.
    """
    step: str | None = None
    """Instead, in the support of a step: the name of an earlier step, whose output is read."""
    key: Columns
    """What says how far two rows are apart: a column, a list of columns, or columns with multipliers
    ({longitude: 1, latitude: 1, rooms: 0.5}). Numbers, categories or vectors.
    """
    features: Columns | None = None
    """What the local model is fitted on, written like the key; the key by default."""
    target: Texts = ()
    """What is predicted: a column or a list of columns."""
    weight: str | None = None
    """The column that says how much a row counts, 0 or more."""
    offset: str | None = None
    """The column that is added to the linear predictor of generalized linear models; queries have it too."""
    shape: Texts = ()
    """Of rules: the columns of sizes of memberships and slopes of consequents, in the order of the method."""
    id: str | None = None
    """The column that names a row."""
    scaling: Scaling | None = None
    """standard or none, or of each role: {key: none, features: standard}. By default columns of numbers are
    standardized, columns of vectors are not.
    """
    metric: Literal["l2", "cosine", "haversine", "ip"] = "l2"
    """How keys are compared."""
    map: Place | None = None
    """A file that `locdist tune` wrote: what the key is mapped by."""
    bad_files: Literal["raise", "skip"] = "raise"
    """What happens to a damaged file."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _path_or_step(self.path, self.step)
        _ = self.roles
        return self

    @property
    def roles(self) -> Roles:
        """The roles of the columns; UsageError when they do not fit together."""
        each = self.scaling.model_dump(exclude_none=True) if isinstance(self.scaling, ScalingOf) else {}
        scaling = tuple(sorted(each.items())) if isinstance(self.scaling, ScalingOf) else self.scaling
        key, features = tuple(self.key.items()), tuple((self.features or {}).items())
        mapped = read_map(self.map) if self.map is not None else None
        return Roles(
            key, features, self.target, self.weight, self.id, self.metric, scaling, mapped, self.offset,
            self.shape,
        )  # fmt: skip


class Building(Section):
    """How an index is built."""

    recall: Share = 0.99
    """Share of the true k nearest neighbors that searches are tuned to find."""
    codes: Codes = None
    nlist: Annotated[int, Field(ge=1)] | None = None
    """Number of lists; about 2 √n by default."""
    bad: Bad = "raise"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of the sample and of the k-means."""


class Index(Building):
    """The index of the support. Where the file has a support it is built, unless it is there; otherwise it is
    opened.
    """

    path: Place
    """The folder of the index, apart from the data. Relative to the working directory."""


BUILDING = tuple(Building.model_fields)  # what decides what an index is


def _path_or_step(path: object, step: object) -> None:
    if (path is None) == (step is None):
        given = "both" if path is not None else "neither"
        raise UsageError("path or step", given, "Say where it is: path: data/new/")
