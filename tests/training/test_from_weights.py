"""A run that begins from another's weights: what is taken over, what is refused, and that nothing but its folder is
needed to go on.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import going_on
import numpy as np
import pytest
import torch
from going_on import CARRIED, LETTERS, OTHERS, corpus, experiment, parent_in, result
from helpers import check_identical

import unroll
from unroll import Corpus, Run, Scheme, Stepped, load, resume, train, train_fleet, train_from
from unroll.base import atomic_files
from unroll.base.errors import ConfigurationError, RunError, SymbolError
from unroll.corpus.tokens import UNKNOWN
from unroll.model import cells
from unroll.model.continued import Continued
from unroll.model.initial_values import initial_parameters
from unroll.model.optimisers import adam, rmsprop
from unroll.runs.folder import RunFolder
from unroll.training import parent as parents
from unroll.training.start import start

NEW = tuple(sorted(set(OTHERS) - set(LETTERS)))


class Enough(Exception):
    """What a user's own function raises."""


def leave_at(batch: int) -> Any:
    def take(event: unroll.training.events.Event) -> None:
        if isinstance(event, Stepped) and event.batch == batch:
            raise Enough

    return take


def first_values(run: Run | Path, text: Any, out: Path, **settings: Any) -> dict[str, torch.Tensor]:
    """What a child holds before its first step."""
    with pytest.raises(Enough):
        train_from(run, text, out, on_event=leave_at(1), **settings)
    assert RunFolder(out).checkpoints() == [0, 1]
    return RunFolder(out).checkpoint(0).tensors


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return parent_in(tmp_path_factory.mktemp("parent"))


@pytest.fixture(scope="module")
def carried_parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return parent_in(tmp_path_factory.mktemp("carried"), **CARRIED, cell="gru")


@pytest.mark.parametrize(
    "settings",
    [{}, {"cell": "gru", "layers": 2}, {"cell": "rnn", "precision": "float64"}, {"peepholes": "off", "loss": "last"}],
)
def test_a_run_begins_with_its_parents_weights_bit_for_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    run = train(experiment(**settings), tmp_path / "run", corpus())
    began = first_values(run, corpus(tokens=300), tmp_path / "child")
    weights = run.folder.weights()[0]
    check_identical({name: began[name] for name in weights}, weights)
    assert all(not value.any() for name, value in began.items() if name.startswith(("optimiser.", "progress.")))


def test_added_symbols_come_last_with_the_values_of_a_run_from_nothing(parent: Run, tmp_path: Path) -> None:
    began = first_values(parent, corpus(OTHERS), tmp_path / "child", new_symbols="add", seed=8)
    child = RunFolder(tmp_path / "child")
    V = len(parent.vocabulary)
    assert child.vocabulary.symbols == (*parent.vocabulary.symbols, *NEW)
    e = child.experiment
    assert (e.added_symbols, e.unique) == (len(NEW), V + len(NEW))
    fresh = initial_parameters(e, cells.load(e.cell, e.peepholes), e.unique)
    for name, value in parent.folder.weights()[0].items():
        assert torch.equal(began[name][tuple(slice(n) for n in value.shape)], value), name
    for name, new in (("layers.0.W_x", np.s_[V:]), ("out.W", np.s_[:, V:]), ("out.b", np.s_[V:])):
        assert torch.equal(began[name][new], torch.as_tensor(fresh[name], dtype=torch.float32)[new]), name
    assert began["layers.0.W_x"][V:].any()


def test_symbols_that_the_parent_lacks_are_refused_with_their_counts_and_what_to_do(
    parent: Run, tmp_path: Path
) -> None:
    text = corpus(OTHERS)
    most = max(NEW, key=lambda symbol: int((text.ids == text.vocabulary.symbols.index(symbol)).sum()))
    with pytest.raises(SymbolError) as refused:
        train_from(parent, text, tmp_path / "child")
    words = str(refused.value)
    assert f"letters has {len(NEW)} symbols (" in words
    assert f"of 400 tokens) that {parent.path} does not know: {most!r} (U+{ord(most):04X}) " in words
    assert "new_symbols= add" in words or 'new_symbols="add"' in words
    assert not (tmp_path / "child").exists()


