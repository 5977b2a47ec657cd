"""What a pilot tries: settings one at a time, then together, then the best of them with several seeds.

A window of twice as many tokens gets half as many rows: so every batch reads as many tokens, costs about the same, and
all runs have equal budgets at equal batches, whatever their k2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from unroll.experiment.experiment import Experiment
from unroll.experiment.scheme import Scheme
from unroll.sweep.advice.asked import Asked
from unroll.training import memory

RESET = 0.01  # the probability of a random reset, which cures what looks unstable in scheme 4
DROPOUT = 0.25  # the paper's
EPOCHS = 3.0  # readings of the train set in a full run, from which on dropout is tried
ALIKE = 0.005  # of the nats of the best: what lies within counts as equal, and what costs less is taken
TOLD = 0.02  # of the nats: by so much one seed must be better before a habit is left
NEAR = 0.03  # of the nats of the best: what lies within may still turn out to be better
AT_LEAST = 0.001  # nats that count as nothing
SEEDS, FINALISTS = 3, 4


@dataclass(frozen=True)
class Result:
    """A setting, and what its runs came to: nats a token of the validation set, at each run's best evaluation."""

    experiment: Experiment
    nats: float  # the mean over seeds; infinite where a run diverged
    turned: bool = False  # its curve rose at the end

    @property
    def carries(self) -> bool:
        """Whether a state is carried from window to window."""
        return self.experiment.scheme.carries


def setting(experiment: Experiment) -> Experiment:
    """An experiment without what runs of one setting differ in, and without what the pilot says of it."""
    return replace(experiment, seed=0, batches=1, test_tokens=None, evaluations=None, keep_optimiser=False)


def with_k2(e: Experiment, k2: int, said: Iterable[str] = ()) -> Experiment:
    """The same with windows of another length, as many tokens a batch, and k1 in proportion."""
    k1 = max(1, round(e.scheme.k1 * k2 / e.scheme.k2)) if "k1" not in said else e.scheme.k1
    rows = max(1, round(e.rows * e.scheme.k2 / k2)) if "rows" not in said else e.rows
    return replace(e, rows=rows, scheme=replace(e.scheme, k1=k1, k2=k2))


def with_k1(e: Experiment, k1: int) -> Experiment:
    """The same, with updates after another number of tokens."""
    return replace(e, scheme=replace(e.scheme, k1=k1))


def carried(e: Experiment, reset: str | float = RESET) -> Experiment:
    """The same with states that are carried on, and progressive sampling."""
    return replace(e, scheme=replace(e.scheme, state="carried", sample="progressive", reset=reset))


def like(e: Experiment, scheme: Scheme) -> Experiment:
    """The same with another's procedures, at its own k1 and k2."""
    return replace(e, scheme=replace(scheme, k1=e.scheme.k1, k2=e.scheme.k2))


def epochs(e: Experiment, batches: int) -> float:
    """How often a run of this many batches reads the text."""
    return batches * e.rows * e.scheme.k1 / max(e.tokens, 1)


