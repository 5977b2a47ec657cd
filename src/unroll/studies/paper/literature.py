"""The paper's table of literature: the schemes with which 22 works trained recurrent models, and how that is known."""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """A row of the table. `scheme` as the paper gives it: a number, two, or Unknown; (?) where it is unsure."""

    author: str
    year: int
    level: str
    scheme: str
    source: str  # of what is known; empty where there is none

    @property
    def schemes(self) -> tuple[int, ...]:
        """The schemes that it may be: none where unknown."""
        return tuple(int(letter) for letter in self.scheme if letter.isdigit())


CHARACTERS, WORDS, BOTH = "characters", "words", "words and characters"
ASKED, CODE, PAPER = "author communication", "source code", "paper"
LITERATURE = (
    Work("Graves", 2013, CHARACTERS, "3", ASKED),
    Work("Wu", 2016, CHARACTERS, "Unknown", ""),
    Work("Ha", 2016, CHARACTERS, "Unknown", ""),
    Work("Cooijmans", 2016, CHARACTERS, "3", ASKED),
    Work("Krause", 2016, CHARACTERS, "4", ASKED),
    Work("Chung", 2016, CHARACTERS, "4", PAPER),
    Work("Mujika", 2017, CHARACTERS, "4", PAPER),
    Work("Zilly", 2017, BOTH, "4", CODE),
    Work("Melis", 2017, BOTH, "4", PAPER),
    Work("Mikolov", 2012, WORDS, "3", CODE),
    Work("Zaremba", 2014, WORDS, "4", PAPER),
    Work("Kim", 2015, WORDS, "4", CODE),
    Work("Gal", 2016, WORDS, "3", CODE),
    Work("Merity", 2016, WORDS, "2/4 (?)", ASKED),
    Work("Bradbury", 2016, WORDS, "4 (?)", ASKED),
    Work("Zoph", 2016, WORDS, "4", ASKED),
    Work("Inan", 2016, WORDS, "4", CODE),
    Work("Merity", 2017, WORDS, "4", CODE),
    Work("Yang", 2017, WORDS, "3", ASKED),
    Work("Sturm", 2016, "music notes", "3", ASKED),
    Work("Saon", 2016, "phonemes", "3", ASKED),
    Work("De Boom", 2017, "playlist tracks", "2", PAPER),
)


def markdown() -> str:
    """The table that docs/schemes.md shows."""
    rows = [f"| {w.author}, {w.year} | {w.level} | {w.scheme} | {w.source} |" for w in LITERATURE]
    return "\n".join(["| work | model of | scheme | known from |", "|---|---|---|---|", *rows])
