"""Names, reasons and texts of others never drive the terminal, hide, or look like ours."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from bench_cases import a_record
from commands import TINY, Result, unroll
from reproducing import SCALE, partly, texts
from terminals import HOSTILE, HOSTILE_NAME, WAYS, harm, watched

import unroll as package
from unroll.base import untrusted
from unroll.base.errors import InputError, SaveError
from unroll.experiment.experiment import write_toml
from unroll.runs.folder import RunFolder

UTF_8_NAME = HOSTILE_NAME.removesuffix("\udcff")
# A text in which every hostile character is a symbol of the vocabulary.
TEXT = (HOSTILE + " the quick brown fox jumps over the lazy dog 0123456789\n") * 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    (made / f"{UTF_8_NAME}.txt").write_text(TEXT, newline="")
    return made


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Path:
    return folder / f"{UTF_8_NAME}.txt"


@pytest.fixture(scope="module")
def trained(folder: Path, corpus: Path) -> Result:
    """The run that the other tests look at, and what its training printed."""
    return watched("train", corpus, "--out", folder / HOSTILE_NAME, "--batches", 12, *TINY, "--k1", 11)


@pytest.fixture(scope="module")
def run(folder: Path, trained: Result) -> Path:
    """A run whose files hold everything that a stranger may write into them."""
    assert trained.code == 0, trained.out
    path = folder / HOSTILE_NAME
    made = RunFolder(path)
    made.experiment = replace(made.experiment, title=HOSTILE)
    made.status = {**made.status, "state": "stopped", "reason": HOSTILE, "device": HOSTILE, "kernel": HOSTILE}
    return path


def both(*arguments: object, lines: bool = True) -> list[Result]:
    """Run a command in a pipe and on a terminal: a stranger's text does no harm in either."""
    piped, shown = unroll(*arguments), watched(*arguments)
    assert harm(piped.err) == []
    assert harm(shown.out, on_a_terminal=True, lines=lines) == []
    assert piped.code == shown.code
    return [piped, shown]


def check(*arguments: object, code: int = 0) -> str:
    """The same, where standard output is for people in a pipe, too."""
    piped, shown = both(*arguments)
    assert piped.code == code, piped.err
    assert harm(piped.out) == []
    return piped.out + piped.err + shown.out


def test_each_way_to_do_harm_is_seen_by_these_tests() -> None:
    for way in WAYS:
        assert harm(f"a name: {way}owned") != [], ascii(way)
        assert harm(f"a name: {way}owned", on_a_terminal=True) != [], ascii(way)
    assert harm("\x1b[1ma\x1b[0m\x1b[?25l\x1b[2K\x1b[1A\r\x1b[38;5;16;48;5;229mb\x1b[0m\r\nc", on_a_terminal=True) == []


def test_training_shows_a_hostile_name_in_words(trained: Result) -> None:
    assert trained.code == 0, trained.out
    assert harm(trained.out, on_a_terminal=True) == []
    assert "␛[31;666mown" in trained.out


def test_a_hostile_name_can_be_copied_into_the_command_that_resumes(folder: Path, trained: Result) -> None:
    import subprocess

    (word,) = re.findall(r"unroll eval (\$'.*')", trained.out)
    printed = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert printed == bytes(folder / HOSTILE_NAME)


def test_resuming_shows_what_a_status_says_in_words(folder: Path, corpus: Path) -> None:
    experiment = package.Experiment(
        corpus=str(corpus), scheme=package.Scheme(k1=5, k2=10), hidden=8, dense=12, rows=4, batches=12, threads=1
    )
    text = package.Corpus.open(str(corpus))
    for name in ("piped", "watched"):
        path = folder / f"{name}{HOSTILE_NAME[:100]}"
        events = package.train_fleet([experiment], [text], [path], save_every=2)
        list(islice(events, 9))
        events.close()
        made = RunFolder(path)
        made.status = {"state": "interrupted", "batch": made.checkpoints()[-1], "device": HOSTILE, "kernel": HOSTILE}
    piped = unroll("train", "--resume", folder / f"piped{HOSTILE_NAME[:100]}")
    shown = watched("train", "--resume", folder / f"watched{HOSTILE_NAME[:100]}")
    assert (piped.code, shown.code) == (0, 0), piped.err
    assert "kernel was ␛[31;666mowned" in piped.err
    assert harm(piped.err) == []
    assert harm(shown.out, on_a_terminal=True) == []


