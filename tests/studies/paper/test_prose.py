"""Each number of docs/paper.md is drawn from the records, or computed anew here from the records."""

from __future__ import annotations

import re

import pytest
from paths import ROOT
from prose_numbers import Facts, of_sentences
from sentences import NUMBER, faults, numbers, other_number, sentences

from unroll.studies.paper import page
from unroll.studies.paper.records import read

PAGE, PAPER = ROOT / "docs" / "paper.md", ROOT / "results" / "paper"


@pytest.fixture(scope="module")
def known() -> dict[str, list[str]]:
    return of_sentences(Facts.of_the_repository())


def test_every_number_of_the_prose_is_what_the_records_give(known: dict[str, list[str]]) -> None:
    assert faults(PAGE.read_text("utf-8"), known) == []


def test_a_number_changed_by_hand_is_found_wherever_it_stands(known: dict[str, list[str]]) -> None:
    """Each number of each sentence is changed in turn: one digit of it, or the word."""
    text = PAGE.read_text("utf-8")
    changed = 0
    for sentence in filter(numbers, sentences(text)):
        for number in NUMBER.finditer(sentence):
            other = other_number(number[0])
            broken = sentence[: number.start()] + other + sentence[number.end() :]
            if numbers(broken) == numbers(sentence) or number[0].lower() == other:
                continue  # it was part of a name: a setting, a claim, a file
            beginnings = [each for each in known if sentence.startswith(each)]
            assert faults(broken, {each: known[each] for each in beginnings}), broken
            changed += 1
    assert changed > 200


def test_a_new_sentence_with_a_number_must_have_its_record(known: dict[str, list[str]]) -> None:
    text = PAGE.read_text("utf-8").replace(
        "## The figures\n", "## The figures\n\nIt is 12 % better, in three of four.\n"
    )
    (fault,) = faults(text, known)
    assert fault == "0 entries for: It is 12 % better, in three of four."


def test_a_sentence_that_is_gone_leaves_no_entry_behind(known: dict[str, list[str]]) -> None:
    assert faults("", known)


def test_marked_blocks_are_all_drawn_by_the_page(known: dict[str, list[str]]) -> None:
    """A block is not read as prose, so nothing written by hand may hide in one."""
    names = re.findall(r"<!-- unroll: ([a-z-]+) -->", PAGE.read_text("utf-8"))
    assert len(names) == len(set(names))
    assert set(names) == set(page.blocks(read(PAPER), (), ()))


def test_numbers_are_told_from_names() -> None:
    text = "Scheme 4 with k1 = 80 and 100 ends at −64, seven of C13's on the H200 (`x-2`) [a](b-3)."
    assert numbers(text) == ["−64", "seven"]
    cells_and_items = "| a | 1 in 2 |\n\n- One. Two of 3.\n  More."
    assert sentences(cells_and_items) == ["a", "1 in 2", "- One.", "Two of 3.", "More."]
