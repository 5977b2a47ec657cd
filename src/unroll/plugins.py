"""The folder is the registry: a file's name is the option's name, `_` in a file being `-` in the option."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache
from types import ModuleType

from unroll.errors import ConfigurationError, did_you_mean


@cache
def names(package: str) -> tuple[str, ...]:
    """The option names that the files of a package stand for, sorted."""
    # Found, not imported: naming the cells must not cost an import of torch.
    spec = importlib.util.find_spec(package)
    folder = list(spec.submodule_search_locations or ()) if spec else []
    return tuple(sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(folder) if m.name[0] != "_"))


def problem(package: str, name: str, what: str) -> str | None:
    """Why `name` is no choice in `package`, or None."""
    known = names(package)
    if name in known:
        return None
    return f"{what} must be one of {', '.join(known)}. Got {name!r}.{did_you_mean(name, known)}"


def load(package: str, name: str) -> ModuleType:
    """The module behind an option's name."""
    wrong = problem(package, name, package.rpartition(".")[2].replace("_", " "))
    if wrong:
        raise ConfigurationError(wrong)
    return importlib.import_module(f"{package}.{name.replace('-', '_')}")