def test_a_run_that_has_ended_is_said_to_have_ended_in_words(run: Path) -> None:
    assert "nothing to go on with" in check("train", "--resume", run)


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "RUN"),
        ("eval", "RUN", "--corpus", "CORPUS"),
        ("score", "RUN", "CORPUS"),
        ("drift", "RUN", "--tokens", "20", "--starts", "4"),
        ("memorised", "RUN", "CORPUS"),
        ("data", "info", "CORPUS"),
        ("report", "RUN", "--out", "NEW.html"),
    ],
    ids=lambda command: " ".join(command),
)
def test_a_hostile_run_and_text_are_shown_in_words(
    command: tuple[str, ...], run: Path, corpus: Path, folder: Path
) -> None:
    names = {"RUN": run, "CORPUS": corpus, "NEW.html": folder / f"{HOSTILE_NAME[:80]}.html"}
    shown = check(*(names.get(word, word) for word in command))
    assert "␛[31;666mown" in shown


def test_a_scored_text_keeps_its_lines_and_drives_nothing(run: Path, corpus: Path) -> None:
    piped, shown = both("score", run, corpus, "--tokens", lines=False)
    assert harm(piped.out) == []
    assert "\n␛[31;666mowned␛]0;owned" in re.sub(r"\x1b\[[0-9;]*m", "", shown.out)


def test_pictures_and_files_of_a_hostile_name_are_announced_in_words(run: Path, corpus: Path, folder: Path) -> None:
    new = (folder / f"{n}{HOSTILE_NAME[:100]}" for n in range(9))
    for command in (
        ("drift", run, "--tokens", "20", "--starts", "4", "--out", "png"),
        ("score", run, corpus, "--out", "html"),
        ("score", run, corpus, "--out", "json"),
        ("sample", run, "--length", "9", "--out", "txt"),
    ):
        *words, ending = command
        for command_on in (unroll, watched):
            result = command_on(*words, f"{next(new)}.{ending}")
            assert result.code == 0, result.err
            assert harm(result.err + result.out, command_on is watched) == []


def test_a_sample_drives_no_terminal_and_is_exact_in_a_pipe(run: Path) -> None:
    options = ("--prompt", "the ", "--length", 400, "--temperature", 3)
    exact = package.sample(package.load(run), prompt="the ", length=400, temperature=3.0).text
    assert harm(exact) != [], "this sample would do harm"
    piped, shown = both("sample", run, *options, lines=False)
    assert piped.out == exact + "\n"
    assert "␛" in shown.out
    assert both("sample", run, *options, "--n", 2, lines=False)[0].out.startswith(f"--- seed 0\n{exact}\n--- seed 1\n")
    assert f"\n{exact}\n" in both("sample", run, *options, "--side-by-side")[0].out
    assert json.loads(both("sample", run, *options, "--json")[0].out)["samples"][0]["text"] == exact


def test_a_stop_that_ends_nothing_is_named_in_words(run: Path) -> None:
    assert "ends no text" in both("sample", run, "--length", 3, "--stop", HOSTILE + "Ω")[0].err


def test_json_keeps_what_a_program_reads(run: Path, corpus: Path) -> None:
    content = json.loads(both("drift", run, "--tokens", 20, "--starts", 4, "--json")[0].out)
    assert content["runs"][0]["run"] == str(run)
    listed = json.loads(both("score", run, corpus, "--tokens", "--json")[0].out)["surprisals"]
    assert {"\x1b", "\u202e", "\n"} <= {token["text"] for token in listed}


