"""What a setting is: a field of `Experiment` or `Scheme` says everything about itself, once.

From the fields follow the options of `unroll train` and `unroll sweep`, the lists of a sweep, the tables of run.toml,
the checks, the identity of a training, the columns of table.csv and the facts of a report. A new setting is one line:

    heads: int = setting("model", 4, "Heads of attention [{default}].", up_to(64), shared=True, newer=True)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from unroll.base import plugins

TABLES = ("model", "optimiser", "training", "corpus", "evaluation", "machine")  # the order in which --help lists them

Check = tuple[Callable[[Any], bool], str]


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its name, its type and its default."""

    table: str  # of run.toml
    help: str  # a sentence for --help; empty for what no user says: a fact that is recorded, or a part of --train
    check: Check | None = None
    trains: bool = True  # training sees it, and so the identity of a training depends on it
    varies: bool = True  # a sweep may list several values
    column: bool = True  # table.csv has a column of it
    family: str | None = None  # the family of plug-ins whose names are its values, beside its default
    keys: bool = False  # keys may stand behind a plug-in's name: NAME[,key=value…]
    metavar: str | None = None  # what stands for a value in --help
    key: str | None = None  # its name in run.toml, where that is another one
    shared: bool = False  # runs side by side must have one value: the shapes of their products depend on it
    newer: bool = False  # it came after a release: at its default it leaves the identity of a training as it was


def setting(
    table: str,
    default: Any,
    help: str = "",
    check: Check | None = None,
    *,
    trains: bool = True,
    varies: bool | None = None,
    column: bool | None = None,
    family: str | None = None,
    keys: bool = False,
    metavar: str | None = None,
    key: str | None = None,
    shared: bool = False,
    newer: bool = False,
) -> Any:
    """A field of a dataclass of settings. What training sees may vary; what varies has a column."""
    varies = trains and bool(help) if varies is None else varies
    column = varies if column is None else column
    known = Setting(table, help, check, trains, varies, column, family, keys, metavar, key, shared, newer)
    return field(default=default, metadata={"setting": known})


def settings_of(described: type) -> tuple[tuple[Field[Any], Setting], ...]:
    """The fields of a class that are settings, in their order."""
    return _settings_of(described)


@cache
def _settings_of(described: type) -> tuple[tuple[Field[Any], Setting], ...]:
    return tuple((each, each.metadata["setting"]) for each in fields(described) if "setting" in each.metadata)


def options_of(described: type) -> list[tuple[Field[Any], Setting]]:
    """The settings that are options of the command line, table by table."""
    said = [(each, known) for each, known in settings_of(described) if known.help]
    return sorted(said, key=lambda pair: TABLES.index(pair[1].table) if pair[1].table in TABLES else len(TABLES))


def columns_of(described: type) -> list[str]:
    """The settings that have a column of their own in a sweep's table, table by table."""
    return [each.name for each, known in options_of(described) if known.column]


def help_of(each: Field[Any], known: Setting) -> str:
    """A setting's sentence for --help, with its default and the names of its plug-ins."""
    default = f"{each.default:g}" if isinstance(each.default, float) else each.default
    names = ", ".join(plugins.built_in(known.family)) if known.family else ""
    return known.help.format(default=default, names=names)


def types_of(described: type) -> dict[str, Any]:
    """The types of a class's fields."""
    return _types_of(described)


@cache  # every experiment looks at them, and they are slow to resolve
def _types_of(described: type) -> dict[str, Any]:
    return get_type_hints(described)


def one_value(hint: Any) -> Any:
    """The type of one value: int of `int | None`, str of a tuple of str."""
    kinds = [kind for kind in get_args(hint) if kind not in (type(None), Ellipsis)]
    return kinds[0] if kinds else hint


def is_list(hint: Any) -> bool:
    """Whether a setting's value is a list of words itself."""
    return get_origin(hint) is tuple


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a field's type; True is no number here, though it is one to Python."""
    if is_list(hint):
        return isinstance(value, tuple) and all(isinstance(item, str) for item in value)
    return isinstance(value, hint) and (type(value) is not bool or hint is bool)


def at_least(low: float) -> Check:
    """A number that is not below this one."""
    return lambda v: v >= low, f"at least {low}"


def up_to(high: int) -> Check:
    """A count that something loops over or makes a table of: bounded before that begins."""
    return lambda v: 1 <= v <= high, f"between 1 and {high:,}"


def one_of(*names: str) -> Check:
    """One of these words."""
    return lambda v: v in names, f"one of {', '.join(names)}"


def within(low: float, high: float, words: str) -> Check:
    """A number from `low` on and below `high`."""
    return lambda v: low <= v < high, words
