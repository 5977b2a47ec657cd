"""Text made fit to be shown: nothing in it can drive a terminal, hide in a page or turn its reading direction."""

from __future__ import annotations

import unicodedata


def pictured(text: str) -> str:
    """Every character as something to see; a line end and a tab are marked, and still end the line and indent.

    >>> pictured("a\\x1b[2J")
    'a␛[2J'
    """
    return "".join(map(_picture, text))


def _picture(character: str) -> str:
    if character in "\n\t":
        return {"\n": "↵\n", "\t": "⇥\t"}[character]
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return chr(0x2421 if code == 0x7F else 0x2400 + code)
    if not character.isprintable():
        return f"⟨{code:04X}⟩"
    # What sits on the character before it would sit on what surrounds a token.
    return f"◌{character}" if unicodedata.combining(character) else character
