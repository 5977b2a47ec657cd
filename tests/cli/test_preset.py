"""What `--preset small` sets, and what stands on top of it."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from commands import unroll

from unroll import PRESETS, SCHEMES, Experiment, Scheme
from unroll.cli import options
from unroll.corpus.synthetic import Markov
from unroll.runs.folder import RunFolder

BRIEF = ("--preset", "small", "--hidden", 4, "--dense", 4, "--batches", 1, "--test-tokens", 120, "--threads", 1)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A few thousand tokens: enough for every row of the preset."""
    path = tmp_path / "corpus.txt"
    path.write_text(Markov().text(6000))
    return path


def asked(corpus: Path, out: str, *others: object) -> tuple[Experiment, str]:
    """What a command trains, and what it says first."""
    result = unroll("train", corpus, *BRIEF, "--out", corpus.parent / out, *others)
    assert result.code == 0, result.err
    return RunFolder(corpus.parent / out).experiment, result.err


def test_the_preset_is_one_thing_on_the_command_line_and_in_python(corpus: Path) -> None:
    small = Experiment(**PRESETS["small"])
    experiment, said = asked(corpus, "plain")
    assert experiment.scheme == small.scheme
    assert (experiment.rows, experiment.learning_rate) == (small.rows, small.learning_rate)
    assert f"k1 = {small.scheme.k1}, k2 = {small.scheme.k2}" in said


def test_the_command_line_may_say_otherwise(corpus: Path) -> None:
    experiment, said = asked(corpus, "other", "--k1", 7, "--rows", 8, "--learning-rate", 0.5)
    assert (experiment.scheme.k1, experiment.rows, experiment.learning_rate) == (7, 8, 0.5)
    assert "k1 = 7, k2 = 100" in said


@pytest.mark.parametrize("number", SCHEMES)
def test_the_preset_goes_with_every_scheme(corpus: Path, number: int) -> None:
    experiment, _ = asked(corpus, "numbered", "--scheme", number)
    assert experiment.scheme == replace(SCHEMES[number], **options.preset_pace("small"))
    assert experiment.scheme.number == number


def test_a_sweep_starts_from_the_preset_and_varies_what_is_listed(corpus: Path, tmp_path: Path) -> None:
    result = unroll("sweep", corpus, *BRIEF, "--scheme", "1,2", "--out", tmp_path / "by-scheme")
    assert result.code == 0, result.err
    result = unroll("sweep", corpus, *BRIEF, "--k1", "5,10", "--out", tmp_path / "by-k1")
    assert result.code == 0, result.err

    def column(folder: str, name: str) -> list[str]:
        with (tmp_path / folder / "table.csv").open() as table:
            return sorted(row[name] for row in csv.DictReader(table))

    k1 = str(PRESETS["small"]["scheme"].k1)
    assert (column("by-scheme", "scheme"), column("by-scheme", "k1")) == (["1", "2"], [k1, k1])
    assert column("by-k1", "k1") == ["10", "5"]


def test_help_says_all_that_the_preset_sets() -> None:
    words = " ".join(unroll("train", "--help").out.replace("│", " ").split())
    for name, value in options.preset("small").items():
        assert f"{name.replace('_', ' ')} {value:,}" in words
    for name, value in options.preset_pace("small").items():
        assert f"{name} {value}" in words


def test_the_papers_preset_sets_nothing() -> None:
    assert options.preset("paper") == options.preset_pace("paper") == {}
    assert Experiment(**PRESETS["paper"]).scheme == Scheme()
