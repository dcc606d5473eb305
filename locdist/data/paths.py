"""Names below a folder. They may come from files that anybody wrote, so none leads out of it: not by its
steps, and, where something is written or deleted, not through a link.
"""

import os

from locdist.errors import DataError, UsageError

_REMEDY = "Nobody but locdist should write there: look at the folder, or start in another one."


def real(path: str) -> str:
    """A local path made absolute, without links as far as they lead somewhere."""
    if "\0" in path:
        raise UsageError("a path", f"{path!r}, with a zero byte in it", "Correct the path.")
    return os.path.realpath(path)


def below(root: str, name: str) -> str:
    """The local path of a name below a folder; DataError when it steps out."""
    if "\0" in name:
        raise _outside(root, f"{name!r}, which no file has as its name")
    path = os.path.normpath(os.path.join(root, name))
    if os.path.commonpath([root, path]) != root:
        raise _outside(root, f"{name!r}, which steps out of it")
    return path


def check_steps(root: str, name: str) -> None:
    """DataError for the name of an object that steps out, where a store would follow it."""
    if ".." in name.split("/"):
        raise _outside(root, f"{name!r}, which steps out of it")


def check_links(root: str, path: str) -> None:
    """DataError for a local path that a link leads out of the folder."""
    target = os.path.realpath(path)
    if os.path.commonpath([os.path.realpath(root), target]) != os.path.realpath(root):
        raise _outside(root, f"{path!r}, which links to {target}")


def check_loops(root: str) -> None:
    """DataError for a folder with links that lead around in circles: it has no end."""
    begin: tuple[str, tuple[str, ...]] = root, (os.path.realpath(root),)
    left = [begin]
    while left:
        folder, above = left.pop()
        for link, path in _folders(folder):
            target = os.path.realpath(path) if link else os.path.join(above[-1], os.path.basename(path))
            if target in above:
                raise DataError("a folder that ends", f"{path!r}, a link to {target}", "Remove the link.")
            left.append((path, (*above, target)))


def _folders(folder: str) -> list[tuple[bool, str]]:
    """The folders in a folder, and which of them are links."""
    try:
        with os.scandir(folder) as entries:
            return [(entry.is_symlink(), entry.path) for entry in entries if entry.is_dir()]
    except OSError:  # whoever reads it will be told
        return []


def _outside(root: str, given: str) -> DataError:
    return DataError(f"files below {root}", given, _REMEDY)
