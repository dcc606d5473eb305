"""File systems by the root of an address, opened once in a process; what their errors mean, and which
addresses are refused.
"""

import contextlib
import functools
import os
import re
import socket
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from locdist.errors import DataError, MachineError, UsageError

_NAMED = {"abfs", "abfss", "gs", "gcs", "hdfs", "viewfs"}  # a container or a user may stand before "@"
_SECRET = re.compile(r"secret|password|token|key|signature|^sig$", re.IGNORECASE)
_USER = re.compile(r"\b([a-z][a-z0-9+.-]*)://([^\s@'\"]*:[^\s@'\"]*|[^\s/@'\"]+)@", re.IGNORECASE)
_OPTION = re.compile(r"([?&]([\w.-]+)=)[^&\s'\"]+")
_ASSIGNED = re.compile(r"(\w*(?:secret|password)\w*['\"]?\s*[=:]\s*['\"]?)[^\s,;)'\"]+", re.IGNORECASE)


@contextlib.contextmanager
def reported(place: str) -> Iterator[None]:
    """Errors of the operating system and of object stores, with the place and the class of who has to act."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(
            f"a file at {place}",
            f"nothing there on {socket.gethostname()}",
            "Check the path on every machine of the run.",
        ) from error
    except pa.ArrowInvalid:
        raise
    except OSError as error:
        raise MachineError(
            f"access to {place} from {socket.gethostname()}",
            f"{type(error).__name__}: {error}",
            _remedy(place, str(error)),
        ) from error


def _remedy(place: str, error: str) -> str:
    """What to do, as far as the words of an error tell: "access denied" may mean no credentials, others, or
    those of another region.
    """
    if re.search(r"SLOW_?DOWN|THROTTL|HTTP status 503", error, re.IGNORECASE):
        return "The store asks for fewer requests: use fewer workers, or run the same again later."
    if re.search(r"ACCESS_DENIED|CREDENTIALS|SIGNATURE|HTTP status 40[13]", error, re.IGNORECASE):
        return (
            f"Credentials: {_credentials(place)}. Check that they exist there, may do this, and the region."
        )
    if re.search(r"NO_SUCH_BUCKET|REDIRECT|HTTP status (301|307|400)", error, re.IGNORECASE):
        return "Check the name and the region of the bucket."
    return "Check permissions, space and network."


def _credentials(place: str) -> str:
    """Where this process finds the credentials of a place, without a word of them."""
    if not place.startswith("s3://"):
        return "the defaults of this machine"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        if os.environ.get(name):
            return f"{name} of the environment"
    path = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    there = os.path.exists(os.path.expanduser(path))
    return path if there else f"none in the environment or in {path}; else the role of the machine"


@functools.lru_cache(maxsize=64)
def open_root(root: str) -> tuple[Any, str]:
    """The file system of an address and the path of its root, once in a process."""
    with reported(root):
        try:
            system, path = pafs.FileSystem.from_uri(_one_upload(root))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            return _through_fsspec(root, error)
        return system, str(path)


def _through_fsspec(root: str, cause: Exception) -> tuple[Any, str]:
    scheme = root.split("://")[0]
    if "Unrecognized filesystem" not in str(cause) and not isinstance(cause, pa.ArrowNotImplementedError):
        raise UsageError(
            f"an address that {scheme} understands", f"{root} ({cause})", "Correct the address."
        ) from cause
    try:
        import fsspec  # noqa: PLC0415  optional: pyarrow opens the common schemes by itself

        system = fsspec.core.url_to_fs(root)[0]
        return pafs.PyFileSystem(pafs.FSSpecHandler(system)), str(system._strip_protocol(root))
    except (ImportError, ValueError) as error:
        remedy = f"Install fsspec and its implementation of {scheme!r} on every machine of the run."
        raise UsageError(
            "a path, or an address of an installed file system", f"{root} ({error})", remedy
        ) from error


def _one_upload(root: str) -> str:
    """S3 told to send a small file as one request, instead of a multipart upload of one part (three
    requests).
    """
    if not root.startswith("s3://") or "allow_delayed_open" in root:
        return root
    return root + ("&" if "?" in root else "?") + "allow_delayed_open=true"


def refuse_credentials(address: str) -> None:
    """UsageError, without a word of it, for an address that holds a password, a key or a token."""
    before, _, rest = address.partition("://")
    scheme = before.rpartition(":")[2].lower()
    authority = urllib.parse.unquote(rest.partition("?")[0].partition("/")[0])
    user, at, _ = authority.rpartition("@")
    # A secret may have a "/" in it, which ends the authority before its "@": no bucket has a ":" in its name.
    inside = (at and (":" in user or scheme not in _NAMED)) or (scheme == "s3" and ":" in authority)
    options = urllib.parse.parse_qsl(address.partition("?")[2], keep_blank_values=True)
    if inside or any(_SECRET.search(name) for name, _ in options):
        raise UsageError(
            f"an address like {scheme}://bucket/prefix",
            "one with credentials in it, which would be written to reports and errors",
            "Leave them out: use the environment (AWS_ACCESS_KEY_ID, ...), a profile or a role.",
        )


def redacted(text: str) -> str:
    """A text, an error of a library say, with the credentials in its addresses as stars."""
    if "://" in text:
        text = _USER.sub(lambda found: found[0] if _harmless(found) else f"{found[1]}://***@", text)
        text = _OPTION.sub(lambda found: found[1] + "***" if _SECRET.search(found[2]) else found[0], text)
    return _ASSIGNED.sub(r"\1***", text)


def _harmless(found: re.Match[str]) -> bool:
    return ":" not in found[2] and found[1].lower() in _NAMED
