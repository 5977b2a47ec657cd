"""Plug-ins of other packages and of this process: how they join, what a run records of them, and what is refused.

A package here is a folder on Python's path with a module and the metadata of a distribution, as an installer leaves it.
"""

from __future__ import annotations

import hashlib
import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import TINY, unroll
from dropping import FOLDER

import unroll as package
from unroll.base import plugins
from unroll.base.errors import ConfigurationError, RunError
from unroll.corpus.synthetic import Markov
from unroll.experiment.spelled import Key
from unroll.runs import status_file
from unroll.runs.folder import RunFolder
from unroll.sweep.folder import SweepFolder

Install = Callable[..., Path]


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test installs or registers is gone after it."""
    monkeypatch.setattr(plugins, "_registered", {})
    yield
    monkeypatch.undo()
    plugins.refresh()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package of one module, `mini`, with entry points by group and name."""

    def do(points: dict[str, dict[str, str]], module: str = "", name: str = "mini-rnn", version: str = "1.2.0") -> Path:
        site = tmp_path / f"site-{name}"
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        if site.exists():
            shutil.rmtree(site)
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        groups = (f"[unroll.{g}]\n" + "\n".join(f"{k} = {v}" for k, v in own.items()) for g, own in points.items())
        (info / "entry_points.txt").write_text("\n".join(groups))
        (site / "mini.py").write_text(module)
        if str(site) not in sys.path:
            monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, "mini", raising=False)
        plugins.refresh()
        return site / "mini.py"

    return do


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(Markov().text(3000))
    return path


SGD = (FOLDER / "optimisers" / "descent.py").read_text()


def train(corpus: Path, out: Path, *options: object) -> RunFolder:
    result = unroll("train", corpus, "--batches", 3, *TINY, "--out", out, *options)
    assert result.code == 0, result.err
    return RunFolder(out)


def test_a_packages_plugin_is_named_without_being_imported(install: Install) -> None:
    install({"optimisers": {"plain": "mini"}}, "raise RuntimeError('imported')")
    assert "plain" in plugins.names("optimisers")
    assert plugins.problem("optimisers", "plain") is None
    assert "mini" not in sys.modules
    with pytest.raises(ConfigurationError, match=r"optimiser plain of the package mini-rnn 1\.2\.0 cannot be loaded"):
        plugins.load("optimisers", "plain")


