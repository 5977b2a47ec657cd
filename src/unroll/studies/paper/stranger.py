"""Scheme 4 by a stranger's route: what benchmarks/stranger.py, which knows nothing of Unroll, measured beside Unroll.

Its record is FOLDER/stranger.json. A run is who trained it, how the state was reset, with peepholes or without, a seed,
and points: batch, nats of training, the perplexity from zeros and from carried states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unroll.base import untrusted
from unroll.base.errors import RunError
from unroll.studies.paper.claims.lines import gmean
from unroll.studies.paper.claims.verdict import Table, table
from unroll.studies.paper.pictures import GREEN, GREY, INK, VERMILION, WIDTH, plain, written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE, FORMAT = "stranger.json", 1
MOST_BYTES, MOST_VALUES = untrusted.MEGABYTE, 1 << 16
WHO = {"stranger": "the stranger's", "unroll": "Unroll"}
# How the state is reset and whether there are peepholes, in words; and the colour of a line.
SETTINGS = {
    ("never", True): ("never reset", VERMILION),
    ("epoch", True): ("reset each epoch", INK),
    ("random", True): ("reset at random, 0.1", GREEN),
    ("never", False): ("never reset, no peepholes", GREY),
}


@dataclass(frozen=True)
class Run:
    """One training of either implementation."""

    who: str
    reset: str
    peepholes: bool
    seed: int
    points: tuple[tuple[float, float, float, float], ...]

    @property
    def apart(self) -> dict[int, float]:
        """By batch: the perplexity from zeros over that from carried states."""
        return {int(batch): zeros / carried for batch, _, zeros, carried in self.points}


@dataclass(frozen=True)
class Comparison:
    """The record: where and on what it was measured, and the runs."""

    processor: str
    torch: str
    script_sha256: str
    batches: int
    test_tokens: int
    runs: tuple[Run, ...]


def read(folder: str | Path) -> Comparison | None:
    """Read the record of a folder; None where there is none."""
    path = Path(folder) / FILE
    if not untrusted.present(path):
        return None
    try:
        content = untrusted.parse_json(untrusted.read(path, MOST_BYTES), MOST_VALUES)
        if content["format"] != FORMAT:
            raise RunError(f"{path} has format {content['format']!r}; this version reads {FORMAT}.")
        runs = [
            Run(run["who"], run["reset"], run["peepholes"], run["seed"], tuple(map(_point, run["points"])))
            for run in content["runs"]
        ]
        machine = content["machine"]
        return Comparison(
            str(machine["processor"]), str(machine["torch"]), str(content["script_sha256"]),
            int(content["batches"]), int(content["test_tokens"]), tuple(runs),
        )  # fmt: skip
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{path} is damaged: it is no record of this comparison. Bring it back, or delete it.") from None


def _point(values: Sequence[Any]) -> tuple[float, float, float, float]:
    batch, loss, zeros, carried = map(float, values)
    if not min(zeros, carried) > 0:
        raise ValueError
    return batch, loss, zeros, carried


def groups(runs: Sequence[Run]) -> dict[tuple[str, str, bool], list[Run]]:
    """The runs of each setting and implementation, in the order of the table."""
    keys = [(who, *setting) for setting in SETTINGS for who in WHO]
    by_key = {key: [run for run in runs if (run.who, run.reset, run.peepholes) == key] for key in keys}
    return {key: of_key for key, of_key in by_key.items() if of_key}


def in_numbers(runs: Sequence[Run]) -> Table:
    """How far zeros and carried states are apart, setting by setting, by either implementation."""
    rows = []
    for (who, reset, peepholes), of_key in groups(runs).items():
        ratios = [value for run in of_key for value in run.apart.values()]
        ends = [gmean(run.points[-1][column] for run in of_key) for column in (2, 3)]
        rows.append(
            (
                SETTINGS[reset, peepholes][0],
                WHO[who],
                len(of_key),
                round(gmean(ratios), 4),
                round(max(ratios), 3),
                f"{sum(value > 1.01 for value in ratios)} of {len(ratios)}",
                *(round(value, 2) for value in ends),
            )
        )
    columns = ("state", "implementation", "seeds", "zeros / carried, mean", "largest", "points above 1.01")
    return table((*columns, "last, from zeros", "from carried"), rows)


def about(compared: Comparison) -> str:
    """What was compared, in words."""
    return (
        f"Scheme 4 on Music, {compared.batches} batches of 64 rows, 128 units, k1 = k2 = 100, the paper's peepholes "
        "unless said otherwise, no dense layer, Adam at 0.004 (four times the paper's, so that it shows early); the "
        f"last {compared.test_tokens:,} tokens are the test set. Scored from batch 100 on. {compared.processor}, torch "
        f"{compared.torch}."
    )


def save(compared: Comparison, folder: Path) -> Path:
    """Draw FOLDER/stranger.png."""
    return written(lambda: draw(compared.runs), folder / "stranger.png")


def draw(runs: Sequence[Run]) -> Figure:
    """A panel for each implementation: perplexity of one seed above, zeros over carried of every run below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height = 5.0
    figure = Figure(figsize=(WIDTH, height), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2, squeeze=False, sharex=True, sharey="row")
    for column, (who, name) in enumerate(WHO.items()):
        own = [run for run in runs if run.who == who]
        title = "In plain torch" if who == "stranger" else name
        _perplexities(axes[0][column], [run for run in own if run.seed == own[0].seed], title)
        _apart(axes[1][column], own)
    axes[0][0].set_ylabel("perplexity of the test set", fontsize=8, color=INK)
    axes[1][0].set_ylabel("from zeros / from carried states", fontsize=8, color=INK)
    axes[0][1].legend(frameon=False, fontsize=7, labelcolor=INK)
    axes[1][1].legend(frameon=False, fontsize=7, labelcolor=INK)
    figure.subplots_adjust(0.085, 0.42 / height, 0.985, 1 - 0.28 / height, wspace=0.06, hspace=0.2)
    return figure


def _perplexities(axes: Any, runs: Sequence[Run], title: str) -> None:
    for run in runs:
        if (run.reset, run.peepholes) not in (("never", True), ("random", True)):
            continue
        batches = [point[0] for point in run.points]
        name, colour = SETTINGS[run.reset, run.peepholes]
        for column, style, start in ((2, "-", "from zeros"), (3, ":", "from carried states")):
            values = [point[column] for point in run.points]
            axes.plot(batches, values, color=colour, ls=style, lw=1.3, label=f"{name}, {start}")
    _dress(axes)
    axes.set_title(f"{title}: seed {runs[0].seed}", fontsize=8.5, loc="left", color=INK)


def _apart(axes: Any, runs: Sequence[Run]) -> None:
    named = set()
    for run in runs:
        name, colour = SETTINGS[run.reset, run.peepholes]
        label = None if name in named else name
        named.add(name)
        axes.plot(list(run.apart), list(run.apart.values()), color=colour, lw=1.1, alpha=0.9, label=label)
    _dress(axes)
    axes.set_title("every run", fontsize=8.5, loc="left", color=INK)
    axes.set_xlabel("batch", fontsize=8, color=INK)


def _dress(axes: Any) -> None:
    plain(axes)
    axes.set_xlim(100, None)
    axes.tick_params(axis="both", which="both", labelsize=7.5, colors=INK, length=2, color="#bbbbbb")
