"""What the records say, as tables and sentences. Nothing here is written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import geometric_mean

from unroll.studies.beyond.comparing import Comparison, best, compare
from unroll.studies.beyond.ngrams import Counted
from unroll.studies.beyond.parts import FAR, LEARNED, NARROWEST, PARTS, ZERO
from unroll.studies.beyond.positions import TIMES_K2
from unroll.studies.beyond.records import Measured, Record
from unroll.studies.paper.claims.thresholds import CORPUS_NAMES, WARM_UP
from unroll.studies.paper.claims.verdict import Table, table

Records = Mapping[str, Record]
PLANE = ("weights", "states", "gaps", "normalised")  # trained alike, at full width
SCHEME_4 = "conditional"
SCHEMES = {LEARNED: "schemes 1 and 3", NARROWEST: "scheme 2", SCHEME_4: "scheme 4"}
PREFIXES = TIMES_K2[:6]  # of k2
Value = Callable[[Measured], float | None]


def runs_of(measured: Records, parts: Iterable[str]) -> list[Measured]:
    """The finished runs of these parts."""
    return [run for part in parts if part in measured for run in measured[part].runs if run.state == "finished"]


def chosen(run: Measured) -> float | None:
    """The test perplexity where the validation set is lowest, under the procedure with which it is."""
    found = best(run)
    return found.perplexity if found else None


def comparisons(runs: Iterable[Measured], value: Value = chosen) -> dict[str, Comparison]:
    """The settings compared, by corpus."""
    rows: dict[str, list[tuple[str, int, float]]] = {}
    for run in runs:
        number = value(run)
        if number is not None:
            rows.setdefault(run.corpus, []).append((run.setting, run.seed, number))
    return {name: compare(rows[name]) for name in CORPUS_NAMES if name in rows}


def words(name: str) -> str:
    """A setting for a reader: the words of `--train`, and the paper's number where it has one."""
    train, _, k1 = name.partition(" ")
    scheme = f" ({SCHEMES[name]})" if name in SCHEMES else ""
    return f"`{train}`{f', {k1}' if k1 else ''}{scheme}"


def order(runs: Iterable[Measured], parts: Iterable[str] = tuple(PARTS)) -> list[str]:
    """The settings in the order of these parts."""
    known = [setting.name for part in parts for setting in PARTS[part].settings]
    return sorted({run.setting for run in runs}, key=known.index)


def plane(measured: Records, parts: Sequence[str] = PLANE, base: str = LEARNED) -> Table:
    """Every setting's perplexity, and how far it is from the first scheme's; what is told apart is bold."""
    runs = runs_of(measured, parts)
    by_corpus = comparisons(runs)
    rows = []
    for name in order(runs, parts):
        cells: list[str | None] = []
        for corpus in CORPUS_NAMES:
            of_corpus = by_corpus.get(corpus)
            if of_corpus is None or name not in of_corpus.means or base not in of_corpus.means:
                cells.append(None)
                continue
            text = f"{of_corpus.mean(name):.3f}"
            if name != base:
                found = of_corpus.difference(name, base, len(of_corpus.means) - 1)
                share = f"{percent(found.ratio)}"
                text += f" {f'**{share}**' if found.is_lower or found.is_higher else share}"
            cells.append(text)
        rows.append((words(name), *cells))
    reaches = [
        f"± {100 * math.expm1(reach):.1f} %" if (reach := one.reach(len(one.means) - 1)) is not None else None
        for one in (by_corpus.get(corpus) for corpus in CORPUS_NAMES)
        if one is not None
    ]
    if len(reaches) == len(CORPUS_NAMES):
        rows.append(("interval of each difference", *reaches))
    return table(("`--train`", *CORPUS_NAMES.values()), rows)


def percent(ratio: float) -> str:
    """A ratio as a signed difference."""
    text = f"{100 * (ratio - 1):+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text.replace("-", "−")


def beyond_the_schemes(measured: Records, parts: Sequence[str] = PLANE) -> str:
    """Which points are better than the best of the four schemes, beyond their interval; a sentence a corpus."""
    lines = []
    for corpus, one in comparisons(runs_of(measured, parts)).items():
        known = [name for name in one.names if name in SCHEMES]
        others = [name for name in one.names if name not in SCHEMES]
        if not known or not others:
            continue
        first = known[0]
        found = {name: one.difference(name, first, len(others)) for name in others}
        better = [f"{words(name)} ({percent(d.ratio)})" for name, d in found.items() if d.is_lower]
        tied = sum(not (d.is_lower or d.is_higher) for d in found.values())
        says = (
            f"better beyond the interval: {', '.join(better)}" if better else "no point is better beyond the interval"
        )
        lines.append(
            f"- **{CORPUS_NAMES[corpus]}**: of the schemes {words(first)} is lowest, {one.mean(first):.3f}; {says}; "
            f"{tied} of {len(others)} cannot be told apart from it."
        )
    return "\n".join(lines) or "Not measured."


