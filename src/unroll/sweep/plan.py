"""The plan: which runs train side by side, in which slot, on what, and why. Made once, written down, never made anew.

A run's last bits may depend on how many runs stand beside it, so the plan is a fact of a sweep, kept in plan.json
before any work starts; a sweep that goes on reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from unroll.base import limits, untrusted
from unroll.base.errors import ConfigurationError, CorpusError, RunError
from unroll.base.version import VERSION
from unroll.corpus.corpus import Corpus
from unroll.engines import devices
from unroll.experiment.experiment import Experiment
from unroll.sweep import measuring
from unroll.sweep.deduplicate import natural
from unroll.sweep.measuring import Pace
from unroll.training import memory
from unroll.training.fleet import groups
from unroll.training.preflight import refuse_hopeless

VALUES = 1 << 22  # at most, in plan.json


@dataclass(frozen=True)
class Fleet:
    """Runs that train side by side, in the order of their slots."""

    name: str
    runs: tuple[str, ...]
    device: str
    kernel: str
    precision: str
    threads: int
    bytes: int  # that it may need: measured where a device counts them, else estimated
    work: float  # multiplications of the whole fleet, to tell how much of a sweep is left
    milliseconds: float | None  # a run-batch, where it was measured
    why: str


@dataclass(frozen=True)
class Measurement:
    """What was tried to decide how many runs of one shape train side by side."""

    fleets: tuple[str, ...]
    paces: tuple[Pace, ...]


@dataclass(frozen=True)
class Plan:
    """Every run is in one fleet, or refused with a reason."""

    fleets: tuple[Fleet, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    measured: tuple[Measurement, ...] = ()
    changes: tuple[str, ...] = ()  # what was decided after the plan was first written, in words
    version: str = VERSION

    @property
    def names(self) -> list[str]:
        """All runs."""
        return [*(run for fleet in self.fleets for run in fleet.runs), *self.refused]

    def split(self, name: str, reason: str) -> Plan:
        """The plan with a fleet that did not fit as two of half its size."""
        fleets: list[Fleet] = []
        for fleet in self.fleets:
            middle = (len(fleet.runs) + 1) // 2
            halves = {"a": fleet.runs[:middle], "b": fleet.runs[middle:]} if fleet.name == name else {"": fleet.runs}
            for letter, runs in halves.items():
                share = len(runs) / len(fleet.runs)
                why = f"half of fleet {name}, which did not fit" if letter else fleet.why
                half = replace(fleet, name=fleet.name + letter, runs=runs, why=why)
                fleets.append(replace(half, bytes=int(fleet.bytes * share), work=fleet.work * share))
        change = f"Fleet {name} did not fit and was split into {name}a and {name}b: {reason}"
        return replace(self, fleets=tuple(fleets), changes=(*self.changes, change))

    def to_json(self) -> str:
        """plan.json."""
        return json.dumps(untrusted.sealed(asdict(self)), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Plan:
        """The plan that was written, or a RunError."""
        try:
            content = untrusted.unsealed(untrusted.parse_json(text, VALUES))
            fleets = tuple(Fleet(runs=tuple(stored.pop("runs")), **stored) for stored in content["fleets"])
            measured = tuple(
                Measurement(tuple(m["fleets"]), tuple(Pace(**pace) for pace in m["paces"])) for m in content["measured"]
            )
            refused, changes = dict(content["refused"]), tuple(content["changes"])
            plan = cls(fleets, refused, measured, changes, str(content["version"]))
            if not all(map(_whole, fleets)) or len(set(plan.names)) != len(plan.names):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RunError(
                f"{where} is damaged: it is no plan of a sweep. Bring it back, or start a new one."
            ) from None
        return plan


def _whole(fleet: Fleet) -> bool:
    """Whether the fields of a fleet that was read from a file are of the right types."""
    words = (fleet.name, fleet.device, fleet.kernel, fleet.precision, fleet.why, *fleet.runs)
    numbers = (
        fleet.threads,
        fleet.bytes,
        fleet.work,
        *(() if fleet.milliseconds is None else (fleet.milliseconds,)),
    )
    right = all(isinstance(word, str) for word in words) and all(type(n) in (int, float) for n in numbers)
    return bool(fleet.runs) and right


def make(
    experiments: Mapping[str, Experiment],
    corpora: Mapping[str, Corpus],
    most: int | None = None,
    between: Callable[[], None] = lambda: None,
    at_once: Mapping[str, int] | None = None,
) -> Plan:
    """Plan these runs, by name. `most` runs side by side are not exceeded, and nothing is measured then.

    Where several fleets train `at_once` on devices of a name, no device is left without one.
    """
    if most is not None and most < 1:
        raise ConfigurationError(f"most must be at least 1. Got {most}. Leave --most out to have it measured.")
    resolved = {name: _resolved(experiments[name]) for name in sorted(experiments, key=natural)}
    refused = {name: why for name, e in resolved.items() if (why := _hopeless(e, corpora[name]))}
    names = [name for name in resolved if name not in refused]
    plannable = [resolved[name] for name in names]
    fleets: list[Fleet] = []
    measured: list[Measurement] = []
    for group in groups(plannable, [corpora[name].unique for name in names]):
        # Runs of one length stand side by side: a slot whose run has ended is still computed.
        members = sorted((names[i] for i in group), key=lambda name: (-resolved[name].batches, natural(name)))
        chosen, paces = _fleets(
            len(fleets),
            members,
            [resolved[m] for m in members],
            [corpora[m] for m in members],
            most,
            between,
            (at_once or {}).get(experiments[members[0]].device, 1),
        )
        fleets += chosen
        measured += [Measurement(tuple(one.name for one in chosen), paces)] if paces else []
    return Plan(tuple(fleets), refused, tuple(measured))


def _resolved(experiment: Experiment) -> Experiment:
    """The experiment with kernel and threads decided; a device that names several stays as it was said."""
    places = devices.places(experiment.device)
    decided = devices.resolve(replace(experiment, device=places[0]))
    return decided if len(places) == 1 else replace(decided, device=devices.named(experiment.device))


def _hopeless(experiment: Experiment, corpus: Corpus) -> str | None:
    try:
        refuse_hopeless([experiment], [corpus])
    except CorpusError as error:
        return " ".join(error.problems)
    return None


def _fleets(
    first: int,
    names: Sequence[str],
    experiments: Sequence[Experiment],
    corpora: Sequence[Corpus],
    most: int | None,
    between: Callable[[], None],
    at_once: int,
) -> tuple[list[Fleet], tuple[Pace, ...]]:
    """A group of runs of one shape, divided evenly into as few fleets as the best number side by side allows.

    `at_once` of them train at the same time: there are as many, or a multiple of it.
    """
    device = experiments[0].device
    place = devices.places(device)[0]
    experiments = [replace(experiment, device=place) for experiment in experiments]
    limit = memory.available(devices.find(place))
    files = limits.files_left()
    held = fit(experiments, corpora, limit)
    room = max(1, min(held, files))  # each holds its folder open
    measured: tuple[Pace, ...] = ()
    if len(names) == 1:
        M, why = 1, "no other run has its shape"
    elif most is not None:
        M, why = min(most, room), f"at most {most} side by side, as asked"
    else:
        measured = measuring.measure(experiments, corpora, room, between)
        M = measuring.best(measured).runs if measured else 1
        tried = ", ".join(f"{p.milliseconds:.3g} with {p.runs}" for p in measured)
        why = f"ms a run-batch: {tried}" if tried else "it could not be tried"
        why += "; doubtful: the machine seems busy" if measuring.doubtful(measured) else ""
        if measured and measured[-1].runs == M < room:
            why += "; more would have taken too long to try"
    if room <= M < len(names):
        why += f"; {memory.in_words(limit)} hold no more than {room}" if held == room else ""
        why += f"; no more than {room} folders can be held open (ulimit -n)" if held > room else ""
    counts = -(-len(names) // M)
    if at_once > 1 and len(names) > 1:
        counts = min(len(names), -(-counts // at_once) * at_once)
        why += f"; spread over {at_once} that train at once"
    fleets = []
    for n in range(counts):
        part = slice(n * len(names) // counts, (n + 1) * len(names) // counts)
        runs, members, texts = names[part], experiments[part], corpora[part]
        needed = next((p.bytes for p in measured if p.runs >= len(runs) and p.bytes), None)
        fleets.append(
            Fleet(
                name=str(first + n + 1),
                runs=tuple(runs),
                device=device,
                kernel=members[0].kernel,
                precision=members[0].precision,
                threads=members[0].threads or 1,
                bytes=needed or memory.fleet_bytes(members, texts),
                work=sum(memory.batch_work(e, c.unique) * e.batches for e, c in zip(members, texts, strict=True)),
                milliseconds=measuring.best(measured).milliseconds if measured else None,
                why=why,
            )
        )
    return fleets, measured


def fit(experiments: Sequence[Experiment], corpora: Sequence[Corpus], limit: int) -> int:
    """How many of these runs the memory holds side by side, by estimate; at least one is tried."""
    V = max(corpus.unique for corpus in corpora)
    one = max(memory.run_bytes(e, V) + memory.order_bytes(e, c) for e, c in zip(experiments, corpora, strict=True))
    return max(1, min(len(experiments), (limit - memory.shared_bytes(experiments, corpora)) // one))
