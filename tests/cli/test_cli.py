"""The commands, end to end."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from commands import TINY, tiny_run, unroll
from paths import TESTS

import unroll as package
from unroll.base import plugins


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("cli"))


def test_help_names_every_command_and_imports_no_torch() -> None:
    script = """
import sys
from unroll.__main__ import main
sys.argv = ["unroll", "--help"]
try:
    main()
finally:
    heavy = {"torch", "numpy", "matplotlib", "rich"} & set(sys.modules)
    assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(command[0] in done.stdout for command in COMMANDS)


NAMES = (
    "train", "eval", "sample", "score", "drift", "memorised", "export", "sweep", "reproduce", "study", "report",
    "bench",
)  # fmt: skip
COMMANDS = [*([name] for name in NAMES), ["data", "info"], ["data", "list"]]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_teaches(command: list[str]) -> None:
    result = unroll(*command, "--help")
    assert result.code == 0
    assert "Usage" in result.out
    assert "-- <list[" not in re.sub(r"--\S+", "--", result.out), "a type of Python's says nothing to a user"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("train", "[CORPUS]"),
        ("eval", "{RUN}"),
        ("score", "{RUN} {FILE}"),
        ("sweep", "[CORPUS]..."),
        ("drift", "{RUN}..."),
    ],
)
def test_help_calls_what_a_command_takes_as_the_readme_does(command: str, arguments: str) -> None:
    assert f"unroll {command} [OPTIONS] {arguments}\n" in unroll(command, "--help").out


def test_help_of_train_explains_k1_k2_and_which_scheme_to_start_with() -> None:
    words = " ".join(unroll("train", "--help").out.split())
    assert "k1 and k2: every k1 tokens a window of k2 tokens is read" in words
    assert "Which scheme? The paper's advice" in words


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_help_names_every_kernel(command: str) -> None:
    words = " ".join(unroll(command, "--help").out.split())
    kernels = ", ".join(("auto", *plugins.names("kernels")))
    assert f"How layers run over time: {kernels} [auto]." in words


