"""`unroll score`: in a terminal, in a pipe, as a page and as JSON; and what it answers to what it cannot score."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch

import pytest
from commands import TINY, Result, tiny_run, unroll

import unroll as package
from unroll.base import atomic_files
from unroll.base.printable import pictured

HOSTILE = "<script>alert('x')</script> & \"q\" &lt; \x1b[2J\x07\x9b31m\u202e\u200b\x7f' onfocus=y\t\r\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("score"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose whole vocabulary means mischief, and the text that it is asked about."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "text.txt").write_text(HOSTILE, newline="")
    (folder / "corpus.txt").write_text(HOSTILE * 40, newline="")
    result = unroll("train", folder / "corpus.txt", "--batches", 2, "--out", folder / "run", *TINY)
    assert result.code == 0, result.err
    return folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("abcdefghhgfedcba" * 3)
    return tmp_path / "text.txt"


def piped(content: bytes, *arguments: object) -> Result:
    """The command with this on its standard input."""
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(content))):
        return unroll(*arguments)


def read_until_it_closes(terminal: int) -> Iterator[bytes]:
    with suppress(OSError):  # Linux says so when the other side has closed it
        while piece := os.read(terminal, 1 << 16):
            yield piece


def check_refused(result: Result, *words: str) -> None:
    assert result.code == 2, (result.code, result.err)
    assert result.out == ""
    assert "Traceback" not in result.err
    missing = [word for word in words if word not in result.err]
    assert not missing, f"{missing} not in {result.err!r}"


class Page(HTMLParser):
    """The elements and attributes of a page, its text and its labels."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.labels, self.text, self.open = set(), set(), [], "", []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.open.append(tag)
        self.labels += [value for name, value in attrs if name == "aria-label" and dict(attrs).get("role") == "note"]

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "span" in self.open and "td" not in self.open:
            self.text += data


def test_the_numbers_are_shown_in_words(run: Path, text: Path) -> None:
    lines = dict(line.split(maxsplit=1) for line in unroll("score", run, text).out.splitlines())
    total = package.surprisals(package.load(run), text.read_text()).total
    assert lines["text"].endswith("text.txt: 48 tokens (chars)")
    assert lines["procedure"] == "windowed"
    assert lines["log-probability"] == f"{total.log_probability:.4f} nats of 47 tokens after the first"
    assert float(lines["perplexity"]) == pytest.approx(total.perplexity, abs=1e-4)


