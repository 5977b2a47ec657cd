"""A run at a prompt and in a notebook: one line, a card, flat metrics and a plot."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import Browser
from matplotlib import pyplot
from terminals import HOSTILE, harm

from unroll import Corpus, Experiment, Run, Scheme, load, train
from unroll.runs import small_curve
from unroll.runs.metric_lines import flat

TEXT = "to be or not to be, that is the <question> & more. " * 100
TINY = Experiment(scheme=Scheme(k1=5, k2=10), hidden=8, dense=16, rows=4, batches=12, threads=1)
VOID = {"line", "circle", "polyline"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("card")
    (folder / "book.txt").write_text(TEXT)
    return train(replace(TINY, corpus=str(folder / "book.txt")), folder / "a run")


@pytest.fixture
def hostile(run: Run) -> Run:
    status = {**run.status, "state": "stopped", "reason": HOSTILE, "device": HOSTILE}
    named = replace(run.experiment, title=f"<script>{HOSTILE.replace(chr(0xDCFF), '')}</script>")
    return replace(run, experiment=named, status=status, notes=(f"<img src=x onerror=alert(1)>{HOSTILE}",))


class Reader(HTMLParser):
    """What is in a page: its elements with their attributes, its text, and whether each element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_run_is_one_line_that_says_what_it_is_and_how_it_went(run: Run) -> None:
    line = repr(run)
    assert "\n" not in line
    assert len(line) < 300
    last = run.metrics[-1]["perplexity"]["windowed"]
    for word in (repr(str(run.path)), "book", "scheme 1", "lstm 1 × 8", "finished after 12 batches", f"{last:,.4g}"):
        assert word in line


def test_a_run_that_has_not_ended_says_so_on_its_line(tmp_path: Path) -> None:
    def leave(event: object) -> None:
        if getattr(event, "batch", 0) == 7:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(TINY, tmp_path / "run", Corpus.from_text(TEXT), on_event=leave)
    cut = load(tmp_path / "run")
    assert "interrupted after 7 batches" in repr(cut)
    assert "weights are those of batch 7" in cut._repr_html_()


def test_the_card_holds_the_facts_the_curve_and_a_sample_and_fetches_nothing(run: Run) -> None:
    page = Reader(run._repr_html_())
    assert page.open == []
    assert "finished after 12 batches" in page.text
    assert "train sequences" in page.text
    assert page.names.count("svg") == 1
    assert run.card_text
    assert run.card_text in page.text
    assert set(page.names).isdisjoint({"script", "style", "link", "img", "iframe", "object"})
    assert {name for name, _ in page.attributes}.isdisjoint({"src", "href", "srcset", "onerror", "onload"})
    assert not any("url(" in (value or "") for _, value in page.attributes)


def test_nothing_of_a_strangers_is_markup_or_hides_on_the_card_or_on_the_line(hostile: Run) -> None:
    page = Reader(hostile._repr_html_())
    assert page.open == []
    assert set(page.names) <= {"div", "b", "span", "pre", "svg", "g", "text"} | VOID
    assert "<script>" in page.text, "as text"
    assert harm(repr(hostile)) == []
    assert harm(page.text, lines=False) == []


def test_the_sample_is_drawn_once_and_a_run_without_its_text_has_a_card_without_one(run: Run) -> None:
    assert run.card_text is run.card_text
    homeless = replace(run, experiment=replace(run.experiment, corpus="nothing-here.txt"))
    assert homeless.card_text == ""
    page = Reader(homeless._repr_html_())
    assert "pre" not in page.names
    assert "svg" in page.names


def test_metrics_are_rows_of_a_table_beside_what_they_were(run: Run) -> None:
    lines = run.folder.metrics
    assert [{name: row[name] for name in line} for row, line in zip(run.metrics, lines, strict=True)] == lines
    for row in run.metrics:
        columns = {name: value for name, value in row.items() if name != "perplexity"}
        assert all(value is None or isinstance(value, int | float) for value in columns.values())
        assert {n: row[f"perplexity_{n}"] for n in row["perplexity"]} == row["perplexity"]
    assert "perplexity_progressive" in run.metrics[-1]


def test_a_perplexity_beyond_all_floats_is_infinite_in_its_column() -> None:
    assert flat({"batch": 1, "perplexity": {"windowed": None}})["perplexity_windowed"] == math.inf


@pytest.fixture
def figures() -> Iterator[None]:
    before = pyplot.get_backend()
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
    pyplot.switch_backend(before)


@pytest.mark.usefixtures("figures")
def test_plot_draws_on_given_axes_or_on_new_ones(run: Run) -> None:
    _, given = pyplot.subplots()
    assert run.plot(given) is given
    assert run.plot(ax=None) is not given
    for axes in (given, run.plot()):
        points = axes.lines[0].get_xydata()
        assert [tuple(point) for point in points] == small_curve.points_of(run.metrics)["windowed"]
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


@pytest.mark.usefixtures("figures")
def test_plot_takes_a_dollar_in_a_name_for_no_formula(run: Run) -> None:
    axes = replace(run, experiment=replace(run.experiment, title="a $x^$ b")).plot()
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    assert axes.get_title().startswith("a $x^$ b")


@pytest.mark.parametrize(
    "values",
    [[5.0], [5.0, 5.0], [5.0, 5.0 + 1e-12], [1e300, 1.0], [3.0, None, 2.0], [math.inf, 2.0, 1.9]],
    ids=str,
)
def test_a_curve_of_any_numbers_is_drawn_inside_its_picture(values: list[float | None]) -> None:
    lines = [{"sequences": 4 * n, "perplexity": {"windowed": v}} for n, v in enumerate(values, 1)]
    picture = small_curve.svg(lines)
    assert Reader(picture).open == []
    places = [float(n) for name in ("cx", "x1", "x2") for n in re.findall(rf' {name}="([^"]+)"', picture)]
    heights = [float(n) for name in ("cy", "y1", "y2") for n in re.findall(rf' {name}="([^"]+)"', picture)]
    assert all(0 <= place <= small_curve.WIDTH for place in places)
    assert all(0 <= height <= small_curve.HEIGHT for height in heights)


def test_without_any_finite_perplexity_there_is_no_picture() -> None:
    assert small_curve.svg([]) == ""
    assert small_curve.svg([{"sequences": 4, "perplexity": {"windowed": None}}]) == ""


@pytest.mark.slow
def test_a_browser_shows_the_card_in_light_and_dark_whole_and_without_complaint(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "card.html"
    head = '<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    page.write_text(f"{head}<body style='background:Canvas;color:CanvasText'>{run._repr_html_()}", "utf-8")
    ink = "getComputedStyle(document.querySelector('svg g[fill]')).fill"
    seen = {}
    with Browser(tmp_path / "profile") as browser:
        for width, scheme in ((700, "light"), (700, "dark"), (320, "light")):
            browser.view(width, 700, scheme)
            browser.open(page)
            seen[width, scheme] = browser.ask(ink)
            assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
            box = browser.ask("JSON.stringify(document.querySelector('svg').getBoundingClientRect())")
            assert '"width":0' not in box
        assert browser.troubles == []
        assert {address for address in browser.fetched if address != page.absolute().as_uri()} == set()
    assert seen[700, "light"] != seen[700, "dark"], "words have the colour of the page's text"