NOT_THERE: list[tuple[str, ...]] = [
    ("train", HOSTILE),
    ("train", "CORPUS", "--out", "RUN"),
    ("train", "CORPUS", "--device", HOSTILE),
    ("train", "CORPUS", "--kernel", HOSTILE),
    ("train", "CORPUS", "--kind", HOSTILE),
    ("train", "CORPUS", "--encoding", HOSTILE),
    ("train", "CORPUS", "--preset", HOSTILE),
    ("train", "CORPUS", "--train", HOSTILE),
    ("train", "CORPUS", "--sample", HOSTILE),
    ("train", "--resume", HOSTILE),
    ("eval", HOSTILE),
    ("eval", "RUN", "--corpus", HOSTILE),
    ("eval", "RUN", "--sample", HOSTILE),
    ("eval", "RUN", "--start", HOSTILE),
    ("sample", HOSTILE),
    ("sample", "RUN", "--prompt-file", HOSTILE),
    ("sample", "RUN", "--sample", HOSTILE),
    ("sample", "RUN", "--out", "CORPUS"),
    ("sample", "RUN", "--out", f"{HOSTILE}/a"),
    ("score", "RUN", HOSTILE),
    ("score", "RUN", "CORPUS", "--out", HOSTILE),
    ("score", "RUN", "CORPUS", "--out", f"{HOSTILE}/a.html"),
    ("drift", "RUN", "--out", HOSTILE),
    ("drift", "RUN", "--corpus", HOSTILE),
    ("memorised", "RUN", HOSTILE),
    ("sweep", HOSTILE, "--out", "NEW"),
    ("sweep", "CORPUS", "--out", "RUN"),
    ("sweep", "CORPUS", "--k1", HOSTILE, "--out", "NEW"),
    ("sweep", "CORPUS", "--launcher", HOSTILE, "--out", "NEW"),
    ("sweep", "--resume", HOSTILE),
    ("sweep", "--resume", "RUN"),
    ("reproduce", HOSTILE),
    ("reproduce", "all", "--data", HOSTILE, "--out", "NEW", "--plan"),
    ("report", HOSTILE),
    ("report", "RUN", "--out", HOSTILE),
    ("report", "RUN", "--out", f"{HOSTILE}/a.html"),
    ("data", "info", HOSTILE),
    ("data", "info", "CORPUS", "--kind", HOSTILE),
    ("data", "fetch", HOSTILE),
    ("data", "fetch", "english", "--from", HOSTILE),
    ("data", "midi", HOSTILE, "--out", "NEW"),
    ("data", "midi", "CORPUS", "--out", "NEW"),
    ("bench", "--from", HOSTILE),
    ("bench", "--json", HOSTILE),
    ("bench", "--picture", HOSTILE),
    ("bench", "--fleet", HOSTILE),
    ("bench", "--procedures", HOSTILE),
    ("bench", "--kernel", HOSTILE),
    ("bench", "--device", HOSTILE),
    # What the framework refuses by itself.
    (HOSTILE,),
    (f"--{HOSTILE}",),
    ("train", f"--{HOSTILE}"),
    ("train", "CORPUS", HOSTILE),
    ("data", HOSTILE),
]


@pytest.mark.parametrize("arguments", NOT_THERE, ids=lambda words: " ".join(words).replace(HOSTILE, "HOSTILE"))
def test_what_is_refused_is_repeated_in_words(
    arguments: tuple[str, ...], run: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"RUN": run, "CORPUS": corpus, "NEW": "new"}
    assert "own" in check(*(names.get(word, word) for word in arguments), code=2)


@pytest.mark.parametrize("option", ["--k1", "--dropout", f"--k1={HOSTILE}", "--quiet=", "-", "--out="])
def test_a_value_of_the_wrong_kind_is_refused_in_words(option: str) -> None:
    both("train", option, HOSTILE)


