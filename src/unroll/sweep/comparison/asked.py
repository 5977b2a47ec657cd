"""What is compared: schemes, k1 and seeds as experiments of one corpus, and what each part is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unroll.base.errors import ConfigurationError
from unroll.corpus.corpus import TEST_TOKENS, Corpus
from unroll.experiment import grids
from unroll.experiment.experiment import PRESETS, Experiment, scheme_options
from unroll.experiment.scheme import Scheme
from unroll.sweep.paced.rounds import LEAST_SECONDS, MOST_BATCHES

SEEDS, PRESET = 3, "small"
LARGE = 50_000  # tokens from which on a corpus spares a validation set
SHARE = 20  # of the corpus that a validation set takes at most: one part in so many
ENDS = ("patience", "target", "minutes")  # what ends one run before another
AXES = ("k1", "k2")  # of a scheme, said beside it
OURS = ("keep_optimiser", "evaluations", "evaluate", "evaluate_carried", "seed", "batches", "corpus", "scheme", "k1")


@dataclass(frozen=True)
class Asked:
    """A comparison: its runs, whose length is not said yet, and the time or the batches that they get."""

    experiments: tuple[Experiment, ...]
    budget: float | None  # seconds
    batches: int | None
    corpus: str = ""  # as it was said

    def described(self, corpus: Corpus) -> Asked:
        """The same, with the facts of a text in memory."""
        return replace(self, experiments=tuple(corpus.described_in(e) for e in self.experiments))

    @property
    def chooses_tokens(self) -> bool:
        """Whether how much of the test set is scored is for the comparison to say, by what evaluation costs here."""
        return self.budget is not None and all(e.test_tokens is None for e in self.experiments)

    def same(self, experiment: Experiment) -> Experiment:
        """An experiment without what the comparison itself says of it."""
        tokens = None if self.chooses_tokens else experiment.test_tokens
        return replace(experiment, batches=1, test_tokens=tokens)


def problems(budget: float | None, batches: int | None, seeds: int, settings: Mapping[str, Any]) -> list[str]:
    """What is wrong with what was asked, apart from the experiments themselves."""
    wrong = []
    if budget is not None and batches is not None:
        wrong.append("--budget and --batches both say how long it takes: drop one of the two.")
    if budget is not None and budget < LEAST_SECONDS:
        wrong.append(f"budget must be at least {LEAST_SECONDS:g} seconds. Got {budget:g}. Give more, as in 10m.")
    if batches is not None and not 1 <= batches <= MOST_BATCHES:
        wrong.append(f"batches must be between 1 and {MOST_BATCHES:,}. Got {batches}.")
    if not 1 <= seeds <= grids.MOST:
        wrong.append(f"seeds must be between 1 and {grids.MOST:,}. Got {seeds}.")
    wrong += [
        f"--{name} is for the comparison to say. Leave it out."
        for name in OURS
        if settings.get(name) is not None and name not in ("batches", "corpus", "scheme", "k1")
    ]
    wrong += [
        f"--{name} ends some runs before others, and a comparison gives all of them the same. Leave it out."
        for name in ENDS
        if settings.get(name) is not None
    ]
    return wrong


def asked(
    corpus: str,
    schemes: Sequence[Mapping[str, Any]],
    k1: Sequence[int] | None,
    seeds: int,
    budget: float | None,
    batches: int | None,
    settings: Mapping[str, Any],
    preset: str = PRESET,
) -> Asked:
    """The comparison that options and arguments ask for; all that is wrong with it is said at once."""
    wrong = problems(budget, batches, seeds, settings)
    if preset not in PRESETS:
        raise ConfigurationError(*wrong, f"--preset must be one of {', '.join(PRESETS)}. Got {preset!r}.")
    given = {name: value for name, value in settings.items() if name not in OURS and value is not None}
    chosen = PRESETS[preset].get("scheme", Scheme())
    k2 = given.pop("k2", chosen.k2)
    base = {name: value for name, value in PRESETS[preset].items() if name not in ("scheme", "batches")}
    k1 = k1 or default_k1(k2)
    axes = {"k1": list(k1), "k2": k2, "seed": list(range(seeds if not wrong else 1))}
    made: list[Experiment] = []
    try:
        made = grids.grid(
            **{**base, **given, **axes, "corpus": corpus, "scheme": list(schemes), "batches": batches or 1},
            keep_optimiser=batches is None,
        )
    except ConfigurationError as error:
        wrong += error.problems
    if len({(e.scheme) for e in made}) == 1:
        wrong.append("One scheme with one k1 leaves nothing to compare. Give another: --schemes 1,2 or --k1 20,100.")
    if batches is None and any(e.depends_on_length for e in made):
        wrong.append(
            f"The schedule {made[0].schedule} depends on the number of batches, which --budget finds on the way. "
            "Give --batches instead."
        )
    if wrong:
        raise ConfigurationError(*dict.fromkeys(wrong))
    return Asked(tuple(replace(e, evaluate_carried=e.scheme.carries) for e in made), budget, batches, corpus)


def default_k1(k2: int) -> list[int]:
    """The k1 that are compared: windows side by side, and windows that overlap by four fifths."""
    return sorted({max(1, k2 // 5), k2})


def schemes_of(words: Sequence[Any]) -> list[dict[str, Any]]:
    """Schemes by number, as `Scheme`, or as mappings of a scheme's fields."""
    found: list[dict[str, Any]] = []
    wrong: list[str] = []
    for word in words:
        try:
            if isinstance(word, Scheme):
                found.append({name: getattr(word, name) for name in Scheme.__dataclass_fields__ if name not in AXES})
            elif isinstance(word, Mapping):
                found.append(dict(word))
            else:
                found.append(scheme_options(int(word), None, None))
        except ConfigurationError as error:
            wrong += error.problems
        except (TypeError, ValueError):
            wrong.append(f"A scheme is a number from 1 to 4, or a Scheme. Got {word!r}.")
    if wrong:
        raise ConfigurationError(*dict.fromkeys(wrong))
    return found


def with_validation(asked: Asked, corpus: Corpus) -> Asked:
    """The same with a validation set, where nobody asked for one and the corpus spares it."""
    tokens = validation_tokens(corpus)
    if tokens is None or any(e.validation or e.validation_file for e in asked.experiments):
        return asked
    return replace(asked, experiments=tuple(replace(e, validation=tokens) for e in asked.experiments))


def validation_tokens(corpus: Corpus) -> int | None:
    """How many tokens to cut off; None where the corpus has a validation set of its own, or is small."""
    if corpus.validation_part or corpus.tokens < LARGE:
        return None
    return min(TEST_TOKENS, corpus.tokens // SHARE)


def label(scheme: Scheme) -> str:
    """What a scheme is called in a table."""
    if scheme.number:
        return f"scheme {scheme.number}"
    suits = scheme_options(None, scheme.training, None)["sample"]
    return scheme.training if scheme.sample == suits else f"{scheme.training}, {scheme.sample}"


def in_full(scheme: Scheme) -> str:
    """A scheme with its training and sampling procedures."""
    number = f"scheme {scheme.number}, " if scheme.number else ""
    return f"{number}{scheme.training} training and {scheme.sample} sampling"
