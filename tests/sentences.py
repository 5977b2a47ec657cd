"""A page's prose as sentences, and which numbers stand in them: digits, and words from two to twelve."""

from __future__ import annotations

import re

BLOCK = re.compile(r"<!-- unroll: [a-z-]+ -->\n.*?<!-- end -->\n?", re.DOTALL)
ITEM = re.compile(r"\n(?=- |#+ |> |\| )|\n\s*\n")
END = re.compile(r"(?<=[.!?:])(?:\*\*|\))?\s+(?=[(*`“]*[A-ZΑ-Ω(*“`0-9])")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBER = re.compile(rf"−?\d[\d,.]*\d|\d|\b(?:none|half|{'|'.join(WORDS[2:])})\b", re.IGNORECASE)
# What is called by a number, and measures nothing: settings, the paper's schemes, claims, files, links.
NAMES = re.compile(
    r"\b(?:k[123]|γ|r)(?: = \d+(?: and \d+)?)?\b|\bschemes? \d(?:(?:, \d)* (?:and|to) \d)?|\bC\d+(?: to C\d+)?\b"
    r"|\bH200\b|\bb?float\d+\b|\bTF32\b"
    r"|`[^`]*`|\]\([^)]*\)|Algorithm 3|\bhalf closed\b|\b222 (?:models|trainings)\b",
    re.IGNORECASE,
)


def sentences(page: str) -> list[str]:
    """The sentences outside of marked blocks, without what the line's shape adds; each cell of a table is one."""
    found = []
    for item in ITEM.split(BLOCK.sub("\n\n", page)):
        text = " ".join(item.split())
        cells = [cell.strip() for cell in text.strip("|").split("|")] if text.startswith("|") else [text]
        for cell in cells:
            found += [sentence.strip() for sentence in END.split(cell) if sentence.strip()]
    return found


def numbers(sentence: str) -> list[str]:
    """The numbers of a sentence that are not part of a name."""
    return NUMBER.findall(NAMES.sub(" ", sentence))


def other_number(stated: str) -> str:
    """Another number: one digit changed, or another word."""
    return stated[:-1] + str((int(stated[-1]) + 1) % 10) if stated[-1].isdigit() else WORDS[-1]


def faults(text: str, known: dict[str, list[str]]) -> list[str]:
    """What is wrong with a page: sentences whose numbers nobody knows, or that are others."""
    found: list[str] = []
    used: dict[str, str] = {}
    for sentence in sentences(text):
        stated = numbers(sentence)
        if not stated:
            continue
        keys = [beginning for beginning in known if sentence.startswith(beginning)]
        if len(keys) != 1:
            found.append(f"{len(keys)} entries for: {sentence}")
        else:
            used[keys[0]] = sentence
            if [number.lower() for number in stated] != [str(each).lower() for each in known[keys[0]]]:
                found.append(f"{stated} where the records give {list(map(str, known[keys[0]]))}: {sentence}")
    return found + [f"no sentence for: {key}" for key, values in known.items() if key not in used and values]
