"""Which contestants meet over which shapes. Those of one group are timed in turn, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Any

from unroll.base.errors import ConfigurationError, did_you_mean
from unroll.experiment.experiment import Experiment
from unroll.experiment.scheme import TRAINING_PROCEDURES
from unroll.studies.benchmark.contestants import PEERS, TITLES, Entry
from unroll.studies.benchmark.shapes import ARCHITECTURES, Shape, parse_architecture

Group = tuple[Entry, ...]

PRECISIONS = {"cuda": ("bfloat16", "tf32", "float32"), "cpu": ("float32",)}
NARROW = 256  # up to this γ a run has little work, and more runs go into a fleet
# As many as fill an H200 evenly: four rounds of 7 wide runs, one of 66 narrow ones.
FLEETS = {("cuda", "narrow"): (66,), ("cuda", "wide"): (28,), ("cpu", "narrow"): (4,), ("cpu", "wide"): (4,)}

# The scaling study varies one thing at a time around a centre.
CENTRES = {"cuda": Shape(), "cpu": Shape(hidden=128, k2=50)}
AXES: dict[str, dict[str, tuple[int, ...]]] = {
    "cuda": {
        "runs": (1, 2, 3, 5, 7, 8, 14, 28, 56),
        "hidden": (64, 128, 256, 512, 1024),
        "k2": (20, 50, 100, 200),
        "layers": (1, 2, 3),
    },
    "cpu": {"runs": (1, 2, 4, 8, 16), "hidden": (32, 64, 128, 256), "k2": (10, 20, 50, 100), "layers": (1, 2, 3)},
}
SCALING_FLEET = {"cuda": 28, "cpu": 4}
SCALING_PEERS = {"cuda": ("lstm-eager", "cudnn-half"), "cpu": ("lstm-eager",)}


@dataclass(frozen=True)
class Choice:
    """What the user narrowed the benchmark to; an empty field leaves everything in."""

    architectures: tuple[str, ...] = ()
    procedures: tuple[str, ...] = ()
    contestants: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    fleets: tuple[int, ...] = ()
    only: str = ""

    def __post_init__(self) -> None:
        wrong: list[str] = []
        for architecture in self.architectures:
            try:
                parse_architecture(architecture)
            except ConfigurationError as error:
                wrong += error.problems
        known: dict[str, Iterable[str]] = {"procedures": TRAINING_PROCEDURES, "contestants": TITLES}
        for option, names in known.items():
            for name in getattr(self, option):
                if name not in names:
                    wrong.append(f"--{option} knows {', '.join(names)}. Got {name!r}.{did_you_mean(name, names)}")
        for runs in self.fleets:
            if runs < 1:
                wrong.append(f"A fleet has at least 1 run. Got {runs}. Set --fleet, as in --fleet 21,28.")
        if wrong:
            raise ConfigurationError(*wrong)


def comparison(choice: Choice, device: str) -> list[Group]:
    """Every architecture under every training procedure, each with all its contestants."""
    shapes = [
        Shape(layers, hidden, procedure)
        for layers, hidden in map(parse_architecture, choice.architectures or ARCHITECTURES)
        for procedure in choice.procedures or TRAINING_PROCEDURES
    ]
    return _chosen(([*_unroll(s, choice, device), *_peers(s, choice, device)] for s in shapes), choice)


def scaling(choice: Choice, device: str) -> list[Group]:
    """One thing varied at a time: M, γ, k2 and r. A point where axes cross is measured once."""
    centre, fleet = _centre(choice, device)
    few = replace(choice, fleets=(fleet,), precisions=(choice.precisions or PRECISIONS[device])[:1])
    narrowed = replace(few, contestants=choice.contestants or ("unroll", "unroll-fleet", *SCALING_PEERS[device]))
    many = replace(narrowed, fleets=tuple(sorted({*AXES[device]["runs"][1:], fleet})))
    groups: dict[Shape, list[Entry]] = {}
    for axis in ("hidden", "k2", "layers"):
        for value in AXES[device][axis]:
            varied: dict[str, Any] = {axis: value}
            shape = replace(centre, **varied)
            shape = replace(shape, k1=min(shape.k1, shape.k2))
            choice_here = many if shape == centre else narrowed
            groups[shape] = [*_unroll(shape, choice_here, device), *_peers(shape, choice_here, device)]
    return _chosen(groups.values(), choice)


def scaling_settings(choice: Choice, device: str) -> dict[str, Any]:
    """What a picture of the scaling study must know."""
    centre, fleet = _centre(choice, device)
    return {"centre": asdict(centre), "fleet": fleet}


def _centre(choice: Choice, device: str) -> tuple[Shape, int]:
    procedure = (choice.procedures or ("multi-loss",))[0]
    return replace(CENTRES[device], procedure=procedure), (choice.fleets or (SCALING_FLEET[device],))[0]


def refused(precisions: Iterable[str]) -> dict[str, str]:
    """The precisions that an experiment refuses, each with the reason."""
    reasons = {}
    for precision in precisions:
        try:
            Experiment(precision=precision)
        except ConfigurationError as error:
            reasons[precision] = error.problems[0]
    return reasons


def _unroll(shape: Shape, choice: Choice, device: str) -> list[Entry]:
    size = "narrow" if shape.hidden <= NARROW else "wide"
    fleets = choice.fleets or FLEETS[device, size]
    precisions = choice.precisions or PRECISIONS[device]
    named = choice.contestants or tuple(TITLES)
    sizes = [("unroll", 1), *(("unroll-fleet", runs) for runs in fleets)]
    return [Entry(shape, name, p, runs) for p in precisions for name, runs in sizes if name in named]


def _peers(shape: Shape, choice: Choice, device: str) -> list[Entry]:
    # A package that is not installed is a contestant only where --contestants names it: then its row says so.
    return [
        Entry(shape, name, kind.precision)
        for name, kind in PEERS.items()
        if name in (choice.contestants or PEERS)
        and (device != "cpu" or kind.on_cpu)
        and (name != "flashrnn" or choice.contestants or find_spec("flashrnn"))
    ]


def _chosen(groups: Iterable[Sequence[Entry]], choice: Choice) -> list[Group]:
    """Keep what `--only` matches, and drop groups that this leaves empty."""
    pattern = f"*{choice.only}*"
    kept = [tuple(e for e in group if fnmatchcase(e.label, pattern)) for group in groups]
    left = [group for group in kept if group]
    if not left:
        raise ConfigurationError(
            "Nothing is left to measure: --only, --contestants and this device have nothing in common. "
            "A row is named like '1x512 multi-loss unroll-fleet 21 bfloat16'."
        )
    return left
