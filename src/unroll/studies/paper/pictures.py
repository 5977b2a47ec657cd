"""The paper's figures, drawn from the records: small multiples, logarithmic axes, one colour a series, one line a k1.

Everything in a picture comes out of the records, and the same records give the same bytes: the files hold no dates, no
software names and no random ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from unroll.base import picture_files
from unroll.runs.curve import thousands
from unroll.studies.paper.claims.thresholds import CORPUS_NAMES, WARM_UP
from unroll.studies.paper.figures import RANDOM_RESET, units
from unroll.studies.paper.records import Curve, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which most colour-blind readers tell apart; yellow is left out, as it is lost on white.
BLUE, ORANGE, GREEN, VERMILION, PURPLE = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7"
SKY = "#56b4e9"
INK, GREY, PALE = "#222222", "#777777", "#e8e8e8"
# The paper clips its figure of k2 here.
CLIP = 80.0
# Inches: a page of documentation. Positions are fixed, not fitted, so that they depend on nothing.
WIDTH, PANEL, HEAD, FOOT = 7.6, 2.8, 0.55, 0.95


class Look(NamedTuple):
    """How a figure is laid out: what a panel stands for, and what a colour."""

    panel: str
    colour: str
    colours: Mapping[Any, str]
    title: str
    against: str = "sequences"
    scheme: int | None = None  # the only one that it shows
    merged: bool = False  # the five k1 as one line in a band


FOUR = (BLUE, GREEN, VERMILION, ORANGE)
SCHEME_COLOURS = dict(zip((1, 2, 3, 4), FOUR, strict=True))
CORPUS_COLOURS = dict(zip(CORPUS_NAMES, FOUR, strict=True))
ARCHITECTURE_COLOURS = dict(zip(((1, 128), (1, 512), (2, 128), (2, 512)), FOUR, strict=True))
K2_COLOURS = dict(zip((20, 40, 60, 80, 100), (*FOUR, PURPLE), strict=True))
# Our own questions about scheme 4, beyond the paper; black is the paper's setting.
SETTINGS: dict[str, dict[str, Any]] = {
    "as in the paper": {},
    "forget bias 5": {"forget_bias": 5.0},
    "Lasagne's peepholes": {"peepholes": "lasagne"},
    "no peepholes": {"peepholes": "off"},
    "never reset": {"reset": "never"},
    "never reset, read on": {"reset": "never", "rotation": "continue"},
    "reset at random": {"reset": RANDOM_RESET},
}
SETTING_COLOURS = dict(zip(SETTINGS, (INK, *FOUR, PURPLE, SKY), strict=True))
LOOKS = {
    "architectures-1": Look("corpus", "architecture", ARCHITECTURE_COLOURS, "Architectures under scheme 1"),
    "architectures-2": Look("corpus", "architecture", ARCHITECTURE_COLOURS, "Architectures under scheme 2"),
    "schemes": Look("corpus", "scheme", SCHEME_COLOURS, "The four schemes, r = 1, γ = 512"),
    "datasets": Look("scheme", "corpus", CORPUS_COLOURS, "The four data sets, r = 1, γ = 512"),
    "extras": Look(
        "corpus", "setting", SETTING_COLOURS, "Scheme 4 otherwise: mean over k1, band over k1", scheme=4, merged=True
    ),
    "k2": Look("scheme", "k2", K2_COLOURS, "The length of the window on Music, r = 1, γ = 512", "seconds"),
}


def save(record: Record, folder: Path, suffix: str = ".png") -> Path | None:
    """Draw a record's figure as FOLDER/FIGURE.png or .svg; return None for a record that is no figure of the paper."""
    if record.figure not in LOOKS or not any(curve.scored for curve in _shown(record).curves):
        return None
    return written(lambda: draw(record), folder / f"{record.figure}{suffix}")


def written(figure: Callable[[], Figure], path: Path) -> Path:
    """Write a picture to disk, always with the same bytes."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "unroll", "svg.fonttype": "path"}):
        # Without its metadata a file does not say when and with which version it was drawn.
        metadata: dict[str, Any] = {"Software": None} if path.suffix == ".png" else {"Date": None, "Creator": None}
        picture_files.save(figure, path, metadata=metadata)
    return path


def draw(record: Record) -> Figure:
    """One figure: four panels, two by two, on the same axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    look = LOOKS[record.figure]
    record = _shown(record)
    panels = [
        name
        for name in (CORPUS_NAMES if look.panel == "corpus" else SCHEME_COLOURS)
        if _curves_with(record, look.panel, name)
    ]
    rows = math.ceil(len(panels) / 2)
    height = PANEL * rows + HEAD + FOOT
    figure = Figure(figsize=(WIDTH, height), dpi=150)
    FigureCanvasAgg(figure)
    every_axes = list(figure.subplots(rows, 2, squeeze=False, sharex=True, sharey=True).ravel())
    for axes, name in zip(every_axes, panels, strict=False):
        _panel(axes, record, look, name)
    for axes in every_axes[len(panels) :]:
        axes.set_axis_off()
    _axes(every_axes, record, look)
    _legend(figure, record, look)
    figure.subplots_adjust(0.075, FOOT / height, 0.985, 1 - HEAD / height, wspace=0.06, hspace=0.16)
    figure.suptitle(_heading(record, look), fontsize=9.5, color=INK, y=1 - 0.12 / height, va="top")
    return figure