def test_a_run_folder_holds_what_the_spec_says_and_no_checkpoints(run: Path) -> None:
    names = {path.name for path in run.iterdir()}
    assert names == {
        "run.toml",
        "status.json",
        "vocabulary.json",
        "weights.safetensors",
        "best.safetensors",
        "metrics.jsonl",
        "samples.jsonl",
        "perplexity.png",
    }
    configuration = tomllib.loads((run / "run.toml").read_text())
    assert configuration["scheme"]["k1"] == 5
    assert len(configuration["corpus"]["sha256"]) == 64
    vocabulary = json.loads((run / "vocabulary.json").read_text())
    assert vocabulary == {"kind": "chars", "symbols": list("abcdefgh")}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["batch"] for line in lines] == [1, 2, 3, 4, 5, 7, 9, 11, 12]
    largest = {"largest_loss", "largest_gradient_norm"}
    assert set(lines[0]) == {"batch", "sequences", "loss", "perplexity", "seconds", "fleet", "chain"} | largest
    assert [set(line["perplexity"]) for line in lines[-2:]] == [{"windowed"}, {"windowed", "progressive"}]
    assert (run / "perplexity.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_folder_holds_no_text_of_the_corpus(run: Path) -> None:
    stretch = (run.parent / "corpus.txt").read_bytes()[100:120]
    assert all(stretch not in path.read_bytes() for path in run.iterdir())


def test_weights_have_the_names_and_shapes_of_the_spec(run: Path) -> None:
    from unroll.base.atomic_files import unseal

    shapes = {name: tuple(value.shape) for name, value in unseal(run / "weights.safetensors")[0].items()}
    assert shapes == {
        "layers.0.W_x": (8, 32),
        "layers.0.W_h": (8, 32),
        "layers.0.w_c": (3, 8),
        "layers.0.b": (32,),
        "layers.0.h0": (8,),
        "layers.0.c0": (8,),
        "dense.W": (8, 12),
        "dense.b": (12,),
        "out.W": (12, 8),
        "out.b": (8,),
    }


def test_a_carried_run_stores_its_last_states_and_a_zero_first_state(tmp_path: Path) -> None:
    from unroll.base.atomic_files import unseal

    weights = unseal(tiny_run(tmp_path, "--scheme", 4) / "weights.safetensors")[0]
    assert weights["carried.0.h"].shape == weights["carried.0.c"].shape == (4, 8)
    assert weights["carried.0.h"].abs().sum() > 0
    assert not weights["layers.0.h0"].any()
    shown = json.loads(unroll("eval", tmp_path / "run", "--start", "carried", "--json").out)
    assert len(shown["rows"]) == 4
    assert shown["range"] == [min(shown["rows"]), max(shown["rows"])]
    assert shown["range"][0] <= shown["perplexity"]["progressive"] <= shown["range"][1]
    refused = unroll("eval", tmp_path / "run", "--start", "carried", "--sample", "windowed")
    assert refused.code == 2
    assert "is for progressive" in refused.err


def test_eval_reports_both_procedures_the_schemes_own_first(run: Path) -> None:
    lines = unroll("eval", run).out.splitlines()
    assert lines[0].startswith("corpus: multi-loss training, windowed sampling (the paper's scheme 1)")
    assert [line.split()[0] for line in lines[1:]] == ["its", "procedure", "windowed", "progressive"]


def test_eval_json_is_one_object_that_agrees_with_python(run: Path) -> None:
    result = unroll("eval", run, "--json")
    content = json.loads(result.out)
    loaded = package.load(run)
    scored = package.perplexity(loaded)[0]
    assert content["tokens"] == scored.tokens == 300 - 10
    assert content["perplexity"]["windowed"] == pytest.approx(scored.perplexity, rel=1e-12)
    assert content["bits_per_token"] == pytest.approx(math.log2(scored.perplexity))
    assert content["perplexity"]["progressive"] == package.perplexity(loaded, "progressive")[0].perplexity


def test_eval_splits_the_runs_own_corpus_and_takes_another_whole(run: Path) -> None:
    scored = json.loads(unroll("eval", run, "--json", "--corpus", run.parent / "corpus.txt").out)
    assert scored == json.loads(unroll("eval", run, "--json").out)
    other = run.parent / "other.txt"
    other.write_text("abcd" * 100)
    assert json.loads(unroll("eval", run, "--json", "--corpus", other).out)["tokens"] == 390


def test_a_folder_corpus_named_to_eval_is_read_as_in_training(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("abcdefgh" * 400)
    (folder / "b.md").write_text("other symbols: é" * 100)
    assert unroll("train", folder, "--ext", ".txt", "--batches", 2, "--out", tmp_path / "run", *TINY).code == 0
    scored = unroll("eval", tmp_path / "run", "--json")
    assert unroll("eval", tmp_path / "run", "--json", "--corpus", folder).out == scored.out
    assert "its test set" in unroll("eval", tmp_path / "run", "--corpus", folder).out


def test_a_first_word_of_a_prompt_is_found_with_the_space_before_it(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("so the cat and the dog saw the bird " * 100)
    options = ["--kind", "words", "--batches", 2, "--out", tmp_path / "run", *TINY]
    assert unroll("train", tmp_path / "words.txt", *options).code == 0
    assert unroll("sample", tmp_path / "run", "--prompt", "the cat", "--length", 5).code == 0
    refused = unroll("sample", tmp_path / "run", "--prompt", "the horse")
    assert "' horse'" in refused.err


def test_sample_json_gives_text_tokens_and_logprobs_and_the_seed_decides(run: Path) -> None:
    first, again, other = (
        json.loads(unroll("sample", run, "--prompt", "abc", "--length", 50, "--json", "--seed", seed).out)["samples"][0]
        for seed in (7, 7, 8)
    )
    assert first == again
    assert first["text"] != other["text"]
    assert set(first) == {"text", "tokens", "logprobs", "procedure", "seed"}
    assert len(first["text"]) == len(first["tokens"]) == len(first["logprobs"]) == 50
    assert (first["procedure"], first["seed"]) == ("windowed", 7)


def test_sample_without_a_prompt_starts_from_the_test_set_and_says_when_the_procedure_differs(run: Path) -> None:
    result = unroll("sample", run, "--length", 20, "--sample", "progressive")
    assert (result.code, len(result.out)) == (0, 21)
    assert "sampled progressive; this run's scheme is sampled windowed" in result.err


def test_a_run_moved_without_its_corpus_asks_for_a_prompt(run: Path, tmp_path: Path) -> None:
    import shutil

    moved = shutil.copytree(run, tmp_path / "moved")
    configuration = (moved / "run.toml").read_text()
    (moved / "run.toml").write_text(configuration.replace(str(run.parent), "/nowhere"))
    assert unroll("sample", moved, "--prompt", "abc", "--length", 5).code == 0
    for command in (["sample"], ["eval"]):
        result = unroll(*command, moved)
        assert result.code == 2
        assert "not at hand" in result.err
        assert "--prompt" in result.err


def test_a_run_moved_without_its_corpus_is_evaluated_where_its_text_is_named(run: Path, tmp_path: Path) -> None:
    import shutil

    moved = shutil.copytree(run, tmp_path / "moved")
    configuration = (moved / "run.toml").read_text()
    (moved / "run.toml").write_text(configuration.replace(str(run.parent), "/nowhere"))
    elsewhere = unroll("eval", moved, "--corpus", run.parent / "corpus.txt")
    assert elsewhere.code == 0, elsewhere.err
    assert elsewhere.out == unroll("eval", run).out


def test_quiet_says_nothing_and_json_prints_one_object(tmp_path: Path) -> None:
    tiny_run(tmp_path)
    quiet = unroll("train", tmp_path / "corpus.txt", "--batches", 3, "--out", tmp_path / "quiet", *TINY, "-q")
    assert quiet == (0, "", "")
    chatty = unroll("train", tmp_path / "corpus.txt", "--batches", 3, "--out", tmp_path / "json", *TINY, "--json")
    assert json.loads(chatty.out)["state"] == "finished"


def test_plain_lines_tell_batch_loss_perplexity_speed_and_time_left(tmp_path: Path) -> None:
    tiny_run(tmp_path)
    printed = unroll("train", tmp_path / "corpus.txt", "--batches", 3, "--out", tmp_path / "printed", *TINY).err
    line = next(line for line in printed.splitlines() if line.startswith("batch      3"))
    assert all(word in line for word in ("loss", "perplexity", "windowed", "progressive", "tokens/s", "left"))


def test_data_list_and_info_tell_what_there_is(tmp_path: Path) -> None:
    assert set(json.loads(unroll("data", "list", "--json").out)) >= {"stdlib", "markov", "brackets", "copy"}
    corpus = tmp_path / "a.txt"
    corpus.write_text("ab" * 1000)
    facts = json.loads(unroll("data", "info", corpus, "--json").out)
    assert (facts["tokens"], facts["unique"], facts["kind"], facts["paper"]) == (2000, 2, "chars", False)
    assert "no symbol occurs fewer than 5 times" in unroll("data", "info", corpus).out
    corpus.write_text("ab" * 1000 + "xyy")
    printed = unroll("data", "info", corpus).out
    assert "2 occur fewer than 5 times: x y" in printed
    assert "bigram" in printed


def test_notes_have_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    from unroll.cli import screen

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    printed = []
    monkeypatch.delenv("NO_COLOR", raising=False)
    for _ in range(2):
        with redirect_stderr(Terminal()) as stream:
            screen.warn("a")
        printed.append(stream.getvalue())
        monkeypatch.setenv("NO_COLOR", "1")
    assert printed[0] != printed[1] == "note: a\n"


def test_python_m_unroll_works_from_an_uninstalled_checkout(tmp_path: Path) -> None:
    source = Path(package.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "unroll", "--version"], cwd=source, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"unroll {package.__version__}"


def test_a_run_that_another_process_trains_is_left_as_it_is(tmp_path: Path) -> None:
    from unroll.runs.folder import RunFolder

    run = tiny_run(tmp_path)
    (run / "status.json").write_text('{"state": "interrupted", "batch": 5}')
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with RunFolder(run).locked():
        refused = unroll("train", "--resume", run, "--batches", 999)
    assert refused.code == 2
    assert "Another process is training" in refused.err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_the_live_panel_shows_any_name_and_any_kind_of_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unroll.cli import display
    from unroll.corpus.corpus import Corpus
    from unroll.experiment.experiment import Experiment
    from unroll.experiment.scheme import Scheme
    from unroll.sampling.while_training import draw
    from unroll.training.loop import train_fleet

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    corpus = Corpus.from_text("60 62 64 65 67\n" * 200, kind="notes")
    shape = {"hidden": 8, "dense": 12, "rows": 4, "threads": 1, "batches": 3}
    # k1 above k2 brings a note, and the folder's name would be markup if anything read it so.
    experiment = Experiment(scheme=Scheme(k1=12, k2=10), **shape)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    display.watch(train_fleet([experiment], [corpus], [tmp_path / "[/b] run"], draw=draw), quiet=False)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "3 / 3 batches" in shown
    assert "note: k1 = 12 is above k2 = 10" in shown
    sample = shown[shown.rindex("sample at batch 3:") :]
    assert " 6" in sample, "notes are shown with the spaces between them"


def test_a_first_step_on_a_cpu_waits_for_no_modules_that_it_does_not_need() -> None:
    script = (
        "import sys, torch; from helpers import tiny, tiny_corpus; from unroll.training.learner import Learner;"
        "from unroll.engines.choice import engine_of;"
        "Learner([tiny()], [tiny_corpus()], engine_of(torch.device('cpu'), 'compiled')).step();"
        "print('sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=TESTS)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
