"""The page as text: everything is in it, nothing can break out of it, and it is the same every time."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_cases import curve, data_of, parsed, records, verdicts, write_all

from unroll.report import from_folders, gather, page
from unroll.report.gathering import Gathered
from unroll.report.page import embedded
from unroll.studies.paper.figures import FIGURES, PAPER, drawn
from unroll.studies.paper.records import Record

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\"'`&quot;&amp;",
    "\u202eright to left\u2066",
    "\u2028\u2029\x00\x1b[31m",
    "\ud800 half a pair",
    "@DATA@ @SCRIPT@",
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The paper without extras: 260 curves."""
    return page(gather([write_all(tmp_path_factory.mktemp("paper"), records(extras=False))]), verdicts())


def test_the_page_draws_every_curve_of_every_figure_once(whole: str) -> None:
    data = data_of(whole)
    shown = []
    for name in (name for name in PAPER if name != "timing"):
        (figure,) = [each for each in data["figures"] if each["name"] == name]
        numbers = [number for panel in figure["panels"] for series in panel["series"] for number in series["curves"]]
        assert len(numbers) == len(set(numbers)) == len(FIGURES[name])
        shown += [(figure["x"], number) for number in numbers]
    assert len(set(shown)) == len(drawn()) == 260


def test_a_curve_keeps_its_points_and_its_provenance(tmp_path: Path) -> None:
    drawn = curve(FIGURES["schemes"][0])
    (shown,) = data_of(page(gather([write_all(tmp_path, [Record("schemes", 1.0, (0,), "0.2", (drawn,))])])))["curves"]
    for name in ("title", "sha256", "scheme", "layers", "hidden", "k1", "k2", "seed", "identity", "kernel", "fleet"):
        assert shown[name] == getattr(drawn, name)
    for name in ("loss", "windowed", "progressive", "seconds"):
        assert shown[name] == drawn.points[name]
    assert shown["name"] == "schemes"


def test_260_curves_take_less_than_a_megabyte(whole: str) -> None:
    assert len(whole.encode()) < 1_000_000


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = write_all(tmp_path, records(seeds=2))
    assert page(gather([folder]), verdicts()) == page(gather([folder]), verdicts())


