"""Where things lie, wherever a test stands."""

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]  # what people read
