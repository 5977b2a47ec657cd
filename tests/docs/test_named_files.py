"""What the pages and programs for readers name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from paths import PAGES, ROOT

PACKAGE = ROOT / "src" / "unroll"
ROOMS = "|".join(sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
PROGRAMS = sorted(ROOT.glob("benchmarks/**/*.py"))
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
# The page on plug-ins names files that its reader writes.
OF_OURS = [page for page in PAGES if page.name != "plugins.md"]
every_page_of_our_files = pytest.mark.parametrize("page", OF_OURS, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", [*PAGES, *PROGRAMS], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_program_and_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"(?<![\w/])(?:tests|benchmarks)/[\w/]+\.py", page.read_text("utf-8"))
    assert [path for path in named if not (ROOT / path).is_file()] == []


@every_page_of_our_files
def test_every_file_and_folder_of_the_package_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(rf"`(?:src/unroll/)?((?:{ROOMS})/[\w/.]*)`", page.read_text("utf-8"))
    assert [path for path in named if not (PACKAGE / path).exists()] == []


@every_page_of_our_files
def test_a_source_file_named_without_its_room_is_in_one_place_of_the_package(page: Path) -> None:
    names = set(re.findall(r"`([a-z]\w*\.(?:py|cu))`", page.read_text("utf-8")))
    files = [path.name for path in PACKAGE.rglob("*")]
    assert [name for name in sorted(names) if files.count(name) != 1] == []


@every_page
def test_every_module_that_a_page_runs_or_imports_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    named = re.findall(r"(?:python -m |from |import )(unroll(?:\.\w+)+)", text)
    paths = [ROOT / "src" / Path(*name.split(".")) for name in named]
    assert [path for path in paths if not path.with_suffix(".py").is_file() and not path.is_dir()] == []


@every_page
def test_every_link_to_a_file_or_a_heading_leads_somewhere(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text("utf-8")):
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (heading and heading not in headings(file)):
            wrong.append(target)
    assert wrong == []


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as renderers of Markdown make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_page
def test_every_function_that_a_page_names_beside_a_file_stands_in_it(page: Path) -> None:
    beside = rf"`((?:{ROOMS})/[\w/]+\.\w+)`(?::|\s\()\s?`(?:\w+\.)?(\w+)`"
    named = re.findall(beside, page.read_text("utf-8"))
    assert [(path, name) for path, name in named if name not in (PACKAGE / path).read_text("utf-8")] == []


def test_each_room_is_described_on_the_page_by_the_first_sentence_of_its_own_docstring() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    described = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    for room in ROOMS.split("|"):
        docstring = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8"))) or ""
        sentence = " ".join(docstring.split()).split(". ")[0].rstrip(".")
        assert described[room].lower() == sentence.lower()
