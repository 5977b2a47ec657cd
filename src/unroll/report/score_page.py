"""A scored text as one page: no script, nothing to load, works from a file.

Everything that comes from a text, a vocabulary or a run stands in the page as text. It is made visible and then
escaped, so that no character can hide or turn the reading direction. The page's own policy forbids it everything but
its own style sheet.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from unroll.base.printable import pictured
from unroll.runs.scoring import LEVELS, Surprisal, Total, level

MOST = 20  # surprising tokens in the table
BEFORE = 40  # characters shown before each of them
LONGEST = 60  # characters of a token in a list

STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fdfcfa; --quiet: #666; --line: #ddd8cf; --bar: #fff;
  --l1: #fdf2c8; --l2: #fbd777; --l3: #f5a54c; --l4: #ee7452; --on: #1c1c1c; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e9e6e1; --paper: #17181a; --quiet: #a3a09a; --line: #3a3b3e; --bar: #242528;
    --l1: #3b3620; --l2: #63500f; --l3: #8f4f0b; --l4: #b0321c; --on: #fff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 15rem; }
h1 { font-size: 1.5rem; font-weight: 600; margin: 0 0 .25rem; }
h2 { font-size: 1.05rem; font-weight: 600; margin: 2.25rem 0 .5rem; }
p { margin: .25rem 0; color: var(--quiet); overflow-wrap: anywhere; }
dl { display: flex; flex-wrap: wrap; gap: .75rem 2.5rem; margin: 1.5rem 0; }
dt { font-size: .8rem; color: var(--quiet); }
dd { margin: 0; font-size: 1.45rem; font-variant-numeric: tabular-nums; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .5rem; margin: .75rem 0 0; padding: 0;
  font-size: .85rem; }
.key li { padding: .1rem .6rem; }
.text, code { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; line-height: 1.75; border: 1px solid var(--line);
  border-radius: 6px; padding: 1rem; margin-top: .75rem; }
.text span { cursor: default; }
.l1 { background: var(--l1); }
.l2 { background: var(--l2); border-bottom: 1px dotted; }
.l3 { background: var(--l3); border-bottom: 2px solid; }
.l4 { background: var(--l4); border-bottom: 4px double; font-weight: 700; }
.l1, .l2, .l3, .l4 { color: var(--on); }
.first { color: var(--quiet); font-style: italic; }
.text span:hover, .text span:focus { outline: 2px solid currentColor; outline-offset: 1px; }
.text span:hover::after, .text span:focus::after { content: attr(aria-label); position: fixed; left: 50%; bottom: 1rem;
  transform: translateX(-50%); width: min(26rem, calc(100vw - 2rem)); padding: .75rem 1rem; white-space: pre-wrap;
  background: var(--bar); color: var(--ink); border: 1px solid var(--line); border-radius: 8px;
  box-shadow: 0 4px 24px rgb(0 0 0 / .25);
  font: 14px/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.text span:hover::after { z-index: 1; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--quiet); font-size: .8rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td code { white-space: pre-wrap; overflow-wrap: anywhere; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(heading: Mapping[str, str], first: str, tokens: Sequence[Surprisal], total: Total) -> bytes:
    """The page: what was scored, the numbers, the text, and what surprised most."""
    return "".join(_parts(heading, first, tokens, total)).encode()


def _parts(heading: Mapping[str, str], first: str, tokens: Sequence[Surprisal], total: Total) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>What the model thinks of {_text(heading['text'])}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    yield "<main>\n<h1>What the model thinks</h1>\n"
    for name, value in heading.items():
        yield f"<p>{_text(name)}: {_text(value)}</p>\n"
    yield "<dl>\n"
    for name, number in _numbers(total).items():
        yield f"<div><dt>{name}</dt><dd>{number}</dd></div>\n"
    yield "</dl>\n<h2>Token by token</h2>\n<p>Point at a token, or move to it with the Tab key: its surprise, and the "
    yield 'likeliest in its place. One bit is a coin’s toss.</p>\n<ul class="key" aria-label="bits of surprise">\n'
    for index, words in enumerate(_levels()):
        yield f'<li class="l{index}">{words}</li>\n'
    yield '</ul>\n<div class="text">'
    yield f'<span class="first" tabindex="0" role="note" aria-label="{_text(_quoted(first))}&#10;'
    yield f'the first token: nothing comes before it that could predict it">{_text(first)}</span>'
    for token in tokens:
        yield f'<span class="l{level(token.bits)}" tabindex="0" role="note" aria-label="{_label(token)}">'
        yield f"{_text(token.symbol)}</span>"
    yield '</div>\n<h2>What surprised most</h2>\n<div class="wide"><table>\n<thead><tr>'
    yield '<th scope="col" class="number">bits</th><th scope="col" class="number">token, after what</th>'
    yield '<th scope="col">likeliest in its place</th></tr></thead>\n'
    yield "<tbody>\n"
    for token, before in _most_surprising(first, tokens):
        shown = f'{escape(before)}<span class="l{level(token.bits)}">{escape(_one_line(token.symbol))}</span>'
        likeliest = ", ".join(f"{_text(_quoted(a.symbol))} {_share(a.probability)}" for a in token.alternatives)
        yield f'<tr><td class="number">{token.bits:.2f}</td><td class="number"><code>{shown}</code></td>'
        yield f"<td>{likeliest}</td></tr>\n"
    yield "</tbody>\n</table></div>\n</main>\n</body>\n</html>\n"


def _numbers(total: Total) -> dict[str, str]:
    return {
        "log-probability": f"{total.log_probability:,.2f} nats",
        "perplexity": f"{total.perplexity:,.4f}",
        "bits per token": f"{total.bits_per_token:.4f}",
        "bits per byte": f"{total.bits_per_byte:.4f}",
        "tokens after the first": f"{total.tokens:,}",
        "their bytes": f"{total.bytes:,}",
    }


def _levels() -> list[str]:
    between = [f"{low} to {high} bits" for low, high in zip((0, *LEVELS), LEVELS, strict=False)]
    return [*between, f"{LEVELS[-1]} bits and more"]


def _label(token: Surprisal) -> str:
    """One token's numbers, a line each; the token is marked where it is among the likeliest."""
    lines = [f"{_quoted(token.symbol)}   {token.bits:.2f} bits   ({_share(2**-token.bits)})"]
    names = [_quoted(a.symbol) for a in token.alternatives]
    width = max(map(len, names), default=0)
    for rank, (name, a) in enumerate(zip(names, token.alternatives, strict=True), 1):
        mark = "  ← this one" if rank == token.rank else ""
        lines.append(f"{name:<{width}}  {_share(a.probability):>7}{mark}")
    if token.rank > len(names):
        lines.append(f"{token.rank - 1:,} were likelier")
    return "&#10;".join(map(_text, lines))


def _most_surprising(first: str, tokens: Sequence[Surprisal]) -> list[tuple[Surprisal, str]]:
    before = _one_line(first)
    pairs = []
    for token in tokens:
        pairs.append((token, before))
        before = (before + _one_line(token.symbol))[-BEFORE:]
    return heapq.nlargest(MOST, pairs, key=lambda pair: pair[0].bits)


def _one_line(text: str) -> str:
    """Make a text visible, without its line ends."""
    return pictured(text).replace("\n", "").replace("\t", "")


def _text(text: str) -> str:
    """Anything, as text and nothing else."""
    return escape(pictured(text))


def _quoted(symbol: str) -> str:
    return repr(symbol if len(symbol) <= LONGEST else symbol[: LONGEST - 1] + "…")


def _share(probability: float) -> str:
    return f"{probability:.1%}".replace("%", " %")
