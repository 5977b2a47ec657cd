"""Each number of docs/beyond.md's prose is what the records give."""

from __future__ import annotations

import pytest
from beyond_numbers import of_sentences
from beyond_study import RANDOM, SELDOM, TEXTS, Study, share
from paths import ROOT
from sentences import NUMBER, faults, numbers, other_number, sentences

from unroll.studies.beyond.parts import LEARNED, NARROWEST

CODE = "```"


@pytest.fixture(scope="module")
def known() -> dict[str, list[str]]:
    return of_sentences(Study())


@pytest.fixture(scope="module")
def prose() -> str:
    """The page without its example of a command."""
    before, _, after = (ROOT / "docs" / "beyond.md").read_text("utf-8").split(CODE)
    return f"{before}{after}"


def test_every_number_of_the_prose_is_what_the_records_give(prose: str, known: dict[str, list[str]]) -> None:
    assert faults(prose, known) == []


def test_a_number_changed_by_hand_is_found_wherever_it_stands(prose: str, known: dict[str, list[str]]) -> None:
    changed = 0
    for sentence in filter(numbers, sentences(prose)):
        for number in NUMBER.finditer(sentence):
            broken = sentence[: number.start()] + other_number(number[0]) + sentence[number.end() :]
            if numbers(broken) != numbers(sentence):
                beginnings = [each for each in known if sentence.startswith(each)]
                assert faults(broken, {each: known[each] for each in beginnings}), broken
                changed += 1
    assert changed > 100


def test_the_page_of_schemes_recommends_what_the_records_give() -> None:
    study, page = Study(), " ".join((ROOT / "docs" / "schemes.md").read_text("utf-8").split())
    assert f"cost up to {share(max(study.over(NARROWEST, c).ratio for c in TEXTS), 0)} % on text" in page
    assert "its two starts agree within 1 %, and it may be read windowed as well" in page
    assert max(study.excess(SELDOM)) < 1.01
    assert all(abs(ratio - 1) < 0.014 for name in RANDOM for ratio in study.read_on(name))
    assert study.end(SELDOM, "music") > study.end(LEARNED, "music"), "it overfits more than scheme 1"


def test_the_changelog_counts_the_trainings() -> None:
    count = sum(len(record.runs) for record in Study().measured.values())
    assert f"{count} trainings say what to take" in " ".join((ROOT / "CHANGELOG.md").read_text("utf-8").split())