def procedures(measured: Records, parts: Sequence[str] = ("weights", "states", "gaps")) -> Table:
    """Both sampling procedures after the last batch; carried states from zeros and from what training carries."""
    runs = runs_of(measured, parts)
    rows = []
    for name in order(runs):
        cells = []
        for corpus in CORPUS_NAMES:
            group = [run for run in runs if run.setting == name and run.corpus == corpus]
            columns = ["windowed", "progressive", *(["carried"] if any(run.by_position for run in group) else [])]
            values = [[run.points[column][-1] for run in group] for column in columns]
            whole = group and all(value is not None for column in values for value in column)
            cells.append(" / ".join(f"{geometric_mean(column):.3f}" for column in values) if whole else None)
        rows.append((words(name), *cells))
    return table(("windowed / progressive / from carried states", *CORPUS_NAMES.values()), rows)


def first_states(measured: Records) -> Table:
    """The learned first state against zeros, under both procedures and as chosen."""
    runs = [run for run in runs_of(measured, ("weights", "states")) if run.setting in (LEARNED, ZERO)]
    ways: dict[str, Value] = {
        "windowed, last batch": lambda run: run.points["windowed"][-1],
        "progressive, last batch": lambda run: run.points["progressive"][-1],
        "as the validation set chooses": chosen,
    }
    rows = []
    for name, value in ways.items():
        by_corpus = comparisons(runs, value)
        cells: list[str | None] = []
        for corpus in CORPUS_NAMES:
            one = by_corpus.get(corpus)
            if one is None or not {LEARNED, ZERO} <= one.means.keys():
                cells.append(None)
                continue
            found = one.difference(ZERO, LEARNED, 1)
            ends = f" ({percent(found.low)} to {percent(found.high)})" if found.low and found.high else ""
            cells.append(f"{percent(found.ratio)}{ends}")
        if any(cells):
            rows.append((name, *cells))
    return table(("zeros against a learned state", *CORPUS_NAMES.values()), rows)


# --- scheme 4 -----------------------------------------------------------------------------------------------------


def carrying(measured: Records) -> dict[str, list[Measured]]:
    """The runs that carry states, by setting; k1 above k2 is left out."""
    runs = [run for run in runs_of(measured, ("states",)) if run.by_position and run.k1 != FAR]
    return {name: [run for run in runs if run.setting == name] for name in order(runs)}


def apart(run: Measured) -> dict[int, float]:
    """By index of a point from batch 100 on: the perplexity from zeros divided by that from carried states."""
    columns = zip(run.points["batch"], run.points["progressive"], run.points["carried"], strict=True)
    return {
        index: zero / carried
        for index, (batch, zero, carried) in enumerate(columns)
        if batch >= WARM_UP and zero is not None and carried is not None
    }


def widest(run: Measured) -> int | None:
    """The index of the point at which zeros and carried states are furthest apart."""
    found = apart(run)
    return max(found, key=found.__getitem__) if found else None


def after_prefix(run: Measured, point: int) -> list[float]:
    """From zeros against from carried states, over what is left after each prefix that the positions allow."""
    bins = run.by_position
    assert bins is not None
    zero, carried, tokens = bins["zero"][point], bins["carried"][point], bins["tokens"]
    if None in zero or None in carried:
        return []
    ratios = []
    for first in range(len(tokens)):
        total = sum(tokens[first:])
        above = sum(n * (z - c) for n, z, c in zip(tokens[first:], zero[first:], carried[first:], strict=True))
        ratios.append(math.exp(above / total))
    return ratios


def resets(measured: Records) -> Table:
    """How each kind of reset ends, and how far zeros and carried states come apart on the way."""
    rows = []
    for name, runs in carrying(measured).items():
        largest = [max(apart(run).values()) for run in runs if apart(run)]
        worst = max(largest) if largest else None
        above = sum(value > 1.1 for value in largest)
        cells = []
        for corpus in CORPUS_NAMES:
            values = [value for run in runs if run.corpus == corpus and (value := chosen(run)) is not None]
            cells.append(round(geometric_mean(values), 3) if values else None)
        rows.append((words(name), len(runs), f"{above} of {len(largest)}", round(worst, 3) if worst else None, *cells))
    columns = ("reset", "runs", "zeros above 1.1 × carried", "largest", *CORPUS_NAMES.values())
    return table(columns, rows)


