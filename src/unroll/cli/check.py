"""`unroll check`: whether a plug-in keeps to the rules of its family."""

from __future__ import annotations

from typing import Annotated

import typer

from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.cli.screen import say, show


def check(
    family: Annotated[str, typer.Argument(help=f"{', '.join(plugins.FAMILIES)}.", metavar="FAMILY")],
    name: Annotated[str, typer.Argument(help="The plug-in's name.", metavar="NAME")],
) -> None:
    """Run the rules of a family on one plug-in: a line a rule, and how it is broken.

    \b
    unroll check cells lstm
    unroll check cells mingru               of a package of yours, by an entry point of the group unroll.cells

    Ends with 1 where a rule is broken. What the rules are for, and how plug-ins are added: docs/plugins.md.
    """
    family = family.replace("-", "_")
    plugins.require_family(family)
    wrong = plugins.problem(family, name)
    if wrong:
        raise ConfigurationError(wrong)
    from unroll.studies import contracts

    broken = 0
    for outcome in contracts.check(family, name):
        if outcome.broken:
            broken += 1
            show(f"BROKEN    {outcome.rule}")
            show(f"          {outcome.broken}")
        elif outcome.not_here:
            show(f"not here  {outcome.rule}")
            show(f"          {outcome.not_here}")
        else:
            show(f"kept      {outcome.rule}")
    package = plugins.package_of(family, name)
    ours = "which this program registered" if plugins.is_registered(family, name) else "of Unroll"
    whose = f"of {package.package} {package.version}" if package else ours
    noun = plugins.FAMILIES[family].noun
    if broken:
        say(f"The {noun} {name} {whose} breaks {broken} of the {len(contracts.rules(family))} rules.")
        raise typer.Exit(1)
    say(f"The {noun} {name} {whose} keeps to all rules that can be checked here.")
