"""How well `unroll advise` extrapolates: coverage and error of its intervals, on curves that were trained in full.

    python benchmarks/extrapolation.py        writes results/advice/extrapolation.json

Every setting of the records (results/paper, results/beyond) that has more than one seed gives cases: one or more seeds
are cut at batch L, and the run of another seed to batch B is to be foretold. Its best weights count, chosen by its
validation set, or by the test set where there is none. Settings with one seed have to foretell their own run. Small
models on a CPU (results/training, and those of pilots.py) are no part of any fit.

The constants of the interval, `LOW` and `HIGH`, are those with the smallest pinball loss at 5 and 95 %, every corpus
and B/L counting alike. Then the share of the gain is taken times MARGIN. What a longer run gains differs more between
corpora than between runs of one corpus, and there are only four: without the margin, a corpus that is left out of the
fit ends inside its interval in 86 of 100 runs as a mean. With it, about nine of ten do at every B/L. The margin is the
one number that is chosen by looking at the corpora that were left out.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unroll.sweep.advice.extrapolation import ERRORS, Curve, Parts, Points, Reach, parts

RESULTS = Path(__file__).parent.parent / "results"
RECORD = RESULTS / "advice" / "extrapolation.json"
FULL = (1000, 2400, 3000, 4800, 12800)  # B, each at the last point before it
RATIOS = (1.5, 2.0, 3.0, 5.0, 8.0)  # B/L, each at the nearest point
SHORTEST = 200  # L
FIRST, UNSTABLE = 100, 1.1  # from this batch on a curve rose above its lowest so far, times this
LEVEL = 0.05  # outside, at each end
MARGIN = 1.5
PAPER = ("corpus", "scheme", "layers", "hidden", "k1", "k2")  # what makes a setting, with the variant
BEYOND = ("corpus", "train", "sample", "hidden", "k1", "k2", "split_seed")

Setting = tuple[Any, ...]  # where it is from, the corpus, and what else makes it


@dataclass(frozen=True)
class Case:
    """One run that is to be foretold from cut curves."""

    source: str
    corpus: str
    ratio: float
    seeds: int
    parts: Parts
    truth: float  # ln p
    is_new_seed: bool
    is_unstable: bool  # a curve of the pilot rose by a tenth above its lowest, and is not just one that has turned

    @property
    def is_fitted(self) -> bool:
        """Whether the constants may come from it: small models are kept to test them."""
        return self.is_new_seed and self.source in ("paper", "beyond")

    @property
    def error(self) -> float:
        """How far the truth lies above the middle of the interval."""
        return self.truth - (self.parts.reached - self.parts.gain)

    def holds(self, low: Reach, high: Reach) -> bool:
        """Whether the interval has the truth in it."""
        return -self.parts.low(low) <= self.error <= self.parts.high(high)


def settings() -> dict[Setting, list[Curve]]:
    """The curves of every setting of the records, one a seed."""
    found: dict[Setting, dict[int, Curve]] = defaultdict(dict)
    for path in sorted((RESULTS / "paper" / "records").glob("*.json")):
        for curve in json.loads(path.read_text("utf-8"))["curves"]:
            variant = json.dumps(curve["variant"], sort_keys=True)
            found["paper", *(curve[name] for name in PAPER), variant][curve["seed"]] = _curve(curve, "")
    for path in sorted((RESULTS / "beyond" / "records").glob("*.json")):
        for run in json.loads(path.read_text("utf-8")).get("runs", ()):
            if "points" in run:
                found["beyond", *(run[name] for name in BEYOND)][run["seed"]] = _curve(run, "validation_")
    content = json.loads((RESULTS / "training" / "time_to_loss_rocketlake.json").read_text("utf-8"))
    for name, runs in content["curves"].items():
        for seed, rows in enumerate(runs):
            found["small", "shakespeare", name][seed] = Curve(tuple((row[0], math.exp(row[2])) for row in rows))
    pilots = RESULTS / "advice" / "pilots.json"
    for run in json.loads(pilots.read_text("utf-8"))["runs"] if pilots.exists() else []:
        found["pilots", run["setting"]][run["seed"]] = Curve(_points(run, "test"), _points(run, "validation"))
    return {setting: [of_seeds[seed] for seed in sorted(of_seeds)] for setting, of_seeds in found.items()}


def cases(of_settings: dict[Setting, list[Curve]], full: Iterable[int] = FULL) -> list[Case]:
    """Every run to be foretold."""
    found = []
    for setting, curves in of_settings.items():
        grid = [batch for batch, _ in curves[0].test]
        ends = {max((batch for batch in grid if batch <= 1.02 * wanted), default=grid[0]) for wanted in full}
        found += [case for end in sorted(ends) for case in _cases(setting, curves, end)]
    return found


def _cases(setting: Setting, curves: Sequence[Curve], full: int) -> Iterable[Case]:
    grid = [batch for batch, _ in curves[0].test]
    for ratio in RATIOS:
        length = min(grid, key=lambda batch: abs(math.log(batch * ratio / full)))
        if not SHORTEST <= length < full or abs(math.log(length * ratio / full)) > 0.36:
            continue
        for truth in (curve for curve in curves if curve.test[-1][0] >= full):
            others = [curve for curve in curves if curve is not truth]
            for pilot in [others, others[:1]][: len(others)] if others else [[truth]]:
                known, reached = parts([_cut(curve, length) for curve in pilot], full), _best(_cut(truth, full))
                if known is not None and not known.diverged and math.isfinite(reached):
                    count, is_new = len(pilot), bool(others)
                    shaken = any(_is_unstable(_cut(curve, length)) for curve in pilot) and not known.turned
                    yield Case(setting[0], setting[1], ratio, count, known, reached, is_new, shaken)


def calibrated(of_cases: Sequence[Case], margin: float = MARGIN) -> tuple[Reach, Reach]:
    """The constants of the interval's two ends."""
    counts: dict[tuple[str, float], int] = defaultdict(int)
    for case in of_cases:
        counts[case.corpus, case.ratio] += 1
    weights = np.array([1 / counts[case.corpus, case.ratio] for case in of_cases])
    seeds, gains, slopes, errors = (
        np.array(values)
        for values in zip(*((c.parts.seeds, c.parts.gain, c.parts.slope, c.error) for c in of_cases), strict=True)
    )
    ends = []
    for side in (-1, 1):
        beyond = side * errors - (np.array([case.parts.possible for case in of_cases]) if side < 0 else 0)

        def loss(seed: float, gain: float, beyond: Any = beyond) -> float:
            outside = beyond - np.sqrt((seed * seeds) ** 2 + (gain * gains) ** 2 + (ERRORS * slopes) ** 2)
            return float(np.sum(weights * np.maximum((1 - LEVEL) * outside, -LEVEL * outside)))

        seed, gain = _lowest(loss, [2.0, 0.5])
        ends.append(Reach(round(seed, 2), round(margin * gain, 2)))
    return ends[0], ends[1]


