"""What the paper says for and against the four schemes and does not measure, measured here.

    python benchmarks/scheme_traits.py train --data FOLDER --precision bfloat16    on a GPU: records in results/schemes
    python benchmarks/scheme_traits.py judge                                       anywhere: tables, picture

`train` can be killed at any moment and goes on when it is called again: a part with a record is never done again, and
trainings go on from their checkpoints in the folder of --runs. `judge` redraws the marked blocks of docs/schemes.md and
docs/schemes-traits.png from the records alone.

The questions, and why they are asked in this way:

(a) Does a loss on every position make a model short-sighted? Three trainings of the same model on a real text are asked
    for the same test tokens after p = 1 … 3·k2 others. A short-sighted model gains less from tokens far back, so its
    nll falls less from k2/5 to k2. At p = k2 single-loss is trained, and multi-loss spends one k2-th of its loss: there
    the short-sighted model should be the worse one, at the same number of batches and in the same time.
(b) Are long dependencies learnt under single-loss, and dependencies beyond k2 under carried states? The copy source
    defines exactly how much there is to know: ln(symbols) nats an answer, at a distance of gap + 2 tokens. Models are
    asked about gaps from 1 to 1.5·k2, all equally frequent, and trained on a mixture with more short ones, which lead
    to the long ones. Under single-loss few windows end at an answer, so what is not learnt may only be learnt later.
    So the tables also show the batch from which half of the answers within the window are copied. k2 = 100 is the
    paper's; with k2 = 20 copying is learnt soon enough to compare all schemes.
(c) Does a learned first state pay? Multi-loss against the same with every window from zeros, which is a carried state
    reset before every batch. The learned state begins at 0 and the batches are the same, so the two differ in nothing
    else: differences are taken seed by seed.
(d) Does an error last? One token of the test text is replaced, and the nll of the true tokens after it is compared with
    that of the undisturbed text: under progressive conditioning at any distance, under windowed as far as the window
    reaches.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from traits import page, training
from traits.plan import Settings

from unroll.base.errors import Interrupted

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Train and record, or draw what the records say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "judge"))
    parser.add_argument("--data", type=Path, help="the folder that holds english.txt and music.txt")
    parser.add_argument("--corpora", default=",".join(Settings.corpora))
    parser.add_argument("--precision", default=Settings.precision)
    parser.add_argument("--batches", type=int, default=Settings.batches)
    parser.add_argument("--hidden", type=int, default=Settings.hidden, help="γ on the texts")
    parser.add_argument("--copy-hidden", type=int, default=Settings.copy_hidden, help="γ on the copy source")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "schemes", help="where the records are")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "traits", help="where trainings are kept")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where schemes.md and its picture are")
    asked = parser.parse_args()
    if asked.what == "judge":
        print(page.judge(asked.out, asked.docs))
        return
    if asked.data is None:
        parser.error("train needs --data, the folder that holds the texts")
    settings = Settings(
        precision=asked.precision,
        batches=asked.batches,
        corpora=tuple(asked.corpora.split(",")),
        hidden=asked.hidden,
        copy_hidden=asked.copy_hidden,
    )
    try:
        training.train(settings, asked.data, asked.out, asked.runs, asked.device)
    except Interrupted as interrupted:
        sys.exit(f"{interrupted} What was done is kept: the same command goes on from there.")


if __name__ == "__main__":
    main()
