"""A setting is said once: a field of `Experiment` or `Scheme`, from which all else follows."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from unroll import Experiment, Scheme
from unroll.base.errors import ConfigurationError
from unroll.cli import command, options
from unroll.experiment.experiment import to_tables, write_toml
from unroll.experiment.settings import columns_of, help_of, options_of, settings_of, up_to
from unroll.experiment.settings import setting as a_setting
from unroll.sweep import table
from unroll.training import fleet

# What the corpus says of itself, and the parts of --train: no option says these alone.
RECORDED = {"title", "sha256", "files", "bytes", "tokens", "unique"}
RECORDED |= {"parent", "parent_weights", "added_symbols", "updates_before"}
ALONE = {"keep_optimiser"}  # what a run alone can be asked for, and no sweep
RECORDED |= {f"{part}_file_{fact}" for part in ("validation", "test") for fact in ("sha256", "bytes", "tokens")}
NAMED_OTHERWISE = {"corpus", "scheme", "loss", "state", "k3", "normalise", "reset"}


@dataclass(frozen=True)
class Longer(Experiment):
    """An experiment with one line more."""

    heads: int = a_setting("model", 4, "Heads of attention [{default}].", up_to(64), shared=True, newer=True)


@pytest.mark.parametrize("name", ["train", "sweep"])
def test_every_setting_is_an_option_with_a_sentence_of_help(name: str) -> None:
    said = {parameter.name: parameter.help for parameter in command(name).params if hasattr(parameter, "help")}
    expected = {f.name for f in (*fields(Experiment), *fields(Scheme))} - RECORDED - NAMED_OTHERWISE
    expected -= ALONE if name == "sweep" else set()
    assert name == "train" or not ALONE & set(said)
    assert expected <= set(said)
    for setting in expected:
        assert said[setting].endswith((".", "].")), setting
        assert "{" not in said[setting], setting


def test_every_field_stands_in_a_table_of_run_toml() -> None:
    begun = {"parent": "0" * 64, "parent_weights": "0" * 64, "added_symbols": 0, "updates_before": 9}
    filled = Experiment(
        kind="ids", separator=",", evaluations=8, test_tokens=5, threads=1, scheme=Scheme(k3=3),
        patience=3, target=5.0, minutes=2.0, **begun,
    )  # fmt: skip
    parts = {f"{part}_file{fact}": "x" for part in ("validation", "test") for fact in ("", "_sha256")}
    parts |= {f"{part}_file_{fact}": 3 for part in ("validation", "test") for fact in ("bytes", "tokens")}
    both = (replace(filled, validation=5), replace(filled, **parts))
    written = [name for part in to_tables(both[1]).values() for name in part]
    assert len(written) == len(set(written)) == len(fields(Experiment)) - 2 + len(fields(Scheme))
    assert {name for part in to_tables(both[0]).values() for name in part} - set(written) == {"validation"}


def test_help_says_the_default_that_a_field_has() -> None:
    for described in (Experiment, Scheme):
        for each, known in options_of(described):
            if isinstance(each.default, int | float) and type(each.default) is not bool:
                assert f"[{each.default:g}]" in help_of(each, known)


def test_a_new_field_is_an_option_a_list_a_column_and_a_line_of_run_toml() -> None:
    said: list[dict[str, Any]] = []

    def run(preset: options.Preset = "paper", **given: Any) -> None:
        said.append(options.said(given, Longer))

    def run_many(preset: options.Preset = "paper", **given: Any) -> None:
        raise AssertionError("only its options are looked at")

    listing = options.with_settings(lists=True, preset=Longer)(run_many)
    assert inspect.signature(listing).parameters["heads"].annotation.__metadata__[0].metavar == options.LIST
    assert options.lists_of(Longer)["heads"] is int

    one = typer.Typer()
    one.command()(options.with_settings(preset=Longer)(run))
    helped = CliRunner().invoke(one, ["--help"])
    assert "--heads" in helped.output
    assert "Heads of attention [4]." in helped.output
    assert CliRunner().invoke(one, ["--heads", "8", "--ext", ".c", "--shuffle"]).exit_code == 0
    assert said == [{"heads": 8, "ext": (".c",), "shuffle": True}]

    assert fleet.shared(Longer(heads=8))["heads"] == 8
    assert fleet.why_not([Longer(heads=8), Longer()], [9, 9]) == ["Runs of one fleet share heads: here are 8 and 4."]
    assert table.settings(Longer) == (*table.SETTINGS, "heads")
    assert "heads = 8\n" in write_toml(Longer(heads=8))
    with pytest.raises(ConfigurationError, match=r"heads must be between 1 and 64\. Got 65\. Set heads=, or heads"):
        Longer(heads=65)
    with pytest.raises(ConfigurationError, match="heads must be int"):
        Longer(heads="many")


def test_a_new_field_at_its_default_leaves_the_identity_of_a_training_as_it_was() -> None:
    assert Longer().identity == Experiment().identity
    assert replace(Longer(), heads=8).identity != Experiment().identity


def test_columns_of_the_table_keep_their_places() -> None:
    assert set(table.FIRST) == set(columns_of(Experiment))
    assert table.COLUMNS == (
        "run", "corpus", "scheme", "training", "sample", "k1", "k2", "cell", "peepholes", "layers", "hidden", "dense",
        "dropout", "forget_bias", "optimiser", "learning_rate", "rows", "clip", "rotation", "shuffle", "precision",
        "batches", "seed", "split_seed", "test_tokens", "schedule", "warm_up", "weight_decay", "decay", "clip_norm",
        "state", "batch", "loss", "perplexity", "lowest", "lowest_batch", "reason",
    )  # fmt: skip


def test_what_varies_is_seen_by_training_or_decides_how_tokens_are_drawn() -> None:
    for described in (Experiment, Scheme):
        for each, known in settings_of(described):
            assert not known.varies or known.trains or each.name == "sample", each.name
