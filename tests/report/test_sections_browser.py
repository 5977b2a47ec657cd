"""A sweep of 20 runs, every section of its page, in a real browser: quick, quiet, usable by keys, at every width."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from commands import TINY, unroll

from unroll.corpus.synthetic import Markov

pytestmark = pytest.mark.slow

VIEWS = [(width, scheme) for width in (375, 1440) for scheme in ("light", "dark")]
SECTIONS = ["answer", "figure-curves", "settings", "drift", "text", "samples", "units", "every-run"]
CONTROLS = "a[href], button, select, input, summary, [tabindex='0']"
LOADS = 5
# The colours of an element and of what lies behind it, as numbers, and the ratio that WCAG defines between them.
CONTRAST = """
(() => {
  const parts = (words) => words.match(/[0-9.]+/g).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const shares = [0.2126, 0.7152, 0.0722];
  const light = (colour) => shares.reduce((sum, share, i) => sum + share * linear(colour[i] / 255), 0);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const back = parts(getComputedStyle(each).backgroundColor);
      if (back.length < 4 || back[3] > 0.99) return back;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("main *, nav *, header *, footer *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("svg, option, [hidden], .unseen")) continue;
    const [a, b] = [light(parts(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([ratio.toFixed(2), element.tagName, element.className, element.textContent.slice(0, 30)]);
  }
  return low.slice(0, 10);
})()
"""

# The element that has the focus: when it was visited first, whether it has an outline and is in sight, and its name.
VISITED = """
((e) => {
  e.dataset.visit ??= NUMBER;
  const style = getComputedStyle(e);
  const box = e.getBoundingClientRect();
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  return [e.dataset.visit, outlined, box.bottom > 0 && box.top < innerHeight, `${e.tagName}.${e.className}`];
})(document.activeElement)
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "corpus.txt").write_text(Markov().text(12_000))
    options = ["--scheme", "1,4", "--k1", "5,10", "--seeds", 5, "--batches", 30, "--most", 20, "--quiet"]
    result = unroll("sweep", folder / "corpus.txt", *options, *TINY[2:], "--out", folder / "sweep")
    assert result.code == 0, result.err
    result = unroll("report", folder / "sweep", "--show", "all", "--out", folder / "report.html")
    assert result.code == 0, result.err
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def opened(browser: Browser, report: Path) -> Iterator[Browser]:
    """The page with everything drawn that waits for the reader; no test may make the console complain."""
    browser.troubles.clear()
    browser.fetched.clear()
    browser.view(1440, 900)
    show(browser, report)
    yield browser
    assert browser.troubles == []
    assert browser.fetched == [report.as_uri()]


def show(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.ask("document.documentElement.style.scrollBehavior = 'auto'")
    browser.ask("dispatchEvent(new Event('beforeprint'))")  # which draws all of it


def test_it_is_one_file_under_10_megabytes_with_every_section(opened: Browser, report: Path) -> None:
    assert report.stat().st_size < 10_000_000
    assert opened.ask("[...document.querySelectorAll('main > section')].map((section) => section.id)") == SECTIONS
    assert opened.ask("document.querySelectorAll('.notice').length") == 0
    assert opened.ask("document.querySelectorAll('#every-run tbody tr').length") == 20
    assert opened.ask("[...document.querySelectorAll('.chart')].every((chart) => chart.querySelector('.line'))")
    assert opened.ask("[...document.querySelectorAll('svg *')].every((e) => !/NaN|Infinity/.test(e.outerHTML))")


def test_it_opens_within_two_seconds(browser: Browser, report: Path) -> None:
    """From the first byte to the page loaded and drawn: the middle one of five loads."""
    browser.view(1440, 900)
    times = []
    for _ in range(LOADS):
        browser.open(report)
        # The second frame comes after the first one was painted.
        drawn = (
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))))"
        )
        loaded = "performance.getEntriesByType('navigation')[0].loadEventEnd"
        times.append(max(browser.ask(loaded), min(browser.ask(drawn), 1e6)))
    assert statistics.median(times) < 2_000, times


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_it_fits_and_can_be_read_at_every_width_light_and_dark(
    opened: Browser, report: Path, width: int, scheme: str
) -> None:
    opened.view(width, 812, scheme)
    opened.until("document.documentElement.scrollWidth <= innerWidth")
    assert opened.ask("[...document.querySelectorAll('main *')].every((e) => e.closest('.scrolling, svg, .unseen') "
                      "|| e.getBoundingClientRect().right <= innerWidth + 1)")  # fmt: skip
    assert opened.ask("[...document.querySelectorAll('.text')].every((e) => e.scrollWidth <= e.clientWidth + 1)")
    assert opened.ask(CONTRAST) == []
    opened.ask("document.querySelectorAll('.text')[0].focus()")
    assert opened.ask("getComputedStyle(document.documentElement).colorScheme").replace(" ", "") == "lightdark"


