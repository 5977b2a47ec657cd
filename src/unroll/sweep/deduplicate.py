"""From what is asked for to what must be trained: experiments with one identity are one training, under one name."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from unroll.experiment.experiment import Experiment
from unroll.experiment.run_names import run_name, shape_of
from unroll.experiment.settings import settings_of
from unroll.model.conditioning import PROCEDURES

LONGEST = 120  # letters of a name
IN_EVERY_NAME = {"cell", "layers", "hidden", "seed"}
MERGED = {"evaluate", "evaluate_carried"}  # one training answers requests that differ in these


@dataclass(frozen=True)
class Training:
    """A run to be trained, and every request that it answers."""

    name: str
    experiment: Experiment
    asked: tuple[Experiment, ...]


def distinct(asked: Iterable[Experiment]) -> list[Training]:
    """Each training once, sorted by name, whatever the order of the requests.

    Schemes 1 and 3 differ in how tokens are drawn, not in how weights are trained: one run answers both, and is
    evaluated under both procedures. What is recorded must be what was asked, so runs that are scored on another part of
    the test set, or computed elsewhere, stay apart.
    """
    together: dict[tuple[object, ...], list[Experiment]] = {}
    for e in dict.fromkeys(asked):
        # A run is scored under the known procedures, and under its scheme's.
        other = None if e.scheme.sample in PROCEDURES else e.scheme.sample
        together.setdefault(
            (e.identity, other, e.test_tokens, e.evaluations, e.device, e.kernel, e.threads), []
        ).append(e)
    groups = [tuple(sorted(group, key=_order)) for group in together.values()]
    names = _names([group[0] for group in groups])
    trainings = [Training(name, _merged(group), group) for name, group in zip(names, groups, strict=True)]
    return sorted(trainings, key=lambda training: natural(training.name))


def named(name: str, asked: Sequence[Experiment]) -> Training:
    """A training whose name is known already."""
    group = tuple(sorted(asked, key=_order))
    return Training(name, _merged(group), group)


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts k1_20 before k1_100; 0.1 and 0.01, whose numbers are the same, by their letters."""
    # As letters where a number is too long for Python to read, or of digits other than 0 to 9.
    pieces = (*re.split(r"([0-9]{1,999})", name), name)
    return [(int(part), "") if re.fullmatch("[0-9]{1,999}", part) else (-1, part) for part in pieces if part]


def _order(experiment: Experiment) -> tuple[int, str]:
    return rank(experiment.scheme.sample), repr(experiment)


def rank(procedure: str) -> int:
    """The rank of a sampling procedure, by which rows of a table are sorted."""
    return PROCEDURES.index(procedure) if procedure in PROCEDURES else len(PROCEDURES)


def _merged(group: Sequence[Experiment]) -> Experiment:
    procedures = {e.scheme.sample for e in group}
    both = len(procedures) > 1 or any(e.evaluate == "both" for e in group)
    carried = any(e.evaluate_carried for e in group)
    return replace(group[0], evaluate="both" if both else "own", evaluate_carried=carried)


def _names(experiments: Sequence[Experiment]) -> list[str]:
    """Readable, different and safe as a folder's name, on systems that take A for a as well."""
    names = [_name(e, _varied(experiments)) for e in experiments]
    times = Counter(name.casefold() for name in names)
    return [
        f"{name}-{hashlib.sha256(repr(e).encode()).hexdigest()[:8]}" if times[name.casefold()] > 1 else name
        for name, e in zip(names, experiments, strict=True)
    ]


def _varied(experiments: Sequence[Experiment]) -> list[str]:
    """The settings that do not have one value everywhere, but for those that every name says."""
    names = [
        each.name for each, known in settings_of(Experiment) if known.help and each.name not in IN_EVERY_NAME | MERGED
    ]
    return [name for name in names if len({getattr(e, name) for e in experiments}) > 1]


def _name(experiment: Experiment, varied: Iterable[str]) -> str:
    e, s = experiment, experiment.scheme
    values = [(name, getattr(e, name)) for name in varied]
    name = run_name(e.title or e.corpus or "text", s.training, s.k1, s.k2, shape_of(e), e.seed, values)
    return name[:LONGEST].rstrip("-.")
