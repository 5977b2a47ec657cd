"""A grid: every combination of some settings, as experiments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from unroll.base.errors import ConfigurationError
from unroll.experiment.experiment import Experiment, from_options, scheme_options
from unroll.experiment.scheme import Scheme
from unroll.experiment.settings import is_list, types_of
from unroll.experiment.usual_words import unknown_argument

MOST = 20_000  # experiments: more are a slip of the hand


def grid(**settings: Any) -> list[Experiment]:
    """Every combination of settings; each is one value or several.

    `scheme` is a number of the paper's, a `Scheme`, or a mapping of a Scheme's fields; k1 and k2 stand beside it.

    >>> runs = grid(corpus="stdlib", scheme=[1, 2], k1=[20, 40, 60], seed=range(5), hidden=128)
    >>> len(runs), runs[0].scheme.k1, runs[-1].seed
    (30, 20, 4)
    """
    known = {f.name: f.name for f in (*fields(Experiment), *fields(Scheme))}
    wrong = [
        f"A grid has no setting {name!r}.{unknown_argument(name, known)}" for name in settings if name not in known
    ]
    axes = {name: _values(name, value) for name, value in settings.items()}
    wrong += [f"{name} has no value: give at least one." for name, values in axes.items() if not values]
    if math.prod(len(values) for values in axes.values()) > MOST:
        wrong.append(f"This grid has more than {MOST:,} combinations. Vary fewer settings.")
    if wrong:
        raise ConfigurationError(*wrong)
    experiments: dict[Experiment, None] = {}
    for chosen in itertools.product(*axes.values()):
        try:
            experiments[_experiment(dict(zip(axes, chosen, strict=True)))] = None
        except ConfigurationError as error:
            wrong += error.problems
    if wrong:
        raise ConfigurationError(*dict.fromkeys(wrong))
    return list(experiments)


def _values(name: str, value: Any) -> list[Any]:
    if is_list(types_of(Experiment).get(name)) or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def _experiment(options: dict[str, Any]) -> Experiment:
    """One combination; a scheme's own fields may be given beside it."""
    scheme = options.pop("scheme", 1)
    if isinstance(scheme, Scheme):
        scheme = {f.name: getattr(scheme, f.name) for f in fields(scheme)}
    elif not isinstance(scheme, Mapping):
        scheme = scheme_options(scheme, None, None)
    beside = {f.name: options.pop(f.name) for f in fields(Scheme) if f.name in options}
    return from_options(options, {**scheme, **beside})
