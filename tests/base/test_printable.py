"""What is printable: any text of any language can be read, and nothing in it can do more than be read."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unroll.base.printable import one_line, pictured, printable, quoted

# All planes that hold characters, and the ends of those that hold none.
EVERYTHING = "".join(
    map(chr, (*range(0x34000), *range(0xE0000, 0xE1100), *range(sys.maxunicode - 999, sys.maxunicode + 1)))
)
# Unicode's Default_Ignorable_Code_Point: what is to be shown as nothing. (DerivedCoreProperties.txt)
IGNORABLE = {
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0),
    *range(0x180B, 0x1810),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFE00, 0xFE10),
    *range(0xFFF0, 0xFFF9),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE1000),
}
OTHERS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # controls, formats, surrogates, and what no font has


def test_no_character_there_is_can_drive_a_terminal_or_hide() -> None:
    for shown, kept in ((printable(EVERYTHING), "\n\t"), (one_line(EVERYTHING), "\t"), (pictured(EVERYTHING), "\n\t")):
        rest = set(shown) - set(kept)
        assert {c for c in rest if unicodedata.category(c) in OTHERS} == set()
        assert {c for c in rest if ord(c) in IGNORABLE} == set()
        assert shown.isprintable() or all(unicodedata.category(c) == "Zs" for c in rest if not c.isprintable())
        shown.encode("utf-8")


@pytest.mark.parametrize(
    "text",
    [
        "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
        "« Voix ambiguë d’un cœur » : l’espace insécable\u00a0reste",
        "Съешь ещё этих мягких французских булок, да выпей чаю",
        "כל אדם נולד בן חורין",
        "خواهید بود",
        "हिन्दी में लिखा हुआ",
        "ภาษาไทยไม่มีช่องว่าง",
        "中文　日本語　한국어",
        "a\u0301 e\u0308\u0323 n\u0303",
        "🎈🧑🏽 ♪ ∮ E⋅da = Q",
        "line\n\tand line",
    ],
)
def test_text_of_any_language_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_joiners_are_left_out_and_what_they_joined_stays() -> None:
    assert printable("می\u200cخواهم") == "میخواهم"
    assert printable("👩\u200d👧 ❤\ufe0f") == "👩👧 ❤"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("\x9b31m", "⟨009B⟩31m"),
        ("a\r\nb", "a␍\nb"),
        ("\x00\x7f", "␀␡"),
        ("\u202eevil\u202c", "⟨202E⟩evil⟨202C⟩"),
        ("\udcff\udc80", "⟨FF⟩⟨80⟩"),
        ("\ud800", "⟨D800⟩"),
        ("a\u2028b\u2029c\x85d", "a⟨2028⟩b⟨2029⟩c⟨0085⟩d"),
        ("\U000e0041", "⟨E0041⟩"),
    ],
)
def test_what_cannot_be_seen_is_spelt_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_what_was_made_printable_is_printable(text: str) -> None:
    for make in (printable, one_line):
        assert make(make(text)) == make(text)
    assert printable(pictured(text)) == pictured(text)
    assert "\n" not in one_line(text)


@given(st.text())
def test_a_quoted_text_is_the_text_and_can_be_seen(text: str) -> None:
    import ast

    assert ast.literal_eval(quoted(text)) == text
    assert printable(quoted(text)) == quoted(text)
