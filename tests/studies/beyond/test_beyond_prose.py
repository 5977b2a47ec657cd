"""Each number of docs/beyond.md's prose is what the records give."""

from __future__ import annotations

import pytest
from beyond_numbers import Study, of_sentences
from paths import ROOT
from sentences import NUMBER, faults, numbers, other_number, sentences

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
