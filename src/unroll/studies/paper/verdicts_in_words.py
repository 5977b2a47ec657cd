"""Verdicts as Markdown: how many of each, the table of claims, what intervals changed, and the evidence for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from unroll.studies.paper.claims.verdict import (
    FAILS,
    HOLDS,
    IN_PART,
    NOT_JUDGED,
    OPEN,
    VERDICTS,
    Part,
    Verdict,
)

MARK = {HOLDS: "✔", IN_PART: "◐", FAILS: "✘", OPEN: "≈", NOT_JUDGED: "–"}
MARK_OF_PART = {True: "✔", False: "✘", None: "≈"}
OF_PARTS = {True: "hold", False: "do not hold", None: "cannot be told"}
DECIDED = (HOLDS, IN_PART, FAILS)
CHANGES = ("", "by the numbers alone", "with intervals", "parts that cannot be told, marked as by the numbers alone")

Lines = tuple[tuple[str, ...], list[list[str]]]  # columns and rows


def counted(verdicts: Iterable[Verdict]) -> str:
    """How many verdicts and parts of each kind."""
    verdicts = tuple(verdicts)
    counts = {name: sum(v.verdict == name for v in verdicts) for name in VERDICTS}
    of_claims = ", ".join(f"{name}: {count}" for name, count in counts.items() if count)
    parts = Counter(part.held for v in verdicts for part in v.parts)
    of_parts = ", ".join(f"{name}: {parts[held]}" for held, name in OF_PARTS.items() if parts[held])
    more = f" Of their {parts.total()} parts: {of_parts}." if parts else ""
    return f"The {len(verdicts)} claims: **{of_claims}**.{more}"


def claims(verdicts: Iterable[Verdict]) -> Lines:
    """Each claim with its verdict and a mark for each part."""
    rows = [[_linked(v), v.words, _named(v), _marks(v)] for v in verdicts]
    return ("", "the paper says", "here", "its parts"), rows


def changes(verdicts: Iterable[Verdict]) -> Lines:
    """What intervals over seeds changed: the verdicts by the numbers alone, and with the intervals."""
    rows = []
    for v in verdicts:
        tied = [part for part in v.parts if part.held is None]
        if tied:
            alone = f"{MARK[v.verdict_alone]} {v.verdict_alone}"
            now = _named(v) if v.verdict != v.verdict_alone else "the same"
            rows.append([_linked(v), alone, now, "; ".join(f"{MARK_OF_PART[p.held_alone]} {p.says}" for p in tied)])
    return CHANGES, rows


def _linked(verdict: Verdict) -> str:
    return f"[{verdict.claim}](#{verdict.claim.lower()})"


def _named(verdict: Verdict) -> str:
    left = verdict.possible
    choice = f": {' or '.join(left)}" if 1 < len(left) < len(DECIDED) else ""
    return f"{MARK[verdict.verdict]} {verdict.verdict}{choice}"


def _marks(verdict: Verdict) -> str:
    return " ".join(MARK_OF_PART[part.held] for part in verdict.parts) or "–"


def evidence(verdict: Verdict, table: Callable[[Verdict], str]) -> str:
    """A claim's parts with their numbers and intervals, and the table behind them."""
    head = f"### {verdict.claim}\n\n> {verdict.words}\n\n**{verdict.verdict.capitalize()}.**"
    if verdict.verdict == NOT_JUDGED:
        return f"{head} {verdict.measured}"
    parts = "\n".join(f"- {MARK_OF_PART[part.held]} {_in_full(part)}".strip() for part in verdict.parts)
    notes = verdict.measured[len("; ".join(part.measured for part in verdict.parts)) + 1 :].strip()
    figures = ", ".join(verdict.figures)
    return "\n\n".join(piece for piece in (head, parts, notes, table(verdict), f"Records: {figures}.") if piece)


def _in_full(part: Part) -> str:
    return f"*{part.says}*: {part.measured} (asked: {part.threshold}). {part.intervals}"
