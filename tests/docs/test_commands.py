"""Every `unroll` command that a page shows is a command with options that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from paths import PAGES, ROOT

from unroll.cli import app

BLOCK = re.compile(r"^ *```(?:sh|bash|console)?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND: Any = typer.main.get_command(app)
WRONG: Any = typer.BadParameter.__base__  # what a command raises for words that it does not know


def parse(words: list[str]) -> None:
    """Read a command line as `unroll` would, and do nothing."""
    _, command, rest = COMMAND.resolve_command(typer.Context(COMMAND), words)
    name = words[0]
    if subcommands := getattr(command, "commands", None):
        name, *rest = rest
        command = subcommands[name]
    command.make_context(name, rest)


def commands(page: Path) -> Iterator[str]:
    """The `unroll` command lines of a page's shell blocks, also those behind a prompt or a pipe."""
    for block in BLOCK.findall(page.read_text("utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            for part in line.split(" | "):
                if part.strip().removeprefix("$ ").startswith("unroll "):
                    yield part.strip().removeprefix("$ ")


SHOWN = [(page, line) for page in PAGES for line in commands(page)]


@pytest.mark.parametrize(("page", "line"), SHOWN, ids=[f"{page.stem}: {line}" for page, line in SHOWN])
def test_a_command_on_a_page_is_one_that_there_is(page: Path, line: str) -> None:
    parse(shlex.split(line, comments=True)[1:])


def test_pages_show_commands_at_all_and_the_guide_has_some_on_each_page() -> None:
    with_commands = {page.relative_to(ROOT).as_posix() for page, _ in SHOWN}
    assert with_commands >= {
        "README.md",
        *(f"docs/{name}.md" for name in ("training", "sampling", "sweeps", "reports")),
    }


@pytest.mark.parametrize("line", ["train book.txt --no-option-of-ours", "eval", "sample RUN --length no"])
def test_a_command_that_there_is_not_is_found(line: str) -> None:
    with pytest.raises(WRONG):
        parse(shlex.split(line))