def test_a_damaged_run_is_named_in_words(run: Path, folder: Path) -> None:
    made = RunFolder(run)
    original = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    spoilt: list[tuple[str, str]] = [
        ("run.toml", write_toml(made.experiment).replace("hidden = 8", f"{json.dumps(HOSTILE[:-30])} = 8")),
        ("run.toml", write_toml(made.experiment).replace('cell = "lstm"', f"cell = {json.dumps(HOSTILE[:40])}")),
        ("run.toml", f"[{HOSTILE}"),
        ("vocabulary.json", json.dumps({"kind": HOSTILE, "symbols": ["a"]})),
        ("vocabulary.json", json.dumps({"kind": "chars", "symbols": ["a", HOSTILE, HOSTILE]})),
        ("status.json", HOSTILE),
        ("metrics.jsonl", HOSTILE + "\n"),
        ("weights.safetensors", HOSTILE),
    ]
    for name, content in spoilt:
        (run / name).write_bytes(content.replace("\x7f", "").encode("utf-8", "surrogatepass"))
        for command in (("eval", run), ("train", "--resume", run), ("report", run, "--out", folder / "no.html")):
            both(*command)
        (run / name).write_bytes(original[run / name])


def forge(path: Path, content: str) -> None:
    """A stranger's document, with a digest that is right."""
    stated = {name: value for name, value in json.loads(content).items() if name != untrusted.SEAL}
    path.write_text(json.dumps(untrusted.sealed(stated)))


def test_a_sweep_names_its_runs_and_failures_in_words(folder: Path, corpus: Path) -> None:
    out = folder / f"sweep{HOSTILE_NAME[:100]}"
    short = folder / f"short{UTF_8_NAME}.txt"
    short.write_text(HOSTILE, newline="")
    options = ("--seeds", 2, "--batches", 3, "--most", 2, "--out", out, "--k1", 5, "--k2", 40, "--hidden", 8)
    options += ("--dense", 12, "--rows", 4, "--threads", 1)
    check("sweep", corpus, short, *options, "--plan")
    shown = check("sweep", corpus, short, *options, code=1)
    assert "could not be trained" in shown
    # The same sweep, as a stranger might have made it.
    for name in ("sweep.json", "plan.json"):
        content = json.loads((out / name).read_text())
        content["changes"] = [HOSTILE]
        if name == "plan.json":
            content["refused"] = dict.fromkeys(content["refused"], HOSTILE)
        for fleet in content.get("fleets", ()):
            fleet |= {"why": HOSTILE, "name": HOSTILE}
        for entry in content.get("asked", ()):
            entry["experiment"]["corpus"]["title"] = HOSTILE
        forge(out / name, json.dumps(content))
    shown = check("sweep", "--resume", out, code=1)
    assert shown.count("could not be trained") == 2
    check("sweep", "--resume", out, "--plan")
    check("report", out, "--out", folder / "sweep.html")


def test_a_sweep_that_trains_hostile_runs_shows_them_in_words(folder: Path, corpus: Path) -> None:
    options = ("--batches", 3, "--most", 1, "--k1", 5, "--k2", 10, "--hidden", 8, "--dense", 12, "--rows", 4)
    for name, command in (("piped", unroll), ("watched", watched)):
        out = folder / f"live{name}"
        assert unroll("sweep", corpus, *options, "--seeds", 2, "--threads", 1, "--out", out).code == 0
        (last,) = (path.name for path in (out / "runs").iterdir() if RunFolder(path).experiment.seed == 1)
        for path in (out / "sweep.json", out / "plan.json"):
            hostile = json.dumps(f"{last}\x1b]0;owned\nowned[link=x]owned")
            forge(path, path.read_text().replace(json.dumps(last), hostile))
        result = command("sweep", "--resume", out)
        assert result.code == 0, result.err
        assert "␛]0;owned" in result.err + result.out
        assert harm(result.err + result.out, command is watched) == []


