"""A char-rnn as many people write it: torch.nn.LSTM, a linear layer, Adam. What time_to_loss.py times ours against.

    python benchmarks/plain_script.py train.txt test.txt --learning-rate 0.004

Each line is an evaluation: batches, CPU seconds of training (not of evaluation), nats a character of the test text
after its first 100 characters, which are read alone.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

ROWS, LENGTH, HIDDEN, UNSCORED = 64, 100, 128, 100


class CharRNN(nn.Module):
    def __init__(self, symbols):
        super().__init__()
        self.embedding = nn.Embedding(symbols, HIDDEN)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, symbols)

    def forward(self, ids, state=None):
        h, state = self.lstm(self.embedding(ids), state)
        return self.out(h), state


parser = argparse.ArgumentParser()
parser.add_argument("train")
parser.add_argument("test")
parser.add_argument("--learning-rate", type=float, default=0.002)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--seconds", type=float, default=100.0)
parser.add_argument("--until", type=float, default=0.0, help="nats at which to stop")
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(options.seed)
text, test_text = (Path(path).read_bytes().decode() for path in (options.train, options.test))
number = {symbol: i for i, symbol in enumerate(sorted(set(text + test_text)))}
test = torch.tensor([number[symbol] for symbol in test_text])[:, None]
columns = len(text) // ROWS
data = torch.tensor([number[symbol] for symbol in text[: ROWS * columns]]).view(ROWS, columns).t().contiguous()

began = time.process_time()
model = CharRNN(len(number))
optimiser = torch.optim.Adam(model.parameters(), lr=options.learning_rate, fused=True)
evaluating, batch, at, state, nats, due = 0.0, 0, 0, None, float("inf"), 100
while nats > options.until and time.process_time() - began - evaluating < options.seconds:
    if at + LENGTH >= columns:
        at, state = 0, None
    logits, state = model(data[at : at + LENGTH], state)
    loss = cross_entropy(logits.flatten(0, 1), data[at + 1 : at + LENGTH + 1].flatten())
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimiser.step()
    state, at, batch = tuple(s.detach() for s in state), at + LENGTH, batch + 1
    if batch >= due:
        paused, due = time.process_time(), batch * 1.15
        with torch.no_grad():
            logits, _ = model(test[:-1])
            nats = cross_entropy(logits[UNSCORED - 1 :, 0], test[UNSCORED:, 0]).item()
        print(json.dumps([batch, round(paused - began - evaluating, 3), round(nats, 5)]), flush=True)
        evaluating += time.process_time() - paused
