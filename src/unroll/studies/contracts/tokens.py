"""Rules of token kinds. They are run on texts of letters, marks and numbers, or on the kind's own EXAMPLE."""

from __future__ import annotations

from typing import Any

import numpy as np

from unroll.base.errors import SymbolError
from unroll.corpus.tokens import UNKNOWN, Vocabulary, load, reads_bytes
from unroll.studies.contracts import Broken, require

TEXTS = (
    "To be, or not to be: that is the question.\nWhether 'tis nobler…\n",
    "60 62 64\n65 67\n\n60 x 9\n",
    "  ÄÖ ß\tΣΑΣ \n日本語 naïve\n",
    "a",
)


def a_text_survives_the_round_trip(name: str) -> None:
    """What `encode` makes of a text, `decode` makes a text that encodes to the same ids, all within the vocabulary."""
    for text in _texts(name):
        vocabulary = Vocabulary.of(text, name)
        ids = vocabulary.encode(text)
        require(len(ids) > 0, f"{text!r} has no tokens.")
        require(bool(ids.min() >= 0 and ids.max() < len(vocabulary)), "An id lies outside the vocabulary.")
        again = vocabulary.encode(vocabulary.decode(ids))
        require(np.array_equal(again, ids), f"{text!r} decodes to {vocabulary.decode(ids)!r}, which has other ids.")


def a_stream_cut_anywhere_gives_the_same_ids(name: str) -> None:
    """Pieces are cuts of one text: counts and ids do not depend on where it is cut."""
    for text in _texts(name):
        vocabulary, whole = Vocabulary.of(text, name), _pieces(name, text)
        for size in (1, 2, 3, 7):
            cut = _pieces(name, text, size)
            require(load(name).counts(cut) == load(name).counts(whole), f"In pieces of {size} the counts differ.")
            ids = np.concatenate([*vocabulary.encode_pieces(cut), np.empty(0, np.uint8)])
            require(np.array_equal(ids, vocabulary.encode(text)), f"In pieces of {size} the ids differ.")


def the_text_as_it_grows_is_the_text(name: str) -> None:
    """A text written token by token is the text written at once."""
    for text in _texts(name):
        vocabulary = Vocabulary.of(text, name)
        ids = vocabulary.encode(text)
        grown, whole = "".join(vocabulary.written(ids.tolist())), vocabulary.decode(ids)
        require(grown == whole, f"It grew to {grown!r}; it is {whole!r}.")


def symbols_are_all_of_the_text_counted_and_sorted(name: str) -> None:
    """`counts` says how often each symbol occurs among the ids; symbols are different texts, none empty, in order."""
    for text in _texts(name):
        vocabulary, counts = Vocabulary.of(text, name), load(name).counts(_pieces(name, text))
        require(set(counts) == set(vocabulary.symbols), "counts and vocabulary have different symbols.")
        require(all(isinstance(symbol, str) and symbol for symbol in counts), "A symbol is no text, or empty.")
        ordered = sorted(counts, key=getattr(load(name), "order", None))
        require(list(vocabulary.symbols) == ordered, "The vocabulary is not in the kind's order.")
        occur = np.bincount(vocabulary.encode(text), minlength=len(vocabulary)).tolist()
        wrong = [s for s, count in zip(vocabulary.symbols, occur, strict=True) if counts[s] != count]
        require(not wrong, f"counts and ids disagree about {wrong[:3]}.")


def a_vocabulary_survives_its_file(name: str) -> None:
    """A symbol, read as text, is one token: itself; so a stored vocabulary can be checked."""
    for text in _texts(name):
        vocabulary = Vocabulary.of(text, name)
        require(Vocabulary.from_json(vocabulary.to_json(), "it") == vocabulary, "It was read back as another one.")


def rare_symbols_share_one_unknown(name: str) -> None:
    """Symbols that are not known are the unknown one where the vocabulary has it, else a SymbolError."""
    for text in _texts(name):
        counts = load(name).counts(_pieces(name, text))
        rarest = min(counts.values())
        few = Vocabulary.of(text, name, rarest + 1)
        rare = {symbol for symbol, count in counts.items() if count == rarest}
        unknown = few.encode(text) == few.symbols.index(UNKNOWN)
        total = sum(counts[symbol] for symbol in rare)
        require(int(unknown.sum()) == total, f"{int(unknown.sum())} tokens are unknown; {total} are rare.")
        if len(counts) > len(rare):
            _require_refusal(name, text, tuple(symbol for symbol in few.symbols if symbol != UNKNOWN))


def _require_refusal(name: str, text: str, symbols: tuple[str, ...]) -> None:
    try:
        Vocabulary(name, symbols).encode(text)
    except SymbolError:
        return
    raise Broken("A symbol that is not in the vocabulary was given an id.")


def _texts(name: str) -> list[str]:
    example = getattr(load(name), "EXAMPLE", None)
    texts = TEXTS if example is None else (example,)
    return [text for text in texts if load(name).counts(_pieces(name, text))]


def _pieces(name: str, text: str, size: int = 10**9) -> list[Any]:
    """A text as a stream of pieces of what the kind reads."""
    content: Any = text.encode() if reads_bytes(name) else text
    return [content[n : n + size] for n in range(0, len(content), size)]
