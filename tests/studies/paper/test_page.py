"""docs/paper.md: what is measured is renewed, what is written by hand stays."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import PAPER, records
from paths import ROOT

from unroll.base.errors import InputError
from unroll.studies.paper import literature, page
from unroll.studies.paper.claims import judge
from unroll.studies.paper.figures import FIGURES
from unroll.studies.paper.literature import LITERATURE
from unroll.studies.paper.pictures import LOOKS
from unroll.studies.paper.records import read, write

DOCS, RECORDS = ROOT / "docs", ROOT / "results" / "paper"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the records: what needs the others is not judged."""
    folder = tmp_path_factory.mktemp("results")
    for record in records(figures=["k2", "timing"]).values():
        write(folder, record)
    return folder


def test_a_page_written_twice_is_the_same_and_prose_around_the_blocks_stays(measured: Path, tmp_path: Path) -> None:
    first = {path: path.read_bytes() for path in page.write_docs(measured, tmp_path)}
    again = {path: path.read_bytes() for path in page.write_docs(measured, tmp_path)}
    assert first == again
    assert {path.name for path in first} == {"paper.md", "k2.png"}
    text = (tmp_path / "paper.md").read_text("utf-8")
    (tmp_path / "paper.md").write_text(text.replace("## The figures", "Written by hand.\n\n## The figures"), "utf-8")
    page.write_docs(measured, tmp_path)
    assert (tmp_path / "paper.md").read_text("utf-8").count("Written by hand.") == 1


def test_every_claim_stands_on_the_page_with_its_verdict_and_every_picture_has_its_place() -> None:
    made = records(replace(PAPER, seed_noise=1e-4), seeds=(0, 1, 2))
    drawn = [Path(f"{name}.png") for name in LOOKS]
    text = page.fill(page.START, page.blocks(made, judge(made), drawn))
    for n in range(1, 18):
        assert f"### C{n}\n" in text
        assert re.search(rf"\| \[C{n}\]\(#c{n}\) \| .* \| ✔ holds \| [✔ ]+ \|", text)
    assert re.findall(r"\]\(paper/([a-z0-9-]+)\.png\)", text) == list(LOOKS)
    assert "finnish (reconstruction)" in text
    assert "linux (reconstruction)" not in text


def test_what_was_not_measured_is_said_and_not_drawn(measured: Path, tmp_path: Path) -> None:
    page.write_docs(measured, tmp_path)
    text = (tmp_path / "paper.md").read_text("utf-8")
    assert "There is no record of schemes." in text
    assert re.findall(r"\]\((paper/[a-z0-9-]+\.png)\)", text) == ["paper/k2.png"]
    assert (tmp_path / "paper" / "k2.png").exists()


def test_a_block_that_nothing_is_known_of_is_left_and_no_marker_is_added() -> None:
    text = "a\n<!-- unroll: mine -->\nkept\n<!-- end -->\nb\n<!-- unroll: known -->\nold\n<!-- end -->\n"
    filled = page.fill(text, {"known": r"new \1 text", "absent": "never"})
    assert filled == text.replace("old", r"new \1 text")


def test_the_timing_table_stands_beside_the_papers() -> None:
    table = page.timing_table(records(figures=["timing"])["timing"])
    assert "| scheme 2, paper | 46.5 / 7.0 | 114.6 / 21.7 | 93.1 / 13.7 | 245.8 / 43.3 |" in table
    assert "| scheme 4, here | 60.6 / 0.7 |" in table
    assert "| windowed token, rolling | 1.4 |" in table


def test_a_missing_cell_of_the_table_is_a_dash() -> None:
    timing = records(figures=["timing"])["timing"]
    without_scheme_3 = replace(timing, times=tuple(t for t in timing.times if t.scheme != 3))
    assert "| scheme 3, here | – | – | – | – |" in page.timing_table(without_scheme_3)
    assert page.timing_table(replace(timing, times=())) == "Not measured."


def test_gpu_time_counts_each_training_once() -> None:
    made = records(figures=["schemes", "datasets", "extras"], seeds=(0, 1))
    count, training, scoring = page.cost(made, base=True)
    # Schemes 1 and 3 share a training; `datasets` shows those of `schemes` again.
    assert count == 3 * 4 * 5
    once = {c.identity: c.points["seconds"][-1] for c in made["schemes"].curves if c.seed == 0}
    assert training == pytest.approx(sum(once.values()))
    assert scoring == pytest.approx(count / 20)
    assert page.cost(made)[0] > 2 * count


def test_no_records_is_an_error_that_says_where_they_come_from(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unroll reproduce"):
        page.write_docs(tmp_path, tmp_path / "docs")


def test_the_papers_literature_has_22_works_and_its_counts() -> None:
    assert len(LITERATURE) == 22
    assert Counter(work.source for work in LITERATURE) == {
        "paper": 5,  # "only 5 out of the 22 investigated papers explicitly mention training details"
        "source code": 6,
        "author communication": 9,
        "": 2,
    }
    assert Counter(work.schemes for work in LITERATURE) == {(3,): 7, (4,): 11, (2,): 1, (2, 4): 1, (): 2}
    assert all((work.scheme == "Unknown") == (work.source == "") for work in LITERATURE)
    assert sum(work.level == "characters" for work in LITERATURE) == 7
    assert sum(work.level == "words" for work in LITERATURE) == 10


def test_the_table_in_the_documentation_is_the_data() -> None:
    text = (DOCS / "schemes.md").read_text("utf-8")
    assert literature.markdown() in text
    assert page.fill(text, {"literature": literature.markdown()}) == text


def test_the_page_and_the_pictures_in_the_repository_are_what_its_records_give(tmp_path: Path) -> None:
    (tmp_path / "paper.md").write_bytes((DOCS / "paper.md").read_bytes())
    written = page.write_docs(RECORDS, tmp_path)
    assert {path.name for path in (DOCS / "paper").iterdir()} == {path.name for path in written} - {"paper.md"}
    for path in written:
        assert path.read_bytes() == (DOCS / path.relative_to(tmp_path)).read_bytes(), f"{path.name} is out of date"


def test_nothing_of_the_paper_is_missing_in_the_records() -> None:
    measured = read(RECORDS)
    for name, record in measured.items():
        assert {(c.series, c.seed) for c in record.curves} == {(one, n) for one in FIGURES[name] for n in record.seeds}
    assert list(measured) == list(FIGURES)
    assert all(len(measured[name].seeds) >= 3 for name in ("schemes", "k2"))
    assert not [v.claim for v in judge(measured) if v.verdict == "not judged"]
