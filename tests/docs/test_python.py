"""The Python on the pages runs, as one program a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

import unroll
from unroll.corpus.music.writing import write_midi
from unroll.corpus.synthetic import Markov

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GUIDE = ("python", "music", "compare")
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in GUIDE))]
PROGRAMS = {page: BLOCK.findall(page.read_text("utf-8")) for page in PAGES}
every_program = pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: str(page.relative_to(ROOT)))


@every_program
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("The king. The end.\n" + Markov().text(30_000))
    Path("my-midi").mkdir()
    write_midi([[60, 62, 64, 65, 67]], "my-midi/scale.mid")
    program: dict[str, object] = {}
    for block in PROGRAMS[page]:
        exec(compile(block, str(page), "exec"), program)


def test_each_of_these_pages_has_a_program() -> None:
    assert [page for page, blocks in PROGRAMS.items() if not blocks] == []


def test_every_public_name_stands_on_the_page_on_python() -> None:
    words = set(re.findall(r"\w+", (ROOT / "docs" / "python.md").read_text("utf-8")))
    assert [name for name in unroll.__all__ if name != "__version__" and name not in words] == []


@every_program
def test_python_and_shell_of_a_page_write_to_different_folders(page: Path) -> None:
    text = page.read_text("utf-8")
    python, shell = "".join(PROGRAMS[page]), "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert set(re.findall(r'out="([^"]+)"', python)) & set(re.findall(r"--out (\S+)", shell)) == set()
