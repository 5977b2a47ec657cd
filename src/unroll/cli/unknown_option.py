"""An option that a command does not have: what a user of another trainer means by it."""

from __future__ import annotations

from typing import Any

from unroll.experiment.usual_words import for_shell


def answer(error: Any) -> str:
    """A framework's error in its own words, or, for an option that others have, with ours."""
    word, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    meant = for_shell(str(word), _known(context.command)) if word and context is not None else ""
    return f"No such option: {word}. {meant}" if meant else str(error.format_message())


def _known(command: Any) -> dict[str, str]:
    """The options and arguments of a command, each by its name and as a user writes it."""
    known = {}
    for parameter in command.params:
        option = max(parameter.opts, key=len)
        if parameter.param_type_name == "argument":
            known[parameter.name] = f"the argument {parameter.metavar or option}"
        else:
            known[option.removeprefix("--").replace("-", "_")] = option
    return known
