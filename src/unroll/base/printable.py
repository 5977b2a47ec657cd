"""Makes text safe to show: nothing in it can drive a terminal, hide in a page or turn its reading direction.

Characters that cannot be seen are spelt out: a control character as its picture (␛), a byte that is no text as ⟨FF⟩,
any other (bidi marks, zero-width spaces, line separators) by its number, as in ⟨202E⟩. Joiners and variation selectors
are left out instead. Ordinary Persian, Hindi and emoji are full of them: spelt out they would make that text
unreadable, and terminals disagree about their width. Letters of all scripts, their combining marks, and spaces of every
width stay.
"""

from __future__ import annotations

import unicodedata

# Joiners and selectors only shape their neighbours.
_JOINERS = frozenset(
    map(chr, (0x034F, *range(0x180B, 0x180E), 0x180F, 0x200C, 0x200D, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
# Letters and marks by their category, but invisible.
_BLANKS = frozenset(map(chr, (0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0)))


def printable(text: str) -> str:
    """Text of several lines that a terminal may show; line ends and tabs stay.

    >>> printable("a\\x1b[2J\\tb\\n\\u202ec\\u200d")
    'a␛[2J\\tb\\n⟨202E⟩c'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def one_line(text: str) -> str:
    """The same on one line, so that no line end inside it can fake a line of our output.

    >>> one_line("name\\nunroll: all is well")
    'name↵unroll: all is well'
    """
    return printable(text).replace("\n", "↵")


def pictured(text: str) -> str:
    """Text with every character visible; a line end and a tab are marked, and still end the line and indent.

    >>> pictured("a\\x1b[2J")
    'a␛[2J'
    """
    return "".join(map(_picture, text))


def quoted(text: str) -> str:
    """A Python literal with every character visible.

    >>> print(quoted("a\\x1b\\ufe0f"))
    'a\\x1b\\ufe0f'
    """
    hidden = (c for c in set(text) if c in _JOINERS or c in _BLANKS)
    spelt = {ord(c): c.encode("unicode_escape").decode("ascii") for c in hidden}
    return repr(text).translate(spelt)


def _shown(character: str) -> str:
    if character in "\n\t":
        return character
    if character in _JOINERS:
        return ""
    if character in _BLANKS:
        return _number(character)
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return _spelt(character)


def _picture(character: str) -> str:
    if character in "\n\t":
        return {"\n": "↵\n", "\t": "⇥\t"}[character]
    if character in _JOINERS or character in _BLANKS:
        return _number(character)
    if not character.isprintable():
        return _spelt(character)
    # A combining mark would sit on the text around a token.
    return f"◌{character}" if unicodedata.combining(character) else character


def _spelt(character: str) -> str:
    """Spell an invisible character out."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8, as Python hands it on
        return f"⟨{code - 0xDC00:02X}⟩"
    return _number(character)


def _number(character: str) -> str:
    return f"⟨{ord(character):04X}⟩"
