"""Results as lines of text, and as JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any


def aligned(rows: Sequence[Sequence[str]], indent: int = 2) -> list[str]:
    """A table as lines: the first column to the left, the others to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))] if rows else []
    return [" " * indent + "  ".join(_padded(row, widths)).rstrip() for row in rows]


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        row[0].ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
    ]


def to_json(value: Mapping[str, object]) -> bytes:
    """JSON for any reader: a number that is not finite is null, what JSON does not know is text."""
    return json.dumps(plain(value), indent=1, default=str, allow_nan=False).encode()


def plain(value: object) -> Any:
    """Mappings and lists in which a number that is not finite is null."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def statuses_told(status: Mapping[str, int]) -> str:
    """How many rows have each status, as a line."""
    return "status: " + ", ".join(f"{name} {count:,}" for name, count in status.items())


def number(value: object) -> str:
    """A value as people read it: six digits of a float, thousands apart in an integer, a dash for nothing."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
