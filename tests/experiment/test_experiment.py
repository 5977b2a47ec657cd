"""An experiment survives its file, says all that is wrong with it, and is identified by what training sees."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import helpers  # noqa: F401 (its hypothesis profile)
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from unroll import PRESETS, SCHEMES, Experiment, Scheme
from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.experiment.experiment import from_options, read_toml, scheme_options, write_toml
from unroll.experiment.scheme import parse_training

seeds = st.integers(0, 2**63 - 1)
positive = st.floats(1e-12, 1e12) | st.integers(1, 1000)


@st.composite
def schemes(draw: st.DrawFn) -> Scheme:
    """The whole plane."""
    state = draw(st.sampled_from(plugins.names("state_origins")))
    k2 = draw(st.integers(1, 200))
    resets = st.sampled_from(["epoch", "never", 1]) | st.floats(0, 1, exclude_min=True)
    return Scheme(
        loss=draw(st.sampled_from(plugins.names("loss_weights"))),
        state=state,
        sample=draw(st.sampled_from(["windowed", "progressive"])),
        k1=draw(st.integers(1, 300)),
        k2=k2,
        k3=draw(st.none() | st.integers(1, k2)),
        normalise=draw(st.booleans()),
        reset=draw(resets) if plugins.load("state_origins", state).CARRIES else "epoch",
    )


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    scheme = draw(schemes())
    return Experiment(
        scheme=scheme,
        corpus=draw(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)),
        sha256=draw(st.text("0123456789abcdef", max_size=64)),
        min_count=draw(st.integers(1, 9)),
        split_seed=draw(seeds),
        cell=draw(st.sampled_from(plugins.names("cells"))),
        peepholes=draw(st.sampled_from(["paper", "lasagne", "off"])),
        layers=draw(st.integers(1, 5)),
        dropout=draw(st.floats(0, 1, exclude_max=True)),
        forget_bias=draw(st.floats(allow_nan=False, allow_infinity=False)),
        optimiser=draw(st.sampled_from(plugins.names("optimisers"))),
        learning_rate=draw(st.floats(1e-12, 1e30) | st.integers(1, 1000)),
        schedule=draw(st.sampled_from([*plugins.names("schedules"), "step,every=7,by=1e-3", "plateau,patience=2"])),
        warm_up=draw(st.integers(0, 10**6)),
        weight_decay=draw(st.floats(0, 1e30)),
        decay=draw(st.sampled_from(["l2", "decoupled"])),
        clip_norm=draw(st.floats(1e-12, 1e30) | st.just(math.inf)),
        clip=draw(st.floats(1e-12, 1e30) | st.just(math.inf)),
        seed=draw(seeds),
        precision=draw(st.sampled_from(["float32", "float64"])),
        rotation=draw(st.sampled_from(["random", "continue"])),
        shuffle=draw(st.booleans()) and not scheme.carries,
        test_tokens=draw(st.none() | st.integers(1, 10**6)),
        kernel=draw(st.sampled_from(["auto", *plugins.names("kernels")])),
        threads=draw(st.none() | st.integers(1, 64)),
    )


def refused(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as told:
        read_toml(text, "here.toml")
    return told.value.problems


@given(experiments())
def test_an_experiment_survives_run_toml(experiment: Experiment) -> None:
    read = read_toml(write_toml(experiment))
    assert read == experiment
    assert read.identity == experiment.identity


@pytest.mark.parametrize("path", ['a "quoted" \\ path', "tab\tnew\nline", "Ω/日本", "party 🎈.txt", "del\x7f"])
def test_any_path_survives_run_toml(path: str) -> None:
    assert read_toml(write_toml(Experiment(corpus=path))).corpus == path


def test_the_defaults_are_the_papers() -> None:
    assert read_toml("") == Experiment()
    e = Experiment()
    assert (e.scheme, e.layers, e.hidden, e.dense, e.rows) == (SCHEMES[1], 1, 512, 1024, 64)
    assert (e.optimiser, e.learning_rate, e.clip, e.batches) == ("adam", 0.001, 50.0, 12_800)
    assert (e.peepholes, e.forget_bias, e.rotation, e.scheme.reset) == ("paper", 0.0, "random", "epoch")
    small = Experiment(**PRESETS["small"])
    assert (small.hidden, small.layers, small.scheme.k2) == (128, 1, 100)


def test_an_unknown_table_or_key_is_answered_with_the_one_meant() -> None:
    problems = refused("[modle]\n[model]\nlayer = 2\n[scheme]\nnormalize = 1\n[training]\nxyzzy = 1\n")
    assert problems == (
        "here.toml has no place for 'modle'. Did you mean model?",
        "[model] in here.toml has no key 'layer'. Did you mean layers?",
        "[scheme] in here.toml has no key 'normalize'. Did you mean normalise?",
        "[training] in here.toml has no key 'xyzzy'.",
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[model]\nlayers = 1.5", "int"),
        ("[model]\nlayers = true", "int"),
        ('[model]\nhidden = "512"', "int"),
        ("[training]\nshuffle = 1", "bool"),
        ("[scheme]\nk1 = 2.0", "int"),
        ("[machine]\nthreads = 'two'", "int"),
        ("[model]\ncell = 3", "str"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(line: str, expected: str) -> None:
    (problem,) = refused(line)
    key, value = line.split("\n")[1].split(" = ")
    assert problem.startswith(f"{key} under {line.splitlines()[0]} in here.toml must be {expected}")
    assert value.strip("'\"").title() in problem.title()


def test_a_whole_number_will_do_for_a_decimal_one() -> None:
    read = read_toml("[optimiser]\nlearning_rate = 1\n[training]\nclip = 50\n[scheme]\nstate = 'carried'\nreset = 1\n")
    assert (read.learning_rate, read.clip, read.scheme.reset) == (1.0, 50.0, 1.0)


def test_a_number_means_the_same_written_whole_or_decimal() -> None:
    assert Experiment(clip=50, learning_rate=1).identity == Experiment(clip=50.0, learning_rate=1.0).identity
    one, decimal = (Experiment(scheme=Scheme(state="carried", reset=reset)) for reset in (1, 1.0))
    assert one.identity == decimal.identity


def test_what_is_not_toml_is_refused_with_its_place() -> None:
    (problem,) = refused("[model\n")
    assert "not valid TOML" in problem
    assert "line 1" in problem


def test_all_problems_of_scheme_and_experiment_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as told:
        from_options(
            {"cell": "lsmt", "layers": 0, "dropout": 1.0, "learning_rate": -1.0, "optimiser": "sdg"},
            {"k1": 0, "k2": 0, "loss": "equel"},
        )
    problems = told.value.problems
    assert len(problems) == 8
    assert "Did you mean lstm?" in str(told.value)
    assert "k2 must be at least 1. Got 0. Set k2=, or k2 under [scheme] in run.toml." in problems


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", -1),
        ("seed", 2**63),
        pytest.param("seed", 10**400, id="seed-huge"),
        ("split_seed", 2**63),
        ("dropout", math.nan),
        ("learning_rate", math.inf),
        ("learning_rate", 0.0),
        ("forget_bias", math.nan),
        ("clip", math.nan),
        ("clip", 0.0),
        ("clip_norm", 0.0),
        ("clip_norm", math.nan),
        ("weight_decay", -0.1),
        ("weight_decay", math.inf),
        ("decay", "l1"),
        ("warm_up", -1),
        ("schedule", "cosine,final"),
        ("optimiser", "sgd,momentum=1"),
        ("rows", 0),
        ("batches", 0),
        ("precision", "float16"),
        ("kernel", "cuddn"),
        ("test_tokens", 0),
        ("evaluations", 1),
        ("threads", 0),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=field):
        Experiment(**{field: value})


def test_shuffle_needs_a_learned_state() -> None:
    with pytest.raises(ConfigurationError, match="shuffle needs a learned state"):
        Experiment(scheme=SCHEMES[4], shuffle=True)


def test_scores_from_carried_states_need_a_carried_state() -> None:
    with pytest.raises(ConfigurationError, match="evaluate_carried needs a carried state"):
        Experiment(scheme=SCHEMES[1], evaluate_carried=True)


# What training sees, and a second value for each. A field in neither table fails the test below.
SEEN = {
    "encoding": "latin-1", "separator": ",", "min_count": 2, "sha256": "ab", "split_seed": 1, "cell": "gru",
    "peepholes": "off", "layers": 2, "hidden": 64, "dense": 32, "dropout": 0.25, "forget_bias": 5.0,
    "optimiser": "rmsprop", "learning_rate": 0.01, "batches": 100, "rows": 32, "clip": 1.0, "seed": 1,
    "precision": "float64", "rotation": "continue", "shuffle": True,
    "schedule": "cosine", "warm_up": 9, "weight_decay": 0.1, "clip_norm": 1.0,
    "parent": "a" * 64, "parent_weights": "b" * 64, "added_symbols": 0, "updates_before": 9,
    "validation": 500, "validation_file_sha256": "ab", "test_file_sha256": "ab", "patience": 3, "target": 5.0,
    "minutes": 2.0,
}  # fmt: skip
UNSEEN = {
    "corpus": "elsewhere", "title": "Hamlet", "ext": (".c",), "exclude": ("test",), "ascii": True, "files": 2,
    "bytes": 9, "tokens": 5, "unique": 3, "evaluate": "both", "evaluations": 8, "test_tokens": 500, "device": "cuda",
    "kernel": "reference", "threads": 4, "keep_optimiser": True, "validation_file": "valid.txt",
    "validation_file_bytes": 9, "validation_file_tokens": 9, "test_file": "test.txt",
    "test_file_bytes": 9, "test_file_tokens": 9,
}  # fmt: skip
SCHEME_SEEN = {"loss": "last", "state": "carried", "k1": 40, "k2": 50, "k3": 10, "normalise": True}


def test_identity_depends_on_exactly_what_training_sees() -> None:
    base = Experiment()
    changed = {name: replace(base, **{name: value}).identity for name, value in (SEEN | UNSEEN).items()}
    assert {name for name, identity in changed.items() if identity != base.identity} == set(SEEN)
    assert len(set(changed.values())) == len(SEEN) + 1
    assert {f.name for f in fields(Experiment)} - set(SEEN | UNSEEN) == {"kind", "scheme", "evaluate_carried", "decay"}
    decaying = replace(base, weight_decay=0.1)
    assert replace(decaying, decay="decoupled").identity != decaying.identity
    carried = Experiment(scheme=SCHEMES[4])
    assert replace(carried, evaluate_carried=True).identity == carried.identity


def test_identity_depends_on_the_training_procedure_and_not_on_the_sampling_procedure() -> None:
    base = Experiment(scheme=Scheme(loss="linear"))
    for name, value in SCHEME_SEEN.items():
        assert replace(base, scheme=replace(base.scheme, **{name: value})).identity != base.identity, name
    assert replace(base, scheme=replace(base.scheme, sample="progressive")).identity == base.identity
    assert Experiment(scheme=SCHEMES[1]).identity == Experiment(scheme=SCHEMES[3]).identity
    assert len({Experiment(scheme=s).identity for s in SCHEMES.values()}) == 3
    kinds = plugins.names("tokens")
    assert len({Experiment(kind=kind).identity for kind in kinds}) == len(kinds)
    carried = Scheme(state="carried")
    resets = {Experiment(scheme=replace(carried, reset=r)).identity for r in ("epoch", "never", 0.5)}
    assert len(resets) == 3


def test_peepholes_are_no_part_of_a_cell_without_them() -> None:
    a, b = (Experiment(cell="gru", peepholes=p) for p in ("paper", "off"))
    assert a.identity == b.identity


@given(schemes())
def test_a_training_procedure_survives_its_own_words(scheme: Scheme) -> None:
    """The same weights and the same first states; `last` with a carried state may come back as k3 = 1."""
    again = Scheme(k1=scheme.k1, k2=scheme.k2, sample=scheme.sample, **parse_training(scheme.training))
    assert (again.weights, again.state, again.reset) == (scheme.weights, scheme.state, scheme.reset)
    assert Experiment(scheme=again).identity == Experiment(scheme=scheme).identity
    assert again.training == scheme.training


@given(schemes(), st.integers(1, 500), st.integers(1, 500))
def test_the_four_schemes_have_their_numbers_whatever_k1_and_k2(scheme: Scheme, k1: int, k2: int) -> None:
    for number, paper in SCHEMES.items():
        assert replace(paper, k1=k1, k2=k2).number == number
    assume(scheme.number is None)
    assert scheme.training in str(scheme)


@pytest.mark.parametrize(
    ("number", "training", "sample"),
    [
        (1, "multi-loss", "windowed"),
        (2, "single-loss", "windowed"),
        (3, "multi-loss", "progressive"),
        (4, "conditional", "progressive"),
    ],
)
def test_a_scheme_is_its_training_times_its_sampling_procedure(number: int, training: str, sample: str) -> None:
    assert SCHEMES[number].training == training
    assert Scheme(**scheme_options(number, None, None)) == SCHEMES[number]
    assert Scheme(**scheme_options(None, training, sample)) == SCHEMES[number]
    assert f"scheme {number}" in str(SCHEMES[number])


def test_a_training_procedures_words_are_refused_all_at_once() -> None:
    with pytest.raises(ConfigurationError) as told:
        parse_training("conditional,k3=x,decay=linea,resett=1,reset=often")
    assert len(told.value.problems) == 4
    assert "Did you mean linear?" in str(told.value)
    with pytest.raises(ConfigurationError, match="Did you mean single-loss"):
        parse_training("single-los")
    with pytest.raises(ConfigurationError, match="needs a carried state"):
        Scheme(reset="never")


def test_what_is_allowed_but_should_be_known_is_said() -> None:
    assert Experiment().warnings == []
    (skipped,) = Experiment(scheme=Scheme(k1=120)).warnings
    assert "20 of every 120 tokens are never trained on" in skipped
    never = Scheme(state="carried", reset="never")
    assert "--rotation continue" in Experiment(scheme=never).warnings[0]
    assert Experiment(scheme=never, rotation="continue").warnings == []
    assert Experiment(peepholes="lasagne", forget_bias=5.0).warnings == []
    idle = Experiment(cell="gru", peepholes="lasagne", forget_bias=5.0).warnings
    assert [warning.partition(" does nothing")[0] for warning in idle] == ["peepholes = lasagne", "forget_bias = 5.0"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden", "8"),
        ("layers", 1.5),
        ("seed", True),
        ("scheme", 1),
        ("dropout", None),
        ("ext", [".c"]),
        ("ext", (1,)),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"{field} must be .*Got"):
        Experiment(**{field: value})


@pytest.mark.parametrize(("field", "value"), [("k3", 2.5), ("reset", None), ("k1", "5")])
def test_a_scheme_of_another_type_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=field):
        Scheme(state="carried", **{field: value})


def test_two_names_of_one_encoding_and_weights_that_sum_to_one_are_one_training() -> None:
    assert Experiment(encoding="utf8").identity == Experiment(encoding="UTF-8").identity
    normalised = Experiment(scheme=Scheme(normalise=True))
    assert normalised.identity == Experiment().identity