def test_where_the_parent_has_an_unknown_symbol_new_ones_are_read_as_it(tmp_path: Path) -> None:
    rare = Corpus.from_text(going_on.text(LETTERS) + "z", "rare", min_count=2)
    run = train(experiment(), tmp_path / "run", rare)
    assert UNKNOWN in run.vocabulary.symbols
    child = train_from(run, corpus(OTHERS), tmp_path / "child", batches=3)
    assert child.vocabulary.symbols == run.vocabulary.symbols
    assert (child.experiment.min_count, child.experiment.added_symbols) == (2, 0)
    added = train_from(
        run, Corpus.from_text(going_on.text(OTHERS) + "y"), tmp_path / "added", batches=3, new_symbols="add"
    )
    assert added.vocabulary.symbols == (*run.vocabulary.symbols, *NEW), "y stands there once, which is rare"


KINDS = {
    "bytes": ("abcab" * 80, "abd\nx" * 80),
    "words": ("the cat sat. " * 60, "the dog sat? " * 60),
    "ids": ("17 4 4 9 " * 80, "4 9 800 17 " * 80),
    "notes": ("60 62 64 " * 90 + "\n", "64 65 60 " * 90 + "\n"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_token_has_symbols_added(kind: str, tmp_path: Path) -> None:
    first, second = KINDS[kind]
    (tmp_path / "first.txt").write_text(first)
    (tmp_path / "second.txt").write_text(second)
    run = train(experiment(corpus=str(tmp_path / "first.txt"), kind=kind), tmp_path / "run")
    child = train_from(run, tmp_path / "second.txt", tmp_path / "child", batches=3, new_symbols="add")
    assert child.vocabulary.symbols[: len(run.vocabulary)] == run.vocabulary.symbols
    assert child.experiment.added_symbols == len(child.vocabulary) - len(run.vocabulary) > 0
    assert child.vocabulary.decode(child.corpus.ids[:40]) == Corpus.open(
        str(tmp_path / "second.txt"), kind
    ).vocabulary.decode(Corpus.open(str(tmp_path / "second.txt"), kind).ids[:40])
    assert unroll.perplexity(child)[0].perplexity == pytest.approx(child.metrics[-1]["perplexity_windowed"])


def test_a_childs_corpus_that_has_changed_is_refused_and_nothing_of_it_is_shown(tmp_path: Path) -> None:
    run = parent_in(tmp_path)
    with pytest.raises(Enough):
        train_from(run, tmp_path / "other.txt", tmp_path / "run", new_symbols="add", on_event=leave_at(4))
    (tmp_path / "other.txt").write_text("Q" * 400)
    with pytest.raises(RunError, match="is not the corpus that this run was trained on") as refused:
        resume(tmp_path / "run")
    assert "Q" not in str(refused.value).replace(str(tmp_path), "")


def test_weights_that_came_from_torch_can_be_gone_on_from(parent: Run, tmp_path: Path) -> None:
    brought = unroll.from_torch(unroll.to_torch(parent), out=tmp_path / "brought")
    child = train_from(brought, corpus(), tmp_path / "child", batches=2)
    assert child.status["batch"] == 2
    with pytest.raises(RunError, match="has made no update"):
        train_from(brought, corpus(), tmp_path / "kept", optimiser_state="keep")


def test_a_childs_folder_is_all_that_resume_eval_sample_and_score_need(tmp_path: Path) -> None:
    run = parent_in(tmp_path)
    whole = train_from(run, tmp_path / "other.txt", tmp_path / "whole", batches=14, new_symbols="add")
    with pytest.raises(Enough):
        train_from(run, tmp_path / "other.txt", tmp_path / "run", batches=14, new_symbols="add", on_event=leave_at(7))
    shutil.rmtree(run.path)
    again = resume(tmp_path / "run")
    assert result(again.path) == result(whole.path)
    assert load(tmp_path / "run").corpus.vocabulary == again.vocabulary
    assert unroll.perplexity(again)[0].perplexity == pytest.approx(again.metrics[-1]["perplexity_windowed"])
    on_file = unroll.perplexity(again, corpus=tmp_path / "other.txt")[0]
    assert on_file == unroll.perplexity(again)[0], "the same text is split as in training"
    prompt = f"{NEW[0]}{NEW[-1]}ab"
    assert len(unroll.score(again, prompt)) == 3
    assert len(unroll.sample(again, prompt, length=5, seed=1).text) == 5
    assert len(unroll.sample(again, length=5).text) == 5, "from its own test set"


def test_a_child_killed_before_it_held_its_weights_says_what_to_do(tmp_path: Path) -> None:
    run = parent_in(tmp_path)
    begun = _start(run, tmp_path / "other.txt")
    RunFolder.create(tmp_path / "run", begun.experiment, begun.corpus.vocabulary)
    with pytest.raises(RunError, match=r"was to begin from another run's weights.*`unroll\.train_from`"):
        resume(tmp_path / "run")
    made = train_from(run, tmp_path / "other.txt", tmp_path / "run", batches=14, new_symbols="add", exist="resume")
    assert made.status["state"] == "finished", "begun again, from the weights"


def _start(run: Run, text: Path, **settings: Any) -> unroll.training.start.Start:
    began = parents.read(run.path)
    child = parents.experiment_of(began, {"corpus": str(text), "batches": 14, "threads": 1, **settings}, {})
    return start(began, child, Corpus.with_every_symbol(child), "add")


def test_the_identity_of_a_child_tells_its_parent_its_symbols_and_its_optimiser(parent: Run, tmp_path: Path) -> None:
    twin = train(experiment(keep_optimiser=True), tmp_path / "twin", parent.corpus)
    other = train(experiment(seed=9), tmp_path / "other", corpus())
    longer = train(experiment(13), tmp_path / "longer", corpus())
    text = corpus(tokens=300)
    made = {
        name: train_from(run, text, tmp_path / f"from {name}", batches=2, seed=1, **settings).experiment
        for name, run, settings in (
            ("parent", parent, {}), ("twin", twin, {}), ("other", other, {}), ("longer", longer, {}),
            ("kept", parent, {"optimiser_state": "keep"}),
        )
    }  # fmt: skip
    alone = train(experiment(2, seed=1), tmp_path / "alone", text).experiment
    identities = {name: e.identity for name, e in made.items()} | {"alone": alone.identity}
    assert identities["parent"] == identities["twin"], "what trained the same weights is the same parent"
    assert len(set(identities.values())) == len(identities) - 1
    assert made["parent"].parent == parent.experiment.identity
    assert alone.parent is None


def test_the_parents_settings_are_the_defaults_and_length_and_machine_are_not(tmp_path: Path) -> None:
    chosen = experiment(
        **CARRIED, cell="gru", k1=3, reset=0.5, optimiser="rmsprop", clip=2.0, precision="float64", evaluations=5,
        split_seed=4, evaluate="both",
    )  # fmt: skip
    run = train(chosen, tmp_path / "run", corpus())
    began = parents.read(run.path)
    child = parents.experiment_of(began, {"learning_rate": 0.5}, {"k1": 2})
    assert child.scheme == replace(chosen.scheme, k1=2)
    taken = (
        "cell",
        "hidden",
        "dense",
        "rows",
        "dropout",
        "optimiser",
        "clip",
        "precision",
        "split_seed",
        "seed",
        "kind",
    )
    assert [getattr(child, name) for name in taken] == [getattr(run.experiment, name) for name in taken]
    assert (child.learning_rate, child.batches, child.evaluations, child.evaluate) == (0.5, 12800, None, "own")
    assert (child.device, child.threads, child.corpus, child.sha256) == ("auto", None, "", "")


def test_settings_that_the_weights_contradict_are_refused_all_at_once(parent: Run, tmp_path: Path) -> None:
    given = {"hidden": 7, "cell": "gru", "kind": "bytes", "min_count": 3, "forget_bias": 1.0}
    with pytest.raises(ConfigurationError) as refused:
        train_from(parent, corpus(), tmp_path / "child", **given)
    assert len(refused.value.problems) == len(given)
    assert refused.value.problems[1].startswith(
        f"hidden is 6 in {parent.path}, and its weights have that shape. Got 7."
    )
    with pytest.raises(ConfigurationError, match=r"optimiser is adam in .*, and its optimiser goes on"):
        train_from(parent, corpus(), tmp_path / "child", optimiser="rmsprop", optimiser_state="keep")
    with pytest.raises(ConfigurationError, match=r"no setting 'hiden'\. Did you mean hidden\?"):
        train_from(parent, corpus(), tmp_path / "child", hiden=7)
    assert train_from(parent, corpus(), tmp_path / "child", hidden=6, cell="lstm", batches=1).status["batch"] == 1


def test_the_scheme_may_be_another(parent: Run, carried_parent: Run, tmp_path: Path) -> None:
    carries = first_values(parent, corpus(), tmp_path / "carries", scheme=4)
    assert not carries["layers.0.h0"].any(), "where states are carried, a text starts from zeros"
    assert parent.folder.weights()[0]["layers.0.h0"].any()
    learns = first_values(carried_parent, corpus(), tmp_path / "learns", scheme=Scheme(k1=2, k2=5))
    assert not any(value.any() for name, value in learns.items() if name.startswith("carried."))
    assert RunFolder(tmp_path / "learns").experiment.scheme == Scheme(k1=2, k2=5)


def test_carried_states_begin_at_zero(carried_parent: Run, tmp_path: Path) -> None:
    assert carried_parent.folder.weights()[0]["carried.0.h"].any()
    began = first_values(carried_parent, corpus(), tmp_path / "child")
    assert not began["carried.0.h"].any()


# --- the optimiser -----------------------------------------------------------------------------------------------


def test_an_optimiser_goes_on_with_its_moments_and_its_count(parent: Run, tmp_path: Path) -> None:
    began = first_values(parent, corpus(OTHERS), tmp_path / "child", optimiser_state="keep", new_symbols="add")
    kept = {name: value for name, value in parent.folder.kept().tensors.items() if name.startswith("optimiser.")}
    assert kept
    for name, value in kept.items():
        assert torch.equal(began[name][tuple(slice(n) for n in value.shape)], value), name
    assert RunFolder(tmp_path / "child").experiment.updates_before == 12
    grandchild = train_from(tmp_path / "child", corpus(), tmp_path / "grandchild", optimiser_state="keep", batches=1)
    assert grandchild.experiment.updates_before == 13, "of a run that has not ended: after its newest checkpoint"


@pytest.mark.parametrize("optimiser", [adam, rmsprop])
def test_an_optimiser_that_goes_on_is_one_that_never_stopped(optimiser: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    gradients = [torch.randn(1, 4, generator=generator) for _ in range(9)]
    rate = torch.full((1, 1), 0.01)
    whole: list[torch.Tensor] = []
    moments = tuple(torch.zeros(1, 4) for _ in optimiser.MOMENTS)
    for count, gradient in enumerate(gradients, 1):
        before = moments
        amount, moments = optimiser.update(gradient, moments, rate, count)
        whole.append(amount)
    assert torch.equal(Continued(optimiser, 8).update(gradients[8], before, rate, 1)[0], whole[8])


@pytest.mark.parametrize("name", ["adam", "rmsprop"])
def test_machine_code_goes_on_as_the_plain_optimiser_does(name: str, tmp_path: Path) -> None:
    run = parent_in(tmp_path, optimiser=name, precision="float64")
    compiled, plain = (
        train_from(run, corpus(), tmp_path / k, batches=6, optimiser_state="keep", kernel=k, device="cpu", threads=1)
        for k in ("compiled", "reference")
    )
    for tensor, value in plain.folder.weights()[0].items():
        assert torch.allclose(compiled.folder.weights()[0][tensor], value, rtol=1e-9, atol=1e-12), tensor
    new = train_from(run, corpus(), tmp_path / "new", batches=6, kernel="reference", device="cpu", threads=1)
    assert not torch.allclose(new.folder.weights()[0]["out.W"], plain.folder.weights()[0]["out.W"], rtol=1e-4)


def test_an_optimiser_that_was_not_kept_cannot_go_on(tmp_path: Path) -> None:
    run = train(experiment(), tmp_path / "run", corpus())
    with pytest.raises(RunError, match=r"kept nothing of its optimiser.*optimiser_state= ?\"?new"):
        train_from(run, corpus(), tmp_path / "child", optimiser_state="keep")


# --- parents of every sort ---------------------------------------------------------------------------------------


def test_a_parent_that_has_not_ended_gives_its_newest_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Enough):
        train(experiment(), tmp_path / "run", corpus(), on_event=leave_at(5))
    began = parents.read(tmp_path / "run")
    assert (began.batch, began.notes) == (5, (f"{tmp_path / 'run'} has not ended: its weights are those of batch 5.",))
    values = first_values(tmp_path / "run", corpus(), tmp_path / "child")
    assert torch.equal(values["out.W"], RunFolder(tmp_path / "run").checkpoint(5).tensors["out.W"])


def test_a_parent_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    text = corpus()
    RunFolder.create(tmp_path / "run", text.described_in(experiment()), text.vocabulary)
    with pytest.raises(RunError, match="holds no weights"):
        train_from(tmp_path / "run", text, tmp_path / "child")
    with pytest.raises(RunError, match="not a run folder"):
        train_from(tmp_path / "nowhere", text, tmp_path / "child")


def damaged(run: Run, change: Any) -> None:
    path = run.path / "weights.safetensors"
    tensors, facts = atomic_files.unseal(path)
    change(tensors)
    path.write_bytes(atomic_files.seal(tensors, facts))


def test_a_tampered_parent_is_refused(tmp_path: Path) -> None:
    def run(name: str) -> Run:
        return train(experiment(), tmp_path / name, corpus())

    flipped, nan, cut, symbols = run("flipped"), run("nan"), run("cut"), run("symbols")
    content = bytearray((flipped.path / "weights.safetensors").read_bytes())
    content[-3] ^= 4
    (flipped.path / "weights.safetensors").write_bytes(content)
    damaged(nan, lambda tensors: tensors["out.W"].view(-1)[3].fill_(torch.nan))
    damaged(cut, lambda tensors: tensors.update({"out.b": tensors["out.b"][:-1].clone()}))
    vocabulary = (symbols.path / "vocabulary.json").read_text()
    (symbols.path / "vocabulary.json").write_text(vocabulary.replace('"a"', '"z"'))
    for sick, words in (
        (flipped, "is damaged"),
        (nan, r"not finite, in out\.W"),
        (cut, r"out\.b in the weights of .* must be \[9\]. Got \[8\]"),
        (symbols, "is not the vocabulary that the weights were trained with"),
    ):
        with pytest.raises(RunError, match=words):
            train_from(sick, corpus(), tmp_path / "child")
    assert not (tmp_path / "child").exists()


def test_an_optimiser_of_other_weights_does_not_go_on(parent: Run, tmp_path: Path) -> None:
    other = train(experiment(seed=9, keep_optimiser=True), tmp_path / "other", corpus())
    shutil.copy(parent.folder.kept_path, other.folder.kept_path)
    with pytest.raises(RunError, match=r"optimiser\.safetensors is not of these weights"):
        train_from(other, corpus(), tmp_path / "child", optimiser_state="keep")


def test_a_childs_own_vocabulary_must_be_what_it_was_trained_with(tmp_path: Path) -> None:
    run = parent_in(tmp_path)
    with pytest.raises(Enough):
        train_from(run, tmp_path / "other.txt", tmp_path / "run", new_symbols="add", batches=9, on_event=leave_at(4))
    path = tmp_path / "run" / "vocabulary.json"
    swapped = path.read_text().replace('"a"', '"?"').replace('"b"', '"a"').replace('"?"', '"b"')
    path.write_text(swapped)
    with pytest.raises(RunError, match="symbols were changed"):
        resume(tmp_path / "run")


def test_a_run_of_music_is_no_parent_of_a_text(parent: Run, tmp_path: Path) -> None:
    notes = Corpus.from_text("60 62 64 65 67 " * 90, kind="notes")
    with pytest.raises(SymbolError, match=r"is read as notes, and .* knows chars"):
        train_from(parent, notes, tmp_path / "child")


def test_an_experiment_that_names_a_parent_is_not_trained_from_nothing(parent: Run, tmp_path: Path) -> None:
    child = train_from(parent, corpus(), tmp_path / "child", batches=2)
    with pytest.raises(ConfigurationError, match=r"`unroll\.train_from`"):
        train(child.experiment, tmp_path / "again", corpus())
    assert not (tmp_path / "again").exists()


def test_exist_means_for_a_child_what_it_means_for_any_run(tmp_path: Path) -> None:
    run = parent_in(tmp_path)

    def child(exist: Any, **settings: Any) -> Run:
        given = {"batches": 9, "new_symbols": "add", **settings}
        return train_from(run, tmp_path / "other.txt", tmp_path / "child", exist=exist, **given)

    with pytest.raises(Enough):
        child("resume", on_event=leave_at(4))
    with pytest.raises(RunError, match="exist"):
        child("error")
    done = child("resume")
    assert done.status["state"] == "finished"
    assert result(child("resume").path) == result(done.path)
    with pytest.raises(RunError, match="learning_rate was"):
        child("resume", learning_rate=0.5)
    assert child("replace", learning_rate=0.5).experiment.learning_rate == 0.5
    with pytest.raises(RunError, match="is not replaced"):
        train_from(run, tmp_path / "other.txt", run.path, new_symbols="add", exist="replace")


def test_a_child_trains_beside_others_as_it_does_alone(tmp_path: Path) -> None:
    run = parent_in(tmp_path, precision="float64")
    begun = _start(run, tmp_path / "other.txt")
    beside = corpus(OTHERS)
    stranger = replace(begun.experiment, parent=None, parent_weights=None, added_symbols=None, seed=2)
    texts, outs = [beside, begun.corpus], [tmp_path / "stranger", tmp_path / "child"]
    list(train_fleet([replace(stranger, sha256=beside.sha256), begun.experiment], texts, outs, starts=[None, begun]))
    list(train_fleet([begun.experiment], [begun.corpus], [tmp_path / "alone"], starts=[begun]))
    for name, value in load(tmp_path / "alone").folder.weights()[0].items():
        assert torch.allclose(load(tmp_path / "child").folder.weights()[0][name], value, rtol=1e-9, atol=1e-12), name


# --- kills -------------------------------------------------------------------------------------------------------


def killed_at(folder: Path, template: Path, at: int) -> dict[str, Any]:
    """Begin a child, killed at a moment; then as a person would go on, without its parent if it can be."""
    shutil.copytree(template, folder)
    outcome = going_on.run("begin", folder, at)
    assert outcome.killed, (at, outcome)
    child = RunFolder(folder / "run")
    if child.is_run() and (child.checkpoints() or child.has_ended()):
        shutil.rmtree(folder / "parent")
        again = going_on.run("go on", folder)
    else:
        if child.is_run():
            refused = going_on.run("go on", folder)
            assert refused.raised is not None
            assert "was to begin from another run's weights" in refused.raised[1]
        shutil.rmtree(folder / "run", ignore_errors=True)
        again = going_on.run("begin", folder)
    assert (again.code, again.raised) == (0, None), (at, outcome.moment, again)
    return result(folder / "run")


def family(folder: Path) -> tuple[Path, dict[str, Any], list[str]]:
    """A parent of scheme 4, what a child of it comes to, and the child's moments."""
    template = folder / "template"
    template.mkdir()
    parent_in(template, **CARRIED)
    shutil.copytree(template, folder / "whole")
    seen = going_on.moments_of("begin", folder / "whole")
    return template, result(folder / "whole" / "run"), seen


def test_a_child_killed_in_its_early_batches_ends_bit_identical(tmp_path: Path) -> None:
    template, expected, seen = family(tmp_path)
    first = seen.index("renamed") + 1  # the first checkpoint, of batch 0
    for at in (first - 2, first, first + 4, seen.index("step") + 1):
        assert killed_at(tmp_path / f"at {at}", template, at) == expected, at


@pytest.mark.slow
def test_a_child_killed_at_any_moment_ends_bit_identical(tmp_path: Path) -> None:
    template, expected, seen = family(tmp_path)
    first, last = seen.index("renamed") + 1, len(seen)
    chosen = {*range(1, first + 12), *range(last - 8, last + 1)}
    between = range(first + 12, last - 8)
    chosen |= set(random.Random(0).sample(between, min(20, len(between))))
    for at in sorted(chosen):
        assert killed_at(tmp_path / f"at {at}", template, at) == expected, at
        shutil.rmtree(tmp_path / f"at {at}")
