"""Nothing prints but through the door: this reads the package's source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import unroll

SOURCE = Path(unroll.__file__).parent
PRINTING = {
    "print",
    "input",
    "pprint",
    "echo",
    "secho",
    "echo_via_pager",
    "confirm",
    "prompt",
    "progressbar",
    "getLogger",
}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
# The door itself; the last words where the command line could not be loaded; programs of their own that name files.
DOORS = {
    "cli/screen.py": {"typer.echo", "sys.stdout", "sys.stderr", "Console"},
    "base/live.py": {"sys.stderr"},  # progress in Python, where no command line is
    "__main__.py": {"print", "sys.stdout", "sys.stderr"},
    "studies/paper/page.py": {"print"},
    "studies/beyond/page.py": {"print"},
    "sweep/launchers/_ray_cluster.py": {"logging.getLogger"},  # makes Ray's own reports silent
    "training/trackers/mlflow.py": {"logging.getLogger"},  # makes MLflow's own reports silent
}


def ways_out(source: str) -> set[str]:
    """The names in a source that reach a terminal. Asking whether a stream is a terminal prints nothing."""
    tree = ast.parse(source)
    asked = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "isatty"}
    types = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    only_types = {id(inner) for n in types for inner in ast.walk(n)}
    reached: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in asked or id(node) in only_types:
            continue
        if isinstance(node, ast.Name) and node.id in ("print", "input"):
            reached.add(node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            written = f"{node.value.id}.{node.attr}"
            printing = node.value.id in ("typer", "click", "rich", "pprint", "logging") and node.attr in PRINTING
            if printing or (node.value.id == "sys" and node.attr in STREAMS) or written == "os.write":
                reached.add(written)
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").partition(".")[0]
            names = {alias.name for alias in node.names}
            if module in ("typer", "click", "rich", "pprint", "logging", "sys"):
                reached |= names & (PRINTING | STREAMS | {"Console"})
    return reached


def test_nothing_prints_but_through_the_door() -> None:
    files = {path.relative_to(SOURCE).as_posix(): path.read_text("utf-8") for path in SOURCE.rglob("*.py")}
    around = {name: ways_out(source) - DOORS.get(name, set()) for name, source in files.items()}
    assert {name: ways for name, ways in around.items() if ways} == {}


@pytest.mark.parametrize(
    "line",
    [
        "print(x)",
        "show = print",
        "typer.echo(x)",
        "typer.secho(x)",
        "from typer import echo",
        "sys.stdout.write(x)",
        "from sys import stderr",
        "shutil.copyfileobj(x, sys.stdout)",
        "from rich.console import Console",
        "from rich import print",
        "os.write(1, x)",
        "logging.getLogger(x)",
    ],
)
def test_each_way_around_the_door_is_seen(line: str) -> None:
    assert ways_out(line) != set()


def test_the_last_words_are_printed_in_one_place_and_made_printable_there() -> None:
    tree = ast.parse((SOURCE / "__main__.py").read_text("utf-8"))
    (printed,) = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "print")
    assert ast.unparse(printed.args[0]) == "printable(text)"