def prefixes(measured: Records) -> Table:
    """Zeros after a warm-up prefix: what is left of the excess where it is largest."""
    rows = []
    for name, runs in carrying(measured).items():
        found = [after_prefix(run, point) for run in runs if (point := widest(run)) is not None]
        found = [ratios for ratios in found if len(ratios) >= len(PREFIXES)]
        columns = [[ratios[n] for ratios in found] for n in range(len(PREFIXES))]
        rows.append(
            (
                words(name),
                *(f"{geometric_mean(column):.3f} ({max(column):.3f})" if column else None for column in columns),
            )
        )
    heads = (f"after {times} k2" if times > 1 else "after k2" for times in PREFIXES)
    return table(("zeros / carried, mean (largest)", *heads), rows)


def spikes(measured: Records) -> Table:
    """What happens between evaluations: how far a batch's loss rises above the mean of its stretch, and the norms."""
    rows = []
    runs = runs_of(measured, ("weights", "states", "gaps"))
    for name in order(runs):
        found = []
        norms = []
        for run in runs:
            if run.setting != name:
                continue
            columns = (run.points[column] for column in ("batch", "loss", "largest_loss", "largest_gradient_norm"))
            for batch, loss, largest, norm in zip(*columns, strict=True):
                if batch > WARM_UP and loss is not None and largest is not None:
                    found.append(math.exp(largest - loss))
                    norms += [norm] if norm is not None else []
        if found:
            count = sum(run.setting == name for run in runs)
            rows.append((words(name), count, round(max(found), 3), round(max(norms), 3) if norms else None))
    return table(("`--train`", "runs", "e^(largest − mean loss)", "largest gradient norm"), rows)


# --- splits -------------------------------------------------------------------------------------------------------

WAYS = {1: (LEARNED, "windowed"), 2: (NARROWEST, "windowed"), 3: (LEARNED, "progressive"), 4: (SCHEME_4, "progressive")}


def split_scores(measured: Records) -> dict[tuple[str, int], dict[int, float]]:
    """The schemes' perplexities by corpus and split: mean over seeds, each at the point that validation chooses."""
    runs = runs_of(measured, ("splits",))
    scores: dict[tuple[str, int], dict[int, float]] = {}
    for corpus in CORPUS_NAMES:
        for split in PARTS["splits"].splits:
            for scheme, (setting, procedure) in WAYS.items():
                of_seeds = [best(run, (procedure,)) for run in runs if _is(run, setting, corpus, split)]
                values = [one.perplexity for one in of_seeds if one]
                if values:
                    scores.setdefault((corpus, split), {})[scheme] = geometric_mean(values)
    return scores


def _is(run: Measured, setting: str, corpus: str, split: int) -> bool:
    return (run.setting, run.corpus, run.split_seed) == (setting, corpus, split)


def splits(measured: Records, counted: Sequence[Counted]) -> Table:
    """The four schemes on five splits, with what counting reaches on each."""
    grams = {(row.corpus, row.split_seed): row.perplexity for row in counted}
    rows = []
    for (corpus, split), of_schemes in split_scores(measured).items():
        values = [round(of_schemes[scheme], 3) if scheme in of_schemes else None for scheme in WAYS]
        lowest = ", ".join(str(name) for name, value in of_schemes.items() if value == min(of_schemes.values()))
        rows.append((CORPUS_NAMES[corpus], split, grams.get((corpus, split)), *values, lowest))
    return table(("data set", "split", "n-gram", *(f"scheme {n}" for n in WAYS), "lowest"), rows)


VERDICTS = {
    "C1: scheme 1 is not worse than scheme 2": (1, 2),
    "C1: scheme 1 is not worse than scheme 3": (1, 3),
    "C1: scheme 1 is not worse than scheme 4": (1, 4),
}


def moving(measured: Records) -> Table:
    """Which comparisons of two schemes change sides from split to split, and how far apart they are."""
    scores = split_scores(measured)
    rows = []
    for claim, (a, b) in VERDICTS.items():
        for corpus, title in CORPUS_NAMES.items():
            ratios = [one[b] / one[a] for (name, _), one in scores.items() if name == corpus and {a, b} <= one.keys()]
            if ratios:
                holds = sum(ratio >= 1 for ratio in ratios)
                moves = "moves" if 0 < holds < len(ratios) else "stays"
                rows.append(
                    (
                        claim,
                        title,
                        f"{holds} of {len(ratios)}",
                        f"{percent(min(ratios))} to {percent(max(ratios))}",
                        moves,
                    )
                )
    return table(("verdict", "data set", "splits in which it holds", "by", ""), rows)


def spread(counted: Sequence[Counted]) -> Table:
    """What counting reaches on each test set, and how far the hardest is from the easiest."""
    rows = []
    for corpus, title in CORPUS_NAMES.items():
        values = {row.split_seed: row.perplexity for row in counted if row.corpus == corpus and row.perplexity}
        if values:
            cells = (round(values[split], 2) if split in values else None for split in PARTS["splits"].splits)
            rows.append((title, *cells, percent(max(values.values()) / min(values.values()))))
    return table(("n-gram", *(f"split {n}" for n in PARTS["splits"].splits), "hardest / easiest"), rows)
