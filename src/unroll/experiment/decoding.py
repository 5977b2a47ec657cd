"""What may be asked of the draw of a token. Each control is a file of `sampling/decoding`, which checks and does it.

Fields, options and arguments follow from those files: temperature, top-k, top-p, min-p, and whatever else is there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from unroll.base import plugins
from unroll.base.errors import ConfigurationError, did_you_mean


def controls() -> dict[str, Any]:
    """Every control by its field's name (`top_k`), in the order in which they apply."""
    return _controls(plugins.state())


@lru_cache(1)
def _controls(_state: int) -> dict[str, Any]:
    loaded = {name: plugins.load("decoding", name) for name in plugins.names("decoding")}
    ordered = sorted(loaded.items(), key=lambda item: (item[1].PLACE, item[0]))
    return {name.replace("-", "_"): control for name, control in ordered}


class Decoding:
    """How a token is chosen: a frozen value with a field a control. Temperature 0 is argmax.

    >>> Decoding(temperature=0.5, top_k=10)
    Decoding(temperature=0.5, top_k=10, top_p=None, min_p=None)
    """

    applied: tuple[tuple[str, Any], ...]  # the controls that do something, by option name, in order
    truncates: bool  # whether any control but the temperature does something, other than by argmax

    def __init__(self, *values: Any, **named: Any) -> None:
        known = controls()
        if len(values) > len(known):
            raise TypeError(f"Decoding takes at most {len(known)} values. Got {len(values)}.")
        for name, value in zip(known, values, strict=False):
            if name in named:
                raise TypeError(f"Decoding got two values of {name}.")
            named[name] = value
        for name in named:
            if name not in known:
                raise TypeError(f"Decoding has no control {name!r}.{did_you_mean(name, known)}")
        said = {name: value for name, value in named.items() if value is not None}
        fields = {name: said.get(name, control.DEFAULT) for name, control in known.items()}
        wrong = [
            f"{name.replace('_', '-')} must be {known[name].ALLOWED}. Got {value}."
            for name, value in fields.items()
            if value is not None and not known[name].allowed(value)
        ]
        if wrong:
            raise ConfigurationError(*wrong)
        applied = tuple((name.replace("_", "-"), value) for name, value in fields.items() if value is not None)
        others = any(name != "temperature" for name, _ in applied)
        # Looked at for every token that is drawn: plain attributes, and a hash that is made once.
        self.__dict__.update(fields, applied=applied, truncates=fields["temperature"] > 0 and others)
        self.__dict__["_hash"] = hash(applied)

    def __getattr__(self, name: str) -> Any:
        """The default of a control that is newer than this value."""
        if not name.startswith("_") and name in controls():
            return controls()[name].DEFAULT
        raise AttributeError(f"Decoding has no control {name!r}.")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"A Decoding is a value and does not change: make another one. ({name})")

    def __eq__(self, other: object) -> bool:
        return self.applied == other.applied if isinstance(other, Decoding) else NotImplemented

    def __hash__(self) -> int:
        return int(self.__dict__["_hash"])

    def __repr__(self) -> str:
        return f"Decoding({', '.join(f'{name}={getattr(self, name)!r}' for name in controls())})"

    def __reduce__(self) -> tuple[Any, ...]:
        """It travels by its fields: a hash of another process would be another number."""
        return _made, ({name: getattr(self, name) for name in controls()},)

    def __replace__(self, **changes: Any) -> Decoding:
        """The same but for these controls, as `copy.replace` asks for it."""
        return Decoding(**{**{name: getattr(self, name) for name in controls()}, **changes})


def _made(fields: dict[str, Any]) -> Decoding:
    return Decoding(**fields)
