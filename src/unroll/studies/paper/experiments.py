"""From a point in the paper's grid to the experiment that answers it, at any scale."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from unroll.base.errors import ConfigurationError, CorpusError, InputError
from unroll.corpus.corpus import Corpus
from unroll.experiment.experiment import Experiment
from unroll.experiment.run_names import run_name
from unroll.experiment.scheme import SCHEMES, Scheme
from unroll.studies.paper.figures import BEST, CORPORA, FIGURES, OURS, Series, training, units
from unroll.sweep.deduplicate import Training

# Runs side by side at a scale below 1. Nothing is measured there, and the plan must not depend on the machine's state.
# More of them bring nothing to training on a CPU (23 ms a run-batch with 3, 22 with 10): their windows leave the cache.
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
        """The experiment at this scale, from one of the paper's size."""
        if self.whole:
            return experiment
        return replace(
            experiment,
            batches=max(16, round(experiment.batches * self.scale)),
            hidden=units(experiment.hidden, self.scale),
            dense=units(experiment.dense, self.scale),
            test_tokens=1_100,
            evaluations=8,
            threads=1,  # so small a model gains nothing from more; fleets share the cores instead
        )


# How a training is scored does not depend on who asks for it, so one record of a training is enough for every figure.


def _both(series: Series) -> bool:
    """Schemes 1 and 3 share trainings; both are drawn for the architecture that the paper goes on with."""
    return series.train == "multi-loss" and (series.layers, series.hidden) in BEST


def _from_carried(series: Series) -> bool:
    """The paper's own setting of scheme 4, and the settings that change which states are carried over."""
    return series in OURS and (not series.varied or "reset" in series.variant)


def open_all(data: Path, names: Iterable[str] = CORPORA) -> dict[str, Corpus]:
    """Open the corpora of a folder by name, from NAME.txt; one error names all that are missing or unreadable."""
    corpora: dict[str, Corpus] = {}
    wrong: list[str] = []
    for name in names:
        path = data / f"{name}.txt"
        try:
            if not path.is_file():
                raise CorpusError(f"{path} is missing: --data is a folder with {', '.join(CORPORA)}, each NAME.txt.")
            corpora[name] = Corpus.open(str(path))
        except InputError as error:
            wrong += error.problems
    if wrong:
        raise CorpusError(*wrong)
    return corpora


def title(name: str, corpus: Corpus) -> str:
    """A corpus's name, and whether its text is the paper's own file."""
    return f"{name} ({'the paper’s file' if corpus.paper == name else 'reconstruction'})"


def experiment(series: Series, seed: int, scale: Scale, precision: str, corpus: Corpus) -> Experiment:
    """The experiment behind a curve; curves of one training have the same one."""
    series = training(series)
    scheme = SCHEMES[series.scheme]
    scheme_fields = {f.name for f in fields(Scheme)}
    changes = {name: value for name, value in series.variant.items() if name in scheme_fields}
    full = Experiment(
        scheme=replace(scheme, k1=series.k1, k2=series.k2, **changes),
        layers=series.layers,
        hidden=series.hidden,
        seed=seed,
        precision=precision,
        evaluate="both" if _both(series) else "own",
        evaluate_carried=_from_carried(series),
        **{name: value for name, value in series.variant.items() if name not in scheme_fields},
    )
    return corpus.described_in(scale.fitted(full))


def series_by_identity(seed: int, scale: Scale, precision: str, corpora: Mapping[str, Corpus]) -> dict[str, Series]:
    """The point in the grid of every training of this seed, by the training's identity."""
    all_trainings = {training(series) for curves in FIGURES.values() for series in curves}
    return {
        experiment(series, seed, scale, precision, corpora[series.corpus]).identity: series for series in all_trainings
    }


@dataclass(frozen=True)
class Wanted:
    """A training that figures ask for."""

    series: Series
    training: Training


def wanted(
    names: Sequence[str], seeds: Mapping[str, int], scale: Scale, precision: str, corpora: Mapping[str, Corpus]
) -> dict[str, Wanted]:
    """Every distinct training of these figures, each with its figure's number of seeds, by identity."""
    trainings: dict[str, Wanted] = {}
    for figure in names:
        for series in dict.fromkeys(map(training, FIGURES[figure])):
            for seed in range(seeds[figure]):
                asked = experiment(series, seed, scale, precision, corpora[series.corpus])
                if asked.identity not in trainings:
                    run = Training(_name(series, seed, asked.identity), asked, (asked,))
                    trainings[asked.identity] = Wanted(series, run)
    return trainings


def _name(series: Series, seed: int, identity: str) -> str:
    """A folder's name that depends on its training alone."""
    shape = f"lstm{series.layers}x{series.hidden}"  # the paper's shape, whatever the scale
    return run_name(series.corpus, series.train, series.k1, series.k2, shape, seed, series.varied, identity[:8])
