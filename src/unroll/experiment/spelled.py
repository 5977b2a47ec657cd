"""A plug-in that is named with keys behind it: NAME[,key=value…], as in `step,every=1000,by=0.5`.

A plug-in lists its keys in KEYS, with their defaults:

    KEYS = {"every": Key(1000, at_least(1)), "by": Key(0.5)}

A key that is not said has its default. So a default is part of what an old run.toml means: it never changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from unroll.base import plugins
from unroll.base.errors import ConfigurationError, did_you_mean
from unroll.experiment.settings import Check, within

Number = int | float
Value = int | float | str
SHARE: Check = (lambda v: 0 <= v <= 1, "between 0 and 1")
BELOW_ONE = within(0, 1, "at least 0 and below 1")


class Key(NamedTuple):
    """A key's default, whose type every value has, and what a value may be."""

    default: Value
    check: Check | None = None


def name_of(text: str) -> str:
    """The plug-in's name, without the keys."""
    return text.partition(",")[0].strip()


def values(family: str, text: str) -> dict[str, Any]:
    """The value of every key of this plug-in."""
    found, wrong = _parsed(family, text, plugins.FAMILIES[family].noun)
    if wrong:
        raise ConfigurationError(*wrong)
    return found


def problems(family: str, text: str, what: str) -> list[str]:
    """Everything that is wrong with a name and its keys, in words."""
    if "," not in text:  # a name alone loads nothing
        unknown = plugins.problem(family, text, what)
        return [unknown] if unknown else []
    return _parsed(family, text, what)[1]


def canonical(family: str, text: str) -> str:
    """The one spelling of what is meant: keys in the plug-in's order, without those that have their default.

    >>> canonical("schedules", "step, by=.5,every=20")
    'step,every=20'
    """
    if "," not in text:
        return text
    found, wrong = _parsed(family, text, "")
    if wrong:
        return text  # it is refused elsewhere
    keys = _keys(family, name_of(text))
    said = [f"{key}={value!r}" for key, value in found.items() if value != keys[key].default]
    return ",".join([name_of(text), *said])


def listed(text: str) -> list[str]:
    """The values of a list: a part with a key belongs to the name before it.

    >>> listed("constant,step,every=20,by=0.1,cosine")
    ['constant', 'step,every=20,by=0.1', 'cosine']
    """
    words: list[str] = []
    for part in text.split(","):
        if words and "=" in part:
            words[-1] += f",{part}"
        else:
            words.append(part)
    return words


def _keys(family: str, name: str) -> Mapping[str, Key]:
    keys: Mapping[str, Key] = getattr(plugins.load(family, name), "KEYS", {})
    return keys


def _parsed(family: str, text: str, what: str) -> tuple[dict[str, Value], list[str]]:
    """The value of every key, and everything that is wrong."""
    name, *items = (part.strip() for part in text.split(","))
    if unknown := plugins.problem(family, name, what):
        return {}, [unknown]
    keys, wrong = _keys(family, name), list[str]()
    found = {key: known.default for key, known in keys.items()}
    said: set[str] = set()
    for item in items:
        key, _, value = item.partition("=")
        if not item:
            wrong.append(f"{what} has a comma with no key behind it. Got {text!r}.")
        elif key not in keys:
            knows = f"knows the keys {', '.join(keys)}" if keys else "knows no keys"
            wrong.append(f"{what} = {name} {knows}. Got {item!r}.{did_you_mean(key, keys)}")
        elif key in said:
            wrong.append(f"{what} = {name} has {key} more than once. Got {text!r}.")
        elif (problem := _refused(keys[key], value)) is not None:
            wrong.append(
                f"{key} of {what} = {name} must be {problem}. Got {value!r}. "
                f"Write it as in {name},{key}={keys[key].default}."
            )
        else:
            found[key] = _value(keys[key], value)
        said.add(key)
    return found, wrong


def _value(key: Key, text: str) -> Value:
    return type(key.default)(text)


def _refused(key: Key, text: str) -> str | None:
    """What a value would have to be, where it is not."""
    if isinstance(key.default, str):
        return None if key.check is None or key.check[0](text) else key.check[1]
    kind = "an integer" if type(key.default) is int else "a finite number"
    try:
        value: Any = _value(key, text)
    except ValueError:
        return kind
    if not math.isfinite(value) or abs(value) > 2**63:
        return kind
    return None if key.check is None or key.check[0](value) else key.check[1]
