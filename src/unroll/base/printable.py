"""Text made fit to be shown: nothing in it can drive a terminal, hide in a page or turn its reading direction.

What has no look of its own is spelt out: a control character as its picture (␛), a byte that is no text as ⟨FF⟩,
anything else that cannot be seen (bidi marks, zero-width spaces, separators of lines) by its number, as in ⟨202E⟩.
Joiners and variation selectors, of which ordinary Persian, Hindi and emoji are full, are left out instead: spelt out
they would make that text unreadable, and terminals disagree about the room that they take. Letters of all scripts,
their combining marks, and spaces of every width stay as they are.
"""

from __future__ import annotations

import unicodedata

# They only shape what stands beside them.
_JOINERS = frozenset(
    map(chr, (0x034F, *range(0x180B, 0x180E), 0x180F, 0x200C, 0x200D, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
# Letters and marks by their category, and yet nothing is to be seen of them.
_BLANKS = frozenset(map(chr, (0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0)))


def printable(text: str) -> str:
    """Text of several lines, as a terminal may show it; line ends and tabs stay.

    >>> printable("a\\x1b[2J\\tb\\n\\u202ec\\u200d")
    'a␛[2J\\tb\\n⟨202E⟩c'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def one_line(text: str) -> str:
    """The same on one line: a line end within it begins no line that would look like one of ours.

    >>> one_line("name\\nunroll: all is well")
    'name↵unroll: all is well'
    """
    return printable(text).replace("\n", "↵")


def pictured(text: str) -> str:
    """Every character as something to see; a line end and a tab are marked, and still end the line and indent.

    >>> pictured("a\\x1b[2J")
    'a␛[2J'
    """
    return "".join(map(_picture, text))


def quoted(text: str) -> str:
    """A Python literal in which every character can be seen.

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
    # What sits on the character before it would sit on what surrounds a token.
    return f"◌{character}" if unicodedata.combining(character) else character


def _spelt(character: str) -> str:
    """What cannot be seen, as something that can."""
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
