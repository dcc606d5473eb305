"""What models of nodes are models of, in files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from locdist.data.artefacts import packed, unpacked
from locdist.data.dataset import Dataset
from locdist.data.encoding import Encoding
from locdist.data.store import Store

STORED = "_locdist/models.json"


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
    """

    encoding: Encoding
    node: str
    type: str
    target: str
    method: Mapping[str, Any]

    @staticmethod
    def of(encoding: Encoding, support: Dataset, method: Mapping[str, Any]) -> "Stored":
        """What models of a support are."""
        id, (target,) = support.roles.id, support.roles.target
        assert id is not None
        return Stored(encoding, id, str(support.source.schema.field(id).type), target, method)

    def write(self, folder: Store) -> None:
        """Leave it in the folder."""
        folder.write(STORED, packed(asdict(self), indent=1))

    @staticmethod
    def read(folder: Store) -> "Stored":
        """What `write` left."""
        place, remedy = folder.path(STORED), "Make the models again with --overwrite."
        return unpacked(Stored, folder.read(STORED), "what models of nodes are of", place, remedy)
