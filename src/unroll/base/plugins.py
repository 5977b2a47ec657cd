"""The folder is the registry: a file's name is the option's name, `_` in a file being `-` in the option.

A user's own package joins by an entry point of the group `unroll.<family>`, a notebook or a script by `register`. All
three are used by name alike. A name of Unroll's own cannot be taken: it is always Unroll's file.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from functools import cache
from typing import Any, NamedTuple

from unroll.base import entry_points
from unroll.base.entry_points import Brought
from unroll.base.errors import ConfigurationError, did_you_mean

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # it stands in options, folder names and files


class Family(NamedTuple):
    """A kind of plug-in: what one is called, the packages whose files are its members, and what each must supply."""

    noun: str
    packages: tuple[str, ...]
    supplies: tuple[str, ...]


FAMILIES = {
    "cells": Family("cell", ("unroll.model.cells",), ("Cell",)),
    "loss_weights": Family("loss", ("unroll.experiment.loss_weights",), ("scored", "weights")),
    "state_origins": Family("state", ("unroll.experiment.state_origins",), ("LEARNS", "CARRIES")),
    "conditioning": Family("sample", ("unroll.model.conditioning",), ("begin", "read", "hidden")),
    "tokens": Family("kind", ("unroll.corpus.tokens",), ("counts", "encode", "decode")),
    "optimisers": Family("optimiser", ("unroll.model.optimisers",), ("MOMENTS", "update")),
    "schedules": Family("schedule", ("unroll.model.schedules",), ("DEPENDS_ON_LENGTH", "WATCHES", "factor")),
    "decoding": Family(
        "decoding control",
        ("unroll.sampling.decoding",),
        ("PLACE", "TYPE", "DEFAULT", "HELP", "ALLOWED", "allowed", "apply"),
    ),
    "kernels": Family(
        "kernel",
        ("unroll.engines.torch.kernels", "unroll.engines.cpu.kernels", "unroll.engines.cuda.kernels"),
        ("supports", "run"),
    ),
    "launchers": Family("launcher", ("unroll.sweep.launchers",), ("run",)),
    "trackers": Family("tracker", ("unroll.training.trackers",), ("why_not", "begin")),
}
_registered: dict[tuple[str, str], Any] = {}
_complete: set[tuple[str, str]] = set()  # files that were seen to supply what they must
_changes = [0]  # how often the members of any family may have changed


@cache
def _files(family: str) -> dict[str, str]:
    """The module behind each option name of a family that is a file of Unroll."""
    # Found, not imported: naming the cells must not cost an import of torch.
    modules = {}
    for package in FAMILIES[family].packages:
        spec = importlib.util.find_spec(package)
        folder = list(spec.submodule_search_locations or ()) if spec else []
        for module in pkgutil.iter_modules(folder):
            if module.name[0] != "_":
                modules[module.name.replace("_", "-")] = f"{package}.{module.name}"
    return dict(sorted(modules.items()))


@cache
def _brought(family: str) -> dict[str, Brought]:
    """What installed packages bring to a family, by option name: found, not imported."""
    brought: dict[str, Brought] = {}
    for one in entry_points.of(family):
        words = f"The package {one.package} {one.version} brings the {FAMILIES[family].noun} {one.name!r}"
        if one.name in _files(family):
            raise ConfigurationError(f"{words}, which is a name of Unroll's own. {_remedy(one)}")
        if one.name in brought:
            raise ConfigurationError(f"{words}, and so does {brought[one.name].package}. {_remedy(one)}")
        if not NAME.fullmatch(one.name) or one.name == "auto":
            raise ConfigurationError(f"{words}: a name is small letters, digits and hyphens. {_remedy(one)}")
        brought[one.name] = one
    return brought


def _remedy(one: Brought) -> str:
    return f"Rename its entry point, or: pip uninstall {one.package}"


def built_in(family: str) -> tuple[str, ...]:
    """The option names of Unroll's own files, sorted; it looks at no other package."""
    return tuple(_files(family))


def names(family: str) -> tuple[str, ...]:
    """The option names of a family, sorted: files, what packages bring, and what was registered."""
    registered = (name for member_of, name in _registered if member_of == family)
    return tuple(sorted({*_files(family), *_brought(family), *registered}))


def problem(family: str, name: str, what: str | None = None) -> str | None:
    """Why `name` is no choice in a family, or None."""
    if name in _files(family) or (family, name) in _registered or name in _brought(family):
        return None
    noun, known = what or FAMILIES[family].noun, names(family)
    return f"{noun} must be one of {', '.join(known)}. Got {name!r}.{did_you_mean(name, known)}"


def load(family: str, name: str) -> Any:
    """What is behind an option's name: a module, or an object that supplies the same names."""
    if (file := _files(family).get(name)) is not None:
        module = importlib.import_module(file)
        if (family, name) not in _complete:
            _require_complete(family, name, module)
            _complete.add((family, name))
        return module
    if (family, name) in _registered:
        return _registered[family, name]
    if wrong := problem(family, name):
        raise ConfigurationError(wrong)
    plugin = _brought(family)[name].load(FAMILIES[family].noun)
    _require_complete(family, name, plugin)
    return plugin


def register(family: str, name: str, plugin: object) -> None:
    """Add a plug-in of a notebook or a script under a name, for as long as this process lives.

    `family` is cells, loss_weights, state_origins, conditioning, tokens, optimisers, schedules, decoding, kernels,
    launchers or trackers; `plugin` is a module, an instance or a namespace with what a file of that family supplies.
    Registered again, the newer one is used.

        unroll.register("state_origins", "from-zeros", SimpleNamespace(LEARNS=False, CARRIES=False))
    """
    require_family(family)
    noun = FAMILIES[family].noun
    if not isinstance(name, str) or not NAME.fullmatch(name) or name == "auto":
        raise ConfigurationError(
            f"A name is small letters, digits and hyphens, as in my-{noun.split()[-1]}. Got {name!r}."
        )
    if name in _files(family):
        raise ConfigurationError(f"{name!r} is the name of a {noun} of Unroll's own. Choose another name.")
    if name in _brought(family):
        raise ConfigurationError(f"The package {_brought(family)[name].package} has {name!r}. Choose another name.")
    _require_complete(family, name, plugin)
    _registered[family, name] = plugin
    _changes[0] += 1


def refresh() -> None:
    """Look again for files and packages: some may have been installed since, or removed."""
    importlib.invalidate_caches()
    _files.cache_clear()
    _brought.cache_clear()
    entry_points.refresh()
    _complete.clear()
    _changes[0] += 1


def state() -> int:
    """A number that changes when the members of a family may have changed."""
    return _changes[0]


def package_of(family: str, name: str) -> Brought | None:
    """The package that brings a plug-in; None for a file of Unroll and for what was registered."""
    return None if name in _files(family) else _brought(family).get(name)


def is_registered(family: str, name: str) -> bool:
    """Whether a plug-in was registered by this process alone."""
    return (family, name) in _registered


def require_family(family: str) -> None:
    """Raise where no family has that name."""
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ConfigurationError(f"family must be one of {known}. Got {family!r}.{did_you_mean(str(family), FAMILIES)}")


def _require_complete(family: str, name: str, plugin: object) -> None:
    missing = [wanted for wanted in FAMILIES[family].supplies if not hasattr(plugin, wanted)]
    if missing:
        noun, supplies = FAMILIES[family].noun, ", ".join(FAMILIES[family].supplies)
        raise ConfigurationError(f"A {noun} supplies {supplies}; {name!r} lacks {', '.join(missing)}.")
