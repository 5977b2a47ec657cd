"""benchmarks/scheme_traits.py: what it measures is what it says, nothing is done twice, and records alone are drawn."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import CPU, random_ids, random_model, tiny, tiny_corpus
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from unroll.corpus.synthetic import Copy
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.model.model import Model
from unroll.runs.perplexities import token_nll
from unroll.studies.paper import page as pages
from unroll.training.learner import Learner

sys.path.append(str(ROOT / "benchmarks"))

from traits import measures, page, picture, records, training
from traits.plan import Job, Settings, copy_source, copy_text, corpora

SETTINGS = Settings(
    precision="float64", batches=6, corpora=("words",), hidden=6, k2=6, copy_hidden=5, copy_k2=(6,), copy_tokens=3000,
    copy_rows=8, seeds=(0, 1), rows=4, dense=7, places=5,
)  # fmt: skip


@pytest.fixture
def fleet() -> Model:
    """Two runs of random values throughout, with vocabularies of different sizes."""
    return random_model([tiny(), tiny(seed=1)], [7, 5])


def texts(tokens: int = 60) -> torch.Tensor:
    return torch.stack((random_ids(tokens), random_ids(tokens, symbols=5, seed=1)))


def after(model: Model, m: int, read: torch.Tensor, token: int) -> float:
    """The nll of a token after others, a step at a time, for one run: as plainly as it can be said."""
    state = model.first_state(1)
    for ids_M1 in read.expand(len(model.experiments), -1).unsqueeze(-1).unbind(1):
        state = model.advance(ids_M1, state)
    logits = model.head(state[-1][0].unsqueeze(1))[m, 0, 0].double()
    return float(-torch.log_softmax(logits, -1)[token].detach())


def test_the_nll_at_a_position_is_that_of_every_token_after_that_many_others(fleet: Model) -> None:
    ids, reach = texts(30), 9
    nll_MP = measures.position_nll(fleet, ids, reach)
    for m, p in ((0, 1), (0, 5), (1, 4), (1, 9)):
        text = ids[m]
        plain = [after(fleet, m, text[n - p : n], int(text[n])) for n in range(reach, 30)]
        assert nll_MP[m, p - 1] == pytest.approx(np.mean(plain), abs=1e-12)


def test_the_nll_at_position_k2_is_windowed_perplexity(fleet: Model) -> None:
    ids, k2, reach = texts(), 5, 12
    nll_MP = measures.position_nll(fleet, ids, reach)
    windowed = token_nll(fleet, list(ids), k2, "windowed")
    for m in range(2):
        assert nll_MP[m, k2 - 1] == pytest.approx(float(windowed[m][reach - k2 :].mean()), abs=1e-12)


def test_no_measure_depends_on_how_the_work_is_cut(fleet: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, positions, wrong = texts(100), torch.tensor([5, 20, 70]), torch.tensor([[1, 2, 3], [0, 4, 1]])

    def measured() -> list[torch.Tensor]:
        copied = measures.answer_nll(fleet, ids[1], torch.tensor([8, 31, 47]), 5, 20)
        excess = measures.excess(fleet, ids, positions, wrong, 5, 12)
        return [measures.position_nll(fleet, ids, 12), *copied.values(), *excess.values()]

    whole = measured()
    monkeypatch.setattr(measures, "STEPS", 3)
    monkeypatch.setattr(measures, "_rows", lambda model, steps=0: 7)
    for one, other in zip(whole, measured(), strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_a_token_replaced_by_itself_costs_exactly_nothing(fleet: Model) -> None:
    ids, positions = texts(), torch.tensor([5, 17, 40])
    costs = measures.excess(fleet, ids, positions, ids[:, positions], 5, 15)
    assert {name: tuple(excess.shape) for name, excess in costs.items()} == {
        "progressive": (2, 3, 15),
        "windowed": (2, 3, 5),
    }
    assert all(not excess.any() for excess in costs.values())


def test_the_excess_is_what_the_disturbed_text_scores_above_the_text(fleet: Model) -> None:
    ids, k2, reach, position = texts(), 5, 15, 23
    wrong = (ids[:, position] + 1) % 5
    disturbed = ids.clone()
    disturbed[:, position] = wrong
    costs = measures.excess(fleet, ids, torch.tensor([9, position]), torch.stack((ids[:, 9], wrong), 1), k2, reach)
    for procedure, excess in costs.items():
        clean, other = (token_nll(fleet, list(text), k2, procedure) for text in (ids, disturbed))
        for m in range(2):
            # Distance 1 is the token after the wrong one; a text's first k2 tokens are not scored.
            beyond = (other[m] - clean[m])[position + 1 - k2 :, 0]
            length = excess.shape[-1]
            assert torch.allclose(excess[m, 1], beyond[:length], atol=1e-12)
            assert excess[m, 1].any()
            if procedure == "windowed":
                assert not beyond[length:].any()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.lists(st.integers(0, 9), min_size=6, max_size=6))
def test_a_wrong_token_is_one_that_the_text_has_and_never_the_true_one(true: list[int], counts: list[int]) -> None:
    counts[0], counts[5] = counts[0] + 1, counts[5] + 1  # so that there always is another
    wrong = measures.wrong_tokens(true, np.array(counts, np.float64), seed=3)
    assert (wrong != np.array(true)).all()
    assert all(counts[token] for token in wrong)


def test_wrong_tokens_are_as_frequent_as_they_are_in_the_text() -> None:
    wrong = measures.wrong_tokens([2] * 20_000, np.array([1.0, 3.0, 5.0]), seed=0)
    assert np.mean(wrong == 1) == pytest.approx(0.75, abs=0.02)


def test_places_leave_room_for_a_window_before_them_and_for_all_distances_after() -> None:
    positions = measures.replaced_positions(1000, 50, k2=20, reach=60)
    assert len(positions) == 50
    assert (positions[0], positions[-1]) == (20, 1000 - 60 - 1)


def test_who_copies_scores_1_and_who_knows_only_that_a_symbol_comes_scores_0() -> None:
    source = Copy(symbols=8, noise=3, gaps=(1, 9))
    text = source.text(4000)
    positions, distances = measures.known_answers(source, text, k2=6, row=100)
    remembered = np.array([text[p - d] for p, d in zip(positions, distances, strict=True)])
    answers = np.array([text[p] for p in positions])
    perfect = np.where(remembered == answers, 0.0, np.inf)
    assert measures.share_copied(perfect.mean(), source.symbols) == 1
    assert measures.share_copied(np.full(len(answers), -math.log(1 / 8)).mean(), source.symbols) == pytest.approx(0)
    # A record stands whole in its row, and a window before the answer.
    assert (positions % 100 >= np.maximum(6, distances + 1)).all()
    assert set(distances) == set(range(3, 12))


def test_answers_are_scored_as_perplexity_scores_them(fleet: Model) -> None:
    ids, k2, row = random_ids(60, symbols=5, seed=4), 5, 20
    positions = torch.tensor([7, 19, 46])
    nll = measures.answer_nll(fleet, ids, positions, k2, row)
    windowed = token_nll(fleet, [ids, ids], k2, "windowed")
    for m in range(2):
        for a, at in enumerate(positions.tolist()):
            begin = at // row * row
            (progressive, *_) = token_nll(fleet, [ids[begin : begin + row]] * 2, k2, "progressive")[m : m + 1]
            assert nll["windowed"][m, a] == pytest.approx(float(windowed[m][at - k2, 0]), abs=1e-12)
            assert nll["progressive"][m, a] == pytest.approx(float(progressive[at % row - k2, 0]), abs=1e-12)


def test_models_are_asked_about_other_texts_than_they_were_trained_on() -> None:
    trained, asked = copy_text(6, 3000), copy_source(6).text(3000, seed=0)
    assert len(trained) == 3000
    assert set(trained) == set(asked)
    starts = range(0, 2900, 20)
    assert not any(asked[at : at + 40] in trained for at in starts)


def test_a_zero_start_is_multi_loss_whose_first_state_stays_0() -> None:
    corpus = tiny_corpus()
    k1, k2 = 2, 6
    job = Job("text", "zero start", 0, k2, 5)
    assert (job.scheme.k1, job.scheme.number, job.scheme.sample) == (k1, None, "windowed")
    zero, learned = (
        Learner([devices.resolve(tiny(**fields, k1=k1, k2=k2))], [corpus], engine_of(CPU, "reference"))
        for fields in ({"loss": "equal", "state": "carried", "reset": 1.0}, {"loss": "equal", "state": "learned"})
    )
    for _ in range(4):
        zero.step()
        learned.step()
        with torch.no_grad():
            for name in ("layers.0.h0", "layers.0.c0"):
                learned.model.parameters[name].zero_()
    for name, value in learned.model.values(0).items():
        assert torch.equal(value, zero.model.values(0)[name]), name


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "words.txt").write_text("to be or not to be, that is the question. " * 60)
    return folder


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything done once: records in out, trainings in runs."""
    folder = tmp_path_factory.mktemp("made")
    training.train(SETTINGS, data, folder / "out", folder / "runs", "cpu")
    return folder


