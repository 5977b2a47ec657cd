"""Which runs can train side by side. A fleet shares what its products' shapes depend on; everything else may differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unroll.base.errors import ConfigurationError
from unroll.experiment.experiment import Experiment
from unroll.experiment.settings import settings_of
from unroll.model.model import PAD

MOST_PADDING = 1.25  # of the size that the smallest vocabulary would have alone, padded as well


def shared(experiment: Experiment) -> dict[str, Any]:
    """What all runs of a fleet have in common."""
    names = [each.name for each, known in settings_of(type(experiment)) if known.shared]
    if experiment.cell != "lstm":  # another cell has none
        names.remove("peepholes")
    scheme = experiment.scheme
    return {name: getattr(experiment, name) for name in names} | {"k2": scheme.k2, "scored positions": scheme.scored}


def why_not(experiments: Sequence[Experiment], vocabularies: Sequence[int]) -> list[str]:
    """Why these runs cannot share a fleet, in words; nothing where they can."""
    reasons = []
    for name, value in shared(experiments[0]).items():
        values = [shared(e) for e in experiments]
        others = sorted({str(common[name]) for common in values if name in common} - {str(value)})
        if others:
            reasons.append(f"Runs of one fleet share {name}: here are {value} and {', '.join(others)}.")
    gaps = {e.scheme.gap for e in experiments if e.scheme.carries}
    if len(gaps) > 1:
        reasons.append(f"Carried runs of one fleet share the gap max(0, k1 − k2): here are {sorted(gaps)}.")
    if _padded_too_far(min(vocabularies), max(vocabularies)):
        reasons.append(
            f"Vocabularies of {min(vocabularies)} and {max(vocabularies)} would be padded too far to share a fleet."
        )
    return reasons


def require(experiments: Sequence[Experiment], vocabularies: Sequence[int]) -> None:
    """Raise unless these runs can share a fleet."""
    reasons = why_not(experiments, vocabularies)
    if reasons:
        raise ConfigurationError(*reasons)


def padded(vocabulary: int) -> int:
    """The size that a vocabulary is padded to."""
    return -(-vocabulary // PAD) * PAD


def _padded_too_far(smallest: int, largest: int) -> bool:
    return padded(largest) > MOST_PADDING * padded(smallest)


def groups(experiments: Sequence[Experiment], vocabularies: Sequence[int]) -> list[list[int]]:
    """Which runs may train side by side, as places in the list: every run in one group, whatever the list's order.

    Runs of a group also share where they compute. A learned run could stand beside carried ones with a gap, but would
    pay for reading it: it goes with those that have none.
    """
    alike: dict[str, list[int]] = {}
    for i, e in enumerate(experiments):
        where = {"device": e.device, "kernel": e.kernel, "threads": e.threads, "gap": e.scheme.gap}
        alike.setdefault(repr(shared(e) | where), []).append(i)
    divided: list[list[int]] = []
    for _, members in sorted(alike.items()):
        smallest = 0
        for i in sorted(members, key=lambda i: vocabularies[i]):  # a stable sort: equals keep their order
            if not smallest or _padded_too_far(smallest, vocabularies[i]):
                divided.append([])
                smallest = vocabularies[i]
            divided[-1].append(i)
    return divided
