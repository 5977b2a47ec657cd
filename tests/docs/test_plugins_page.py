"""The worked files of docs/plugins.md are plug-ins: each keeps to its family's rules."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import unroll
from unroll.base import plugins
from unroll.studies import contracts

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text("utf-8")
WORKED = PAGE.split("## One short file of each kind")[1].split("\n## ")[0]
BLOCKS = re.findall(r"```python\n(.*?)```", WORKED, re.DOTALL)


def test_there_is_a_worked_file_of_each_kind() -> None:
    assert len(BLOCKS) == len(plugins.FAMILIES)
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(plugins.FAMILIES)


@pytest.mark.parametrize(("family", "text"), list(zip(plugins.FAMILIES, BLOCKS, strict=True)))
def test_a_worked_file_keeps_to_the_rules(
    family: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    monkeypatch.chdir(tmp_path)  # the tracker writes where it is called
    module = ModuleType("worked")
    exec(compile(text, "docs/plugins.md", "exec"), vars(module))
    unroll.register(family, "worked", module)
    assert [outcome for outcome in contracts.check(family, "worked") if outcome.broken] == []
