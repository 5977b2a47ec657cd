"""Which runs can train side by side. A fleet shares what its products' shapes depend on; everything else may differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unroll.errors import ConfigurationError
from unroll.experiment import Experiment
from unroll.model import PAD

MOST_PADDING = 1.25  # of the smallest vocabulary


def shared(experiment: Experiment) -> dict[str, Any]:
    """What all runs of a fleet have in common."""
    own = ["cell", "layers", "hidden", "dense", "rows", "optimiser", "clip", "precision"]
    if experiment.cell == "lstm":
        own.insert(1, "peepholes")
    scheme = experiment.scheme
    return {name: getattr(experiment, name) for name in own} | {"k2": scheme.k2, "scored positions": scheme.scored}


def why_not(experiments: Sequence[Experiment], vocabularies: Sequence[int]) -> list[str]:
    """Why these runs cannot share a fleet, in words; nothing where they can."""
    found = []
    for name, value in shared(experiments[0]).items():
        others = sorted({str(own[name]) for e in experiments if name in (own := shared(e))} - {str(value)})
        if others:
            found.append(f"Runs of one fleet share {name}: here are {value} and {', '.join(others)}.")
    gaps = {e.scheme.gap for e in experiments if e.scheme.carries}
    if len(gaps) > 1:
        found.append(f"Carried runs of one fleet share the gap max(0, k1 − k2): here are {sorted(gaps)}.")
    padded = -(-max(vocabularies) // PAD) * PAD
    if len(set(vocabularies)) > 1 and padded > MOST_PADDING * max(min(vocabularies), PAD):
        found.append(
            f"Vocabularies of {min(vocabularies)} and {max(vocabularies)} would be padded too far to share a fleet."
        )
    return found


def require(experiments: Sequence[Experiment], vocabularies: Sequence[int]) -> None:
    """Raise unless these runs can share a fleet."""
    reasons = why_not(experiments, vocabularies)
    if reasons:
        raise ConfigurationError(*reasons)
