"""The manifest of an index generation: what it holds, how it was made, sizes and hashes of every file."""

import dataclasses
import hashlib
import json
import re
from typing import Any

from locdist.data.store import Store
from locdist.errors import DataError

FORMAT = 1
MANIFEST = "manifest.json"
LISTS = "lists.arrow"
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
    roles : dict
        What the columns of the support are for.
    key, features : dict
        Encodings of the roles; `features` is None when the local model uses the key.
    vocabulary : dict or None
        Type and values of the classes of a target with few distinct values.
    recall : float
        The target that searches are tuned to.
    shards : tuple of ShardFile
    lists : ShardFile
        The table of lists.
    source : dict
        Fingerprint, number of files and rows of the data indexed, and the bad rows dropped, by column and
        reason.
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
    roles: dict[str, Any]
    key: dict[str, Any]
    features: dict[str, Any] | None
    vocabulary: dict[str, Any] | None
    recall: float
    shards: tuple[ShardFile, ...]
    lists: ShardFile
    source: dict[str, Any]
    versions: dict[str, str]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file besides the manifest."""
        return {file.name: file.bytes for file in (*self.shards, self.lists)}

    def to_json(self) -> bytes:
        """The manifest's bytes."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1).encode()

    @staticmethod
    def from_json(text: bytes, place: str) -> "Layout":
        """Read a manifest; refuses other formats, and files outside the index folder."""
        try:
            fields = json.loads(text)
            version = fields.pop("format")
            if version == FORMAT:
                fields["shards"] = tuple(ShardFile(**shard) for shard in fields["shards"])
                fields["lists"] = ShardFile(**fields["lists"])
                return Layout(**fields | {"center": tuple(fields["center"])})
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise DataError(
                "the manifest of an index generation", f"{place}: {cause!r}", "Build the index again."
            ) from cause
        raise DataError(
            f"an index of format {FORMAT}",
            f"{place} of format {version}",
            "Build it again with this version of locdist.",
        )


def read_manifest(folder: str) -> bytes:
    """The manifest's bytes; an unfinished or absent index is refused."""
    store = Store.at(folder)
    if not store.exists(MANIFEST):
        raise DataError(
            "an index generation",
            f"{folder} without {MANIFEST}",
            "Build it, or run the same build command again to finish it.",
        )
    return store.read(MANIFEST)


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
