"""From a setting to the experiment that answers it, at any size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from unroll.corpus.corpus import Corpus
from unroll.experiment.experiment import Experiment
from unroll.experiment.scheme import Scheme, parse_training
from unroll.studies.beyond.parts import K2, Part, Setting


@dataclass(frozen=True)
class Size:
    """How large the study is. A validation set chooses the best point, so that the test set chooses nothing."""

    name: str
    hidden: int
    narrow: int  # units of the parts that are trained with fewer
    dense: int
    batches: int
    evaluations: int
    validation: int  # tokens
    rows: int = 64
    k2: int = K2
    test_tokens: int | None = None
    precision: str = "float32"


# In bfloat16, as the paper's reproduction: full runs end within the spread of seeds of float32 (benchmarks/parity.py).
FULL = Size("full", 512, 128, 1024, 12_800, 16, 11_100, precision="bfloat16")
SMALL = Size("small", 128, 128, 1024, 2_400, 8, 5_500, test_tokens=5_500)
SIZES = {size.name: size for size in (FULL, SMALL)}


class Asked(NamedTuple):
    """A run of a part."""

    setting: Setting
    corpus: str
    experiment: Experiment


def experiment(setting: Setting, seed: int, split: int, size: Size, is_narrow: bool, corpus: Corpus) -> Experiment:
    """The experiment of one run: both procedures are scored at every point, on a validation and on the test set."""
    fields = parse_training(setting.train)
    scheme = Scheme(**fields, k1=setting.k1, k2=size.k2, sample="windowed")
    if scheme.carries:
        scheme = Scheme(**fields, k1=setting.k1, k2=size.k2, sample="progressive")
    asked = Experiment(
        scheme=scheme,
        hidden=size.narrow if is_narrow else size.hidden,
        dense=size.dense,
        batches=size.batches,
        rows=size.rows,
        seed=seed,
        split_seed=split,
        validation=size.validation,
        test_tokens=size.test_tokens,
        evaluate="both",
        evaluations=size.evaluations,
        precision=size.precision,
    )
    return corpus.described_in(asked)


def every(part: Part, size: Size, corpora: Mapping[str, Corpus]) -> Iterator[Asked]:
    """Every run of a part."""
    for name, corpus in corpora.items():
        for setting in part.settings:
            for split in part.splits:
                for seed in part.seeds:
                    yield Asked(setting, name, experiment(setting, seed, split, size, part.is_narrow, corpus))
