"""Amounts as people write them: "6GiB" of memory, "0.1%" of the rows."""

import re

from locdist.errors import UsageError

_UNITS = {unit: 1000**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB"))}
_UNITS |= {unit: 1024**power for power, unit in enumerate(("KIB", "MIB", "GIB", "TIB"), start=1)}
AMOUNT = r"[0-9]+(\.[0-9]+)? ?([kKMGT]i?)?B"
SHARE = r"[0-9]+(\.[0-9]+)?%|[0-9]+"


def memory(given: int | str) -> int:
    """Bytes, from a whole number of them or from "6GiB" (1024³) or "6GB" (1000³).

    Raises
    ------
    UsageError
    """
    wanted = "memory as a number of bytes or with a unit (6GiB, 500MB)"
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise UsageError(wanted, repr(given), "Write 6GiB.")
    if isinstance(given, int) or given.isdecimal():
        bytes_ = int(given)
    elif re.fullmatch(AMOUNT, given):
        number, unit = re.split(r" ?(?=[a-zA-Z])", given, maxsplit=1)
        bytes_ = round(float(number) * _UNITS[unit.upper()])
    else:
        raise UsageError(wanted, repr(given), "Write 6GiB.")
    if bytes_ <= 0:
        raise UsageError(wanted, repr(given), "Leave it out where it does not matter.")
    return bytes_


def max_bad(given: int | str) -> float:
    """Rows allowed to be bad: a share below 1 from "0.1%", a number of rows from 100 or "100".

    Raises
    ------
    UsageError
        Also for 0.5, which could be half of the rows or a misprint.
    """
    text = str(given)
    value = float(text.removesuffix("%")) if re.fullmatch(SHARE, text) else None
    if value is None or (text.endswith("%") and value >= 100):
        wanted = "bad rows allowed as a share below 100% or a whole number"
        raise UsageError(wanted, repr(given), "Write 0.1% or 100.")
    return value / 100 if text.endswith("%") else value
