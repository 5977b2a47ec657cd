"""What every plug-in of a family keeps to, as rules that can be run on any one: `unroll check FAMILY NAME`.

One file per family. A rule is a public function of it, called with the plug-in's name: its docstring is the rule, and
what it raises says how the rule is broken. The families' own `__init__` say the same rules in full.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import NamedTuple

from unroll.base import plugins
from unroll.base.errors import UnrollError


class Broken(UnrollError):
    """A rule is broken; the message says how."""


class NotHere(UnrollError):
    """A rule cannot be checked on this machine; the message says why."""


class Outcome(NamedTuple):
    """One rule, and what came of it."""

    rule: str
    broken: str | None = None
    not_here: str | None = None


Rule = Callable[[str], None]


def rules(family: str) -> list[Rule]:
    """The rules of a family, in the order in which they are written."""
    plugins.require_family(family)
    module = importlib.import_module(f"{__name__}.{family}")
    functions = [
        thing
        for name, thing in vars(module).items()
        if inspect.isfunction(thing) and thing.__module__ == module.__name__ and not name.startswith("_")
    ]
    return sorted(functions, key=lambda rule: rule.__code__.co_firstlineno)


def check(family: str, name: str) -> Iterator[Outcome]:
    """Run a family's rules on one plug-in, and say what came of each as it does."""
    plugins.load(family, name)
    for rule in rules(family):
        words = inspect.getdoc(rule) or rule.__name__
        try:
            rule(name)
        except NotHere as error:
            yield Outcome(words, not_here=str(error))
        except Broken as error:
            yield Outcome(words, broken=str(error))
        except Exception as error:  # a stranger's code may raise anything, which is shown
            yield Outcome(words, broken=f"{type(error).__name__}: {error}")
        else:
            yield Outcome(words)


def require(condition: bool, sentence: str) -> None:
    """Raise with this sentence unless the condition holds."""
    if not condition:
        raise Broken(sentence)
