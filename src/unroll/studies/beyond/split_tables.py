"""The four schemes on five splits of each text, and which verdicts on the paper's claims move with the split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from unroll.studies.beyond.comparing import LEVEL, best
from unroll.studies.beyond.ngrams import Counted
from unroll.studies.beyond.parts import LEARNED, NARROWEST, PARTS
from unroll.studies.beyond.tables import SCHEME_4, Records, percent, runs_of
from unroll.studies.paper.claims.data_sets import HARDER, TEXTS
from unroll.studies.paper.claims.thresholds import CLOSE, CORPUS_NAMES, TIE, VISIBLE
from unroll.studies.paper.claims.verdict import Table, table
from unroll.sweep.student import quantile

WAYS = {1: (LEARNED, "windowed"), 2: (NARROWEST, "windowed"), 3: (LEARNED, "progressive"), 4: (SCHEME_4, "progressive")}
Scores = dict[tuple[str, int], dict[int, dict[int, float]]]  # by corpus and split, then by scheme, then by seed


@dataclass(frozen=True)
class Pair:
    """A verdict on two schemes: it holds on a split where the second stands between these times the first."""

    claim: str
    first: int
    second: int
    least: float = 0.0
    most: float = math.inf

    def holds(self, ratio: float) -> bool:
        """Whether a ratio of the two, second to first, agrees with it."""
        return self.least <= ratio <= self.most


VERDICTS = (
    Pair("C1: scheme 1 is not worse than scheme 2", 1, 2, least=1 / TIE),
    Pair("C1: scheme 1 is not worse than scheme 3", 1, 3, least=1 / TIE),
    Pair("C1: scheme 1 is not worse than scheme 4", 1, 4, least=1 / TIE),
    Pair("C3: scheme 3 is at most 5 % worse than scheme 1", 1, 3, most=VISIBLE),
)


def split_scores(measured: Records) -> Scores:
    """The schemes' perplexities, each at the point that the validation set chooses."""
    scores: Scores = {}
    for run in runs_of(measured, ("splits",)):
        of_schemes = scores.setdefault((run.corpus, run.split_seed), {})
        for scheme, (setting, procedure) in WAYS.items():
            found = best(run, (procedure,)) if run.setting == setting else None
            if found:
                of_schemes.setdefault(scheme, {})[run.seed] = found.perplexity
    order = [(corpus, split) for corpus in CORPUS_NAMES for split in PARTS["splits"].splits]
    return {key: scores[key] for key in order if key in scores}


def mean(of_seeds: dict[int, float]) -> float:
    """The geometric mean over seeds."""
    return geometric_mean(of_seeds.values())


def splits(measured: Records, counted: Sequence[Counted]) -> Table:
    """The four schemes on five splits, with what counting reaches on each."""
    grams = {(row.corpus, row.split_seed): row.perplexity for row in counted}
    rows = []
    for (corpus, split), of_schemes in split_scores(measured).items():
        means = {scheme: mean(of_seeds) for scheme, of_seeds in of_schemes.items()}
        values = [round(means[scheme], 3) if scheme in means else None for scheme in WAYS]
        lowest = ", ".join(str(scheme) for scheme, value in means.items() if value <= TIE * min(means.values()))
        counts = grams.get((corpus, split))
        rows.append((CORPUS_NAMES[corpus], split, round(counts, 2) if counts else None, *values, lowest))
    return table(("data set", "split", "n-gram", *(f"scheme {n}" for n in WAYS), "lowest, within 0.5 %"), rows)


@dataclass(frozen=True)
class Apart:
    """Two schemes on the splits of a corpus: the second over the first, and how far seeds alone may take that."""

    ratios: tuple[float, ...]  # one a split
    reach: float | None  # of a logarithm; None with one seed

    def beyond_seeds(self, sign: int) -> int:
        """On how many splits the second is higher (1) or lower (-1) beyond the seeds."""
        return sum(self.reach is not None and sign * math.log(ratio) > self.reach for ratio in self.ratios)


