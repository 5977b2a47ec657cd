"""Which figures a page has: the paper's in the paper's form, one for each question of the extras, and plain runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unroll.report.curves import Curves
from unroll.report.panels import Label, Labelled, Layout, figure
from unroll.studies.paper.figures import BEST, CORPORA, units
from unroll.studies.paper.records import CARRIED, Curve, Record
from unroll.sweep.table import told_apart

CLIPPED = 80.0  # where the paper ends the perplexity axis of its figure k2


def _corpus(curve: Curve) -> Label:
    known = CORPORA.index(curve.corpus) if curve.corpus in CORPORA else len(CORPORA)
    return (known, curve.title), curve.title


def _scheme(curve: Curve) -> Label:
    words = f"{curve.train}, {curve.sample}"
    return (curve.scheme or 9, words), f"scheme {curve.scheme}: {words}" if curve.scheme else words


def _shape(curve: Curve) -> Label:
    return (curve.layers, curve.hidden), f"r={curve.layers} γ={curve.hidden}"


def _k1(curve: Curve) -> Label:
    return curve.k1, str(curve.k1)


def _k2(curve: Curve) -> Label:
    return curve.k2, str(curve.k2)


def _share(curve: Curve) -> Label:
    """k1 as a share of k2: the paper's thirds, rounded."""
    thirds = round(3 * curve.k1 / curve.k2)
    words = {1: "k2/3", 2: "2·k2/3", 3: "k2"}
    near = thirds in words and abs(curve.k1 - thirds * curve.k2 / 3) < 1
    return (curve.k1 / curve.k2 if not near else thirds / 3), words[thirds] if near else f"{curve.k1 / curve.k2:.2f}·k2"


def _variant(curve: Curve) -> Label:
    words = ", ".join(f"{name} = {value}" for name, value in sorted(curve.variant.items()))
    return (words != "", words), words or "as the paper"


PAPER = (
    Layout(
        "architectures-1",
        "Architectures under scheme 1",
        "Multi-loss training, windowed sampling; one colour an architecture (r layers of γ units), one line a k1.",
        _corpus, _shape, _k1, "architecture", "k1",
    ),
    Layout(
        "architectures-2",
        "Architectures under scheme 2",
        "Single-loss training, windowed sampling; one colour an architecture (r layers of γ units), one line a k1.",
        _corpus, _shape, _k1, "architecture", "k1",
    ),
    Layout(
        "schemes",
        "Schemes, a data set at a time",
        "One layer of {units} units; one colour a scheme, one line a k1.",
        _corpus, _scheme, _k1, "scheme", "k1",
    ),
    Layout(
        "datasets",
        "Data sets, a scheme at a time",
        "The same curves the other way round: one colour a data set, one line a k1.",
        _scheme, _corpus, _k1, "data set", "k1",
    ),
    Layout(
        "k2",
        "How far gradients flow back: k2",
        "Music, one layer of {units} units, against training time; one colour a k2, three k1 each. The first view ends "
        "at perplexity 80, as the paper's does.",
        _scheme, _k2, _share, "k2", "k1", x="seconds", top=CLIPPED,
    ),
)  # fmt: skip

# The extras by what they change: name, title, the fields, and the question.
TOPICS = (
    ("dropout", "Dropout", {"dropout"}, "Does dropout cure the overfitting on Music?"),
    ("learning", "Learning rate and optimiser", {"learning_rate", "optimiser"}, "The bump on Finnish with 128 units."),
    ("shuffle", "Shuffled windows", {"shuffle"}, "Windows in random order, beside the rotated train set."),
    ("forget-bias", "Forget bias", {"forget_bias"}, "Conditional training with a forget bias that starts above 0."),
    ("peepholes", "Peepholes", {"peepholes"}, "Conditional training with other peepholes, or none."),
    ("reset", "When a carried state is reset", {"reset", "rotation"}, "Each epoch (the paper), never, or at random."),
)
CARRIED_TOPIC = (
    "start",
    "From a zero and from a carried start",
    "The same conditional trainings, the test set read from zeros, and from the states that training carried (the "
    "median over rows).",
)


def paper(records: Mapping[str, Record], page_curves: Curves) -> list[dict[str, Any]]:
    """The figures that records hold, in the paper's order."""
    records = {name: _as_trained(record) for name, record in records.items()}
    for name, record in records.items():
        for curve in record.curves:
            page_curves.number(curve, name)
    figures = []
    for layout in PAPER:
        if _holds(records, layout.name):
            about = layout.about.format(units=units(BEST[0][1], records[layout.name].scale))
            figures.append(figure(replace(layout, about=about), records[layout.name].curves, page_curves))
    return figures + (_extras(records, page_curves) if _holds(records, "extras") else [])


def _as_trained(record: Record) -> Record:
    """The record with the units that its models had: a record names them by their places in the paper's grid."""
    curves = tuple(replace(curve, hidden=units(curve.hidden, record.scale)) for curve in record.curves)
    return replace(record, curves=curves)


def _cannot_differ(curve: Curve) -> bool:
    """Whether a change shows only after an epoch, and none ended before the run did."""
    late = {"reset": "never", "rotation": "continue"}
    only_late = bool(curve.variant) and all(late.get(name) == value for name, value in curve.variant.items())
    return only_late and curve.epoch is not None and curve.batches <= curve.epoch


