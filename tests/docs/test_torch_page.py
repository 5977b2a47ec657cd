"""docs/torch.md does what it says: its Python runs from top to bottom, beside a run of the text that it asks about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from commands import TINY, unroll
from paths import ROOT

SENTENCE = "the quick brown fox jumps over the lazy dog.\n"


def test_the_python_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(SENTENCE * 60)
    result = unroll("train", "text.txt", "--batches", 20, *TINY, "--out", "runs/poems")
    assert result.code == 0, result.err
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "torch.md").read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/torch.md", "exec"), names)
    assert len(blocks) == 7
    assert {"poems", "trained-in-torch", "brought-in"} == {path.name for path in (tmp_path / "runs").iterdir()}
    printed = capsys.readouterr().out
    assert printed == names["text"] + "\n"
    assert len(names["text"]) == len("the ") + 40
    assert names["seen"].h.shape == (19, 1, 8)
