"""Which packages an experiment's foreign plug-ins come from: the table [plugins] of run.toml.

[plugins]
cell = "unroll-mingru 1.2.0, sha256 9f86d08188…"      a package and its version, and the hash of the plug-in's source
optimiser = "registered, sha256 60303ae22b…"          by the program that trained the run

A person reads this text, and messages repeat it. Code is found by a plug-in's name alone, among what is installed or
registered here: nothing in a run's folder makes any code load.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from unroll.base import plugins, untrusted
from unroll.base.errors import ConfigurationError
from unroll.experiment import spelled

if TYPE_CHECKING:
    from unroll.experiment.experiment import Experiment

TABLE = "plugins"
# The settings that name a plug-in, with its family.
SETTINGS = {
    "kind": "tokens",
    "cell": "cells",
    "optimiser": "optimisers",
    "schedule": "schedules",
    "kernel": "kernels",
}
OF_SCHEME = {"loss": "loss_weights", "state": "state_origins", "sample": "conditioning"}
FAMILIES = {**SETTINGS, **OF_SCHEME}
REGISTERED, UNKNOWN = "registered", "unknown"
LINE = re.compile(
    r"(registered|[A-Za-z0-9][A-Za-z0-9._-]* [A-Za-z0-9][A-Za-z0-9._+!-]*), sha256 ([0-9a-f]{64}|unknown)"
)


def tables(experiment: Experiment) -> dict[str, dict[str, str]]:
    """The table, or nothing where every plug-in is Unroll's own."""
    foreign = {}
    for setting, family in FAMILIES.items():
        line = written(family, _name(experiment, setting))
        if line:
            foreign[setting] = line
    return {TABLE: foreign} if foreign else {}


def _name(experiment: Experiment, setting: str) -> str:
    """The name of a plug-in that an experiment uses, without the keys behind it."""
    return spelled.name_of(getattr(experiment.scheme if setting in OF_SCHEME else experiment, setting))


def written(family: str, name: str) -> str | None:
    """Where a plug-in comes from, as run.toml says it; None for a file of Unroll, and for no plug-in at all."""
    if name in plugins.built_in(family) or plugins.problem(family, name):
        return None
    package = plugins.package_of(family, name)
    origin = f"{package.package} {package.version}" if package else REGISTERED
    return f"{origin}, sha256 {source_hash(plugins.load(family, name), plugins.FAMILIES[family].supplies)}"


def source_hash(plugin: Any, supplies: tuple[str, ...] = ()) -> str:
    """The SHA-256 of a plug-in's source file; of its source as it was typed, where it has no file."""
    for thing in (plugin, type(plugin), *(getattr(plugin, name, None) for name in supplies)):
        with suppress(TypeError, OSError):
            file = inspect.getsourcefile(thing if isinstance(thing, ModuleType) else inspect.unwrap(thing))
            if file is None or _is_of_python(file):
                continue
            path = Path(file)
            text = path.read_bytes() if path.is_file() else inspect.getsource(thing).encode()
            return hashlib.sha256(text).hexdigest()
    return UNKNOWN


def _is_of_python(file: str) -> bool:
    """Whether a source is Python's own, as that of a plain namespace is."""
    return Path(file).is_relative_to(Path(inspect.__file__).parent) and "site-packages" not in file


def without(document: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The document without its table of plug-ins; a ConfigurationError where one of them is not to be had here."""
    table = document.get(TABLE)
    if table is None:
        return document
    if not isinstance(table, dict) or not all(key in FAMILIES and _parsed(line) for key, line in table.items()):
        raise ConfigurationError(f'[{TABLE}] in {where} must say, for a setting: "PACKAGE VERSION, sha256 HASH".')
    wrong = []
    for setting, line in table.items():
        name = next((own[setting] for own in document.values() if isinstance(own, dict) and setting in own), None)
        if isinstance(name, str) and plugins.problem(FAMILIES[setting], name := spelled.name_of(name)):
            wrong.append(_absent(setting, name, line, where))
    if wrong:
        raise ConfigurationError(*wrong)
    return {name: own for name, own in document.items() if name != TABLE}


def _parsed(line: Any) -> re.Match[str] | None:
    return LINE.fullmatch(line) if isinstance(line, str) else None


def _absent(setting: str, name: str, line: str, where: str) -> str:
    """What would do, where a plug-in is not here."""
    origin, family = line.partition(",")[0], FAMILIES[setting]
    if origin == REGISTERED:
        return (
            f"{setting} is {name!r} in {where}, which the program that trained it had registered. "
            f"Register it before: unroll.register({family!r}, {name!r}, …)."
        )
    package, version = origin.split(" ")
    return (
        f"{setting} is {name!r} in {where}, which is of the package {package} {version}, and that is not installed "
        f"here. If you trust it: pip install {package}=={version}"
    )


def changes(text: str, experiment: Experiment) -> list[str]:
    """Which plug-ins are not those that were used when this run.toml was written, in words."""
    try:
        before = untrusted.parse_toml(text).get(TABLE, {})
    except ValueError:
        return []
    now = tables(experiment).get(TABLE, {})
    return [
        f"{setting}: the plug-in was {before.get(setting, 'of Unroll')}, is {now.get(setting, 'of Unroll')}."
        for setting in FAMILIES
        if before.get(setting) != now.get(setting)
    ]


def registered(experiment: Experiment) -> list[str]:
    """The plug-ins of an experiment that this process alone knows, in words."""
    return [
        f"the {plugins.FAMILIES[family].noun} {name!r}"
        for setting, family in FAMILIES.items()
        if plugins.is_registered(family, name := _name(experiment, setting))
    ]