def _left_out(curves: Sequence[Curve]) -> str:
    """What to say of curves that a page leaves out, since they are others' to the last digit."""
    settings = dict.fromkeys(_variant(curve)[1] for curve in curves if _cannot_differ(curve))
    words = "; ".join(settings)
    return f" Left out, since no run here is longer than an epoch and so cannot differ: {words}." if words else ""


def _holds(records: Mapping[str, Record], name: str) -> bool:
    return name in records and bool(records[name].curves)


def _extras(records: Mapping[str, Record], page_curves: Curves) -> list[dict[str, Any]]:
    """A figure for each question, with the paper's own setting beside the changed ones."""
    every = records["extras"].curves
    extras = [curve for curve in every if not _cannot_differ(curve)]
    base = [curve for curve in page_curves.curves if not curve.variant]
    rest = [curve for curve in extras if curve.variant]
    figures = []
    for name, title, changed, about in TOPICS:
        changed_curves = [curve for curve in rest if curve.variant.keys() <= changed]
        rest = [curve for curve in rest if curve not in changed_curves]
        about += _left_out([curve for curve in every if curve.variant.keys() <= changed])
        if changed_curves:
            figures.append(
                figure(_topic(name, title, about), [*_beside(changed_curves, base), *changed_curves], page_curves)
            )
    if rest:
        figures.append(figure(_topic("others", "Other settings", "What else was varied."), rest, page_curves))
    return figures + _starts([*extras, *base], page_curves)


def _topic(name: str, title: str, about: str) -> Layout:
    def panel(curve: Curve) -> Label:
        corpus = _corpus(curve)
        scheme = _scheme(curve)
        shape = _shape(curve)
        return (corpus[0], scheme[0], shape[0]), f"{corpus[1]}, scheme {curve.scheme}, {shape[1]}"

    return Layout(f"extras-{name}", f"Extras: {title}", about, panel, _variant, _k1, "setting", "k1")


def _beside(changed_curves: Sequence[Curve], base: Sequence[Curve]) -> list[Curve]:
    """The curves of the same trainings without the change."""
    wanted = {replace(curve.series, varied=()) for curve in changed_curves}
    seen: dict[tuple[Any, int], Curve] = {}
    for curve in base:
        if curve.series in wanted:
            seen.setdefault((curve.series, curve.seed), curve)
    return list(seen.values())


def _starts(curves: Sequence[Curve], page_curves: Curves) -> list[dict[str, Any]]:
    scored = [curve for curve in curves if any(value is not None for value in curve.points.get(CARRIED, ()))]
    scored = list({page_curves.number(curve): curve for curve in scored}.values())
    if not scored:
        return []
    carried = [replace(curve, sample=CARRIED) for curve in scored]
    for curve in carried:
        page_curves.number(curve, "extras")

    def start(curve: Curve) -> Label:
        words = "from the carried states" if curve.sample == CARRIED else "from zeros"
        return (_variant(curve)[0], words), f"{words}, {_variant(curve)[1]}" if curve.variant else words

    name, title, about = CARRIED_TOPIC
    layout = Layout(f"extras-{name}", f"Extras: {title}", about, _corpus, start, _k1, "start", "k1")
    return [figure(layout, [*scored, *carried], page_curves)]


# What distinguishes plain runs, in the order in which a label says it.
DISTINGUISHING: tuple[tuple[str, Labelled], ...] = (
    ("scheme", _scheme),
    ("architecture", _shape),
    ("k2", _k2),
    ("precision", lambda curve: (curve.precision, curve.precision)),
    ("setting", _variant),
)


def runs(named: Sequence[tuple[str, Curve]], page_curves: Curves) -> list[dict[str, Any]]:
    """Lay out any other runs: a panel a corpus, a colour for each combination of what varies, a line a k1."""
    for name, curve in named:
        page_curves.number(curve, name)
    curves = [curve for _, curve in named if curve.scored]
    if not curves:
        return []
    varied = [(name, labelled) for name, labelled in DISTINGUISHING if len({labelled(curve) for curve in curves}) > 1]
    by_k1 = not varied  # then k1 has the colours
    layout = Layout(
        "curves",
        "Test perplexity",
        "One panel a corpus; the scheme's own procedure." + ("" if by_k1 else " One line a k1."),
        _distinct_corpora(curves),
        _k1 if by_k1 else _combined([labelled for _, labelled in varied]),
        (lambda curve: (0, "")) if by_k1 else _k1,
        "k1" if by_k1 else ", ".join(name for name, _ in varied),
        "k1",
    )
    return [figure(layout, curves, page_curves)]


def _combined(labels: Sequence[Labelled]) -> Callable[[Curve], Label]:
    def label(curve: Curve) -> Label:
        parts = [labelled(curve) for labelled in labels]
        # A variant may hold values of any kind: as text they can be sorted.
        return json.dumps([key for key, _ in parts], default=str), " · ".join(words for _, words in parts)

    return label


def _distinct_corpora(curves: Sequence[Curve]) -> Callable[[Curve], Label]:
    """By title and content: hashes distinguish two texts of one name."""
    words = told_apart((curve.title, curve.sha256) for curve in curves)
    return lambda curve: ((_corpus(curve)[0], curve.sha256), words(curve.title, curve.sha256))
