"""For who writes an executor, a store or an index: contracts as test classes, and faults from a table.

The contracts are classes of pytest, which is loaded when one of them is asked for; faults travel to workers,
which need nothing of it.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from locdist.errors import UsageError

if TYPE_CHECKING:  # what type checkers and editors read; _HOMES says the same, and a test compares the two
    from locdist.testing.executors import ExecutorContract
    from locdist.testing.faults import Faults, Faulty, FaultyExecutor
    from locdist.testing.indexes import IndexContract
    from locdist.testing.journal import Journal
    from locdist.testing.stores import StoreContract

__all__ = [
    "ExecutorContract",
    "Faults",
    "Faulty",
    "FaultyExecutor",
    "IndexContract",
    "Journal",
    "StoreContract",
]

_HOMES = {
    "ExecutorContract": "locdist.testing.executors",
    "Faults": "locdist.testing.faults",
    "Faulty": "locdist.testing.faults",
    "FaultyExecutor": "locdist.testing.faults",
    "IndexContract": "locdist.testing.indexes",
    "Journal": "locdist.testing.journal",
    "StoreContract": "locdist.testing.stores",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'locdist.testing' has no attribute {name!r}", name=name)
    if name.endswith("Contract"):
        _let_pytest_explain(_HOMES[name])
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _let_pytest_explain(module: str) -> None:
    """Have a failed assertion of a contract show its values, as those of a test module do."""
    try:
        import pytest  # noqa: PLC0415 - who only injects faults does not need it
    except ImportError as error:
        raise UsageError(
            "pytest, which runs the contracts", "no such package", "Install it: pip install pytest"
        ) from error
    for name in (module, "locdist.testing.calls"):
        if name not in sys.modules:
            pytest.register_assert_rewrite(name)