def test_the_page_names_no_address_and_loads_nothing(whole: str) -> None:
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\((?!#)", whole.replace("url(#${inside})", ""))
    for tag, attributes in parsed(whole).found:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "audio", "video", "source", "form")
        assert not {"src", "srcset", "data", "action", "style"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
        assert (attributes.get("href") or "#").startswith("#")


def test_the_browser_may_run_this_script_alone(whole: str) -> None:
    elements = parsed(whole)
    (policy,) = [
        attributes["content"]
        for tag, attributes in elements.found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert "default-src 'none'" in policy
    for kind, text in (("script", elements.texts["script"][1]), ("style", elements.texts["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("word", HOSTILE)
def test_a_hostile_name_stays_text(tmp_path: Path, word: str) -> None:
    series = FIGURES["schemes"][0]
    hostile = replace(curve(series), title=word, reason=word, device=word, variant={word: word})
    judged = [verdicts()[0] | {"words": word, "measured": word}]
    gathered = Gathered({"schemes": Record("schemes", 1.0, (0,), word, (hostile,))}, ((word, hostile),), (word,))
    text = page(gathered, judged)
    elements = parsed(text)
    plain = parsed(page(Gathered({"schemes": Record("schemes", 1.0, (0,), "0.2", (curve(series),))})))
    assert [tag for tag, _ in elements.found] == [tag for tag, _ in plain.found]
    assert elements.texts["script"][1] == plain.texts["script"][1]
    shown = json.loads(elements.texts["script"][0])
    assert shown["curves"][0]["title"] == shown["verdicts"][0]["words"] == shown["notes"][-1] == word


@pytest.mark.parametrize("word", HOSTILE)
def test_embedded_data_is_ascii_without_markup_and_reads_back(word: str) -> None:
    text = embedded({word: [word, 1.5, None]})
    assert not set("<>&\n\u2028") & set(text)
    assert text.isascii()
    assert json.loads(text) == {word: [word, 1.5, None]}


def test_seeds_of_one_line_stand_together_and_unequal_runs_do_not(tmp_path: Path) -> None:
    first = FIGURES["schemes"][0]
    seeds = tuple(curve(first, seed) for seed in (2, 0, 1))
    again = replace(curve(first, 0), identity="another")
    for curves, expected in ((seeds, [3]), ((*seeds, again), [1, 1, 1, 1])):
        folder = tmp_path / str(len(curves))
        data = data_of(page(gather([write_all(folder, [Record("schemes", 1.0, (0, 1, 2), "0.2", curves)])])))
        (panel,) = data["figures"][0]["panels"]
        assert [len(series["curves"]) for series in panel["series"]] == expected


def test_the_extras_stand_beside_the_papers_own_setting(tmp_path: Path) -> None:
    data = data_of(page(gather([write_all(tmp_path, records())])))
    figures = {figure["name"]: figure for figure in data["figures"]}
    assert figures["extras-dropout"]["groups"] == ["as the paper", "dropout = 0.25"]
    assert figures["extras-start"]["groups"] == ["from the carried states", "from zeros"]
    never = ["reset = never", "reset = never, rotation = continue"]
    assert figures["extras-reset"]["groups"] == ["as the paper", "reset = 0.1", *never]
    used = {i for f in data["figures"] for p in f["panels"] for s in p["series"] for i in s["curves"]}
    assert used == set(range(len(data["curves"])))


def test_what_is_unstable_is_marked_at_the_start_and_after_it(tmp_path: Path) -> None:
    series = FIGURES["schemes"][0]
    drawn = curve(series)
    values = [90.0, 30.0, 60.0, *[20.0] * (len(drawn.points["batch"]) - 5), 15.0, 17.0]
    drawn = replace(drawn, points=drawn.points | {"windowed": values})
    (shown,) = data_of(page(gather([write_all(tmp_path, [Record("schemes", 1.0, (0,), "0.2", (drawn,))])])))["curves"]
    assert shown["unstable"] == [3, 12800]
    assert shown["unstable"] == drawn.unstable()


def test_a_small_scale_and_reconstructions_are_said(tmp_path: Path) -> None:
    notes = data_of(page(gather([write_all(tmp_path, records(scale=0.005, extras=False))])))["notes"]
    assert "scale 0.005" in notes[0]
    assert "english (reconstruction)" in notes[1]
    assert "linux" not in notes[1]


def test_curves_that_end_before_anything_is_judged_are_a_page_too(tmp_path: Path) -> None:
    """At this scale there are 64 batches."""
    made = []
    for record in records(scale=0.005):
        cut = [replace(c, points={k: v[:15] for k, v in c.points.items()}, batches=64) for c in record.curves]
        made.append(replace(record, curves=tuple(cut)))
    shown = data_of(from_folders([write_all(tmp_path, made)]))
    assert len(shown["curves"]) > 260
    assert shown["findings"] == []


def test_a_small_reproduction_says_the_units_that_were_trained(tmp_path: Path) -> None:
    small = data_of(page(gather([write_all(tmp_path, records(scale=0.005))])))
    assert {curve["hidden"] for curve in small["curves"]} == {8, 32}
    figures = {figure["name"]: figure for figure in small["figures"]}
    assert "One layer of 32 units" in figures["schemes"]["about"]
    assert figures["architectures-1"]["groups"] == ["r=1 γ=8", "r=1 γ=32", "r=2 γ=8", "r=2 γ=32"]
    assert "512 units" not in json.dumps(small["figures"])


def test_curves_that_cannot_differ_are_left_out_with_a_word(tmp_path: Path) -> None:
    made = []
    for record in records(scale=0.005):
        cut = [replace(curve, batches=64, epoch=70) for curve in record.curves]
        made.append(replace(record, curves=tuple(cut)))
    figures = {f["name"]: f for f in data_of(page(gather([write_all(tmp_path / "short", made)])))["figures"]}
    assert figures["extras-reset"]["groups"] == ["as the paper", "reset = 0.1"]
    assert "Left out, since no run here is longer than an epoch" in figures["extras-reset"]["about"]
    assert "reset = never; reset = never, rotation = continue." in figures["extras-reset"]["about"]
    long = [replace(r, curves=tuple(replace(c, epoch=63, batches=64) for c in r.curves)) for r in made]
    figures = {f["name"]: f for f in data_of(page(gather([write_all(tmp_path / "long", long)])))["figures"]}
    assert len(figures["extras-reset"]["groups"]) == 4
    assert "Left out" not in figures["extras-reset"]["about"]
