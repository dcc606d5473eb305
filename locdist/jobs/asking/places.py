"""Where a job found its inputs: what `evaluate` and `explain` follow back.

Apart from the manifest, because data that moves to another folder is still the same data: a job continues and
compares what files say, not where they lie.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from locdist.data.artefacts import packed, typed, unpacked
from locdist.data.source import Source, source
from locdist.data.store import Store
from locdist.errors import DataError, UsageError
from locdist.plan.manifest import Manifest, read_manifest
from locdist.search.generation import Generation, open_index

PLACES = "_locdist/places.json"
INDEX = "_locdist/index"  # of a transform


@dataclass(frozen=True)
class Places:
    """Addresses of what a job read.

    Parameters
    ----------
    queries : str or None
        The folder that the pinned paths of the manifest are relative to; None for data in memory.
    index : str
        The index folder.
    """

    queries: str | None
    index: str

    @staticmethod
    def of(queries: Source, index: Generation) -> "Places":
        """Where these lie."""
        return Places(queries.store.uri if queries.store else None, index.folder)

    def write(self, folder: Store) -> None:
        """Tell the output folder."""
        folder.write(PLACES, packed(asdict(self), indent=1))

    @staticmethod
    def read(folder: Store) -> "Places":
        """What `write` told; UsageError when the folder is no output of a job with queries."""
        if not folder.exists(PLACES):
            raise UsageError(
                "the output folder of predict, neighbors or transform",
                f"{folder.uri} without {PLACES}",
                "Check the path, or run the job first.",
            )
        what, remedy = "where a job found its inputs", "Run the job again with --overwrite."
        return unpacked(Places, folder.read(PLACES), what, folder.path(PLACES), remedy)

    def source(self, manifest: Manifest) -> Source:
        """The queries as they were pinned; DataError when a file changed, UsageError for data in memory."""
        if self.queries is None:
            remedy = "Write them to a file and run the job on it."
            raise UsageError("queries that lie in files", "queries that were in memory", remedy)
        root = Store.at(self.queries)
        found = source([Store.at(root.path(file.path)) for file in manifest.snapshot])
        if len(found.files) != len(manifest.snapshot):
            wanted = f"the {len(manifest.snapshot)} files in {root.uri} that the job read"
            raise DataError(
                wanted, f"{len(found.files)}, some of them in folders of their names", "Restore them."
            )
        for pinned, file in zip(manifest.snapshot, found.files, strict=True):
            if (pinned.size, pinned.fingerprint) != (file.size, file.fingerprint):
                raise DataError(
                    f"{root.path(pinned.path)} as the job read it ({pinned.size:,} bytes)",
                    f"a file of {file.size:,} bytes with another footer",
                    "Repair or replace it; or run the job again on what it holds now, with --overwrite.",
                )
        return found


@dataclass(frozen=True)
class AskedRoles:
    """The roles of a support that a job was asked about, as far as they are read again."""

    target: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """What a job with queries was asked, as its manifest pins it and as far as it is read again.

    Parameters
    ----------
    keep : tuple of str
        Columns of the queries in the output.
    method : mapping
        Its spec; empty for `neighbors`.
    extras, explain, limit
        As in `predict`.
    index : str or None
        The fingerprint of the index; a `transform` has its own.
    roles : AskedRoles or None
        Of a `transform`.
    """

    keep: tuple[str, ...]
    method: Mapping[str, Any] = field(default_factory=dict)
    extras: tuple[str, ...] = ()
    explain: int = 0
    limit: int | None = None
    index: str | None = None
    roles: AskedRoles | None = None

    @staticmethod
    def of(manifest: Manifest) -> "Asked":
        """What a manifest pins."""
        what, remedy = "the manifest of a job with queries", "Run the job again with --overwrite."
        return typed(Asked, json.dumps(manifest.request), what, f"one of {manifest.kind}", remedy)


def pinned_index(folder: Store) -> Generation:
    """The index that a job used; opening it refuses another one that is there now."""
    place, pinned = Places.read(folder).index, Asked.of(read_manifest(folder)).index
    return open_index(place) if pinned is None else Generation(place, pinned)