def _shown(record: Record) -> Record:
    look = LOOKS[record.figure]
    return replace(record, curves=tuple(c for c in record.curves if look.scheme in (None, c.scheme)))


def titled(figure: str, scale: float) -> str:
    """A figure's title, with the units that were trained at this scale."""
    return LOOKS[figure].title.replace("γ = 512", f"γ = {units(512, scale)}")


def label(what: str, value: Any, scale: float = 1.0) -> str:
    """Say a value in words: `scheme 1`, `r = 1, γ = 512`, `Finnish`."""
    if what in ("corpus", "setting"):
        return CORPUS_NAMES.get(value, str(value))
    if what == "architecture":
        return f"r = {value[0]}, γ = {units(value[1], scale)}"
    return f"{'k2 = ' if what == 'k2' else 'scheme '}{value}"


def _value(curve: Curve, what: str) -> Any:
    if what == "setting":
        return next((name for name, variant in SETTINGS.items() if variant == curve.variant), str(curve.variant))
    return (curve.layers, curve.hidden) if what == "architecture" else getattr(curve, what)


def _curves_with(record: Record, what: str, value: Any) -> list[Curve]:
    return [curve for curve in record.curves if _value(curve, what) == value]


def plain(axes: Any) -> None:
    """Leave a pale grid and two pale edges, so that nothing competes with the lines."""
    axes.grid(True, which="major", color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbbbbb")


def _panel(axes: Any, record: Record, look: Look, name: Any) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain(axes)
    curves = _curves_with(record, look.panel, name)
    groups: dict[tuple[Any, int], list[Curve]] = {}
    for curve in curves:
        groups.setdefault((_value(curve, look.colour), 0 if look.merged else curve.k1), []).append(curve)
    # The first colour of the legend is drawn last, on top. Others are compared with it, and would hide it where they
    # agree with it.
    order = {value: -n for n, value in enumerate(look.colours)}
    for (value, k1), seeds in sorted(groups.items(), key=lambda item: (order.get(item[0][0], -math.inf), item[0][1])):
        _line(axes, seeds, look, look.colours.get(value, GREY), _width(groups, value, k1))
    for curve in curves:
        _mark(axes, curve, record.curves, look, look.colours.get(_value(curve, look.colour), GREY))
    axes.set_title(_title(curves[0], look, name), fontsize=8.5, loc="left", color=INK)


def _title(curve: Curve, look: Look, name: Any) -> str:
    """A panel's title: a data set and its kind, or a scheme and its procedures."""
    if look.panel == "scheme":
        return f"Scheme {name}: {curve.train}, {curve.sample}"
    rebuilt = " (reconstruction)" if "(reconstruction)" in curve.title else ""
    return f"{label(look.panel, name)}{rebuilt}"


def _width(groups: Mapping[tuple[Any, int], Any], value: Any, k1: int) -> float:
    """The width of a line: thin for the smallest k1, thick for the largest."""
    every_k1 = sorted(group_k1 for name, group_k1 in groups if name == value)
    return 0.5 + 0.8 * every_k1.index(k1) / (len(every_k1) - 1) if len(every_k1) > 1 else 1.0


def _columns(curve: Curve, look: Look) -> dict[int, tuple[float, float]]:
    """The x and y of each evaluation point with a number; a logarithmic axis cannot show 0 seconds."""
    at = dict(zip(curve.points["batch"], curve.points[look.against], strict=True))
    return {batch: (at[batch], value) for batch, _, value in curve.scored if at[batch]}


def _line(axes: Any, seeds: Sequence[Curve], look: Look, colour: str, width: float) -> None:
    """Draw the geometric mean over seeds, and a band from lowest to highest; a seed counts as far as it goes."""
    points_of_seeds = [_columns(curve, look) for curve in seeds]
    batches = sorted({batch for points in points_of_seeds for batch in points})
    here = [[points[batch] for points in points_of_seeds if batch in points] for batch in batches]
    x = [sum(position for position, _ in points) / len(points) for points in here]
    values = [[value for _, value in points] for points in here]
    mean = [math.exp(sum(map(math.log, group)) / len(group)) for group in values]
    axes.plot(x, mean, color=colour, linewidth=width, alpha=0.85, solid_joinstyle="round")
    if len(seeds) > 1:
        axes.fill_between(x, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.15, linewidth=0)


def _mark(axes: Any, curve: Curve, others: Sequence[Curve], look: Look, colour: str) -> None:
    """Draw a ring where a run first turned unstable, and a cross where it stopped."""
    at = dict(zip(curve.points["batch"], curve.points[look.against], strict=True))
    value = {batch: perplexity for batch, _, perplexity in curve.scored}
    top = CLIP if look.against == "seconds" else math.inf
    when = marked(curve, _third(curve, others))
    if when is not None and not look.merged:
        axes.plot(
            [at[when]], [min(value[when], top)], "o", markersize=3.6, markerfacecolor="white", color=colour, zorder=5
        )
    if curve.state == "stopped" and value:
        last = max(value)
        axes.plot([at[last]], [min(value[last], top)], "x", markersize=6, markeredgewidth=1.6, color=colour, zorder=6)


def _third(curve: Curve, others: Sequence[Curve]) -> Curve | None:
    """Scheme 3's curve of the same setting, against which scheme 4's is judged too."""
    if curve.scheme != 4:
        return None
    same = [c for c in others if c.scheme == 3 and (c.corpus, c.k1, c.k2, c.seed) == _setting(curve)]
    return same[0] if same else None


def marked(curve: Curve, other: Curve | None = None) -> int | None:
    """The first unstable batch after Adam's first steps, which throw nearly every run far up and mean nothing."""
    scored = {batch for batch, _, _ in curve.scored}
    return next((batch for batch in curve.unstable(other) if batch >= WARM_UP and batch in scored), None)


def _setting(curve: Curve) -> tuple[str, int, int, int]:
    return curve.corpus, curve.k1, curve.k2, curve.seed


def _axes(every_axes: Sequence[Any], record: Record, look: Look) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

    values = [value for curve in record.curves for _, value in _columns(curve, look).values()]
    low = min(values)
    high = max(values)
    # A few points of the first batches reach thousands; the paper's axes end near the size of the vocabulary.
    # A run so short that it never came below that is shown in full.
    top = CLIP if look.against == "seconds" else 150.0
    high = min(high, top) if low < top else high
    ticks = [
        tick for power in range(-1, 4) for tick in (10.0**power * n for n in (1, 2, 3, 5)) if low * 0.8 <= tick <= high
    ]
    # The axis begins where a curve first comes below the top: before that there is nothing to see.
    seen = [position for curve in record.curves for position, value in _columns(curve, look).values() if value <= high]
    for axes in every_axes:
        axes.set_xlim(min(seen) * 0.8, max(seen) * 1.25)
        axes.set_ylim(low * 0.95, high)
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_major_locator(LogLocator(base=10, subs=(1,), numticks=12))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value)))
        axes.tick_params(axis="both", which="both", labelsize=7.5, colors=INK, length=2, color="#bbbbbb")
    for axes in every_axes[-2:]:
        axes.set_xlabel("training time, s" if look.against == "seconds" else "train sequences", fontsize=8, color=INK)
    for axes in every_axes[::2]:
        axes.set_ylabel("perplexity of the test set", fontsize=8, color=INK)