def test_naming_ours_looks_at_no_package_and_imports_neither_torch_nor_metadata() -> None:
    code = (
        "import sys; from unroll.base import plugins; import unroll.cli\n"
        "assert plugins.problem('cells', 'lstm') is None and plugins.built_in('kernels')\n"
        "print([name for name in ('torch', 'numpy', 'importlib.metadata') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_a_part_of_a_module_may_be_a_plugin(install: Install) -> None:
    install({"state_origins": {"from-nothing": "mini:Kinds.nothing"}}, "class Nothing:\n    LEARNS = CARRIES = False\n"
            "class Kinds:\n    nothing = Nothing()\n")  # fmt: skip
    assert package.Scheme(state="from-nothing").learns is False


def test_a_name_of_ours_cannot_be_taken_by_a_package(install: Install) -> None:
    install({"optimisers": {"adam": "mini"}}, SGD)
    assert plugins.load("optimisers", "adam").__name__ == "unroll.model.optimisers.adam"
    with pytest.raises(ConfigurationError, match=r"mini-rnn 1\.2\.0 brings the optimiser 'adam', which is"):
        plugins.names("optimisers")


def test_a_name_cannot_be_brought_by_two_packages(install: Install) -> None:
    install({"optimisers": {"plain": "mini"}}, SGD)
    install({"optimisers": {"plain": "mini"}}, SGD, name="other-rnn")
    with pytest.raises(ConfigurationError, match=r"other-rnn 1\.2\.0 brings the optimiser 'plain', and so does"):
        plugins.problem("optimisers", "plain")


def test_a_run_records_package_version_and_hash_and_is_used_like_any_other(
    install: Install, corpus: Path, tmp_path: Path
) -> None:
    source = install({"optimisers": {"plain": "mini"}}, SGD)
    run = train(corpus, tmp_path / "run", "--optimiser", "plain")
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    assert f'[plugins]\noptimiser = "mini-rnn 1.2.0, sha256 {sha256}"\n' in (run.path / "run.toml").read_text()
    assert run.experiment.optimiser == "plain"
    assert package.load(run.path).notes == ()
    assert unroll("check", "optimisers", "plain").code == 0


def test_a_run_of_ours_alone_has_no_table_of_plugins(corpus: Path, tmp_path: Path) -> None:
    run = train(corpus, tmp_path / "run")
    assert "plugins" not in (run.path / "run.toml").read_text()
    assert "plain" not in (run.path / "status.json").read_text()


def test_a_run_whose_package_is_not_here_says_which_to_install(install: Install, corpus: Path, tmp_path: Path) -> None:
    source = install({"optimisers": {"plain": "mini"}}, SGD)
    run = train(corpus, tmp_path / "run", "--optimiser", "plain")
    result = unroll("sweep", corpus, "--optimiser", "plain", "--batches", 3, *TINY, "--out", tmp_path / "sweep")
    assert result.code == 0, result.err
    shutil.rmtree(source.parent)
    plugins.refresh()
    words = "which is of the package mini-rnn 1.2.0, and that is not installed here. If you trust it: pip install "
    for command in (("sample",), ("eval",), ("train", "--resume"), ("sweep", "--resume")):
        result = unroll(*command, tmp_path / "sweep" if command[0] == "sweep" else run.path)
        assert result.code == 2
        assert words in result.err, result.err
    with pytest.raises(RunError, match="not installed here"):
        _ = SweepFolder(tmp_path / "sweep").trainings


def test_a_changed_source_is_said_when_a_run_is_resumed_or_loaded(
    install: Install, corpus: Path, tmp_path: Path
) -> None:
    install({"optimisers": {"plain": "mini"}}, SGD)
    text = package.Corpus.open(str(corpus))
    small = {"hidden": 8, "dense": 12, "rows": 4, "batches": 6, "threads": 1}
    experiment = package.Experiment(corpus=str(corpus), optimiser="plain", scheme=package.Scheme(k1=5, k2=10), **small)
    with closing(package.train_fleet([experiment], [text], [tmp_path / "run"])) as events:
        while next(events).learner.count < 3:
            pass
    install({"optimisers": {"plain": "mini"}}, SGD + "\n# another version\n", version="1.3.0")
    words = "optimiser: the plug-in was mini-rnn 1.2.0, sha256 "
    (note,) = [note for note in package.load(tmp_path / "run").notes if words in note]
    assert ", is mini-rnn 1.3.0, sha256 " in note
    resumed = unroll("train", "--resume", tmp_path / "run")
    assert resumed.code == 0
    assert words in resumed.err
    assert package.load(tmp_path / "run").notes == ()  # its end was trained by the new one


def test_what_a_script_registers_trains_is_recorded_and_is_asked_for(corpus: Path, tmp_path: Path) -> None:
    sgd = SimpleNamespace(MOMENTS=(), update=lambda gradient, moments, rate, count: (gradient * rate, ()))
    package.register("optimisers", "mine", sgd)
    run = train(corpus, tmp_path / "run", "--optimiser", "mine")
    own_file = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    assert f'optimiser = "registered, sha256 {own_file}"' in (run.path / "run.toml").read_text()
    assert package.load(run.path).notes == ()
    plugins._registered.clear()
    with pytest.raises(ConfigurationError, match=r"had registered\. Register it before: unroll\.register"):
        package.load(run.path)


def test_processes_refuse_what_this_one_registered_before_any_work(corpus: Path, tmp_path: Path) -> None:
    package.register("state_origins", "from-nothing", SimpleNamespace(LEARNS=False, CARRIES=False))
    procedure = "loss=equal,state=from-nothing"
    options = ("--train", procedure, "--batches", 3, *TINY, "--out", tmp_path / "sweep")
    refused = unroll("sweep", corpus, *options, "--launcher", "processes")
    assert refused.code == 2
    assert "other processes, which do not know the state 'from-nothing': this program registered it." in refused.err
    assert not (tmp_path / "sweep").exists()
    assert unroll("sweep", corpus, *options).code == 0


@pytest.mark.parametrize(
    ("family", "name", "plugin", "words"),
    [
        ("cells", "lstm", SimpleNamespace(Cell=None), "'lstm' is the name of a cell of Unroll's own"),
        ("cells", "My Cell", SimpleNamespace(Cell=None), "A name is small letters, digits and hyphens"),
        ("cells", "auto", SimpleNamespace(Cell=None), "A name is small letters"),
        ("cell", "mine", SimpleNamespace(Cell=None), "family must be one of .* Did you mean cells?"),
        ("optimisers", "mine", SimpleNamespace(MOMENTS=()), "supplies MOMENTS, update; 'mine' lacks update"),
    ],
)
def test_what_cannot_be_registered_is_refused_in_words(family: str, name: str, plugin: object, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        package.register(family, name, plugin)


def test_a_name_of_a_package_cannot_be_registered(install: Install) -> None:
    install({"optimisers": {"plain": "mini"}}, SGD)
    with pytest.raises(ConfigurationError, match="The package mini-rnn has 'plain'"):
        package.register("optimisers", "plain", SimpleNamespace(MOMENTS=(), update=None))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('cell = "lstm"', 'cell = "evil"'),
        ('cell = "lstm"', 'cell = "evil:Cell"'),
        ('cell = "lstm"', 'cell = "evil.cell"'),
        ('loss = "equal"', 'loss = "evil"'),
        ('cell = "lstm"', 'cell = "evil"\n\n[plugins]\ncell = "evil 1.0, sha256 unknown"'),
        ('cell = "lstm"', 'cell = "evil"\n\n[plugins]\ncell = "evil:Cell"'),
        ('cell = "lstm"', 'cell = "evil"\n\n[plugins]\ncell = "evil 1.0; rm -rf ~, sha256 unknown"'),
        ('cell = "lstm"', 'cell = "evil"\n\n[plugins]\ncell = ["evil"]'),
    ],
)
def test_a_run_folder_alone_makes_no_code_load(
    old: str, new: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a name in run.toml nor modules and metadata that lie in the folder are imported."""
    run = train(corpus, tmp_path / "run")
    (run.path / "evil.py").write_text("import pathlib\npathlib.Path(__file__).with_name('ran').touch()\nCell = None\n")
    info = run.path / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[unroll.cells]\nevil = evil\n")
    text = (run.path / "run.toml").read_text()
    rest = new.split("\n\n", 1)[1:]
    (run.path / "run.toml").write_text("\n\n".join([text.replace(old, new.split("\n\n")[0]), *rest]))
    monkeypatch.chdir(run.path)
    plugins.refresh()
    for command in (("sample",), ("eval",), ("train", "--resume")):
        result = unroll(*command, run.path)
        assert result.code == 2
        assert "rm -rf" not in result.err
    assert not (run.path / "ran").exists()
    assert "evil" not in sys.modules
    assert importlib.util.find_spec("evil") is None


@pytest.mark.parametrize("plain", ["the cell mingru", [1], {}])
def test_a_status_that_says_plain_in_another_form_is_damaged(plain: object) -> None:
    status = {"state": "training", "batch": 1, "seconds": 0.0, "evaluating": 0.0}
    assert status_file.read(status_file.write({**status, "plain": ["the cell mingru"]}))["plain"] == ["the cell mingru"]
    with pytest.raises(ValueError, match="plain must be of another type"):
        status_file.read(status_file.write({**status, "plain": plain}))


def test_a_registered_schedule_with_keys_is_recorded_and_is_asked_for_by_its_name(corpus: Path, tmp_path: Path) -> None:
    def factor(batch: int, batches: int, history: object, low: float) -> float:
        return low if batch % 2 else 1.0

    every_other = SimpleNamespace(DEPENDS_ON_LENGTH=False, WATCHES=False, KEYS={"low": Key(0.5)}, factor=factor)
    package.register("schedules", "every-other", every_other)
    run = train(corpus, tmp_path / "run", "--schedule", "every-other,low=0.25")
    own_file = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    written = (run.path / "run.toml").read_text()
    assert 'schedule = "every-other,low=0.25"' in written
    assert f'schedule = "registered, sha256 {own_file}"' in written
    assert package.load(run.path).notes == ()
    options = ("--schedule", "every-other,low=0.25", "--batches", 3, *TINY, "--out", tmp_path / "sweep")
    refused = unroll("sweep", corpus, *options, "--launcher", "processes")
    assert refused.code == 2
    assert "the schedule 'every-other'" in refused.err
    plugins._registered.clear()
    with pytest.raises(ConfigurationError, match=r"unroll\.register\('schedules', 'every-other'"):
        package.load(run.path)