def test_reproduce_plans_for_a_hostile_folder_in_words(tmp_path: Path) -> None:
    data = texts(tmp_path / UTF_8_NAME)
    (data / "english.txt").write_text((data / "english.txt").read_text().replace("\n", "\r\n") + "a\r\n" * 9)
    with partly():
        arguments = ("reproduce", "schemes", "--scale", SCALE, "--data", data, "--most", 2, "--plan")
        check(*arguments, "--out", tmp_path / f"out{HOSTILE_NAME[:99]}")


def test_hostile_midi_files_are_listed_in_words(tmp_path: Path) -> None:
    from midi_files import midi, off, on

    folder = tmp_path / HOSTILE_NAME[:100]
    folder.mkdir()
    for n in range(3):
        (folder / f"{n}{HOSTILE_NAME[:100]}.mid").write_bytes(midi([on(0, 60 + n), off(9, 60 + n)] * 20))
    (folder / f"bad{HOSTILE_NAME[:100]}.mid").write_bytes(b"MThd" + HOSTILE.encode("utf-8", "surrogatepass"))
    for command in (unroll, watched):
        result = command("data", "midi", folder, "--out", tmp_path / command.__name__)
        assert result.code == 0, result.err
        assert harm(result.err + result.out, command is watched) == []


def test_a_hostile_cache_is_listed_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNROLL_DATA", str(tmp_path / HOSTILE_NAME))
    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path / f"cache{HOSTILE_NAME[:100]}"))
    (tmp_path / HOSTILE_NAME).mkdir()
    (tmp_path / HOSTILE_NAME / "english.txt").write_text("a text")
    assert "own" in check("data", "list")
    for n in range(2):
        (tmp_path / f"{n}{HOSTILE_NAME}").write_text(f"text {n}")
        check("data", "fetch", "english", "--from", tmp_path / f"{n}{HOSTILE_NAME}")


def test_a_hostile_servers_words_are_repeated_as_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    from unroll.corpus.fetching import fetching

    class Hostile(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404, "\x1b[31;666mowned \x9b31mowned \x07owned \x85owned")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    monkeypatch.setenv("UNROLL_CACHE", str(tmp_path))
    with HTTPServer(("127.0.0.1", 0), Hostile) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(0.01))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}/\x1b[31;666mowned"
            monkeypatch.setattr(fetching.PaperFile, "url", url)
            assert "404" in check("data", "fetch", "english", code=2)
        finally:
            server.shutdown()
            thread.join()


def test_a_hostile_record_of_bench_is_shown_in_words(tmp_path: Path) -> None:
    from unroll.studies.benchmark import record

    made = a_record(machine={"processor": HOSTILE, "torch": HOSTILE, "unroll": HOSTILE}, notes=(HOSTILE,))
    rows = tuple(replace(r, problem=r.problem and HOSTILE, kernel=HOSTILE) for r in made.rows)
    path = tmp_path / f"{HOSTILE_NAME[:100]}.json"
    record.write(replace(made, rows=rows), path)
    picture = tmp_path / f"{HOSTILE_NAME[:100]}.png"
    assert "own" in check("bench", "--from", path, "--picture", picture)
    assert picture.exists()
    path.write_text(json.dumps({"format": 1, "mode": HOSTILE}))
    check("bench", "--from", path, code=2)


@pytest.mark.parametrize("kind", [InputError, SaveError])
def test_an_error_is_printable_for_users_of_python_too(kind: type[Exception]) -> None:
    for way in WAYS:
        error = kind(f"A name, {way}owned, is wrong.")
        assert harm(str(error) + "\n" + repr(error)) == []


def test_problems_stay_apart_when_an_error_goes_from_process_to_process() -> None:
    import pickle

    error = InputError("one", "tw\no")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.problems) == ("one\ntw↵o", ("one", "tw↵o"))


def test_what_a_library_prints_cannot_go_around_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    from unroll.corpus.fetching import fetching

    def loud(name: str) -> None:
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)

    monkeypatch.setattr(fetching, "installed", loud)
    piped = unroll("data", "list")
    for text in (piped.out, piped.err):
        assert harm(text, lines=False) == []
        assert "␛[31;666mowned" in text
