"""Where a job found its inputs: what `evaluate` and `explain` follow back.

Apart from the manifest, because data that moves to another folder is still the same data: a job continues and
compares what files say, not where they lie.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

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
        folder.write(PLACES, json.dumps(asdict(self), indent=1).encode())

    @staticmethod
    def read(folder: Store) -> "Places":
        """What `write` told; UsageError when the folder is no output of a job with queries."""
        if not folder.exists(PLACES):
            raise UsageError(
                "the output folder of predict, neighbors or transform",
                f"{folder.uri} without {PLACES}",
                "Check the path, or run the job first.",
            )
        told: Mapping[str, str] = json.loads(folder.read(PLACES))
        return Places(**told)

    def source(self, manifest: Manifest) -> Source:
        """The queries as they were pinned; DataError when a file changed, UsageError for data in memory."""
        if self.queries is None:
            remedy = "Write them to a file and run the job on it."
            raise UsageError("queries that lie in files", "queries that were in memory", remedy)
        root = Store.at(self.queries)
        found = source([Store.at(root.path(file.path)) for file in manifest.snapshot])
        for pinned, file in zip(manifest.snapshot, found.files, strict=True):
            if (pinned.size, pinned.fingerprint) != (file.size, file.fingerprint):
                raise DataError(
                    f"{root.path(pinned.path)} as the job read it ({pinned.size:,} bytes)",
                    f"a file of {file.size:,} bytes with another footer",
                    "Restore it, or run the job again with --overwrite.",
                )
        return found


def pinned_index(folder: Store) -> Generation:
    """The index that a job used; opening it refuses another one that is there now."""
    place, pinned = Places.read(folder).index, read_manifest(folder).request.get("index")
    return open_index(place) if pinned is None else Generation(place, pinned)
