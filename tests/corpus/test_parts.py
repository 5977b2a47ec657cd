"""A validation and a test set: cut from the corpus, or in files of their own; a folder of these files is recognised."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from commands import TINY, unroll
from helpers import tiny, tiny_corpus
from hypothesis import given
from hypothesis import strategies as st

import unroll as api
from unroll import Corpus, Experiment
from unroll.base.errors import ConfigurationError, CorpusError, RunError, SymbolError
from unroll.corpus import split_folders
from unroll.corpus.batches import Batches, Schedule
from unroll.corpus.chosen_files import Choice
from unroll.corpus.open_corpora import open_corpus
from unroll.sweep import table

TRAIN, VALID, TEST = ("to be or not to be, " * 60, "be or not " * 12, "not to be " * 14)


def folder_of(path: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return str(path)


def three(path: Path) -> str:
    return folder_of(path, {"train.txt": TRAIN, "valid.txt": VALID, "test.txt": TEST})


def decoded(corpus: Corpus, ids: np.ndarray) -> str:  # type: ignore[type-arg]
    return corpus.vocabulary.decode(ids)


# --- tokens that are cut off ---------------------------------------------------------------------------------------


@given(st.text("abcd\n", min_size=20, max_size=400), st.integers(0, 2**63 - 1), st.integers(1, 500))
def test_three_sets_are_disjoint_and_together_the_rotated_corpus(text: str, seed: int, validation: int) -> None:
    corpus = Corpus.from_text(text)
    split = corpus.split(seed, validation)
    assert split.train + split.validation + split.test == corpus.tokens
    assert split.validation == min(validation, corpus.tokens - split.test)
    sets = (corpus.train_ids(seed, validation) if split.train else corpus.ids[:0],
            corpus.validation_ids(seed, validation), corpus.test_ids(seed))  # fmt: skip
    assert [len(ids) for ids in sets] == [split.train, split.validation, split.test]
    assert np.array_equal(np.concatenate(sets), np.roll(corpus.ids, -split.offset))


@given(st.integers(20, 300_000), st.integers(0, 2**63 - 1), st.integers(1, 5_000))
def test_the_test_set_does_not_depend_on_the_validation_set(tokens: int, seed: int, validation: int) -> None:
    corpus = Corpus.from_text("ab" * (tokens // 2) + "a" * (tokens % 2))
    two, more = corpus.split(seed), corpus.split(seed, validation)
    assert (two.offset, two.test, two.validation) == (more.offset, more.test, 0)
    assert two.train == more.train + more.validation


def test_batches_never_reach_into_the_validation_set() -> None:
    corpus = Corpus.from_text("".join(chr(0x4E00 + i) for i in range(2000)))  # every token is another symbol
    experiment = tiny(validation=300)
    schedule = Schedule(experiment, corpus.split(0, 300).train)
    batches = Batches([experiment], [corpus], "cpu")  # type: ignore[arg-type]
    trained = set()
    for number in range(2 * schedule.batches_an_epoch):
        batch = batches[number]
        trained |= {*batch.inputs_MTB.flatten().tolist(), *batch.targets_MKB.flatten().tolist()}
    assert trained == set(corpus.train_ids(0, 300).tolist())
    assert not trained & {*corpus.validation_ids(0, 300).tolist(), *corpus.test_ids(0).tolist()}


@pytest.mark.parametrize(
    ("validation", "words"),
    [(5, "The validation set needs more than k2 = "), (1070, "need a train set"), (10**6, "need a train set")],
)
def test_a_validation_set_that_is_too_short_or_leaves_too_little_is_refused(
    validation: int, words: str, tmp_path: Path
) -> None:
    with pytest.raises(CorpusError, match=words):
        api.train(tiny(validation=validation), tmp_path / "run", Corpus.from_text(TRAIN))
    assert not (tmp_path / "run").exists()


def test_two_validation_sets_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="are two validation sets"):
        Experiment(validation=5, validation_file="valid.txt")


# --- files ---------------------------------------------------------------------------------------------------------


def test_with_a_test_file_the_whole_corpus_is_trained_on(tmp_path: Path) -> None:
    three(tmp_path)
    corpus = Corpus.open(str(tmp_path / "train.txt"), test_file=str(tmp_path / "test.txt"))
    assert decoded(corpus, corpus.train_ids(3)) == TRAIN
    assert decoded(corpus, corpus.test_ids(3)) == TEST
    assert corpus.split(3).validation == 0
    cut = corpus.split(3, validation=100)
    assert (cut.train, cut.validation) == (len(TRAIN) - 100, 100)


def test_a_validation_file_leaves_the_test_set_where_it_is(tmp_path: Path) -> None:
    three(tmp_path)
    source = str(tmp_path / "train.txt")
    corpus, alone = Corpus.open(source, validation_file=str(tmp_path / "valid.txt")), Corpus.open(source)
    assert corpus.split(5).train == alone.split(5).train
    assert np.array_equal(corpus.test_ids(5), alone.test_ids(5))
    assert decoded(corpus, corpus.validation_ids(5)) == VALID


def test_what_parts_hold_is_recorded_and_belongs_to_the_identity(tmp_path: Path) -> None:
    source = three(tmp_path)
    experiment = tiny(corpus=source)
    described = Corpus.named(experiment).described_in(experiment)
    assert described.corpus == str(tmp_path / "train.txt")
    assert described.title == tmp_path.name
    assert (described.validation_file_tokens, described.test_file_tokens) == (len(VALID), len(TEST))
    (tmp_path / "valid.txt").write_text(VALID[::-1])
    other = Corpus.named(experiment).described_in(experiment)
    assert other.identity != described.identity
    with pytest.raises(RunError, match="another validation set than this run"):
        open_corpus(described)


def test_a_symbol_that_the_train_text_lacks_is_refused_with_its_place(tmp_path: Path) -> None:
    folder_of(tmp_path, {"train.txt": TRAIN, "test.txt": TEST + "q"})
    for role in ("test", "validation"):
        with pytest.raises(SymbolError, match=rf"The {role} set .*'q' \(U\+0071\) at position {len(TEST)}"):
            Corpus.open(str(tmp_path / "train.txt"), **{f"{role}_file": str(tmp_path / "test.txt")})  # type: ignore[arg-type]


def test_such_a_symbol_becomes_the_unknown_one_where_there_is_one(tmp_path: Path) -> None:
    folder_of(tmp_path, {"train.txt": TRAIN + "z", "test.txt": TEST + "q"})
    corpus = Corpus.open(str(tmp_path / "train.txt"), min_count=2, test_file=str(tmp_path / "test.txt"))
    assert decoded(corpus, corpus.test_ids(0)) == TEST + "\ufffd"


@pytest.mark.parametrize("what", ["missing", "folder", "pipe", "text in memory"])
def test_a_part_that_is_no_file_is_refused_in_words(what: str, tmp_path: Path) -> None:
    three(tmp_path / "data")
    path = tmp_path / "part"
    if what == "folder":
        path.mkdir()
    if what == "pipe":
        os.mkfifo(path)
    if what == "text in memory":
        with pytest.raises(CorpusError, match="has no test file"):
            Corpus.from_text(TRAIN).described_in(tiny(test_file="test.txt"))
        return
    with pytest.raises(CorpusError, match="test_file="):
        Corpus.open(str(tmp_path / "data" / "train.txt"), test_file=str(path))


# --- folders -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "valid.txt", "test.txt"),
        ("train", "dev", "test"),
        ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
        ("wiki.train.tokens", "wiki.val.tokens", "wiki.test.tokens"),
        ("TRAIN.TXT", "Validation.txt", "Test.txt"),
    ],
)
def test_a_folder_of_train_valid_and_test_is_a_corpus_in_parts(names: tuple[str, ...], tmp_path: Path) -> None:
    source = folder_of(tmp_path / "box", dict(zip(names, (TRAIN, VALID, TEST), strict=True)))
    corpus = Corpus.open(source)
    assert decoded(corpus, corpus.train_ids(1)) == TRAIN
    assert decoded(corpus, corpus.validation_ids(1)) == VALID
    assert decoded(corpus, corpus.test_ids(1)) == TEST
    assert "is a corpus in parts" in corpus.notes[0]
    assert corpus.name == (names[0].split(".")[0] if names[0].count(".") == 2 else "box")


def test_what_is_named_goes_before_what_a_folder_holds(tmp_path: Path) -> None:
    source = three(tmp_path / "box")
    (tmp_path / "mine.txt").write_text("be to be to be ")
    own = Corpus.open(source, test_file=str(tmp_path / "mine.txt"))
    assert decoded(own, own.test_ids(0)) == "be to be to be "
    assert decoded(own, own.validation_ids(0)) == VALID
    cut = Corpus.named(tiny(corpus=source, validation=50))
    assert (cut.validation_part, cut.split(0, 50).validation) == (None, 50)
    assert decoded(cut, cut.test_ids(0)) == TEST
    assert Corpus.open(source, ext=(".txt",)).tokens == len(TRAIN + VALID + TEST)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train.txt": TRAIN, "valid.txt": VALID, "dev.txt": VALID, "test.txt": TEST}, "its validation set"),
        ({"train.txt": TRAIN, "test.txt": TEST, "a.train.txt": TRAIN, "a.test.txt": TEST}, "its test set"),
        ({"train.txt": TRAIN, "test.tsv": TEST}, "different sorts"),
        ({"train.txt": TRAIN, "test.txt": TEST, "book.txt": TRAIN}, "it holds book.txt"),
    ],
)
def test_a_folder_that_is_not_clearly_in_parts_is_refused(files: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=words) as refused:
        Corpus.open(folder_of(tmp_path, files))
    assert "test_file=" in str(refused.value)


@pytest.mark.parametrize(
    "names",
    [
        ("train.py", "test.py"),  # source code
        ("test.txt", "book.txt"),
        ("training-notes.txt", "test.txt"),
        ("books/train.txt", "books/test.txt"),
        ("train.txt",),
    ],
)
def test_other_folders_are_one_text_as_before(names: tuple[str, ...], tmp_path: Path) -> None:
    source = folder_of(tmp_path, dict.fromkeys(names, TRAIN))
    assert split_folders.recognise(source, Choice()) is None
    assert Corpus.open(source).tokens == len(names) * len(TRAIN)


def test_a_few_words_on_training_do_not_make_a_large_folder_one_in_parts(tmp_path: Path) -> None:
    source = folder_of(tmp_path, {"train.txt": "to be ", "test.txt": "or not ", "book.txt": TRAIN})
    assert Corpus.open(source).tokens == len(TRAIN) + 13


# --- runs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    result = unroll("train", three(folder / "box"), "--batches", 12, "--out", folder / "run", *TINY)
    assert result.code == 0, result.err
    assert result.err.startswith(f"note: {folder / 'box'} is a corpus in parts: train train.txt")
    assert f"Tokens: train {len(TRAIN):,}, validation {len(VALID)}, test {len(TEST)}." in result.err
    return folder


def test_each_line_of_metrics_has_the_validation_set_beside_the_test_set(trained: Path) -> None:
    run = api.load(trained / "run", device="cpu")
    for line in run.metrics:
        assert set(line["validation"]) == set(line["perplexity"])
        assert line["validation_windowed"] == line["validation"]["windowed"]
    assert run.metrics[-1]["validation"].keys() == {"windowed", "progressive"}
    for sample in ("windowed", "progressive"):
        for part, text in (("validation", "valid.txt"), ("perplexity", "test.txt")):
            (score,) = api.perplexity(run, sample, trained / "box" / text)
            assert run.metrics[-1][part][sample] == pytest.approx(score.perplexity, rel=1e-6)
    (own,) = api.perplexity(run)
    assert own.tokens == len(TEST) - 10


def test_eval_scores_the_test_file_of_a_folder_in_parts_and_a_plain_file_whole(trained: Path) -> None:
    own = unroll("eval", trained / "run")
    assert "its test set\n" in own.out
    assert f"{len(TEST) - 10:>10}" in own.out
    folder = unroll("eval", trained / "run", "--corpus", trained / "box")
    assert f"{len(TEST) - 10:>10}" in folder.out
    whole = unroll("eval", trained / "run", "--corpus", trained / "box" / "train.txt")
    assert "taken whole" in whole.out
    assert f"{len(TRAIN) - 10:>10,}" in whole.out


def test_a_run_folder_holds_no_text_of_any_part(trained: Path) -> None:
    for path in (trained / "run").iterdir():
        assert not any(text[:40].encode() in path.read_bytes() for text in (TRAIN, VALID, TEST)), path.name


def test_a_run_in_parts_is_interrupted_and_resumed_and_says_when_a_part_changed(tmp_path: Path) -> None:
    source = three(tmp_path / "box")
    events = api.train_fleet([tiny(corpus=source)], [Corpus.open(source)], [tmp_path / "run"])
    for event in events:
        if event.batch == 4:
            break
    events.close()
    (tmp_path / "box" / "test.txt").write_text(TEST[::-1])
    with pytest.raises(RunError, match="another test set than this run"):
        api.resume(tmp_path / "run")
    (tmp_path / "box" / "test.txt").write_text(TEST)
    assert api.resume(tmp_path / "run").status["state"] == "finished"
    assert api.resume(tmp_path / "run").experiment.title == "box"


def test_a_sweep_over_a_folder_in_parts_trains_and_scores_its_parts(tmp_path: Path) -> None:
    source = three(tmp_path / "box")
    rows = api.train_all([tiny(corpus=source, seed=seed) for seed in (0, 1)], tmp_path / "sweep", most=2)
    assert [row["state"] for row in rows] == ["finished", "finished"]
    for row in rows:
        run = api.load(tmp_path / "sweep" / "runs" / row["run"], device="cpu")
        assert run.metrics[-1]["validation"]
        assert run.experiment.test_file == str(tmp_path / "box" / "test.txt")


def test_in_a_fleet_each_run_has_its_own_validation_set(tmp_path: Path) -> None:
    runs = [tiny(seed=seed, validation=tokens, batches=7) for seed, tokens in enumerate((None, 30, 60))]
    corpus, outs = tiny_corpus(), [tmp_path / str(m) for m in range(3)]
    list(api.train_fleet(runs, [corpus] * 3, outs))
    for m, experiment in enumerate(runs):
        together = api.load(outs[m], device="cpu").metrics
        alone = api.train(experiment, tmp_path / f"alone {m}", corpus).metrics
        assert ("validation" in together[0]) == (m > 0)
        for ours, theirs in zip(together, alone, strict=True):
            for part in {"perplexity", "validation"} & theirs.keys():
                assert ours[part] == pytest.approx(theirs[part], rel=1e-9)


def test_a_sweeps_table_chooses_by_the_validation_set(tmp_path: Path) -> None:
    asked = [tiny(seed=seed, validation=40, batches=30, learning_rate=0.3) for seed in range(3)]
    rows = api.train_all(asked, tmp_path / "sweep", [tiny_corpus()] * 3, most=3)
    for row in rows:
        run = api.load(tmp_path / "sweep" / "runs" / row["run"], device="cpu")
        assert run.best is not None
        assert (row["lowest"], row["lowest_batch"]) == (run.best.test_perplexity, run.best.batch)
        assert row["validation"] == run.metrics[-1]["validation"]["windowed"]
    (best,) = table.best(rows).values()
    assert best["validation"] == min(row["validation"] for row in rows)
    assert table.best_mark(best).endswith("lowest on the validation set")
    assert (tmp_path / "sweep" / "table.csv").read_text().splitlines()[0].endswith(",reason,validation")
