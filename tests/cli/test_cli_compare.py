"""`unroll compare` at a shell: what it prints, what --json and --quiet do, and what is refused, in one message."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from commands import unroll as command

TINY = [
    *["--k2", "6", "--hidden", "6", "--dense", "8", "--rows", "3"],
    *["--threads", "1", "--most", "4", "--seeds", "2", "--batches", "5"],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, and a comparison of it."""
    folder = tmp_path_factory.mktemp("compare")
    drawn = random.Random(0)
    (folder / "letters.txt").write_text("".join(drawn.choices("abcdefgh ", k=600)))
    return folder


def test_it_ends_with_tables_three_sentences_and_a_command(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    ended = command(
        "compare", "letters.txt", "--schemes", "1,4", "--train", "conditional,reset=0.1", "--k1", "3", *TINY
    )
    assert ended.code == 0, ended.err
    assert "conditional,reset=0.1" in ended.out
    assert "unroll train letters.txt " in ended.out
    assert "Take " in ended.out
    answer = json.loads((place / "compare" / "letters.txt" / "compare.json").read_text())
    assert len(answer["sentences"]) == 3
    printed = command(
        "compare", "letters.txt", "--schemes", "1,4", "--train", "conditional,reset=0.1", "--k1", "3", "--json", *TINY
    )
    assert json.loads(printed.out)["schemes"] == answer["schemes"]  # at once: nothing is trained again
    quiet = command(
        "compare", "letters.txt", "--schemes", "1,4", "--train", "conditional,reset=0.1", "--k1", "3", "--quiet", *TINY
    )
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    page = command("report", "compare/letters.txt", "--out", "page.html")
    assert page.code == 0, page.err
    assert "Which scheme for letters" in (place / "page.html").read_text()


def test_what_is_wrong_is_said_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    ended = command("compare", "letters.txt", "--schemes", "1,9,x", "--budget", "soon", "--k1", "a")
    assert ended.code == 2
    for words in ("must be 1, 2, 3 or 4. Got 9", "Got 'x'", "as in 90s", "Got 'a'"):
        assert words in ended.err
    assert "Traceback" not in ended.err
    both = command("compare", "letters.txt", "--budget", "1m", "--batches", "5", "--patience", "2")
    assert both.code == 2
    assert "drop one of the two" in both.err
    assert "--patience ends some runs before others" in both.err
    unpaired = command(
        "compare", "letters.txt", "--train", "multi-loss", "--sample", "windowed", "--sample", "windowed"
    )
    assert unpaired.code == 2
    assert "give each --train one" in unpaired.err