def test_a_text_that_is_certain_has_no_negative_zeros(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("a" * 3000)
    run = tiny_run(tmp_path, batches=1)
    result = unroll("score", run, tmp_path / "corpus.txt")
    assert result.code == 0, result.err
    assert "bits per token    0.0000" in result.out
    assert "-0." not in result.out
    assert "-0." not in unroll("score", run, tmp_path / "corpus.txt", "--json").out.partition('"tokens"')[2]


@pytest.mark.parametrize("procedure", [None, "windowed", "progressive"])
def test_json_is_one_object_that_agrees_with_python(run: Path, text: Path, procedure: str | None) -> None:
    options = ["--sample", procedure] if procedure else []
    content = json.loads(unroll("score", run, text, "--json", "--tokens", *options).out)
    scored = package.surprisals(package.load(run), text.read_text(), sample=procedure)
    assert content["procedure"] == scored.procedure == (procedure or "windowed")
    assert content["logprobs"] == [token.logprob for token in scored.tokens]
    assert content["tokens"] == len(content["logprobs"]) == 47, "N − 1 for N tokens"
    for name in ("log_probability", "perplexity", "bits_per_token", "bits_per_byte"):
        assert content[name] == pytest.approx(getattr(scored.total, name), rel=1e-12)
    assert content["first"] + "".join(token["text"] for token in content["surprisals"]) == text.read_text()
    for facts, token in zip(content["surprisals"], scored.tokens, strict=True):
        assert (facts["bits"], facts["logprob"], facts["rank"]) == (token.bits, token.logprob, token.rank)
        assert facts["alternatives"] == [{"text": a.symbol, "probability": a.probability} for a in token.alternatives]
        assert len(facts["alternatives"]) == 5


def test_json_without_tokens_is_the_same_but_shorter_and_goes_to_a_file_too(run: Path, text: Path) -> None:
    short = json.loads(unroll("score", run, text, "--json").out)
    long = json.loads(unroll("score", run, text, "--json", "--tokens").out)
    assert short == {name: value for name, value in long.items() if name != "surprisals"}
    result = unroll("score", run, text, "--tokens", "--out", text.parent / "a.json")
    assert (result.code, result.out) == (0, "")
    assert json.loads((text.parent / "a.json").read_text()) == long
    assert [path.name for path in text.parent.iterdir() if path.name.endswith(atomic_files.PARTIAL)] == []


def test_scoring_the_test_set_agrees_with_eval(run: Path, tmp_path: Path) -> None:
    loaded = package.load(run)
    (tmp_path / "test.txt").write_text(loaded.vocabulary.decode(loaded.corpus.test_ids(0)))
    by_procedure = json.loads(unroll("eval", run, "--json").out)["perplexity"]
    for procedure in ("windowed", "progressive"):
        scored = json.loads(unroll("score", run, tmp_path / "test.txt", "--sample", procedure, "--json").out)
        after_k2 = scored["logprobs"][10 - 1 :]
        assert math.exp(-sum(after_k2) / len(after_k2)) == pytest.approx(by_procedure[procedure], rel=1e-6)


def test_standard_input_is_read_as_a_file_is(run: Path, text: Path) -> None:
    assert piped(text.read_bytes(), "score", run, "-", "--json") == unroll("score", run, text, "--json")
    assert "standard input: 48 tokens" in piped(text.read_bytes(), "score", run, "-").out


def test_in_a_pipe_every_token_has_a_line_that_shows_no_control_character(hostile: Path) -> None:
    lines = unroll("score", hostile / "run", hostile / "text.txt", "--tokens").out.splitlines()
    table = lines[1 : len(HOSTILE)]
    assert all(len(line.split("\t")) == 3 for line in table)
    assert all(character.isprintable() or character == "\t" for line in table for character in line)
    assert "'\\x1b'" in [line.split("\t")[1] for line in table]


def test_a_reader_that_has_seen_enough_ends_it_quietly(run: Path, text: Path) -> None:
    command = f"{sys.executable} -m unroll score '{run}' '{text}' --tokens | head -n 2"
    cut = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert (len(cut.stdout.splitlines()), cut.stderr) == (2, "")


@pytest.mark.parametrize("plain", [False, True], ids=["colours", "NO_COLOR"])
def test_a_terminal_shows_the_text_in_levels_and_the_text_cannot_drive_it(hostile: Path, plain: bool) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = {**os.environ, **({"NO_COLOR": "1"} if plain else {})}
    command = [sys.executable, "-m", "unroll", "score", hostile / "run", hostile / "text.txt", "--tokens"]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as child:
        os.close(theirs)
        shown = b"".join(read_until_it_closes(ours))
    os.close(ours)
    assert child.returncode == 0
    screen = shown.decode().replace("\r\n", "\n")
    assert ("\x1b[38;5;16m" in screen) != plain
    assert "\x1b[4m" in screen, "surprise is underlined as well"
    bare = re.sub(r"\x1b\[[0-9;]*m", "", screen)
    assert bare.startswith(pictured(HOSTILE))
    assert all(c.isprintable() or c in "\n\t" for c in bare), "nothing but our own styles reaches the terminal"
    assert "bits of surprise" in bare
    assert "8 +" in bare


def test_a_page_shows_a_hostile_text_as_text(hostile: Path) -> None:
    out = hostile / "page.html"
    assert unroll("score", hostile / "run", hostile / "text.txt", "--out", out).code == 0
    html = out.read_text("utf-8")
    page = Page(html)
    assert page.tags == {
        *(
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "main",
            "h1",
            "h2",
            "p",
            "dl",
            "div",
            "dt",
            "dd",
            "ul",
            "li",
        ),
        *("span", "table", "thead", "tr", "th", "tbody", "td", "code"),
    }
    assert page.attributes == {
        *("lang", "charset", "http-equiv", "content", "name", "class", "aria-label", "tabindex", "role", "scope")
    }
    assert page.text == pictured(HOSTILE)
    assert "default-src 'none'" in html
    assert not re.search(r"https?://|url\(|@import|<script", html), "nothing is fetched and nothing runs"
    assert all(c.isprintable() or c == "\n" for c in html.replace("\t", "")), "nothing hides in it"


def test_a_page_shows_every_tokens_surprise_and_alternatives_without_colours(run: Path, text: Path) -> None:
    out = text.parent / "page.html"
    assert unroll("score", run, text, "--out", out).code == 0
    html, scored = out.read_text("utf-8"), package.surprisals(package.load(run), text.read_text())
    labels = Page(html).labels
    assert len(labels) == 48
    assert "first token" in labels[0]
    for label, token in zip(labels[1:], scored.tokens, strict=True):
        first, *rest = label.split("\n")
        assert first.startswith(f"'{token.symbol}'   {token.bits:.2f} bits")
        assert [line.split()[0] for line in rest[:5]] == [f"'{a.symbol}'" for a in token.alternatives]
        assert ("← this one" in label) == (token.rank <= 5)
    assert html.count('tabindex="0"') == 48, "each can be reached without a mouse"
    assert "prefers-color-scheme: dark" in html
    for level, mark in {2: "dotted", 3: "solid", 4: "double"}.items():
        assert re.search(rf"\.l{level} {{[^}}]*{mark}", html), "levels differ in more than colour"


def test_bytes_notes_and_words_are_scored_and_shown_as_text(tmp_path: Path) -> None:
    texts = {"bytes": "häh?\n" * 3, "words": "so the cat saw the dog " * 3, "notes": "60 62 64\n65 60\n" * 3}
    for kind, text in texts.items():
        (tmp_path / f"{kind}.txt").write_text(text * 60)
        (tmp_path / "text.txt").write_text(text)
        options = ["--kind", kind, "--batches", 2, "--out", tmp_path / kind, *TINY]
        assert unroll("train", tmp_path / f"{kind}.txt", *options).code == 0
        content = json.loads(unroll("score", tmp_path / kind, tmp_path / "text.txt", "--tokens", "--json").out)
        shown = content["first"] + "".join(token["text"] for token in content["surprisals"])
        assert shown.replace("\\xc3\\xa4", "ä").strip() == text.strip()
        assert unroll("score", tmp_path / kind, tmp_path / "text.txt", "--out", tmp_path / f"{kind}.html").code == 0


def test_tokens_that_the_run_never_saw_count_as_its_unknown_symbol_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("abcdefgh" * 60 + "xyz")
    options = ["--min-count", 2, "--batches", 2, "--out", tmp_path / "run", *TINY]
    assert unroll("train", tmp_path / "corpus.txt", *options).code == 0
    (tmp_path / "text.txt").write_text("abcQWERTYabc")
    result = unroll("score", tmp_path / "run", tmp_path / "text.txt", "--json", "--tokens")
    assert "Not known to this run: 6 tokens" in result.err
    content = json.loads(result.out)
    assert content["unknown"] == 6
    assert content["surprisals"][3]["text"] == "W", "the text's own symbol is shown"
    assert content["bytes"] == 11


def test_what_cannot_be_scored_is_refused_with_a_reason(run: Path, tmp_path: Path) -> None:
    def refused(content: bytes, *words: str) -> None:
        (tmp_path / "text.txt").write_bytes(content)
        for output in ([], ["--tokens"], ["--json"], ["--out", tmp_path / "x.html"], ["--out", tmp_path / "x.json"]):
            check_refused(unroll("score", run, tmp_path / "text.txt", *output), *words)
        check_refused(piped(content, "score", run, "-"), *words)
        assert not list(tmp_path.glob("x.*"))

    refused(b"", "is empty", "nothing to score")
    refused(b"a", "at least 2 tokens. Got 1")
    refused(b"abcZabYZ", "'Z' (U+005A) at position 3", "'Y' (U+0059) at position 6")
    refused(b"\x89PNG\r\n\x1a\n\x00\x01", "is a PNG picture, not text")
    refused(b"\x89text", "not utf-8: byte 0x89 at offset 0")
    refused(b"abc\x00abc", "NUL character at position 3")


def test_a_missing_file_a_folder_and_a_strange_output_are_refused(run: Path, text: Path, tmp_path: Path) -> None:
    check_refused(unroll("score", run, tmp_path / "nothing.txt"), "No such file", "nothing.txt")
    check_refused(unroll("score", run, "stdlib"), "No such file: stdlib")
    check_refused(unroll("score", run, tmp_path), "is a folder")
    check_refused(unroll("score", tmp_path / "no-run", text), "no-run")
    check_refused(unroll("score", run, text, "--out", tmp_path / "x.png"), "--out must end in .html or .json")
    check_refused(unroll("score", run, text, "--out", tmp_path / "no" / "x.html"), "is no folder")
    check_refused(unroll("score", run, text, "--out", tmp_path / "x.json", "--json"), "choose one")
    check_refused(unroll("score", run, text, "--sample", "windwed"), "Did you mean windowed?")
    (tmp_path / "there.html").write_text("mine")
    check_refused(unroll("score", run, text, "--out", tmp_path / "there.html"), "exists")
    assert (tmp_path / "there.html").read_text() == "mine"


def test_a_page_of_a_text_too_long_for_a_browser_is_refused_before_any_work(run: Path, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("abcdefgh" * 6_251)
    check_refused(
        unroll("score", run, tmp_path / "long.txt", "--out", tmp_path / "x.html"), "at most 50,000 tokens", "50,008"
    )


@pytest.mark.parametrize("output", [[], ["--tokens"], ["--json"], ["--out", "x.html"], ["--out", "x.json"]])
def test_a_run_that_diverged_says_so_and_writes_nothing(
    run: Path, text: Path, output: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    loaded = package.load(run)
    with torch.no_grad():
        loaded.model.parameters["out.W"].fill_(torch.nan)
    monkeypatch.setattr("unroll.runs.loaded.load", lambda *_: loaded)
    monkeypatch.chdir(text.parent)
    check_refused(unroll("score", run, text, *output), "no finite probabilities", "diverged")
    assert [path.name for path in text.parent.iterdir()] == ["text.txt"]


def test_a_long_work_is_announced_with_its_length(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "long.txt").write_text("abcdefgh" * 1_000)
    assert "tokens, about" not in unroll("score", run, tmp_path / "long.txt").err
    monkeypatch.setattr("unroll.cli.estimate.WORTH_SAYING", 0.0)
    assert "windowed: 8,000 tokens, about" in unroll("score", run, tmp_path / "long.txt").err
