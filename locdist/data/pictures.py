"""Images in Arrow columns: a value is a list of rows of pixels, and a pixel a number or a list of numbers.

Sizes may differ from value to value. One that is no image (a null, rows of several lengths, a pixel that is
not finite) is told with its reason, never guessed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from locdist.data.columns import NULL, REASONS, WRONG_LENGTH, inspect_numbers
from locdist.data.schema import is_list, is_number, plain
from locdist.errors import UsageError

Picture = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
RAGGED, EMPTY = "rows of several lengths", "no pixels"


@dataclass(frozen=True)
class Pictures:
    """The column of some images.

    Parameters
    ----------
    column : str
    axes : int
        Of an image: 2, or 3 with channels.
    shape : tuple of int, optional
        Of images that are written as flat vectors, as Arrow's tensors of fixed shape are.
    """

    column: str
    axes: int
    shape: tuple[int, ...] | None = None

    @staticmethod
    def of(schema: pa.Schema, column: str, shape: Sequence[int] | None = None) -> "Pictures":
        """A column of a table, checked; UsageError where it has no images."""
        kind, axes = schema.field(column).type, 0
        inner = plain(kind)
        while is_list(inner):
            inner, axes = plain(inner.value_type), axes + 1
        given = f"{column!r} of type {kind}"
        if not is_number(inner) or axes not in ((1,) if shape else (2, 3)):
            wanted = "flat vectors" if shape else "lists of rows of pixels, numbers or lists of numbers"
            remedy = "Write images as [height][width], or name the shape of flat vectors."
            raise UsageError(f"a column of images, {wanted}", given, remedy)
        if shape and not (len(shape) in (2, 3) and all(size >= 1 for size in shape)):
            raise UsageError("a shape of height, width and perhaps channels", repr(shape), "28,28, say.")
        return Pictures(column, len(shape) if shape else axes, tuple(shape) if shape else None)

    def at(self, table: pa.Table, row: int) -> Picture | str:
        """The image [h, w] or [h, w, c] of a row in double precision, or why it is none."""
        found = _picture(table.column(self.column), row)
        if self.shape is None or isinstance(found, str):
            return found
        return found.reshape(self.shape) if found.size == math.prod(self.shape) else REASONS[WRONG_LENGTH]

    @property
    def kind(self) -> pa.DataType:
        """The type of such a column in double precision."""
        kind = pa.float64()
        for _ in range(self.axes):
            kind = pa.large_list(kind)
        return kind

    def written(self, images: Sequence[Picture | None]) -> pa.Array:
        """Images as a column; null for None."""
        there = [image for image in images if image is not None]
        values = pa.array(np.concatenate([np.zeros(0), *(image.reshape(-1) for image in there)]))
        for axis in range(self.axes - 1, 0, -1):
            lengths = [np.full(math.prod(image.shape[:axis]), image.shape[axis]) for image in there]
            values = pa.LargeListArray.from_arrays(_ends(lengths), values)
        heights = [np.array([0 if image is None else len(image)]) for image in images]
        lost = pa.array([image is None for image in images], pa.bool_())
        return pa.LargeListArray.from_arrays(_ends(heights), values, mask=lost if images else None)


def amounts(column: pa.ChunkedArray) -> Counts:
    """How many numbers each image [n] has; 0 for a null."""
    return np.concatenate([np.zeros(0, np.int64), *(_amounts(chunk) for chunk in column.chunks)])


def _amounts(values: pa.Array) -> Counts:
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    counts: Counts = lengths.astype(np.int64)
    if not is_list(values.type.value_type):
        return counts
    sums = np.cumsum(np.append(0, _amounts(pc.list_flatten(values))))
    counts = np.diff(sums[np.cumsum(np.append(0, counts))])
    return counts


def _picture(column: pa.ChunkedArray, row: int) -> Picture | str:
    """Numbers of a row in the shape of its lists."""
    values = pa.concat_arrays(column.slice(row, 1).chunks)
    shape = list[int]()
    while is_list(values.type):
        if values.null_count:
            return REASONS[NULL]
        lengths = pc.unique(pc.list_value_length(values)).to_pylist()
        if lengths != lengths[:1]:
            return RAGGED
        if lengths == [0]:
            return EMPTY
        shape += lengths
        values = pc.list_flatten(values)
    numbers, reasons = inspect_numbers(values)
    return REASONS[int(reasons.max())] if reasons.any() else numbers.reshape(shape)


def _ends(lengths: Sequence[npt.NDArray[np.int64]]) -> pa.Array:
    return pa.array(np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]), dtype=np.int64))
