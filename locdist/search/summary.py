"""What an index is, in words: what `locdist index` and `locdist status` say."""

from dataclasses import dataclass

from locdist.search.build import EXACT_ROWS, choose
from locdist.search.layout import Dropped, Layout

_CODES = {"flat": "single precision codes", "fp16": "half precision codes"}


@dataclass(frozen=True)
class Summary:
    """An index.

    Parameters
    ----------
    rows, left_out : int
        Rows stored, and rows of the support that were dropped.
    width : int
        Of the encoded key.
    target : tuple of str
    metric, codes : str
    nlist : int
        Lists; 0 when the search is exact.
    why : str
        What decided on the codes.
    dropped : tuple of Dropped
        A row may be counted in several.
    """

    rows: int
    left_out: int
    width: int
    target: tuple[str, ...]
    metric: str
    codes: str
    nlist: int
    why: str
    dropped: tuple[Dropped, ...]

    @staticmethod
    def of(layout: Layout) -> "Summary":
        """What a manifest says."""
        return Summary(
            rows=layout.rows,
            left_out=layout.source.rows - layout.rows,
            width=layout.width,
            target=layout.roles.target,
            metric=layout.metric,
            codes=layout.codes,
            nlist=layout.nlist,
            why=_why(layout),
            dropped=layout.source.dropped,
        )

    def __str__(self) -> str:
        how = f"{self.nlist:,} lists of {_CODES[self.codes]}" if self.nlist else "exact search"
        target = ", ".join(self.target) or "none"
        lines = [
            f"{self.rows:,} rows, key of width {self.width}, target {target}, metric {self.metric}",
            f"{how}: {self.why}",
        ]
        if self.left_out:
            told = ", ".join(f"{each.rows:,} {each.reason} in {each.column!r}" for each in self.dropped)
            lines.append(f"{self.left_out:,} rows dropped: {told}")
        return "\n".join(lines)


def _why(layout: Layout) -> str:
    """What `choose` decided by, or that it was asked for something else."""
    if choose(layout.rows, layout.width, 1, layout.metric).codes != layout.codes:
        return "asked for"
    if layout.metric == "ip":
        return "the inner product has no lists"
    if layout.codes == "exact":
        return f"fewer than {EXACT_ROWS:,} rows"
    narrow = "a narrow key" if layout.codes == "flat" else "a wide key"
    return f"{EXACT_ROWS:,} rows or more, {narrow}"
