"""The section of a page for what `unroll compare` found."""

from __future__ import annotations

import shlex
from typing import Any

from unroll.sweep.comparison.shown import Comparison
from unroll.sweep.comparison.tables import tables


def section(name: str, comparison: Comparison, number: int) -> dict[str, Any]:
    """Sentences, tables and notes, in the form of a page's other findings."""
    facts = comparison.facts
    about = [*comparison.sentences, f"The command: {shlex.join(facts['command'])}", *comparison.notes, facts["method"]]
    return {
        "id": f"comparison-{number}" if number else "comparison",
        "title": f"Which scheme for {facts['corpus']}? ({name})",
        "about": "\n".join(str(words) for words in about),
        "tables": [
            {"title": table.title, "columns": list(table.columns), "rows": [list(row) for row in table.rows]}
            for table in tables(facts)
        ],
    }
