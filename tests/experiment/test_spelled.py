"""Keys behind a plug-in's name, of which some are texts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.experiment import spelled
from unroll.experiment.spelled import Key


@pytest.fixture(autouse=True)
def queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher with keys of each kind."""
    keys = {"partition": Key("", (lambda v: " " not in v, "one word")), "minutes": Key(60), "share": Key(0.5)}
    monkeypatch.setitem(plugins._registered, ("launchers", "queue"), SimpleNamespace(KEYS=keys, run=lambda jobs: ()))


def test_a_key_whose_default_is_a_text_takes_a_text() -> None:
    assert spelled.values("launchers", "queue") == {"partition": "", "minutes": 60, "share": 0.5}
    said = spelled.values("launchers", "queue,partition=gpu-a:2,share=1,minutes=5")
    assert said == {"partition": "gpu-a:2", "minutes": 5, "share": 1.0}


def test_a_text_that_its_key_refuses_is_refused_with_an_example() -> None:
    with pytest.raises(ConfigurationError) as refused:
        spelled.values("launchers", "queue,partition=a b,minutes=x")
    assert "partition of launcher = queue must be one word. Got 'a b'." in str(refused.value)
    assert "minutes of launcher = queue must be an integer. Got 'x'. Write it as in queue,minutes=60." in str(
        refused.value
    )
