"""What the records say, as tables and sentences. Nothing here is written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import geometric_mean

from unroll.studies.beyond.comparing import Comparison, Difference, best, compare, over_corpora
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


def as_trained(run: Measured) -> float | None:
    """The test perplexity where the validation set is lowest, read as training read: windowed, or on from zeros."""
    found = best(run, (run.sample,))
    return found.perplexity if found else None


def comparisons(runs: Iterable[Measured], value: Value = as_trained) -> dict[str, Comparison]:
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


def beyond_the_schemes(measured: Records, parts: Sequence[str] = PLANE, value: Value = as_trained) -> str:
    """Which points are better than the best of the four schemes, beyond their interval; a sentence a corpus."""
    lines = []
    for corpus, one in comparisons(runs_of(measured, parts), value).items():
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


def against(measured: Records, names: Sequence[str], bases: Sequence[str]) -> dict[tuple[str, str], Difference]:
    """Settings against others over all data sets; the intervals are divided by the number of these comparisons."""
    values = {}
    for run in runs_of(measured, PLANE):
        value = as_trained(run)
        if value is not None:
            values[run.setting, run.corpus, run.seed] = value
    pairs = [(name, base) for base in bases for name in names if name not in bases[: bases.index(base) + 1]]
    found = {pair: over_corpora(values, *pair, len(pairs)) for pair in pairs}
    return {pair: difference for pair, difference in found.items() if difference}


ORIGINS = (ZERO, *(setting.name for setting in PARTS["states"].settings if setting.name != ZERO))


def origins(measured: Records) -> Table:
    """Where the first state comes from, over all data sets: against a learned one, and against the paper's reset."""
    bases = (LEARNED, SCHEME_4)
    found = against(measured, ORIGINS, bases)
    rows = []
    for name in ORIGINS:
        cells = [with_ends(found[name, base]) if (name, base) in found else None for base in bases]
        if any(cells):
            rows.append((words(name), *cells))
    return table(("over the four data sets", *(f"against {words(base)}" for base in bases)), rows)


def with_ends(found: Difference) -> str:
    """A difference with its interval, bold where it is told apart."""
    if found.low is None or found.high is None:
        return percent(found.ratio)
    share = percent(found.ratio)
    marked = f"**{share}**" if found.is_lower or found.is_higher else share
    return f"{marked} ({percent(found.low)} to {percent(found.high)})"


MISLED = 1.05  # times what the procedure of training reaches


def misled(measured: Records, parts: Sequence[str] = PLANE) -> Table:
    """The runs for which the validation set chooses the other procedure, and the test set pays for it."""
    rows = []
    for run in runs_of(measured, parts):
        own, any_procedure = best(run, (run.sample,)), best(run)
        if own and any_procedure and any_procedure.perplexity > MISLED * own.perplexity:
            validation = run.points[f"validation_{any_procedure.procedure}"]
            lowest = validation[run.points["batch"].index(any_procedure.batch)]
            cells = (any_procedure.procedure, lowest, any_procedure.perplexity, own.perplexity)
            rows.append((CORPUS_NAMES[run.corpus], words(run.setting), run.seed, *cells))
    columns = ("data set", "`--train`", "seed", "chosen", "validation set", "test set", "test set, as trained")
    return table(columns, rows)


def procedures(measured: Records, parts: Sequence[str] = PLANE) -> Table:
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
        "windowed, at the point that validation chooses": as_trained,
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
            cells.append(with_ends(one.difference(ZERO, LEARNED, 1)))
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
            values = [value for run in runs if run.corpus == corpus and (value := as_trained(run)) is not None]
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
    runs = runs_of(measured, PLANE)
    for name in order(runs):
        group = [run for run in runs if run.setting == name]
        on_texts = [rise for run in group if run.corpus != "music" for rise in rises(run)]
        on_music = [rise for run in group if run.corpus == "music" for rise in rises(run)]
        norms = [norm for run in group for norm in _after_warm_up(run, "largest_gradient_norm")]
        cells = (round(max(found), 3) if found else None for found in (on_texts, on_music, norms))
        rows.append((words(name), len(group), *cells))
    columns = ("`--train`", "runs", "e^(largest − mean loss), texts", "Music", "largest gradient norm")
    return table(columns, rows)


def rises(run: Measured) -> list[float]:
    """For each stretch between two evaluations: e^loss of its worst batch over that of its mean."""
    pairs = zip(_after_warm_up(run, "loss"), _after_warm_up(run, "largest_loss"), strict=True)
    return [math.exp(largest - loss) for loss, largest in pairs]


def _after_warm_up(run: Measured, column: str) -> list[float]:
    points = zip(run.points["batch"], run.points[column], strict=True)
    return [value for batch, value in points if batch > WARM_UP and value is not None]
