"""What `unroll compare` found: its sentences, the command that follows from them, and its tables."""

from __future__ import annotations

import shlex

from unroll.report import blocks
from unroll.report.blocks import Block
from unroll.report.gathering import Gathered
from unroll.report.sections import Part
from unroll.sweep.comparison.shown import Comparison
from unroll.sweep.comparison.tables import tables


def section(gathered: Gathered) -> list[Part]:
    """A part for each comparison."""
    parts = []
    for place, (name, comparison) in enumerate(gathered.comparisons):
        number = f"-{place + 1}" if place else ""
        title = f"Which scheme for {comparison.facts['corpus']}? ({name})"
        parts.append(Part(f"comparison{number}", f"comparison{number}", title, "", _blocks(comparison), leads=True))
    return parts


def _blocks(comparison: Comparison) -> list[Block]:
    facts = comparison.facts
    every = [blocks.lead(" ".join(str(sentence) for sentence in comparison.sentences))]
    every.append(blocks.words(f"The command: {shlex.join(facts['command'])}"))
    every += [blocks.notice(str(note)) for note in comparison.notes]
    for table in tables(facts):
        every += [blocks.heading(table.title), blocks.table(table.title, table.columns, table.rows)]
    return [*every, blocks.folded("How this is computed", str(facts["method"]))]