def apart(scores: Scores, corpus: str, first: int, second: int) -> Apart:
    """Pair by seed and pool the noise between seeds over the splits; Student's at 95 %, divided by the splits."""
    rows = []
    for (name, _), of_schemes in scores.items():
        if name == corpus and {first, second} <= of_schemes.keys():
            shared = of_schemes[first].keys() & of_schemes[second].keys()
            rows.append([math.log(of_schemes[second][seed] / of_schemes[first][seed]) for seed in sorted(shared)])
    freedom = sum(len(row) - 1 for row in rows)
    ratios = tuple(math.exp(fmean(row)) for row in rows)
    if freedom <= 0:
        return Apart(ratios, None)
    variance = sum((value - fmean(row)) ** 2 for row in rows for value in row) / freedom
    seeds = min(len(row) for row in rows)
    return Apart(ratios, quantile(1 - LEVEL / len(rows) / 2, freedom) * math.sqrt(variance / seeds))


def moving(measured: Records) -> Table:
    """Which verdicts change from split to split, and whether any of that is beyond the seeds."""
    scores = split_scores(measured)
    rows: list[tuple[str, str, str, str, str, str | None]] = []
    for pair in VERDICTS:
        for corpus, title in CORPUS_NAMES.items():
            found = apart(scores, corpus, pair.first, pair.second)
            if found.ratios:
                seen = f"higher {found.beyond_seeds(1)}, lower {found.beyond_seeds(-1)}"
                rows.append((pair.claim, title, *_counted([pair.holds(r) for r in found.ratios], found.ratios), seen))
    rows += _of_data_sets(scores)
    columns = ("verdict", "data set", "splits in which it holds", "", "by", "beyond the seeds")
    return table(columns, rows)


def texts_apart(scores: Scores) -> dict[int, tuple[float, float]]:
    """By split, under scheme 1: the highest of three texts over the lowest, and Music over the highest."""
    found = {}
    for split in PARTS["splits"].splits:
        means = {corpus: mean(one[1]) for (corpus, of), one in scores.items() if of == split and 1 in one}
        if means.keys() >= set(CORPUS_NAMES):
            texts = [means[name] for name in TEXTS]
            found[split] = (max(texts) / min(texts), means["music"] / max(texts))
    return found


def _of_data_sets(scores: Scores) -> list[tuple[str, str, str, str, str, str | None]]:
    """C5, whose verdict compares data sets with each other."""
    found = texts_apart(scores).values()
    if not found:
        return []
    equal, harder = [texts for texts, _ in found], [music for _, music in found]
    claims = (
        ("C5: the texts end within 10 % of each other", "English, Finnish, Linux", [r <= CLOSE for r in equal], equal),
        ("C5: Music is harder by half", "Music against them", [r >= HARDER for r in harder], harder),
    )
    return [(claim, names, *_counted(holds, ratios), None) for claim, names, holds, ratios in claims]


def _counted(holds: Sequence[bool], ratios: Sequence[float]) -> tuple[str, str, str]:
    count = sum(holds)
    moves = "moves" if 0 < count < len(holds) else "stays"
    return f"{count} of {len(holds)}", moves, f"{percent(min(ratios))} to {percent(max(ratios))}"


def spread(counted: Sequence[Counted]) -> Table:
    """What counting reaches on each test set, and how far the hardest is from the easiest."""
    rows = []
    for corpus, title in CORPUS_NAMES.items():
        values = {row.split_seed: row.perplexity for row in counted if row.corpus == corpus and row.perplexity}
        if values:
            cells = (round(values[split], 2) if split in values else None for split in PARTS["splits"].splits)
            rows.append((title, *cells, percent(max(values.values()) / min(values.values()))))
    return table(("n-gram", *(f"split {n}" for n in PARTS["splits"].splits), "hardest / easiest"), rows)