def coverage(of_cases: Sequence[Case], low: Reach, high: Reach) -> dict[str, Any]:
    """How many cases, the share inside, the median error, and the median width over the middle."""
    if not of_cases:
        return {"cases": 0}
    holds = [case.holds(low, high) for case in of_cases]
    widths = [math.exp(case.parts.high(high)) - math.exp(-case.parts.low(low)) for case in of_cases]
    return {
        "cases": len(of_cases),
        "inside": round(float(np.mean(holds)), 3),
        "below": round(float(np.mean([case.error < -case.parts.low(low) for case in of_cases])), 3),
        "above": round(float(np.mean([case.error > case.parts.high(high) for case in of_cases])), 3),
        "median_error": round(float(np.median([abs(case.error) for case in of_cases])), 4),
        "median_bias": round(float(np.median([case.error for case in of_cases])), 4),
        "median_width": round(float(np.median(widths)), 3),
    }


def report(every: Sequence[Case]) -> dict[str, Any]:
    """Coverage with each corpus left out of the fit, by corpus and B/L, and what the constants are with all of them."""
    fitted = [case for case in every if case.is_fitted]
    corpora = sorted({case.corpus for case in fitted})
    left_out: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for corpus in corpora:
        low, high = calibrated([case for case in fitted if case.corpus != corpus])
        of_corpus = [case for case in fitted if case.corpus == corpus]
        own = [case for case in every if case.corpus == corpus and not case.is_new_seed]
        left_out[corpus] = {
            "low": asdict(low), "high": asdict(high), **coverage(of_corpus, low, high),
            "turned": coverage([case for case in of_corpus if case.parts.turned], low, high),
            "unstable": coverage([case for case in (*of_corpus, *own) if case.is_unstable], low, high),
            "one_seed": coverage([case for case in of_corpus if case.seeds == 1], low, high),
            "own_run": coverage(own, low, high),
        }  # fmt: skip
        for ratio in RATIOS:
            rows.append(
                {"corpus": corpus, "ratio": ratio, **coverage([c for c in of_corpus if c.ratio == ratio], low, high)}
            )
    low, high = calibrated(fitted)
    small = [case for case in every if case.source == "small"]
    pilots = [case for case in every if case.source == "pilots"]
    means = {
        name: round(float(np.mean([of[name] for of in left_out.values()])), 3)
        for name in ("inside", "median_error", "median_width")
    }
    by_ratio = {
        str(ratio): {
            name: round(float(np.mean([row[name] for row in rows if row["ratio"] == ratio])), 3) for name in means
        }
        for ratio in RATIOS
    }
    return {
        "what": "The interval of expected perplexity on curves trained in full, each corpus left out of the fit.",
        "margin": MARGIN,
        "low": asdict(low),
        "high": asdict(high),
        "left_out": {"mean": means, "ratios": by_ratio, "corpora": left_out},
        "rows": rows,
        "all_in": coverage(fitted, low, high),
        "small_preset": coverage(small, low, high),
        "pilots": coverage(pilots, low, high),
        "of_pilots": {
            name: coverage([case for case in pilots if case.corpus == name], low, high)
            for name in sorted({case.corpus for case in pilots})
        },
    }


