"""What counting reaches on the test set of every split: a measure of how hard each of them is.

FOLDER/records/ngrams.json:    {"format": 1, "order": …, "unroll": …, "rows": [{corpus, split_seed, perplexity, …}, …]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from unroll.base import atomic_files, untrusted
from unroll.base.version import VERSION
from unroll.corpus import kneser_ney
from unroll.corpus.corpus import Corpus
from unroll.studies.beyond.parts import NGRAMS, SPLITS
from unroll.studies.beyond.records import FORMAT, compact, damaged, parsed, path
from unroll.studies.paper.records import significant


@dataclass(frozen=True)
class Counted:
    """What a model that counts short stretches of the train set reaches on one test set."""

    corpus: str
    sha256: str
    split_seed: int
    order: int
    perplexity: float | None
    tokens: int


def read(folder: str | Path) -> tuple[Counted, ...]:
    """What is known so far."""
    source = path(folder, NGRAMS)
    if not untrusted.present(source):
        return ()
    try:
        return tuple(Counted(**row) for row in parsed(source)["rows"])
    except (KeyError, TypeError):
        raise damaged(source) from None


def count(folder: str | Path, corpora: Mapping[str, Corpus]) -> Iterator[Counted]:
    """Count what is not known yet, and write it down after every split."""
    rows = list(read(folder))
    known = {(row.corpus, row.sha256, row.split_seed) for row in rows}
    for name, corpus in corpora.items():
        for split in SPLITS:
            if (name, corpus.sha256, split) in known:
                continue
            order = kneser_ney.order_for(corpus.unique)
            perplexity = significant(corpus.ngram_perplexity(order, split), 6)
            row = Counted(name, corpus.sha256, split, order, perplexity, len(corpus.test_ids(split)))
            rows.append(row)
            _write(folder, rows)
            yield row


def _write(folder: str | Path, rows: list[Counted]) -> None:
    head = compact({"format": FORMAT, "unroll": VERSION})[:-1]
    lines = ",\n".join(compact(asdict(row)) for row in rows)
    atomic_files.write(path(folder, NGRAMS), f'{head},\n"rows": [\n{lines}\n]}}\n'.encode())