def lines(folder: Path) -> dict[str, Any]:
    """The runs of every record; what a clock said is left out."""
    return {path.name: json.loads(path.read_text())["runs"] for path in folder.glob("*.json")}


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("this was done already")


def test_every_training_is_recorded_with_what_was_measured(made: Path) -> None:
    stored = records.read(made / "out")
    assert {(run["training"], run["seed"]) for run in stored.text} == {
        (name, seed) for name in ("multi-loss", "single-loss", "conditional", "zero start") for seed in (0, 1)
    }
    assert {(run["training"], run["seed"]) for run in stored.copy} == {
        (name, seed) for name in ("multi-loss", "single-loss", "conditional") for seed in (0, 1)
    }
    for run in stored.text:
        assert len(run["positions"]) == len(run["excess"]["progressive"]) == 18
        assert len(run["excess"]["windowed"]) == 6
        assert [point[0] for point in run["curve"]] == [1, 2, 3, 4, 5, 6]
    for run in stored.copy:
        assert [line["batch"] for line in run["learning"]] == [6]
        assert all(len(records.share_by_quarter(run, p)) == 6 for p in ("windowed", "progressive"))
    assert {name: pace["runs"] for name, pace in stored.pace.items()} == {"multi-loss": 2, "single-loss": 2}


