"""From a place in the paper's grid to the experiment that answers it, at any scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from unroll.base.errors import ConfigurationError, CorpusError, InputError
from unroll.corpus.corpus import Corpus
from unroll.experiment.experiment import Experiment
from unroll.experiment.run_names import run_name
from unroll.experiment.scheme import SCHEMES, Scheme
from unroll.studies.paper.figures import BEST, CORPORA, FIGURES, OURS, Series, training
from unroll.sweep.deduplicate import Training

SMALLER = 16  # times fewer units at a scale below 1
# Side by side at a scale below 1, where nothing is measured, so that the plan does not depend on the machine's mood: on
# a CPU more bring nothing to training (23 ms a run-batch with 3, 22 with 10), and their windows leave the cache.
MOST_SMALL = 3


@dataclass(frozen=True)
class Scale:
    """How large a reproduction is: 1 is the paper's own size."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise ConfigurationError(f"scale must be above 0 and at most 1, which is the paper's. Got {self.scale}.")

    @property
    def whole(self) -> bool:
        """Whether it is the paper's own."""
        return self.scale == 1

    def fitted(self, experiment: Experiment) -> Experiment:
        """An experiment of the paper's size at this one."""
        if self.whole:
            return experiment
        return replace(
            experiment,
            batches=max(16, round(experiment.batches * self.scale)),
            hidden=experiment.hidden // SMALLER,
            dense=experiment.dense // SMALLER,
            test_tokens=1_100,
            evaluations=8,
            threads=1,  # so small a model gains nothing from more; fleets share the cores instead
        )


# What a training is scored under does not depend on who asks for it, so that one record of a training is enough for
# every figure.


def _both(one: Series) -> bool:
    """Schemes 1 and 3 share their trainings; both are drawn for the architecture that the paper goes on with."""
    return one.train == "multi-loss" and (one.layers, one.hidden) in BEST


def _from_carried(one: Series) -> bool:
    """The paper's own setting of scheme 4, and those that change what states are carried over."""
    return one in OURS and (not one.varied or "reset" in one.variant)


def open_all(data: Path, names: Iterable[str] = CORPORA) -> dict[str, Corpus]:
    """The corpora by name, from NAME.txt in a folder; whatever is missing or cannot be read is told at once."""
    found: dict[str, Corpus] = {}
    wrong: list[str] = []
    for name in names:
        path = data / f"{name}.txt"
        try:
            if not path.is_file():
                raise CorpusError(f"{path} is missing: --data is a folder with {', '.join(CORPORA)}, each NAME.txt.")
            found[name] = Corpus.open(str(path))
        except InputError as error:
            wrong += error.problems
    if wrong:
        raise CorpusError(*wrong)
    return found


def title(name: str, corpus: Corpus) -> str:
    """A corpus's name with what should always be said beside it."""
    return f"{name} ({'the paper’s file' if corpus.paper == name else 'reconstruction'})"


def experiment(one: Series, seed: int, scale: Scale, precision: str, corpus: Corpus) -> Experiment:
    """The experiment behind a curve; curves of one training get the same."""
    one = training(one)
    scheme, own = SCHEMES[one.scheme], {f.name for f in fields(Scheme)}
    changes = {name: value for name, value in one.variant.items() if name in own}
    full = Experiment(
        scheme=replace(scheme, k1=one.k1, k2=one.k2, **changes),
        layers=one.layers,
        hidden=one.hidden,
        seed=seed,
        precision=precision,
        evaluate="both" if _both(one) else "own",
        evaluate_carried=_from_carried(one),
        **{name: value for name, value in one.variant.items() if name not in own},
    )
    return corpus.described_in(scale.fitted(full))


def places(seed: int, scale: Scale, precision: str, corpora: Mapping[str, Corpus]) -> dict[str, Series]:
    """Where every training of this seed stands in the grid, by identity."""
    every = {training(one) for curves in FIGURES.values() for one in curves}
    return {experiment(one, seed, scale, precision, corpora[one.corpus]).identity: one for one in every}


@dataclass(frozen=True)
class Wanted:
    """A training that figures ask for."""

    series: Series
    training: Training


def wanted(
    names: Sequence[str], seeds: Mapping[str, int], scale: Scale, precision: str, corpora: Mapping[str, Corpus]
) -> dict[str, Wanted]:
    """Every distinct training of these figures, with so many seeds each, by identity."""
    found: dict[str, Wanted] = {}
    for figure in names:
        for one in dict.fromkeys(map(training, FIGURES[figure])):
            for seed in range(seeds[figure]):
                asked = experiment(one, seed, scale, precision, corpora[one.corpus])
                if asked.identity not in found:
                    run = Training(_name(one, seed, asked.identity), asked, (asked,))
                    found[asked.identity] = Wanted(one, run)
    return found


def _name(one: Series, seed: int, identity: str) -> str:
    """A folder's name that does not depend on what else is asked for."""
    shape = f"lstm{one.layers}x{one.hidden}"  # that of the paper, whatever the scale
    return run_name(one.corpus, one.train, one.k1, one.k2, shape, seed, one.varied, identity[:8])
