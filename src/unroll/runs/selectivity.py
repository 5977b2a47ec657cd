"""How selective hidden units are: how much of a unit's activation follows one feature of the text.

A feature gives every token a category: its class, its place in the line, whether a bracket is open. A unit's
selectivity for a feature is the share of the variance of its activation over the text that the categories' means
explain, corrected for the number of categories (epsilon squared): 1 means that the category says it all, 0 that it says
nothing, and less than 0 is less than chance gives. A unit's selectivity is that for the feature that explains most.

With hundreds of units and several features the highest value is above 0 even where nothing is there. So every feature
is also turned round against the text, by many amounts: the highest value of all units that any of these gives is what
chance may give.

Shapes: T tokens of a text, U units of all layers, C categories, F features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unroll.base.errors import ConfigurationError

LEAST = 12  # tokens of a category; those of rarer ones are left out
TURNS = 19  # by each of which every feature is turned: the highest is reached by chance in 1 of 20 texts
OPENING, CLOSING = "([{", ")]}"
COMMON = 10  # symbols that have a class of their own where tokens are no characters


@dataclass(frozen=True)
class Unit:
    """One unit, and the feature that it follows most."""

    layer: int  # from 0
    unit: int  # from 0
    selectivity: float
    feature: str
    highest: str  # the category in which it is highest in the mean
    lowest: str


@dataclass(frozen=True, eq=False)
class Ranking:
    """All units, the most selective first."""

    units: tuple[Unit, ...]
    chance: float  # the highest selectivity that features turned against the text gave any unit
    features: tuple[str, ...]


def ranked(h_TLH: NDArray[np.float32], symbols: Sequence[str]) -> Ranking:
    """Rank the units of all layers by how selective they are over a text."""
    T, L, H = h_TLH.shape
    if len(symbols) != T:
        raise ConfigurationError(f"There must be a symbol for each of the {T:,} states. Got {len(symbols):,}.")
    activation_TU = h_TLH.reshape(T, L * H).astype(np.float64)
    every = {name: categories(symbols) for name, categories in FEATURES.items()}
    features = {name: sorted_out for name, of_T in every.items() if (sorted_out := _numbered(of_T)) is not None}
    if not features:
        raise ConfigurationError("This text is too short or too uniform to tell units apart by it.")
    shares_FU = np.stack([_explained(activation_TU, of_T) for of_T, _ in features.values()])
    chance = 0.0
    for turn in range(1, TURNS + 1):
        by = turn * T // (TURNS + 1)
        turned = (_explained(activation_TU, np.roll(of_T, by)).max() for of_T, _ in features.values())
        chance = max(chance, *turned)
    names = list(features)
    units = []
    for index in np.argsort(-shares_FU.max(0), kind="stable").tolist():
        feature = names[int(shares_FU[:, index].argmax())]
        of_T, words = features[feature]
        means = [activation_TU[of_T == category, index].mean() for category in range(len(words))]
        high, low = words[int(np.argmax(means))], words[int(np.argmin(means))]
        units.append(Unit(index // H, index % H, float(shares_FU[:, index].max()), feature, high, low))
    return Ranking(tuple(units), float(chance), tuple(names))


def _numbered(categories: Sequence[str]) -> tuple[NDArray[np.int64], list[str]] | None:
    """Categories as numbers and their names; −1 for rare ones. None where fewer than two are left."""
    counts = Counter(categories)
    words = sorted(word for word, count in counts.items() if count >= LEAST)
    if len(words) < 2:
        return None
    place = {word: number for number, word in enumerate(words)}
    return np.array([place.get(word, -1) for word in categories], np.int64), words


def _explained(activation_TU: NDArray[np.float64], of_T: NDArray[np.int64]) -> NDArray[np.float64]:
    """The share of each unit's variance that the categories' means explain, corrected for their number."""
    known = of_T >= 0
    activation_TU, of_T = activation_TU[known], of_T[known]
    T, C = len(of_T), int(of_T.max()) + 1
    centred_TU = activation_TU - activation_TU.mean(0)
    member_CT = (of_T == np.arange(C)[:, None]).astype(np.float64)
    sums_CU = member_CT @ centred_TU
    between_U = (sums_CU**2 / member_CT.sum(1)[:, None]).sum(0)
    total_U = (centred_TU**2).sum(0)
    # A unit that never moves follows nothing.
    share_U = np.divide(between_U, total_U, out=np.zeros_like(total_U), where=total_U > 1e-12)
    corrected_U: NDArray[np.float64] = np.where(total_U > 1e-12, 1 - (1 - share_U) * (T - 1) / max(T - C, 1), 0.0)
    return corrected_U


# --- features: from the tokens of a text, in order, to a category for each


def token_class(symbol: str) -> str:
    """The class of a token by its first character.

    >>> [token_class(symbol) for symbol in ("a", "Q", "7", " ", "\\n", "(", ".", "+")]
    ['lower case', 'upper case', 'digit', 'space', 'line end', 'bracket', 'punctuation', 'sign']
    """
    first = symbol[:1]
    if first == "\n":
        return "line end"
    if first.isspace():
        return "space"
    if first.isdigit():
        return "digit"
    if first.isalpha():
        return "upper case" if first.isupper() else "lower case"
    if first in OPENING + CLOSING:
        return "bracket"
    return "punctuation" if first in ".,;:!?'\"" else "sign"


def _classes(symbols: Sequence[str]) -> list[str]:
    """Classes of characters; where tokens are longer than that, the commonest tokens themselves."""
    if sum(len(symbol) > 1 for symbol in symbols) < len(symbols) / 2:
        return [token_class(symbol) for symbol in symbols]
    common = {symbol for symbol, _ in Counter(symbols).most_common(COMMON)}
    return [repr(symbol) if symbol in common else "another token" for symbol in symbols]


def _next(symbols: Sequence[str]) -> list[str]:
    return [*_classes(symbols)[1:], ""]


def _in_line(symbols: Sequence[str]) -> list[str]:
    return _since(symbols, lambda symbol: symbol.endswith("\n"))


def _in_word(symbols: Sequence[str]) -> list[str]:
    return _since(symbols, lambda symbol: not symbol[:1].isalnum())


def _since(symbols: Sequence[str], resets: Callable[[str], bool]) -> list[str]:
    """How many tokens were read since one that resets the count, in bins that double."""
    categories, count = [], 0
    for symbol in symbols:
        count = 0 if resets(symbol) else count + 1
        low = 1 << (count.bit_length() - 1) if count else 0
        categories.append(str(count) if count < 2 else f"{low} to {2 * low - 1}")
    return categories


def _indentation(symbols: Sequence[str]) -> list[str]:
    categories, spaces, begins = [], 0, True
    for symbol in symbols:
        if symbol.endswith("\n"):
            spaces, begins = 0, True
        elif begins and symbol.isspace():
            spaces += 4 if symbol == "\t" else 1
        else:
            begins = False
        low = spaces // 4 * 4
        categories.append(f"{low} to {low + 3} spaces")
    return categories


def _brackets(symbols: Sequence[str]) -> list[str]:
    categories, depth = [], 0
    for symbol in symbols:
        depth += sum(symbol.count(c) for c in OPENING) - sum(symbol.count(c) for c in CLOSING)
        depth = max(depth, 0)  # one that was never opened closes nothing
        categories.append(("none open", "one open")[depth] if depth < 2 else "several open")
    return categories


def _quotes(symbols: Sequence[str]) -> list[str]:
    categories, inside = [], False
    for symbol in symbols:
        inside = False if symbol.endswith("\n") else inside ^ bool(symbol.count('"') % 2)
        categories.append("inside" if inside else "outside")
    return categories


FEATURES: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "class of the token": _classes,
    "class of the next token": _next,
    "place in the line": _in_line,
    "place in the word": _in_word,
    "indentation": _indentation,
    "open brackets": _brackets,
    "double quotes": _quotes,
}
