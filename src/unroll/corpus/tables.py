"""Texts that look like tables: read character by character they give a model of commas, so that is said.

A look decides no more than a note, and what the files of a folder are called.
"""

from __future__ import annotations

import csv
import json
import re

ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".geojson", ".fasta", ".fa", ".fna", ".faa", ".xml", ".svg")
LINES = 50  # looked at
SEPARATORS = {",": "CSV", "\t": "TSV", ";": "CSV with semicolons", "|": "CSV with bars"}
_RESIDUES = re.compile(r"[A-Za-z*-]+")


def looks_like(first: bytes) -> tuple[str, str] | None:
    """The format that a text's first bytes look like, and what stands between its fields, "" where nothing does."""
    lines = [line for line in first.decode("latin-1").splitlines()[:-1][:LINES] if line.strip()]
    if _is_json_lines(lines):
        return "JSON Lines", ""
    if _is_fasta(lines):
        return "FASTA", ""
    return next(((name, separator) for separator, name in SEPARATORS.items() if _columns(lines, separator)), None)


def note(where: str, first: bytes, kind: str, separator: str | None) -> str | None:
    """What a person should know who reads a table as text."""
    looks = looks_like(first) if kind in ("chars", "words", "ids") and not separator else None
    if looks is None:
        return None
    name, between = looks
    shown = {"\t": "tab"}.get(between, f"'{between}'")
    if kind == "ids":
        return f"{where} looks like {name}, and its fields are cut at white space. Cut them with --separator {shown}."
    unit = "word by word" if kind == "words" else "character by character"
    advice = {
        "FASTA": "Write the sequences alone to a file if the headers and line ends are not meant.",
        "JSON Lines": "Write the text of one field to a file if names, quotes and braces are not meant.",
    }.get(name, f"For a token a field: --kind ids --separator {shown}; for one column, write it to a file first.")
    return f"{where} looks like {name}, and is read {unit}, marks and headers too. {advice}"


def _is_json_lines(lines: list[str]) -> bool:
    try:
        return len(lines) > 1 and all(line[:1] == "{" and isinstance(json.loads(line), dict) for line in lines[:5])
    except (ValueError, RecursionError):
        return False


def _is_fasta(lines: list[str]) -> bool:
    sequences = [line for line in lines if not line.startswith((">", ";"))]
    named = len(lines) > 1 and lines[0].startswith(">") and bool(sequences)
    return named and all(_RESIDUES.fullmatch(line.strip()) for line in sequences)


def _columns(lines: list[str], separator: str) -> bool:
    """Whether all lines have equally many fields."""
    if not lines or separator not in lines[0]:  # most files of a folder: cheap to know
        return False
    try:
        rows = list(csv.reader(lines, delimiter=separator))
    except csv.Error:  # a field beyond the module's limit, for one
        return False
    columns = len(rows[0])
    enough = 4 if columns > 2 else 10
    if columns == 2 and all(row[-1].startswith(" ") for row in rows):  # a sentence with a comma
        return False
    whole = all(len(row) == columns for row in rows) and len(rows) >= enough
    # Lines of a program end in semicolons.
    return columns > 1 and whole and (separator == "\t" or not all(row[-1] == "" for row in rows))
