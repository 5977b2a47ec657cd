"""help(unroll.Experiment) explains every field, and a corpus that is open is answered with where it goes."""

from __future__ import annotations

import pydoc
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from unroll import Corpus, Experiment, Scheme, grid
from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.experiment.field_help import WORDS, documented

HELD = "Kind of {names} [{default}]."


@pytest.mark.parametrize("described", [Experiment, Scheme])
def test_the_help_of_a_class_of_settings_has_a_line_for_each_field_with_its_default(described: type) -> None:
    said = pydoc.plain(pydoc.render_doc(described))
    for each in fields(described):
        default = "" if each.name == "scheme" else f" = {each.default!r}"
        assert f"{each.name}: {each.type}{default}" in said
    assert "{" not in (described.__doc__ or "").replace("{'", "")
    for name in set(WORDS) & {each.name for each in fields(described)}:
        assert WORDS[name] in said


def test_a_field_is_explained_by_the_sentence_that_its_option_has() -> None:
    @dataclass
    class Settings:
        """Some settings."""

        cell: str = field(default="lstm", metadata={"setting": SimpleNamespace(help=HELD, family="cells")})
        rows: int = field(default=64, metadata={"setting": SimpleNamespace(help="Windows [{default}].", family=None)})

    said = documented(Settings)
    assert said.startswith("Some settings.\n\n    Fields:\n")
    assert f"    cell: str = 'lstm'\n        Kind of {', '.join(plugins.names('cells'))}.\n" in said
    assert "    rows: int = 64\n        Windows.\n" in said


def test_an_open_corpus_is_answered_with_where_it_goes() -> None:
    text = Corpus.from_text("to be or not to be " * 20)
    for make in (lambda: Experiment(corpus=text), lambda: grid(corpus=[text])[0]):  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match=r"Got a Corpus.*unroll\.train\(experiment, out, corpus=…\)"):
            make()


def test_a_path_is_a_corpus_as_its_text_is() -> None:
    assert Experiment(corpus=Path("books/one.txt")) == Experiment(corpus="books/one.txt")  # type: ignore[arg-type]