def test_what_is_recorded_is_not_done_again(made: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in (made / "out").iterdir()}
    monkeypatch.setattr(training, "train_fleet", never)
    monkeypatch.setattr(measures, "_read", never)
    training.train(SETTINGS, data, made / "out", made / "runs", "cpu")
    assert {path: path.read_bytes() for path in (made / "out").iterdir()} == before


def test_a_lost_record_is_measured_again_without_training(
    made: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train_fleet", never)
    training.train(SETTINGS, data, tmp_path, made / "runs", "cpu")
    assert lines(tmp_path) == lines(made / "out")


def test_killed_in_the_middle_it_goes_on_and_ends_the_same(
    made: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = training.train_fleet

    def killed_later(*arguments: Any, **options: Any) -> Iterator[Any]:
        for count, event in enumerate(plain(*arguments, **options, save_every=2)):
            if count == 9:
                raise KeyboardInterrupt
            yield event

    with monkeypatch.context() as patch:
        patch.setattr(training, "train_fleet", killed_later)
        with pytest.raises(KeyboardInterrupt):
            training.train(SETTINGS, data, tmp_path / "out", tmp_path / "runs", "cpu")
    training.train(SETTINGS, data, tmp_path / "out", tmp_path / "runs", "cpu")
    assert lines(tmp_path / "out") == lines(made / "out")


def test_a_record_of_other_settings_is_not_written_over(made: Path, data: Path) -> None:
    with pytest.raises(SystemExit, match=r"other settings.*--out"):
        training.train(replace(SETTINGS, batches=7), data, made / "out", made / "runs", "cpu")


def test_the_same_records_draw_the_same_page_and_picture(made: Path, tmp_path: Path) -> None:
    prose = (ROOT / "docs" / "schemes.md").read_text("utf-8")
    (tmp_path / "schemes.md").write_text(prose, "utf-8")
    blocks = page.judge(made / "out", tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert page.judge(made / "out", tmp_path) == blocks
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
    assert set(first) == {"schemes.md", picture.NAME}
    text = first["schemes.md"].decode()
    assert page.ABSENT not in text
    assert [part.split("<!-- end -->")[-1] for part in text.split("<!-- unroll: ")] == [
        part.split("<!-- end -->")[-1] for part in prose.split("<!-- unroll: ")
    ]


def test_a_part_of_the_records_is_drawn_and_the_rest_said_to_be_absent(made: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    for path in (made / "out").glob("copy-*-last-*"):
        (tmp_path / "one" / path.name).write_bytes(path.read_bytes())
    blocks = page.blocks(records.read(tmp_path / "one"))
    assert blocks["traits-position"] == blocks["traits-recovery"] == page.ABSENT
    assert "| 6 | 2 |" in blocks["traits-copy"]
    assert "| 6 | 1 |" not in blocks["traits-copy"]
    picture.save(records.read(tmp_path / "one"), tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").stat().st_size > 1000


def test_the_page_in_the_documentation_is_what_the_records_say() -> None:
    text = (ROOT / "docs" / "schemes.md").read_text("utf-8")
    stored = records.read(ROOT / "results" / "schemes")
    contents = page.blocks(stored)
    assert all(f"<!-- unroll: {name} -->" in text for name in contents)
    assert pages.fill(text, contents) == text
    assert (ROOT / "docs" / picture.NAME).exists() == bool(stored.text or stored.copy)


def test_between_two_evaluations_the_nll_lies_on_a_line_over_the_logarithm_of_the_batch() -> None:
    run = {"curve": [[10, math.exp(3.0), None], [100, math.exp(2.0), None], [200, None, 4.0]]}
    assert records.windowed_nats(run, 10) == pytest.approx(3.0)
    assert records.windowed_nats(run, 100) == pytest.approx(2.0)
    assert records.windowed_nats(run, math.sqrt(1000)) == pytest.approx(2.5)
    assert math.isnan(records.windowed_nats(run, 101))


def test_the_share_copied_is_the_mean_over_answers_and_ends_a_quarter_where_the_window_ends() -> None:
    run = {
        "k2": 20,
        "symbols": 8,
        "answers": {"3": 1, "5": 3, "20": 2, "21": 2},
        "nll": {"windowed": {"3": 0.0, "5": math.log(8), "20": 0.0, "21": math.log(8)}},
    }
    shares = records.share_by_quarter(run, "windowed")
    assert shares[0] == pytest.approx(0.25)
    assert (shares[3], shares[4]) == (1.0, 0.0)
    assert math.isnan(shares[1])


def test_both_texts_and_the_copy_source_are_asked_for_by_default(data: Path) -> None:
    assert set(corpora(SETTINGS, data)) == {("words", 6), ("copy", 6)}
    default = training.jobs(Settings())
    assert len(default) == 2 * 4 * 3 + 2 * 3 * 3
    assert {job.k2 for job in default} == {20, 100}