def alone(asked: Asked, batches: int) -> list[Experiment]:
    """One setting changed at a time, what matters most first; a pilot of little time leaves out the last ones."""
    base, said = asked.base, asked.said
    made = [base, carried(base)]
    made += [] if "hidden" in said else [replace(base, hidden=max(1, base.hidden // 2))]
    rate = base.learning_rate
    made += [] if "learning_rate" in said else [replace(base, learning_rate=rate / 2)]
    made += [replace(base, dropout=DROPOUT)] if "dropout" not in said and epochs(base, batches) > EPOCHS else []
    made += [] if "learning_rate" in said else [replace(base, learning_rate=2 * rate)]
    made += [] if "hidden" in said else [replace(base, hidden=2 * base.hidden)]
    made += [] if "k2" in said else [with_k2(base, k2, said) for k2 in _other_k2(base)]
    made += [] if "k1" in said else [with_k1(base, max(1, base.scheme.k2 // 5))]
    made += [carried(base, "epoch"), replace(base, scheme=replace(base.scheme, loss="last"))]
    made += [] if "learning_rate" in said else [replace(base, learning_rate=rate / 4)]
    return list(dict.fromkeys(made))


def together(asked: Asked, results: Sequence[Result], batches: int) -> list[Experiment]:
    """The best values together: both origins of states with every k2, a smaller and a larger model, a lower rate."""
    base, said = asked.base, asked.said
    learned = [r for r in results if not r.carries]
    rate = _gentlest(learned, base)
    hidden = _cheapest_alike(learned, "hidden", base).hidden
    k1 = _best_k1(learned, base)
    chosen = with_k1(replace(base, learning_rate=rate, hidden=hidden), k1)
    drops = [r for r in results if r.experiment.dropout != base.dropout]
    plain = next((r for r in results if r.experiment == base), None)
    if drops and plain and (plain.turned or not alike(plain.nats, drops[0].nats, TOLD)):
        chosen = replace(chosen, dropout=DROPOUT)
    states = [r for r in results if r.carries]
    reset = min(states, key=lambda r: r.nats).experiment.scheme.reset if states else RESET
    if states and _near(states, reset):
        reset = RESET
    sizes = [base.scheme.k2] if "k2" in said else sorted({*_other_k2(base), base.scheme.k2})
    grid = [with_k2(chosen, k2, said) for k2 in sizes]
    made = [each for e in grid for each in (e, carried(e, reset))]
    best = carried(chosen, reset) if states and learned and states[0].nats < learned[0].nats else chosen
    slower = rate if "learning_rate" in said else rate / 2  # a larger model takes smaller steps
    made += [] if "hidden" in said else [replace(best, hidden=2 * hidden, learning_rate=slower)]
    other = base.scheme.k1 if k1 != base.scheme.k1 else max(1, base.scheme.k2 // 5)
    made += [] if "k1" in said else [with_k1(best, other)]
    made += [] if "learning_rate" in said else [replace(best, learning_rate=rate / 2)]
    if chosen.dropout != base.dropout:
        made += [replace(best, dropout=base.dropout), replace(best, dropout=2 * DROPOUT)]
    elif "dropout" not in said and epochs(base, batches) > EPOCHS:
        made += [replace(best, dropout=DROPOUT)]
    return list(dict.fromkeys(made))


def finalists(asked: Asked, results: Sequence[Result], most: int = FINALISTS) -> list[Experiment]:
    """Those that may be the answer: the best, the cheapest that is as good, and the best of each other kind."""
    ranked = sorted((r for r in results if r.nats < float("inf")), key=lambda r: r.nats)
    if not ranked:
        return [asked.base]
    best = ranked[0]
    equal = [r for r in ranked if alike(r.nats, best.nats)]
    picked = [best, min(equal, key=lambda r: cost(r.experiment))]
    picked += [r for r in ranked if r.carries != best.carries][:1]
    close = [r for r in ranked if alike(r.nats, best.nats, NEAR)]
    picked += sorted(close, key=lambda r: (-r.experiment.hidden, r.nats))[:1]  # a larger model gains more later
    picked += sorted(close, key=lambda r: (-r.experiment.scheme.k2, r.nats))[:1]  # and so does a longer reach
    picked += ranked[1:]
    return list(dict.fromkeys(r.experiment for r in picked))[:most]


def alike(nats: float, best: float, share: float = ALIKE) -> bool:
    """Whether a result counts as equal to the best."""
    return nats <= best + max(share * best, AT_LEAST)


def cost(e: Experiment) -> tuple[float, float, float, float]:
    """What a setting costs, to compare two: multiplications of a trained token, then states that sampling keeps up.

    Windowed sampling keeps k2 states, where progressive keeps one. Then a shorter window counts, and less dropout.
    """
    trained = memory.batch_work(e, e.unique or 1) / (e.rows * e.scheme.k2)
    sampled = e.scheme.k2 if e.scheme.sample == "windowed" else 1
    return round(trained, 3), float(sampled), float(e.scheme.k2), e.dropout


def _other_k2(base: Experiment) -> list[int]:
    k2 = base.scheme.k2
    return [max(1, k2 // 2), 2 * k2]


def _gentlest(results: Sequence[Result], base: Experiment) -> float:
    """The lowest learning rate that is near the best: a high one leads in short runs, and is overtaken in long ones."""
    line = [r for r in results if replace(r.experiment, learning_rate=base.learning_rate) == base]
    best = min(r.nats for r in line)
    return min(r.experiment.learning_rate for r in line if alike(r.nats, best, NEAR))


def _cheapest_alike(results: Sequence[Result], name: str, base: Experiment) -> Experiment:
    line = [r for r in results if replace(r.experiment, **{name: getattr(base, name)}) == base]
    best = min(r.nats for r in line)
    return min((r for r in line if alike(r.nats, best)), key=lambda r: cost(r.experiment)).experiment


def _best_k1(results: Sequence[Result], base: Experiment) -> int:
    line = [r for r in results if with_k1(r.experiment, base.scheme.k1) == base]
    best = min(r.nats for r in line)
    # A larger k1 reads more text in as many batches: where one seed does not tell them apart it is taken.
    return max(r.experiment.scheme.k1 for r in line if alike(r.nats, best, TOLD))


def _near(states: Sequence[Result], reset: str | float) -> bool:
    """Whether random resets are nearly as good as the best: they keep a start from zeros safe in longer runs."""
    best = next(r for r in states if r.experiment.scheme.reset == reset)
    random = next((r for r in states if r.experiment.scheme.reset == RESET), None)
    return random is not None and alike(random.nats, best.nats, NEAR)
