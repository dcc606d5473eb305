"""The manifest of an index generation: what it holds, how it was made, sizes and hashes of every file."""

import dataclasses
import hashlib
import math
import re
from collections.abc import Iterator

import pyarrow as pa

from locdist.data.artefacts import packed, peeked, unpacked
from locdist.data.dataset import Roles
from locdist.data.encoding import Encoding
from locdist.data.footers import FETCH, POINTER, is_pointer
from locdist.data.store import Store
from locdist.errors import DataError

FORMAT = 1
MANIFEST = "manifest.json"
LISTS = "lists.arrow"
CODES = ("exact", "fp16", "flat")
DAMAGED = "The index is damaged: copy it again, or build it again."
_NAME = re.compile(r"(shards/)?[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclasses.dataclass(frozen=True)
class ShardFile:
    """One file of a generation: its name below the folder, rows, bytes and content hash (blake2b-128)."""

    name: str
    rows: int
    bytes: int
    checksum: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"file {self.name!r} is not below the index folder")


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The classes of a target with few distinct values: their type, in Arrow's words, and sorted values."""

    type: str
    values: tuple[str | int | float | bool, ...]

    def __post_init__(self) -> None:
        _ = self.array()

    def array(self) -> pa.Array:
        """The classes as an Arrow array of their type."""
        return pa.array(self.values, pa.type_for_alias(self.type))


@dataclasses.dataclass(frozen=True)
class Dropped:
    """Values of one column that could not be used: their rows were left out."""

    column: str
    reason: str
    rows: int


@dataclasses.dataclass(frozen=True)
class Indexed:
    """The data that was indexed: fingerprint, number of files and rows, bad rows left out, and notes for the
    user.
    """

    fingerprint: str
    files: int
    rows: int
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Layout:
    """The manifest of a generation.

    Parameters
    ----------
    rows, width, nlist : int
        Rows n, key dimension d, number of lists (0: no lists, every search is exact).
    metric : {"l2", "cosine", "ip"}
    codes : {"exact", "fp16", "flat"}
        What FAISS scans; "flat" on float32 keys reads the keys themselves.
    center, scale : tuple of float [d], float
        Codes are (key − center) · scale.
    roles : Roles
        What the columns of the support are for.
    key, features : Encoding
        Of the roles; `features` is None when the local model uses the key.
    vocabulary : Vocabulary or None
        The classes of a target with few distinct values.
    recall : float
        The target that searches are tuned to.
    shards : tuple of ShardFile
    lists : ShardFile
        The table of lists.
    source : Indexed
    versions : dict
        Of locdist, faiss, pyarrow and numpy that built it.
    """

    rows: int
    width: int
    nlist: int
    metric: str
    codes: str
    center: tuple[float, ...]
    scale: float
    roles: Roles
    key: Encoding
    features: Encoding | None
    vocabulary: Vocabulary | None
    recall: float
    shards: tuple[ShardFile, ...]
    lists: ShardFile
    source: Indexed
    versions: dict[str, str]
    format: int = FORMAT

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file besides the manifest."""
        return {file.name: file.bytes for file in (*self.shards, self.lists)}

    def to_json(self) -> bytes:
        """The manifest's bytes."""
        return packed(dataclasses.asdict(self), indent=1)

    @staticmethod
    def from_json(text: bytes, place: str) -> "Layout":
        """Read a manifest; refuses other formats, what does not fit together, and files outside the index
        folder.
        """
        version = peeked(text, "format")
        if type(version) is int and version != FORMAT:
            raise DataError(
                f"an index of format {FORMAT}",
                f"{place} of format {version}, by locdist {_writer(text)}",
                "Build it again with this version of locdist.",
            )
        what, remedy = "the manifest of an index generation", "Build the index again."
        layout = unpacked(Layout, text, what, place, remedy)
        for wrong in _mistakes(layout):
            raise DataError(what, f"{place}: {wrong}", remedy)
        return layout


def _writer(text: bytes) -> str:
    """The version that wrote a manifest, as far as it says."""
    versions = peeked(text, "versions")
    return str(versions.get("locdist", "?"))[:40] if isinstance(versions, dict) else "?"


def _mistakes(layout: Layout) -> Iterator[str]:
    """What does not fit together in a manifest."""
    names = [file.name for file in (*layout.shards, layout.lists)]
    counts = [layout.rows, layout.nlist, *(file.rows for file in layout.shards), layout.lists.bytes]
    features = () if layout.features is None else layout.features.columns
    if layout.codes not in CODES or (layout.codes == "exact") != (layout.nlist == 0):
        yield f"codes {layout.codes!r} with {layout.nlist} lists"
    if layout.metric != layout.roles.metric or not 0 < layout.recall <= 1:
        yield f"metric {layout.metric!r}, recall {layout.recall}"
    if min(counts) < 0 or layout.rows != sum(file.rows for file in layout.shards):
        yield f"{layout.rows} rows, {sum(file.rows for file in layout.shards)} in its shards"
    if not layout.shards or len(set(names)) < len(names) or layout.lists.name != LISTS:
        yield f"files {names}"
    if not layout.width == layout.key.width == len(layout.center) > 0:
        yield f"a key of {layout.key.width} numbers, a center of {len(layout.center)}, width {layout.width}"
    if not (0 < layout.scale < math.inf and all(map(math.isfinite, layout.center))):
        yield f"scale {layout.scale}, center {layout.center[:3]}"
    if {column.name for column in (*layout.key.columns, *features)} - set(layout.roles.columns):
        yield "encodings of columns without a role"


def read_manifest(folder: str) -> bytes:
    """The manifest's bytes; an unfinished or absent index is refused."""
    store = Store.at(folder)
    if not store.exists(MANIFEST):
        raise DataError(
            "an index generation",
            f"{folder} without {MANIFEST}",
            "Build it, or run the same build command again to finish it.",
        )
    text = store.read(MANIFEST)
    if not text or is_pointer(text):
        given = POINTER if text else "an empty file"
        raise DataError(
            f"the manifest of an index at {store.path(MANIFEST)}", given, FETCH if text else DAMAGED
        )
    return text


def digest(text: bytes) -> str:
    """blake2b-128, the hash of everything in locdist that is compared."""
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def read_layout(folder: str, fingerprint: str) -> Layout:
    """The manifest of an index as it was when a job was planned.

    Raises
    ------
    DataError
        When the folder holds another index now.
    """
    text = read_manifest(folder)
    if digest(text) != fingerprint:
        raise DataError(
            f"the index that the job was planned with ({fingerprint})",
            f"another one in {folder} ({digest(text)})",
            "Start a new job in another folder, or with --overwrite.",
        )
    return Layout.from_json(text, folder)
