"""The folder is the registry: a file's name is the option's name, `_` in a file being `-` in the option."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache
from types import ModuleType
from typing import NamedTuple

from unroll.base.errors import ConfigurationError, did_you_mean


class Family(NamedTuple):
    """A kind of plug-in: what one of it is called, and the packages whose files are its members."""

    noun: str
    packages: tuple[str, ...]


FAMILIES = {
    "cells": Family("cell", ("unroll.model.cells",)),
    "loss_weights": Family("loss", ("unroll.experiment.loss_weights",)),
    "state_origins": Family("state", ("unroll.experiment.state_origins",)),
    "conditioning": Family("sample", ("unroll.model.conditioning",)),
    "tokens": Family("kind", ("unroll.corpus.tokens",)),
    "optimisers": Family("optimiser", ("unroll.model.optimisers",)),
    "decoding": Family("decoding control", ("unroll.sampling.decoding",)),
    "kernels": Family(
        "kernel", ("unroll.engines.torch.kernels", "unroll.engines.cpu.kernels", "unroll.engines.cuda.kernels")
    ),
    "launchers": Family("launcher", ("unroll.sweep.launchers",)),
}


@cache
def _found(family: str) -> dict[str, str]:
    """The module behind each option name of a family."""
    # Found, not imported: naming the cells must not cost an import of torch.
    modules = {}
    for package in FAMILIES[family].packages:
        spec = importlib.util.find_spec(package)
        folder = list(spec.submodule_search_locations or ()) if spec else []
        for module in pkgutil.iter_modules(folder):
            if module.name[0] != "_":
                modules[module.name.replace("_", "-")] = f"{package}.{module.name}"
    return dict(sorted(modules.items()))


def names(family: str) -> tuple[str, ...]:
    """The option names of a family, sorted."""
    return tuple(_found(family))


def problem(family: str, name: str, what: str | None = None) -> str | None:
    """Why `name` is no choice in a family, or None."""
    known = names(family)
    if name in known:
        return None
    noun = what or FAMILIES[family].noun
    return f"{noun} must be one of {', '.join(known)}. Got {name!r}.{did_you_mean(name, known)}"


def load(family: str, name: str) -> ModuleType:
    """The module behind an option's name."""
    wrong = problem(family, name)
    if wrong:
        raise ConfigurationError(wrong)
    return importlib.import_module(_found(family)[name])
