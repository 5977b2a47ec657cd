"""What distinguishes runs: the settings that differ between them, and a label for each run made of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from unroll.experiment.experiment import Experiment
from unroll.experiment.settings import settings_of

PATHS = {"corpus", "validation_file", "test_file"}  # of the machine that trained; hashes and titles tell texts apart
HASH = 12  # characters
LONGEST = 56  # characters of a label made of settings; a folder's name says more than a longer one


def settings(experiment: Experiment) -> dict[str, Any]:
    """Every setting of a run by its name, the whole scheme as one of them."""
    s = experiment.scheme
    number = f"{s.number}: " if s.number else ""
    flat: dict[str, Any] = {"corpus": experiment.title or "text", "scheme": f"{number}{s.training}, {s.sample}"}
    flat |= {"k1": s.k1, "k2": s.k2}
    for each, known in settings_of(Experiment):
        is_hash = each.name.endswith("sha256")
        if each.name in PATHS or not (known.help or is_hash):  # what no user says follows from the text
            continue
        value = getattr(experiment, each.name)
        flat[known.key or each.name] = value[:HASH] if is_hash and value else value
    return flat


def differing(experiments: Sequence[Experiment]) -> list[str]:
    """The settings that do not have one value everywhere, in the order of `settings`."""
    every = [settings(experiment) for experiment in experiments]
    names = dict.fromkeys(name for each in every for name in each)
    return [name for name in names if len({repr(each.get(name)) for each in every}) > 1]


def in_order(experiments: Mapping[str, Experiment]) -> list[str]:
    """The runs by what differs between them, then by their names: numbers by their size."""
    names = differing(list(experiments.values()))

    def key(name: str) -> list[tuple[int, float, str]]:
        every = settings(experiments[name])
        return [*(_key(every.get(setting)) for setting in names), _key(name)]

    return sorted(experiments, key=key)


def _key(value: Any) -> tuple[int, float, str]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value), "") if is_number else (1, 0.0, str(value))


def labels(experiments: Mapping[str, Experiment]) -> dict[str, str]:
    """A short name for each run, from what differs; its folder's name where that does not distinguish it."""
    names = differing(list(experiments.values()))
    words = {name: in_words(experiment, names) for name, experiment in experiments.items()}
    times = Counter(words.values())
    return {name: label if label and times[label] == 1 and fits(label) else name for name, label in words.items()}


def fits(label: str) -> bool:
    """Whether a label made of settings is short enough to be one."""
    return len(label) <= LONGEST


def in_words(experiment: Experiment, names: Sequence[str]) -> str:
    """These settings of a run on one line: scheme 1, k1 20, seed 0."""
    every = settings(experiment)
    said = {name: every[name] for name in names if every.get(name) is not None}
    if "scheme" in said and experiment.scheme.number:
        said["scheme"] = experiment.scheme.number
    if "corpus" in said:  # where titles are alike, the hash says which
        said.pop("sha256", None)
    return ", ".join(
        str(value) if name == "corpus" else f"{name.replace('_', ' ')} {value_words(value)}"
        for name, value in said.items()
    )


def value_words(value: Any) -> str:
    """A setting's value for a reader."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "–"
    return f"{value:g}" if isinstance(value, float) else str(value)