def main() -> None:
    """Compute, print the table, and write the record."""
    content = report(cases(settings()))
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    for row in content["rows"]:
        print(*(f"{value!s:>8}" for value in row.values()))
    print(json.dumps({name: content[name] for name in content if name not in ("rows", "what")}, indent=1))


def _curve(run: dict[str, Any], of_validation: str) -> Curve:
    points, sample = run["points"], run["sample"]
    validation = _points(points, of_validation + sample) if of_validation else ()
    return Curve(_points(points, sample), validation)


def _points(points: dict[str, list[Any]], column: str) -> Points:
    values = points.get(column) or []
    return tuple((b, math.inf if p is None else float(p)) for b, p in zip(points["batch"], values, strict=False))


def _cut(curve: Curve, batches: int) -> Curve:
    return Curve(
        *(tuple(point for point in points if point[0] <= batches) for points in (curve.test, curve.validation))
    )


def _is_unstable(curve: Curve) -> bool:
    late = [p for batch, p in curve.test if batch >= FIRST]
    return any(p > UNSTABLE * min(late[: n + 1]) for n, p in enumerate(late))


def _best(curve: Curve) -> float:
    test = dict(curve.test)
    finite = [
        (p, test[batch]) for batch, p in curve.validation or curve.test if p < math.inf and test[batch] < math.inf
    ]
    return math.log(min(finite)[1]) if finite else math.inf


def _lowest(loss: Callable[..., float], at: list[float]) -> list[float]:
    """A search along one constant at a time, in factors that become finer."""
    lowest, step = loss(*at), 0.5
    while step > 0.005:
        tried = [
            [v * f if n == m else v for m, v in enumerate(at)]
            for n in range(len(at))
            for f in (1 + step, 1 / (1 + step))
        ]
        best = min(tried, key=lambda values: loss(*values))
        if loss(*best) < lowest:
            lowest, at = loss(*best), best
        else:
            step /= 2
    return at


if __name__ == "__main__":
    main()