def _legend(figure: Figure, record: Record, look: Look) -> None:
    from matplotlib.lines import Line2D

    present = {_value(curve, look.colour) for curve in record.curves}
    handles = [
        Line2D([], [], color=colour, linewidth=2, label=label(look.colour, value, record.scale))
        for value, colour in look.colours.items()
        if value in present
    ]
    k1 = sorted({curve.k1 for curve in record.curves})
    thin, thick = ("k2/3", "k2") if look.against == "seconds" else (f"{k1[0]}", f"{k1[-1]}")
    if len(k1) > 1 and not look.merged:
        handles.append(Line2D([], [], color=GREY, linewidth=0.5, label=f"k1 = {thin}"))
        handles.append(Line2D([], [], color=GREY, linewidth=1.3, label=f"k1 = {thick}"))
    if not look.merged:
        ring: dict[str, Any] = {"marker": "o", "markersize": 3.6, "markerfacecolor": "white", "linewidth": 0}
        handles.append(Line2D([], [], color=GREY, label="turns unstable", **ring))
    if any(curve.state == "stopped" for curve in record.curves):
        handles.append(Line2D([], [], color=GREY, marker="x", markersize=6, linewidth=0, label="stopped"))
    figure.legend(handles=handles, loc="lower center", ncols=4, frameon=False, fontsize=7.5, labelcolor=INK)


def _heading(record: Record, look: Look) -> str:
    seeds = len({curve.seed for curve in record.curves})
    seed_words = f": mean of {seeds} seeds, bands from lowest to highest" if seeds > 1 else ""
    small = f", at scale {record.scale:g}" if record.scale < 1 else ""
    return f"{titled(record.figure, record.scale)}{seed_words}{small}"
