"""Scheme 4 by a stranger's route: a char-rnn in plain torch that carries its state, scored from zeros and from carried.

    python benchmarks/stranger.py music.txt --reset never --peepholes

Nothing of Unroll is imported, so that a fault of Unroll's would show beside it: stranger_beside_unroll.py runs both.
Each line is an evaluation: batches, nats of training, and the perplexity of the last 3,000 tokens of the text, read on
from zeros and from the states that the 64 rows of training carry (the median over rows).
"""

import argparse
import json
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

ROWS, LENGTH, HIDDEN, RATE, TEST = 64, 100, 128, 0.004, 3000


class Peephole(nn.Module):
    """An LSTM whose three gates see the cell before the step, as the paper writes it."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.x, self.h = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden, bias=False)
        self.peep = nn.Parameter(0.1 * torch.randn(3, hidden))

    def forward(self, inputs, state):
        h, c = (part[0] for part in state)
        seen = []
        for x in self.x(inputs):
            i, f, g, o = (x + self.h(h)).chunk(4, -1)
            c_next = torch.sigmoid(f + self.peep[1] * c) * c + torch.sigmoid(i + self.peep[0] * c) * torch.tanh(g)
            h, c = torch.sigmoid(o + self.peep[2] * c) * torch.tanh(c_next), c_next
            seen.append(h)
        return torch.stack(seen), (h[None], c[None])


def train(text, batches, reset, peepholes, seed):
    """Yield an evaluation at growing distances: [batch, nats of training, from zeros, from carried states]."""
    torch.manual_seed(seed)
    tokens = text.split() if "".join(text.split()).isdigit() else text  # notes of music, or characters
    number = {token: i for i, token in enumerate(sorted(set(tokens)))}
    ids = torch.tensor([number[token] for token in tokens])
    symbols, test, data = len(number), ids[-TEST:], ids[:-TEST]
    layer = (Peephole if peepholes else nn.LSTM)(symbols, HIDDEN)
    out = nn.Linear(HIDDEN, symbols)
    for name, values in [*layer.named_parameters(), *out.named_parameters()]:
        if values.dim() == 1:
            nn.init.zeros_(values)
        elif "peep" not in name:
            [nn.init.orthogonal_(gate) for gate in (values.chunk(4) if values.shape[0] == 4 * HIDDEN else [values])]
    optimiser = torch.optim.Adam([*layer.parameters(), *out.parameters()], lr=RATE)
    one_hot, width = torch.eye(symbols), len(data) // ROWS
    state, at, due, losses, table = None, 0, 100, [], data[: ROWS * width].view(ROWS, width)
    for batch in range(1, batches + 1):
        if at + LENGTH >= width:  # an epoch ends: the text is rotated
            at, table = 0, data.roll(int(torch.randint(len(data), ())))[: ROWS * width].view(ROWS, width)
            state = None if reset == "epoch" else state
        state = tuple(torch.zeros(1, ROWS, HIDDEN) for _ in "hc") if state is None else state
        if reset == "random":
            state = tuple(part * (torch.rand(ROWS, 1) >= 0.1) for part in state) if batch > 1 else state
        window, at = table[:, at : at + LENGTH + 1].t(), at + LENGTH
        hidden, state = layer(one_hot[window[:-1]], state)
        loss = cross_entropy(out(hidden).flatten(0, 1), window[1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        state = tuple(part.detach() for part in state)
        losses.append(loss.item())
        if batch >= due or batch == batches:
            due = 1.12 * batch
            with torch.no_grad():  # row 0 begins from zeros, the others where training is
                starts = tuple(torch.cat([torch.zeros(1, 1, HIDDEN), part], 1) for part in state)
                inputs = one_hot[test[:-1, None].expand(-1, ROWS + 1)]
                logits = out(layer(inputs, starts)[0])
                nats = cross_entropy(logits.permute(1, 2, 0), test[1:].expand(ROWS + 1, -1), reduction="none").mean(1)
            yield [batch, sum(losses) / len(losses), nats[0].exp().item(), nats[1:].median().exp().item()]
            losses = []


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--reset", choices=["epoch", "never", "random"], default="epoch")
    parser.add_argument("--peepholes", action="store_true")
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = options.text.read_text().strip()
    for line in train(text, options.batches, options.reset, options.peepholes, options.seed):
        print(json.dumps([line[0], *(round(value, 5) for value in line[1:])]), flush=True)
