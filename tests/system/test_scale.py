"""What is said of large jobs: the page of limits, and that many shards answer as one does."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import locdist as ld
from locdist.search import build

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"


def test_the_table_of_the_page_is_what_its_formulas_print():
    text = PAGE.read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(PAGE), "exec"), {})
    assert printed.getvalue().count("\n") > 10
    assert printed.getvalue() in text


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_many_shards_answer_as_one(tmp_path, monkeypatch, kind):
    rng = np.random.default_rng(0)
    key = rng.normal(size=(3000, 5)).astype(kind)
    rows = ld.dataset({"key": key, "y": key[:, 0] + key[:, 1]}, key="key", target="y")
    queries = torch.from_numpy(rng.normal(size=(1500, 5)).astype(kind))
    found = []
    for size in (1 << 30, 4000):
        monkeypatch.setattr(build, "SHARD_BYTES", size)
        index = ld.build_index(rows, tmp_path / f"{size}", codes="flat", nlist=64).probing(6)
        hood = index.gather(index.search(queries, 12), frozenset({"keys", "targets"}))
        found.append((len(index.layout.shards), hood))
    (one, few), (many, same) = found
    assert (one, many > 40) == (1, True)
    for name in ("ids", "distances", "keys", "targets"):
        assert torch.equal(getattr(few, name), getattr(same, name)), name
