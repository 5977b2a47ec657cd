"""`unroll advise` at a shell: what it prints, what --json and --quiet do, and what is refused, in one message."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from commands import unroll as command

from unroll.sweep.paced.rounds import Rounds

TINY = [
    *["--k2", "6", "--hidden", "6", "--dense", "8", "--rows", "3", "--kernel", "stacked", "--learning-rate", "0.01"],
    *["--threads", "1", "--most", "1", "--batches", "30", "--budget", "60s"],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text."""
    folder = tmp_path_factory.mktemp("advise")
    drawn = random.Random(0)
    (folder / "letters.txt").write_text("".join(drawn.choices("abcdefgh ", k=600)))
    return folder


def test_it_ends_with_tables_five_sentences_and_a_command(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    lengths = [4, None, 5, None, 7, None]
    monkeypatch.setattr(Rounds, "next", lambda known, left: lengths.pop(0) if lengths else None)
    ended = command("advise", "letters.txt", *TINY)
    assert ended.code == 0, ended.err
    assert "Take " in ended.out
    assert "Expect a test perplexity of " in ended.out
    assert "What would change this" in ended.out
    assert "unroll train letters.txt " in ended.out
    stored = json.loads((place / "advice" / "letters.txt" / "advice.json").read_text())
    assert len(stored["answer"]["sentences"]) == 5
    printed = command("advise", "letters.txt", "--json", *TINY)  # at once: nothing is trained again
    assert json.loads(printed.out)["settings"] == stored["answer"]["settings"]
    quiet = command("advise", "letters.txt", "--quiet", *TINY)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    page = command("report", "advice/letters.txt", "--out", "page.html")
    assert page.code == 0, page.err
    standing = command("sweep", "--status", "advice/letters.txt/seeds")
    assert standing.code == 0, standing.err


def test_what_is_wrong_is_said_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    ended = command("advise", "letters.txt", "--budget", "5s", "--need", "beauty", "--patience", "2")
    assert ended.code == 2
    for words in ("beauty", "between 60 and", "--patience"):
        assert words in ended.err
    assert "Traceback" not in ended.err
    (place / "mine").mkdir(exist_ok=True)
    (place / "mine" / "letter.txt").write_text("mine")
    taken = command("advise", "letters.txt", "--out", "mine", *TINY)
    assert taken.code == 2
    assert "holds no advice" in taken.err
