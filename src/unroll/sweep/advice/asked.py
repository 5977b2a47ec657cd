"""What is asked for: a text, a budget, what counts most, and settings that hold for every run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from unroll.base.errors import ConfigurationError, CorpusError
from unroll.corpus.corpus import Corpus
from unroll.experiment.experiment import PRESETS, Experiment, from_options
from unroll.sweep.comparison.asked import ENDS, validation_tokens
from unroll.sweep.paced.rounds import MOST_BATCHES

PRESET, BUDGET = "small", "5m"
LEAST_SECONDS, MOST_SECONDS = 60, 366 * 24 * 3600
NEEDS = ("quality", "speed", "memory")
# What a pilot varies, unless it is said.
VARIED = ("k1", "k2", "hidden", "learning_rate", "dropout")
OURS = ("keep_optimiser", "evaluations", "evaluate", "evaluate_carried", "seed", "test_tokens", "shuffle", "scheme")
SMALL = 5_000  # tokens from which on a tenth of a small corpus becomes its validation set
TENTH = 10


@dataclass(frozen=True)
class Asked:
    """A question for advice."""

    base: Experiment  # one batch of multi-loss, windowed, from which all that is tried differs in a few settings
    said: frozenset[str]  # what holds for every run, since the user said it
    budget: float  # seconds, for everything
    need: str
    batches: int | None = None  # of the full run, where they were said
    corpus: str = ""  # as it was said

    def described(self, corpus: Corpus) -> Asked:
        """The same, with the facts of a text."""
        return replace(self, base=corpus.described_in(self.base))


def asked(
    corpus: str, budget: float, need: str = "quality", settings: Mapping[str, Any] | None = None, preset: str = PRESET
) -> Asked:
    """What options and arguments ask for; all that is wrong with it is said at once."""
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    batches = given.pop("batches", None)
    wrong = []
    if need not in NEEDS:
        wrong.append(f"need must be one of {', '.join(NEEDS)}. Got {need!r}.")
    if not LEAST_SECONDS <= budget <= MOST_SECONDS:
        wrong.append(f"budget must be between {LEAST_SECONDS} and {MOST_SECONDS:,} seconds. Got {budget}. Say 5m.")
    if batches is not None and not (type(batches) is int and 1 <= batches <= MOST_BATCHES):
        wrong.append(f"batches must be between 1 and {MOST_BATCHES:,}. Got {batches!r}.")
    wrong += [f"--{name.replace('_', '-')} is for the pilot to say. Leave it out." for name in OURS if name in given]
    wrong += [f"--{name} ends some runs before others. Leave it out." for name in ENDS if name in given]
    if preset not in PRESETS:
        raise ConfigurationError(*wrong, f"--preset must be one of {', '.join(PRESETS)}. Got {preset!r}.")
    known = PRESETS[preset].get("scheme")
    k2 = given.pop("k2", known.k2 if known else 100)
    k1 = given.pop("k1", k2)
    said = frozenset(name for name in (*VARIED, "rows") if (settings or {}).get(name) is not None)
    options = {name: value for name, value in PRESETS[preset].items() if name not in ("scheme", "batches")}
    kept = {name: value for name, value in given.items() if name not in (*OURS, *ENDS)}
    try:
        base = from_options({**options, **kept, "corpus": corpus, "batches": 1}, {"k1": k1, "k2": k2})
    except ConfigurationError as error:
        raise ConfigurationError(*dict.fromkeys([*wrong, *error.problems])) from None
    if base.depends_on_length:
        wrong.append(
            f"The schedule {base.schedule} depends on the number of batches, which a pilot finds on the way. "
            "Leave --schedule out, and give it to the full run."
        )
    if wrong:
        raise ConfigurationError(*dict.fromkeys(wrong))
    return Asked(base, said, float(budget), need, batches, corpus)


def with_validation(asked: Asked, corpus: Corpus) -> Asked:
    """The same with a validation set, where nobody asked for one and the corpus spares it."""
    base = asked.base
    if base.validation or base.validation_file or corpus.validation_part:
        return asked
    tokens = validation_tokens(corpus)
    if tokens is None and corpus.tokens >= SMALL:
        tokens = corpus.tokens // TENTH
    if not tokens:
        return asked
    made = replace(asked, base=replace(base, validation=tokens))
    try:
        require_text(made, corpus)
    except CorpusError:  # what is left would be too short for windows or rows that were asked for
        return asked
    return made


def require_text(asked: Asked, corpus: Corpus) -> None:
    """Refuse a text that is too short for any run."""
    from unroll.training.preflight import refuse_hopeless

    try:
        refuse_hopeless([asked.base], [corpus])
    except CorpusError as error:
        raise CorpusError(*error.problems) from None
