"""What other trainers call a setting is answered with ours, at every door, and never with a near spelling."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from dataclasses import replace
from typing import Any

import pytest
from commands import unroll

from unroll import Experiment, Scheme, grid
from unroll.base.errors import ConfigurationError
from unroll.cli import COMMANDS, command
from unroll.corpus.batches import Schedule
from unroll.experiment.experiment import read_toml
from unroll.experiment.usual_words import TABLE, Row, for_python, for_shell, for_toml

TRAIN = {
    "--lr": "--learning-rate",
    "--batch-size": "--rows",
    "--batch_size": "--rows",
    "--rnn-size": "--hidden",
    "--hidden-size": "--hidden",
    "--optimizer": "--optimiser",
    "--seq-length": "--k2",
    "--seq_len": "--k2",
    "--bptt": "--k2",
    "--num-layers": "--layers",
    "--model": "--cell",
    "--data": "the argument CORPUS",
    "--output-dir": "--out",
    "--n-jobs": "--threads",
}
SAMPLE = {"--temp": "--temperature", "--num-samples": "--n", "--max-new-tokens": "--length", "--num-beams": "--beams"}


def options(name: str) -> set[str]:
    """A command's options, without their dashes."""
    return {option.removeprefix("--") for each in command(name).params for option in each.opts}


@pytest.mark.parametrize(
    ("name", "word", "ours"),
    [*(("train", *pair) for pair in TRAIN.items()), *(("sample", *pair) for pair in SAMPLE.items())],
)
def test_an_option_of_other_trainers_is_answered_with_ours(name: str, word: str, ours: str) -> None:
    result = unroll(name, "book.txt", word, 4)
    assert result.code == 2
    assert f"No such option: {word}. {word} is {ours} here" in result.err
    assert "Possible options" not in result.err


def test_a_sweep_answers_as_a_training_does() -> None:
    assert "--seq-length is --k2 here" in unroll("sweep", "book.txt", "--seq-length", "20,40").err


def test_epochs_are_answered_with_how_many_batches_one_is() -> None:
    result = unroll("train", "book.txt", "--epochs", 3)
    assert "There is no --epochs here: give --batches" in result.err
    said = re.search(r"(\d+) for a million tokens at the defaults", result.err)
    assert said
    assert int(said[1]) == Schedule(Experiment(), 10**6).batches_an_epoch


def test_our_own_word_in_another_spelling_is_answered_with_the_right_one() -> None:
    assert "It is written --learning-rate." in unroll("train", "book.txt", "--learning_rate", 1).err


def test_a_word_that_nobody_has_is_answered_with_a_near_spelling() -> None:
    assert "--hidden" in unroll("train", "book.txt", "--hiden", 1).err
    with pytest.raises(TypeError, match=r"has no field 'hiden'\. Did you mean hidden\?"):
        Experiment(hiden=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Experiment(lr=0.1), "Experiment has no field 'lr'. lr is learning_rate here."),  # type: ignore[call-arg]
        (lambda: Experiment(batch_size=3), "rows here: windows in a batch. batches= is the number"),  # type: ignore[call-arg]
        (lambda: Experiment(seq_len=3), "seq_len is scheme=Scheme(k2=…) here"),  # type: ignore[call-arg]
        (lambda: Experiment(k1=3), "It is written scheme=Scheme(k1=…)."),  # type: ignore[call-arg]
        (lambda: Scheme(bptt=3), "Scheme has no field 'bptt'. bptt is k2 here"),  # type: ignore[call-arg]
        (lambda: replace(Experiment(), epochs=3), "There is no epochs here: give batches="),  # type: ignore[call-arg]
    ],
)
def test_an_argument_of_other_libraries_is_answered_with_ours(make: Any, said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        make()


def test_a_grid_answers_too() -> None:
    with pytest.raises(ConfigurationError, match="lr is learning_rate here"):
        grid(lr=[0.1, 0.2])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[optimiser]\nlr = 1", "[optimiser] in run.toml has no key 'lr'. lr is learning_rate under [optimiser] here."),
        ("[training]\nbatch_size = 1", "rows under [training] here: windows in a batch. batches is the number"),
        ("[model]\nbatches = 1", "It is written batches under [training]."),
        ("[corpus]\ndata = 'x'", "data is source under [corpus] here."),
        ("[model]\nhiden = 1", "Did you mean hidden?"),
    ],
)
def test_a_key_of_other_configurations_is_answered_with_ours(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        read_toml(text)


def test_a_class_that_answers_is_the_class_that_it_was() -> None:
    parameters = inspect.signature(Experiment).parameters
    assert list(parameters)[:2] == ["corpus", "title"]
    assert parameters["hidden"].default == 512
    experiment = Experiment(corpus="x", scheme=Scheme(k1=3))
    assert pickle.loads(pickle.dumps(experiment)) == copy.deepcopy(experiment) == experiment


def test_a_row_answers_only_where_its_setting_is_known() -> None:
    assert for_shell("--early-stopping", {"rows": "--rows"}) == ""
    assert for_shell("--early-stopping", {"patience": "--patience"}) == "--early-stopping is --patience here."
    assert "norm of the whole" in for_shell("--grad-clip", {"clip": "--clip", "clip_norm": "--clip-norm"})
    assert "--grad-clip is --clip here" in for_shell("--grad-clip", {"clip": "--clip"})


def test_what_the_table_says_names_options_that_there_are() -> None:
    known = set().union(*(options(name) for name in COMMANDS)) | {"clip-norm"}
    for row in TABLE:
        assert set(re.findall(r"--([a-z][a-z0-9-]*)", row.says)) <= known, row


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.ours)
def test_every_word_of_a_row_is_answered_at_every_door_that_knows_its_setting(row: Row) -> None:
    for ours in row.ours.split():
        known = {ours: "OURS"}
        for word in row.others.split():
            for answer in (for_shell(f"--{word}", known), for_python(word.replace("-", "_"), known)):
                assert ("There is no" if row.lacks else "OURS") in answer
            assert "--" not in for_toml(word.replace("-", "_"), known)
