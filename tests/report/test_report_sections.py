"""What a page says beside its curves: each number is the one that the command of its own gives, each text is text."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import TINY, unroll
from report_cases import data_of, parsed

import unroll as library
from unroll import report
from unroll.corpus.synthetic import Markov
from unroll.report import gather
from unroll.report.looking import announce, choose, computed_parts
from unroll.report.page import SCRIPTS
from unroll.report.sections import ASKED, samples, text, units
from unroll.runs.drift import perplexity_since_reset
from unroll.runs.hidden_states import states_after
from unroll.runs.loaded import text_ids
from unroll.sweep.answers import answers

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e&amp;<!--@DATA@\u2028"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text(Markov().text(3000))
    return path


@pytest.fixture(scope="module")
def sweep(corpus: Path) -> Path:
    folder = corpus.parent / "sweep"
    options = ["--scheme", "1,4", "--seeds", 2, "--batches", 12, "--most", 4, "--quiet", *TINY]
    result = unroll("sweep", corpus, *options, "--out", folder)
    assert result.code == 0, result.err
    return folder


@pytest.fixture(scope="module")
def page(sweep: Path) -> str:
    return made(sweep.parent / "all.html", sweep, "--show", "all")


@pytest.fixture(scope="module")
def parts(page: str) -> dict[str, dict[str, Any]]:
    return {part["id"]: part for part in data_of(page)["parts"]}


def made(out: Path, *arguments: object) -> str:
    result = unroll("report", *arguments, "--out", out)
    assert result.code == 0, result.err
    return out.read_text()


def block(part: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [each for each in part["blocks"] if each["kind"] == kind]
    return dict(found)


def notices(part: dict[str, Any]) -> list[str]:
    return [each["text"] for each in part["blocks"] if each["kind"] == "notice"]


def loaded(sweep: Path) -> Iterator[tuple[str, library.Run]]:
    """The runs by their labels on the page."""
    for path in sorted((sweep / "runs").iterdir()):
        run = library.load(path, device="cpu")
        yield f"scheme {run.experiment.scheme.number}, seed {run.experiment.seed}", run


def test_sections_stand_in_their_order_and_the_answer_leads(parts: dict[str, dict[str, Any]]) -> None:
    assert list(parts) == ["answer", "settings", *ASKED]
    assert [name for name, part in parts.items() if part["leads"]] == ["answer"]
    assert not any(notices(part) for part in parts.values())


def test_the_answer_is_the_sweeps_own(sweep: Path, parts: dict[str, dict[str, Any]]) -> None:
    (answer,) = answers(json.loads((sweep / "table.json").read_text()))
    assert block(parts["answer"], "lead")["text"].lower() == answer.in_words().lower()
    table = block(parts["answer"], "table")
    means = [row[table["columns"].index("mean perplexity")] for row in table["rows"]]
    assert means == [f"{standing.perplexity.mean:,.3f}" for standing in answer.standings if standing.perplexity]
    first, second = (row[table["columns"].index("verdict")]["chip"] for row in table["rows"])
    assert first == "lowest mean"
    assert second == {True: "higher", False: "cannot be told apart"}[bool(answer.standings[1].is_apart)]
    ratio = answer.standings[1].ratio
    assert ratio is not None
    picture = table["rows"][1][table["columns"].index("interval of the difference")]
    assert picture["interval"] == pytest.approx([100 * (v - 1) for v in (ratio.mean, ratio.low, ratio.high)])
    assert picture["at"] == 0


def test_runs_of_no_sweep_are_compared_too(sweep: Path, tmp_path: Path) -> None:
    part = data_of(made(tmp_path / "page.html", sweep / "runs"))["parts"][0]
    assert part["title"] == "What the runs answer"
    assert block(part, "table")["rows"] == block(data_of(made(tmp_path / "a.html", sweep))["parts"][0], "table")["rows"]


def test_only_settings_that_differ_have_a_column(parts: dict[str, dict[str, Any]]) -> None:
    table = block(parts["settings"], "table")
    assert table["columns"] == ["scheme", "runs", "seeds", "folder"]
    assert [row[:3] for row in table["rows"]] == [
        ["1: multi-loss, windowed", 2, "0, 1"],
        ["4: conditional, progressive", 2, "0, 1"],
    ]
    same = block(parts["settings"], "folded")["text"]
    assert "hidden 8" in same
    assert "k2 10" in same
    assert "seed " not in same.replace("split seed", "")


def test_drift_is_that_of_unroll_drift(sweep: Path, parts: dict[str, dict[str, Any]]) -> None:
    runs = {run["label"]: run for run in block(parts["drift"], "drift")["runs"]}
    assert len(runs) == 4
    for label, run in loaded(sweep):
        drift = perplexity_since_reset(run, starts=64)
        shown = runs[label]
        assert shown["windowed"] == pytest.approx(drift.windowed.perplexity, rel=1e-4)
        assert [row[:2] for row in shown["bins"]] == [[b.first, b.last] for b in drift.bins]
        assert [row[2] for row in shown["bins"]] == pytest.approx([drift.perplexity(b) for b in drift.bins], rel=1e-4)


def test_the_text_is_the_test_set_with_each_tokens_surprise(sweep: Path, parts: dict[str, dict[str, Any]]) -> None:
    found = block(parts["text"], "texts")
    assert len(found["texts"]) == 1  # which all four runs read
    for label, run in loaded(sweep):
        ids = text_ids(run, None)[: text.TOKENS]
        (shown,) = [each for each in found["runs"] if each["label"] == label]
        test_text = run.vocabulary.decode(ids)
        assert "".join(found["texts"][shown["text"]]).replace("↵\n", "\n") == test_text
        scored = library.surprisals(run, test_text)
        assert shown["bits"] == pytest.approx([10 * token.bits for token in scored.tokens], abs=0.51)
        names = [shown["names"][index] for index in shown["likeliest"][::2]]
        expected = [a.symbol for token in scored.tokens for a in token.alternatives[: shown["alternatives"]]]
        assert [name.replace("↵", "") for name in names] == expected
        odds = [a.probability for token in scored.tokens for a in token.alternatives[: shown["alternatives"]]]
        assert shown["likeliest"][1::2] == pytest.approx([1000 * p for p in odds], abs=0.51)


def test_a_sample_is_that_of_unroll_sample_and_marked_where_it_copies(
    sweep: Path, parts: dict[str, dict[str, Any]]
) -> None:
    runs = {run["label"]: run for run in block(parts["samples"], "samples")["runs"]}
    for label, run in loaded(sweep):
        train = run.vocabulary.decode(run.corpus.train_ids(0))
        for procedure, shown in runs[label]["procedures"].items():
            drawn = library.sample(run, length=samples.TOKENS, temperature=0.7, seed=0, sample=procedure)
            assert "".join(words for words, _ in shown["pieces"]) == drawn.text
            inside = [copied > 0 for words, copied in shown["pieces"] for _ in words]
            expected = [False] * len(inside)
            for at in range(len(inside) - samples.COPIED_FROM + 1):
                if drawn.text[at : at + samples.COPIED_FROM] in train:
                    expected[at : at + samples.COPIED_FROM] = [True] * samples.COPIED_FROM
            assert inside == expected
            assert shown["copied"] == pytest.approx(np.mean(inside))
    assert len(runs) == 4


def test_a_sample_of_a_text_that_repeats_is_marked_as_copied(tmp_path: Path) -> None:
    (tmp_path / "abc.txt").write_text("abcdefgh" * 400)
    options = ["--batches", 150, "--learning-rate", "0.02", *TINY]
    assert unroll("train", tmp_path / "abc.txt", *options, "--out", tmp_path / "run").code == 0
    (part,) = data_of(made(tmp_path / "page.html", tmp_path / "run", "--show", "samples"))["parts"]
    (run,) = block(part, "samples")["runs"]
    assert run["procedures"]["windowed"]["copied"] > 0.9


def test_units_are_ranked_and_their_activations_are_those_of_the_run(
    sweep: Path, parts: dict[str, dict[str, Any]]
) -> None:
    found = block(parts["units"], "units")
    for label, run in loaded(sweep):
        (shown,) = [each for each in found["runs"] if each["label"] == label]
        h_TLH = states_after(run, text_ids(run, None)[: units.MEASURED]).h
        shares = [unit["selectivity"] for unit in shown["units"]]
        assert shares == sorted(shares, reverse=True)
        assert len(shares) == shown["of"] == 8
        for unit in shown["units"]:
            layer, number = (int(word) - 1 for word in unit["name"].replace("layer ", "").split(", unit "))
            h_T = h_TLH[: units.SHOWN, layer, number]
            digits = np.array([found["digits"].index(digit) for digit in unit["activation"]]) - found["middle"]
            assert digits / found["middle"] * unit["largest"] == pytest.approx(h_T, abs=unit["largest"] / 40)


def test_a_page_without_show_holds_no_text_of_the_corpus(corpus: Path, sweep: Path, page: str, tmp_path: Path) -> None:
    words = corpus.read_text()
    stretches = [words[at : at + 30] for at in range(0, len(words) - 30, 5)]

    def holds(shown: str) -> bool:
        tokens = "".join(token for part in data_of(shown)["parts"] for token in _strings(part))
        return any(stretch in tokens for stretch in stretches)

    assert holds(page)
    assert not holds(made(tmp_path / "page.html", sweep))
    assert not holds(made(tmp_path / "drift.html", sweep, "--show", "drift"))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def test_the_command_says_that_the_page_holds_text(sweep: Path, tmp_path: Path) -> None:
    words = "share it where you may share that text"
    assert words in unroll("report", sweep, "--show", "text", "--out", tmp_path / "a.html").err
    assert words not in unroll("report", sweep, "--show", "drift", "--out", tmp_path / "b.html").err


def test_the_same_runs_give_the_same_page_with_every_section(sweep: Path, page: str, tmp_path: Path) -> None:
    assert made(tmp_path / "again.html", sweep, "--show", "units,samples,text,drift") == page


def test_a_run_takes_at_most_60_kilobytes(sweep: Path, page: str, tmp_path: Path) -> None:
    """So 100 runs stay under 10 MB, those with thousands of units as well."""
    assert len(page) - len(made(tmp_path / "plain.html", sweep)) < 4 * 60_000


def test_no_path_of_the_machine_stands_on_the_page(corpus: Path, sweep: Path, page: str, tmp_path: Path) -> None:
    assert str(corpus.parent) not in page


def test_a_run_whose_weights_are_damaged_is_left_out_and_said(sweep: Path, tmp_path: Path) -> None:
    folder = sweep.parent / "damaged"  # beside it, where its text is found
    shutil.copytree(sweep, folder)
    broken = sorted((folder / "runs").iterdir())[0]
    content = bytearray((broken / "weights.safetensors").read_bytes())
    content[-5] ^= 1
    (broken / "weights.safetensors").write_bytes(content)
    shown = made(tmp_path / "page.html", folder, "--show", "drift,text")
    parts = {part["id"]: part for part in data_of(shown)["parts"]}
    for name, kind in (("drift", "drift"), ("text", "texts")):
        (notice,) = notices(parts[name])
        assert notice.startswith("Left out: scheme 4, seed 0.")
        assert len(block(parts[name], kind)["runs"]) == 3
    assert str(sweep.parent) not in shown


def test_where_the_corpus_is_gone_the_page_says_so_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(Markov().text(2000))
    assert unroll("train", tmp_path / "corpus.txt", "--batches", 6, *TINY, "--out", tmp_path / "run").code == 0
    (tmp_path / "corpus.txt").unlink()
    shown = made(tmp_path / "page.html", tmp_path / "run", "--show", "all")
    parts = {part["id"]: part for part in data_of(shown)["parts"]}
    assert list(parts) == list(ASKED)
    for part in parts.values():
        assert "is not at hand" in notices(part)[0]
        assert notices(part)[-1] == "No run has anything to show here."
    assert data_of(shown)["figures"]
    assert str(tmp_path) not in shown


def test_no_script_of_the_page_makes_markup_or_code_of_text() -> None:
    scripts = {path.name: path.read_text("utf-8") for path in Path(report.__file__).parent.glob("*.js")}
    assert set(SCRIPTS) == set(scripts)  # each is on the page, and is looked at here
    ways = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|eval\(|Function\("
    )
    assert {name: re.findall(ways, script) for name, script in scripts.items() if re.search(ways, script)} == {}


@pytest.mark.parametrize("kind", ["chars", "bytes", "words"])
def test_hostile_text_stays_text(tmp_path: Path, kind: str) -> None:
    hostile = tmp_path / "hostile.txt"
    hostile.write_text(f"{HOSTILE} b\tc\n" * 80)
    options = ["--kind", kind, "--batches", 4, "--evaluations", 2, *TINY]
    assert unroll("train", hostile, *options, "--out", tmp_path / "run").code == 0
    plain = parsed(made(tmp_path / "plain.html", tmp_path / "run"))
    shown = parsed(made(tmp_path / "page.html", tmp_path / "run", "--show", "all"))
    assert shown.found == plain.found
    assert shown.texts["script"][1] == plain.texts["script"][1]
    parts = {part["id"]: part for part in json.loads(shown.texts["script"][0])["parts"]}
    assert not any(notices(part) for part in parts.values())
    tokens = "".join(block(parts["text"], "texts")["texts"][0])
    assert "<img" in tokens
    assert "\u202e" not in "".join(_strings(parts))  # made visible instead
    assert kind == "bytes" or "⟨202E⟩" in tokens


def test_one_run_of_every_setting_is_looked_into_first(sweep: Path, tmp_path: Path) -> None:
    (part,) = data_of(made(tmp_path / "page.html", sweep, "--show", "drift", "--most-runs", 2))["parts"][2:]
    assert [run["label"] for run in block(part, "drift")["runs"]] == ["scheme 1", "scheme 4"]
    assert notices(part) == ["2 of 4 runs are here, of every setting one first: --most-runs takes more."]
    folders = gather([sweep]).folders
    for most in range(1, 5):
        assert len({each[2].scheme for each in choose(folders, most)}) == min(most, 2)
        assert len(choose(folders, most)) == most


def test_work_of_over_a_minute_is_said_before_it(sweep: Path) -> None:
    run = next(loaded(sweep))[1]
    said: list[str] = []
    announce(run, ASKED, 1, said.append)
    assert said == []
    announce(run, ASKED, 1_000_000, said.append)
    assert said[0].startswith("Looking into 1,000,000 runs (drift, text, samples, units) takes about ")


def test_a_fault_in_one_look_costs_that_run_in_that_section_alone(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = units.look

    def failing(run: library.Run) -> Any:
        if run.experiment.seed == 1:
            raise ValueError("something nobody thought of")
        return whole(run)

    monkeypatch.setattr(units, "look", failing)
    (part,) = computed_parts(gather([sweep]), ["units"], 20, print, "cpu")
    assert (
        part.blocks[0]["text"]
        == "Left out: scheme 1, seed 1; scheme 4, seed 1. ValueError: something nobody thought of"
    )
    assert len(part.blocks[1]["runs"]) == 2


def test_what_show_does_not_know_is_refused_in_words(sweep: Path, tmp_path: Path) -> None:
    result = unroll("report", sweep, "--show", "drift,unit", "--out", tmp_path / "page.html")
    assert result.code == 2
    assert "--show knows no 'unit'. Did you mean units?" in result.err.replace("`", "").replace("'units'", "units")
    result = unroll("report", sweep, "--show", "drift", "--most-runs", 0, "--out", tmp_path / "page.html")
    assert result.code == 2
    assert "--most-runs must be at least 1" in result.err
    assert not (tmp_path / "page.html").exists()
