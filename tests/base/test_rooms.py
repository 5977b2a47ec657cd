"""The rooms of the source keep to themselves: none uses a private name (`_x`) of another."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import unroll

SOURCE = Path(unroll.__file__).parent

# A small package whose room `b` should leave the names of room `a` alone.
ROOM_A = {
    "p": "",
    "p.a": "",
    "p.a.shelf": "class Shelf:\n    def _kept(self): ...\n    def take(self): self._held = 1\n\ndef _private(): ...\n",
    "p.a._hidden": "",
}


@cache
def source() -> dict[str, str]:
    """The text of every module of the package, by the module's name."""
    texts = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = (SOURCE.name, *path.relative_to(SOURCE).with_suffix("").parts)
        texts[".".join(parts).removesuffix(".__init__")] = path.read_text()
    return texts


def room(module: str) -> str:
    """The room that a module stands in: the first name below the package."""
    return [*module.split("."), ""][1]


def is_private(name: str) -> bool:
    """Whether a name is meant for its own room."""
    return name.startswith("_") and not name.endswith("__")


def dotted(node: ast.expr) -> str:
    """`a.b.c` as it is written; nothing where an expression is no chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def privates_of(class_: ast.ClassDef) -> set[str]:
    """The private methods and attributes that a class makes."""
    methods = {node.name for node in class_.body if isinstance(node, ast.FunctionDef)}
    stored = {
        node.attr
        for node in ast.walk(class_)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and dotted(node.value) == "self"
    }
    return {name for name in methods | stored if is_private(name)}


def breaches(module: str, texts: Mapping[str, str]) -> Iterator[str]:
    """The private names of other rooms that a module uses, with their lines."""
    tree, package = ast.parse(texts[module]), module.split(".")[0]
    meanings: dict[str, str] = {}  # the full name of what each imported name stands for

    def foreign(name: str) -> bool:
        return name.split(".")[0] == package and room(name) not in (room(module), "")

    def full(node: ast.expr) -> str:
        first, *rest = dotted(node).split(".")
        return ".".join((meanings.get(first, ""), *rest))

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                meanings[alias.asname or package] = alias.name if alias.asname else package
                if foreign(alias.name) and any(map(is_private, alias.name.split("."))):
                    yield f"{module}:{node.lineno}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}:{node.lineno}: an import by dots hides which room it is of"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                meanings[alias.asname or alias.name] = name
                if foreign(name) and any(map(is_private, name.split("."))):
                    yield f"{module}:{node.lineno}: from {node.module} import {alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and foreign(full(node.value)):
            yield f"{module}:{node.lineno}: {dotted(node)}"
        elif isinstance(node, ast.ClassDef):
            for base in filter(foreign, map(full, node.bases)):
                yield from inherited(module, node, base, texts)


def inherited(module: str, class_: ast.ClassDef, base: str, texts: Mapping[str, str]) -> Iterator[str]:
    """What a class replaces or calls of the private names of a class of another room."""
    home, _, name = base.rpartition(".")
    bases = [node for node in ast.walk(ast.parse(texts.get(home, ""))) if isinstance(node, ast.ClassDef)]
    hidden = {private for node in bases if node.name == name for private in privates_of(node)}
    for node in ast.walk(class_):
        used = node.name if isinstance(node, ast.FunctionDef) else node.attr if isinstance(node, ast.Attribute) else ""
        if used in hidden:
            yield f"{module}:{node.lineno}: {class_.name} uses {name}.{used}"


@pytest.mark.parametrize("name", sorted({room(module) for module in source()} - {""}))
def test_no_room_uses_a_private_name_of_another(name: str) -> None:
    texts = source()
    assert [breach for module in texts if room(module) == name for breach in breaches(module, texts)] == []


@pytest.mark.parametrize(
    "text",
    [
        "from p.a.shelf import _private",
        "from p.a import _hidden",
        "import p.a._hidden",
        "from p.a._hidden import anything",
        "from p.a import shelf\nshelf._private()",
        "import p.a.shelf\np.a.shelf._private()",
        "import p.a.shelf as other\nother._private",
        "from p.a.shelf import Shelf\nShelf._kept",
        "def late():\n    from p.a import shelf\n    return shelf._private",
        "from p.a.shelf import Shelf\nclass Other(Shelf):\n    def _kept(self): ...",
        "from p.a.shelf import Shelf\nclass Other(Shelf):\n    def give(self): return super()._kept()",
        "from p.a.shelf import Shelf\nclass Other(Shelf):\n    def give(self): return self._held",
    ],
)
def test_every_way_to_a_private_name_is_seen(text: str) -> None:
    texts = ROOM_A | {"p.b.user": text}
    assert len(list(breaches("p.b.user", texts))) == 1
    assert list(breaches("p.a.user", ROOM_A | {"p.a.user": text})) == []


@pytest.mark.parametrize(
    "text",
    [
        "from p.a import shelf\nshelf.Shelf().take()",
        "from p.b import mine\nmine._own",
        "from p.a import __init__",
        "class Other:\n    def _kept(self): return self._held",
        "import elsewhere\nelsewhere._private",
    ],
)
def test_public_names_and_names_of_the_same_room_are_free(text: str) -> None:
    assert list(breaches("p.b.user", ROOM_A | {"p.b.user": text})) == []
