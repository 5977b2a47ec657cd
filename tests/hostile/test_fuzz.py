"""Mutated corpora, configurations, checkpoints and run folders: a message or a result, never a traceback."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from commands import TINY, tiny_run, unroll
from watched import Watched, check_answers

pytestmark = pytest.mark.slow


def mutated(content: bytes, generator: random.Random) -> bytes:
    """A few bytes changed, dropped, doubled or moved."""
    data = bytearray(content)
    for _ in range(generator.randint(1, 8)):
        place = generator.randrange(len(data) + 1)
        length = generator.choice((1, 1, 2, 8, 100))
        kind = generator.randrange(5)
        if kind == 0:
            data[place : place + length] = generator.randbytes(length)
        elif kind == 1:
            del data[place : place + length]
        elif kind == 2:
            data[place:place] = data[place : place + length]
        elif kind == 3:
            data[place:place] = generator.choice(
                (b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b'"', b"9" * 30, b"\xed\xa0\x80")
            )
        else:
            data = data[:place] if generator.random() < 0.2 else data
    return bytes(data)


def check_answered(*arguments: object) -> int:
    """Exit 0 or 2, in words."""
    result = unroll(*arguments)
    assert result.code in (0, 2), (result.code, result.err)
    assert "Traceback" not in result.err
    assert result.code == 0 or result.err
    return result.code


TEXTS = {
    "prose": ("Mutating a text should never break what reads it: ä ö å € 漢字.\n" * 8).encode(),
    "notes": b"60 64 67 72 60 64 67\n" * 20,
    "ids": b"8812 77 1299 60 7 31337\n" * 20,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_500_mutated_texts_are_read_or_refused_in_words(kind: str) -> None:
    generator, worker = random.Random(0), Watched("text")
    answers = check_answers(worker, (mutated(TEXTS[kind], generator) for _ in range(500)))
    worker.stop()
    assert min(answers["read"], answers["refused"]) > 20, f"both answers must really occur: {answers}"


def test_mutated_texts_are_trained_on_or_refused_in_words(tmp_path: Path) -> None:
    generator, codes = random.Random(4), []
    for place in range(50):
        corpus = tmp_path / "corpus.txt"
        corpus.write_bytes(mutated(TEXTS["prose"], generator))
        codes.append(check_answered("train", corpus, "--batches", 1, "--out", tmp_path / f"run{place}", *TINY))
    assert 5 < sum(code == 0 for code in codes) < 45, "both answers must really occur"


def test_mutated_configurations_are_read_or_refused_in_words(tmp_path: Path) -> None:
    generator, run = random.Random(1), tiny_run(tmp_path)
    original, codes = (run / "run.toml").read_bytes(), []
    for _ in range(500):
        (run / "run.toml").write_bytes(mutated(original, generator))
        codes.append(check_answered("sample", run, "--prompt", "abc", "--length", 2))
    assert 10 < sum(code == 0 for code in codes) < 490, "both answers must really occur"


@pytest.mark.parametrize("name", ["weights.safetensors", "vocabulary.json", "status.json", "metrics.jsonl"])
def test_mutated_files_of_a_run_are_read_or_refused_in_words(tmp_path: Path, name: str) -> None:
    generator, run = random.Random(2), tiny_run(tmp_path)
    original = (run / name).read_bytes()
    for _ in range(200):
        (run / name).write_bytes(mutated(original, generator))
        code = check_answered("sample", run, "--prompt", "abc", "--length", 2)
        if name == "weights.safetensors" and (run / name).read_bytes() != original:
            assert code == 2, "a changed weight must never load in silence"


def test_mutated_checkpoints_are_never_loaded(tmp_path: Path) -> None:
    from unroll.corpus.corpus import Corpus
    from unroll.runs.folder import RunFolder
    from unroll.training.loop import train_fleet

    generator, first = random.Random(3), tiny_run(tmp_path)
    experiment, corpus = RunFolder(first).experiment, Corpus.open(str(tmp_path / "corpus.txt"))
    cut = tmp_path / "cut"
    for event in train_fleet([experiment], [corpus], [cut], save_every=3):
        if event.learner.count == 7:
            break
    whole = sorted(path.name for path in (cut / "checkpoints").iterdir())
    assert len(whole) == 2
    for place in range(60):
        copy = shutil.copytree(cut, tmp_path / f"copy{place}")
        newest = copy / "checkpoints" / whole[-1]
        newest.write_bytes(mutated(newest.read_bytes(), generator))
        if newest.read_bytes() == (cut / "checkpoints" / whole[-1]).read_bytes():
            continue
        result = unroll("train", "--resume", copy)
        assert result.code == 0, result.err
        assert "is damaged" in result.err
        assert (copy / "weights.safetensors").read_bytes()[-2000:] == (first / "weights.safetensors").read_bytes()[
            -2000:
        ]