def test_on_a_phone_rows_are_cards_that_say_their_columns(opened: Browser) -> None:
    opened.view(375, 812)
    opened.until("getComputedStyle(document.querySelector('#answer td')).display === 'flex'")
    assert opened.ask("getComputedStyle(document.querySelector('#answer td'), '::before').content") == '"scheme"'
    wide = "[...document.querySelectorAll('.scrolling')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    assert opened.ask(wide) == 0
    # To a screen reader it is a table still.
    for tag, role in (("table", "table"), ("tr", "row"), ("td", "cell"), ("th", "columnheader")):
        assert opened.ask(f"document.querySelector('#answer {tag}').getAttribute('role')") == role
    shown = "[...document.querySelectorAll('#drift tbody tr')].filter((row) => row.offsetHeight).length"
    assert opened.ask(shown) == 6
    opened.ask("document.querySelector('#drift button.all').click()")
    assert opened.ask(shown) == 20
    assert opened.ask("document.querySelector('#every-run td.more').offsetHeight") == 0
    runs = shown.replace("#drift", "#every-run")
    assert opened.ask(runs) == 6
    found = "(i => { i.value = 'seed4'; i.dispatchEvent(new Event('input')); })(document.querySelector('#search'))"
    opened.ask(found)
    assert opened.ask(runs) == 4


def test_the_tab_key_visits_every_control_and_each_shows_that_it_has_the_focus(opened: Browser) -> None:
    count = opened.ask(
        f'[...document.querySelectorAll("{CONTROLS}")].filter((e) => e.checkVisibility() && e.tabIndex >= 0 && '
        "!(e.type === 'radio' && !e.checked)).length"
    )
    assert count > 60
    visited: list[str] = []
    opened.ask("document.activeElement.blur(), scrollTo(0, 0)")
    for number in range(count):
        opened.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        opened.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        visit, outlined, in_sight, name = opened.ask(VISITED.replace("NUMBER", str(number)))
        assert outlined, f"no outline: {name}"
        assert in_sight, f"out of sight: {name}"
        visited.append(visit)
    assert len(set(visited)) == count


def test_a_text_is_read_token_by_token_with_arrow_keys(opened: Browser) -> None:
    opened.ask("document.querySelector('#text .text').focus()")
    live = "document.querySelector('#text .unseen').textContent"
    opened.press("Home", 36)
    assert opened.ask(live).endswith(": the first token")
    opened.press("ArrowRight", 39)
    assert re.fullmatch(r"“.”: [0-9.]+ bits", opened.ask(live))
    # The same token is marked in the run beside it, with what that run thought.
    assert opened.ask("[...document.querySelectorAll('#text .at')].map((span) => span.dataset.at)") == ["1", "1"]
    facts = opened.ask("[...document.querySelectorAll('#text .thought')].map((each) => each.innerText)")
    assert all("bits" in words and "expected:" in words for words in facts)
    opened.press("ArrowDown", 40)
    below = opened.ask("Number(document.querySelector('#text .at').dataset.at)")
    assert below > 10
    opened.press("ArrowUp", 38)
    assert opened.ask("Number(document.querySelector('#text .at').dataset.at)") < below
    opened.press("End", 35)
    assert opened.ask("document.querySelector('#text .at').dataset.at") == "999"


def test_another_run_is_chosen_by_a_select(opened: Browser) -> None:
    heads = "[...document.querySelectorAll('#text .column h3')].map((head) => head.textContent)"
    assert opened.ask(heads) == ["scheme 1, k1 5, seed 0", "scheme 4, k1 10, seed 4"]
    opened.ask("document.querySelectorAll('#text select')[1].focus()")
    opened.press("ArrowUp", 38)
    opened.until(f"{heads}[1] === 'scheme 4, k1 10, seed 3'")
    opened.press("Home", 36)
    opened.until(f"{heads}.length === 1")


def test_a_unit_is_chosen_by_keys_and_colours_the_text(opened: Browser) -> None:
    classes = "[...document.querySelectorAll('#units .text span')].map((span) => span.className).join()"
    before = opened.ask(classes)
    assert re.search("p[1-4]|n[1-4]", before)
    opened.ask("document.querySelector('#units input').focus()")
    opened.press("ArrowDown", 40)
    opened.until("document.querySelectorAll('#units input')[1].checked")
    assert opened.ask(classes) != before
    name = opened.ask("document.querySelectorAll('#units .unit .name')[1].textContent")
    assert opened.ask("document.querySelector('#units .column .about b').parentElement.textContent").startswith(name)


def test_points_of_drift_are_read_by_keys(opened: Browser) -> None:
    opened.ask("document.querySelector('#drift .chart').focus()")
    opened.press("Home", 36)
    spoken = "document.querySelector('#drift .unseen').textContent"
    assert ": 1 token since the reset, " in opened.ask(spoken)
    opened.press("End", 35)
    assert ": 81 to 100 tokens since the reset, " in opened.ask(spoken)
    assert "above windowed" in opened.ask("document.querySelector('#drift .card').innerText")


def test_nothing_moves_for_readers_who_asked_for_that(opened: Browser) -> None:
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    opened.ask("document.documentElement.style.scrollBehavior = ''")
    assert opened.ask("getComputedStyle(document.documentElement).scrollBehavior") == "smooth"
    opened.call("Emulation.setEmulatedMedia", media="screen", features=features)
    assert opened.ask("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert opened.ask("document.getAnimations().length") == 0
