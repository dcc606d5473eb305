"""What models of nodes are models of, in files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from locdist.data.artefacts import packed, unpacked
from locdist.data.dataset import Dataset
from locdist.data.encoding import Encoding
from locdist.data.schema import plain
from locdist.data.store import Store
from locdist.search.layout import Vocabulary

STORED, CHART = "_locdist/models.json", "chart"


@dataclass(frozen=True)
class Stored:
    """What models of nodes are models of.

    Parameters
    ----------
    encoding : Encoding
        Of the features.
    node, type : str
        The column that names a node, and its type in Arrow's words.
    target : str
    method : mapping
        The spec.
    classes : Vocabulary, optional
        Of the target, where it is one of classes.
    """

    encoding: Encoding
    node: str
    type: str
    target: str
    method: Mapping[str, Any]
    classes: Vocabulary | None = None

    @staticmethod
    def of(
        encoding: Encoding,
        support: Dataset,
        method: Mapping[str, Any],
        classes: Vocabulary | None = None,
    ) -> "Stored":
        """What models of a support are; charts that were drawn have numbers."""
        id, (target,) = support.roles.id, support.roles.target
        kind = pa.int64() if id is None else plain(support.source.schema.field(id).type)
        return Stored(encoding, id or CHART, str(kind), target, method, classes)

    @property
    def labels(self) -> pa.Array:
        """The classes of the target."""
        assert self.classes is not None
        return self.classes.array()

    def write(self, folder: Store) -> None:
        """Leave it in the folder."""
        folder.write(STORED, packed(asdict(self), indent=1))

    @staticmethod
    def read(folder: Store) -> "Stored":
        """What `write` left."""
        place, remedy = folder.path(STORED), "Make the models again with --overwrite."
        return unpacked(Stored, folder.read(STORED), "what models of nodes are of", place, remedy)
