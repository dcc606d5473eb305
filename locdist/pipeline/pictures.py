"""The section of a pipeline file about images."""

from typing import Annotated

from pydantic import Field

from locdist.pipeline.section import Section
from locdist.pipeline.supports import Rows
from locdist.pipeline.words import Keep, Limit, Name, OfImages, Out


class Restore(Section):
    """What a method makes of images."""

    name: Name = "restore"
    method: OfImages
    """bilateral, or with parameters: {name: nonlocal-means, h: 15, sigma: 25}; nonlocal-bayes, mean-shift."""
    images: Rows
    """The rows, an image each."""
    column: str = "image"
    """The images: lists of rows of pixels, which are numbers or lists of numbers."""
    shape: (
        Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False, min_length=2, max_length=3)]
        | None
    ) = None
    """Of images that are written as flat vectors: height, width and perhaps channels."""
    out: Out
    keep: Keep = None
    limit: Limit = None
