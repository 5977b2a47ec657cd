"""What distinguishes runs: labels are short, different, and name no place on this machine."""

from __future__ import annotations

from helpers import tiny

from unroll import Scheme
from unroll.report.labels import differing, in_order, labels, settings


def test_a_label_says_what_differs_and_nothing_else() -> None:
    runs = {"a": tiny(k1=2, seed=1), "b": tiny(k1=3, seed=1), "c": tiny(k1=3, seed=2)}
    assert labels(runs) == {"a": "k1 2, seed 1", "b": "k1 3, seed 1", "c": "k1 3, seed 2"}


def test_a_scheme_of_the_paper_is_named_by_its_number_and_another_by_its_words() -> None:
    one, four = (tiny(scheme=Scheme(**scheme)) for scheme in ({}, {"state": "carried", "sample": "progressive"}))
    other = tiny(scheme=Scheme(k3=2))
    assert labels({"a": one, "b": four, "c": other}) == {
        "a": "scheme 1",
        "b": "scheme 4",
        "c": "scheme multi-loss,k3=2, windowed",
    }


def test_runs_that_settings_do_not_distinguish_keep_their_folders_names() -> None:
    assert labels({"a": tiny(), "b": tiny(), "c": tiny(k1=2)}) == {"a": "a", "b": "b", "c": "k1 2"}
    many = tiny(k1=2, hidden=6, dense=7, rows=4, batches=6, learning_rate=0.002, dropout=0.1, seed=4)
    assert labels({"mine": many, "yours": tiny()}) == {"mine": "mine", "yours": "yours"}


def test_runs_are_ordered_by_the_size_of_what_differs() -> None:
    runs = {"z": tiny(k1=2, seed=10), "y": tiny(k1=10, seed=0), "x": tiny(k1=2, seed=9)}
    assert in_order(runs) == ["x", "z", "y"]


def test_where_a_text_lies_is_no_setting() -> None:
    one, other = (tiny(corpus=f"/home/{name}/book.txt", title="book") for name in ("me", "you"))
    assert differing([one, other]) == []
    assert not any("/home" in str(value) for value in settings(one).values())
    assert differing([tiny(title="book"), tiny(title="poem")]) == ["corpus"]
    assert differing([tiny(sha256="a" * 64), tiny(sha256="b" * 64)]) == ["sha256"]
