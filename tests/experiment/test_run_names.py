"""The name of a run's folder has one form, whichever command gives it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unroll import Experiment, Scheme
from unroll.experiment.run_names import run_name, shape_of
from unroll.sweep.deduplicate import distinct

FORM = r"book-multi-loss-k1_20-k2_100-gru2x64-(dropout_0\.\d+-)?seed0"


def test_a_sweep_names_a_run_by_what_it_is_and_by_what_varies() -> None:
    asked = [Experiment(title="book", cell="gru", layers=2, hidden=64, dropout=p) for p in (0.0, 0.25)]
    names = [training.name for training in distinct(asked)]
    assert names == [f"book-multi-loss-k1_20-k2_100-gru2x64-dropout_{p}-seed0" for p in (0.0, 0.25)]
    (alone,) = distinct(asked[:1])
    assert alone.name == run_name("book", "multi-loss", 20, 100, shape_of(asked[0]), 0)
    assert all(re.fullmatch(FORM, name) for name in (*names, alone.name))


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_name_is_safe_in_a_folder(corpus: str, procedure: str) -> None:
    for any_script in (False, True):
        name = run_name(corpus, procedure, 1, 2, "rnn1x8", 3, any_script=any_script)
        assert name not in ("", ".", "..")
        assert not set(name) & set("/\\\0 ,=\n")
        assert name[0] not in "-."
        assert any_script or name.isascii()


@pytest.mark.parametrize(("title", "name"), [("война", "война-scheme1"), ("a b.txt", "a-b.txt-scheme1")])
def test_letters_of_any_script_stay_where_a_user_trains_one_run(title: str, name: str) -> None:
    s = Scheme()
    assert run_name(title, "scheme1", s.k1, s.k2, "rnn1x8", 0, any_script=True).startswith(f"{name}-k1_20-")
