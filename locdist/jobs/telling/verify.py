"""Whether files still hold what was written: their checksums against those recorded."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from locdist.data.store import Store
from locdist.errors import DataError
from locdist.plan.records import READERS, checksum, history
from locdist.search.layout import MANIFEST, Layout, read_manifest


def altered(folder: Store) -> tuple[str, ...]:
    """The files of an index, or the outputs of a job, that are missing or hold something else now.

    Reads all of them.
    """
    known = recorded(folder)
    return tuple(
        name
        for name, digest in known.items()
        if not folder.exists(name) or checksum(folder, name).checksum != digest
    )


def check_intact(folder: Store, names: Sequence[str]) -> None:
    """DataError naming the first of some outputs of a job that is not what was written; reads them."""
    known = recorded(folder)
    with ThreadPoolExecutor(READERS) as pool:
        sums = pool.map(lambda name: checksum(folder, name).checksum, names)
        for name, digest in zip(names, sums, strict=True):
            if digest != known.get(name):
                wanted = f"{folder.path(name)} with the checksum {known.get(name, 'of a commit record')}"
                remedy = "It was damaged or changed: delete it and run the same command again."
                raise DataError(wanted, digest, remedy)


def recorded(folder: Store) -> dict[str, str]:
    """The checksum of each file: from the manifest of a finished index, else from commit records."""
    if folder.exists(MANIFEST):
        layout = Layout.from_json(read_manifest(folder.uri), folder.uri)
        return {file.name: file.checksum for file in (*layout.shards, layout.lists)}
    records = [record for stage in history(folder).records.values() for record in stage.values()]
    return {name: digest for record in records for name, digest in record.checksums.items()}
