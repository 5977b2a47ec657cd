"""The paper's Algorithms 1 to 3 in plain float64 NumPy: the truth that the package is tested against.

One run, one row at a time, one time step at a time, one layer at a time; the backward pass is derived by
hand. Nothing here is shared with the package, and nothing here is fast.

    γ       units of a recurrent layer
    G       columns of a layer's W_x and W_h: 4γ (LSTM: i, f, c, o), 3γ (GRU: r, u, c) or γ (RNN)
    D, V    units of the dense layer, size of the vocabulary
    N       tokens in the train set
    x       a layer's input: a token (first layer) or the h [γ] of the layer below
    a [G]   what the input gives the gates: x·W_x + b
    s [G]   what the state gives the gates: h·W_h
    state   of one layer and one row: {"h": [γ], "c": [γ]} ("c" for the LSTM only)
    d_…     the gradient of the batch's loss with respect to …, so the 1/rows of the mean is already in it
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Vectors = dict[str, np.ndarray]

LEAK = 0.01
BETA_1, BETA_2, ADAM_EPSILON = 0.9, 0.999, 1e-8
RHO, RMSPROP_EPSILON = 0.9, 1e-6


@dataclass(frozen=True)
class Setting:
    """Everything that decides one training, apart from the parameters and the tokens."""

    cell: str  # "lstm", "gru", "rnn"
    peepholes: str  # "paper", "lasagne", "off" (LSTM only)
    layers: int
    rows: int
    k1: int
    k2: int
    weights: tuple[float, ...]  # the loss's weight of position 1..k2
    carried: bool  # a window starts from the carried state (True) or from the learned one (False)
    reset: str = "epoch"  # of a carried state: "epoch", "never", or "random" (train's `resets` then decides)
    clip: float = 50.0
    optimiser: str = "adam"  # or "rmsprop", "sgd"
    learning_rate: float = 0.001
    momentum: float = 0.0  # of "sgd"
    rate_factor: Callable[[int], float] = lambda t: 1.0  # what a schedule makes of the learning rate at update t
    clip_norm: float = np.inf  # of all gradients together
    weight_decay: float = 0.0
    decoupled: bool = False


@dataclass
class Step:
    """What one batch gave."""

    loss: float  # mean over rows of the weighted sum over positions
    gradients: Vectors  # of every parameter, by name
    parameters: Vectors  # after the update
    carried: list[Vectors]  # a layer: {"h": [rows, γ], "c": [rows, γ]}, for the next window, before any reset
    starts: list[int]  # where each row's window starts in the rotated train set
    clipped: float  # share of `seen` above the clip
    seen: np.ndarray  # every |gradient| that the clip saw, before clipping, in no particular order


def zeros_like(vectors: Vectors) -> Vectors:
    return {name: np.zeros_like(value) for name, value in vectors.items()}


# ---- Cells: one step forward, and the same step backward.
# Forward: a, s and the state before give the state after, and the values that the backward step needs.
# Backward: the gradient of the state after gives
#   d_a, d_s     before clipping: the clip sits between the gates and the products a and s
#   d_before     of the state before, by every way that does not pass through s (hence not through the clip)
#   d_w_c        of the peepholes (LSTM only)


def sigmoid(z: np.ndarray) -> np.ndarray:
    # 1 / (1 + exp(−z)), written so that a large negative z does not overflow.
    return np.exp(-np.logaddexp(0, -z))


def lstm_forward(a, s, before: Vectors, w_c, peepholes: str):
    z_i, z_f, z_c, z_o = np.split(a + s, 4)
    w_i, w_f, w_o = w_c
    c_before = before["c"]
    i = sigmoid(z_i + w_i * c_before)
    f = sigmoid(z_f + w_f * c_before)
    g = np.tanh(z_c)
    c = f * c_before + i * g
    # The paper's output gate looks at the cell before this step, Lasagne's at the cell just written.
    c_of_o = c if peepholes == "lasagne" else c_before
    o = sigmoid(z_o + w_o * c_of_o)
    h = o * np.tanh(c)
    return {"h": h, "c": c}, (i, f, g, o, c, c_before, c_of_o)


def lstm_backward(d_after: Vectors, saved, w_c, peepholes: str):
    i, f, g, o, c, c_before, c_of_o = saved
    w_i, w_f, w_o = w_c
    d_h = d_after["h"]
    d_z_o = d_h * np.tanh(c) * o * (1 - o)
    d_c = d_after["c"] + d_h * o * (1 - np.tanh(c) ** 2)
    if peepholes == "lasagne":
        d_c = d_c + d_z_o * w_o
    d_z_i = d_c * g * i * (1 - i)
    d_z_f = d_c * c_before * f * (1 - f)
    d_z_c = d_c * i * (1 - g**2)
    # The peepholes lie outside the clip: they pass on the gradients d_z as they are.
    d_c_before = d_c * f + d_z_i * w_i + d_z_f * w_f
    if peepholes == "paper":
        d_c_before = d_c_before + d_z_o * w_o
    d_w_c = np.stack([d_z_i * c_before, d_z_f * c_before, d_z_o * c_of_o])
    d_z = np.concatenate([d_z_i, d_z_f, d_z_c, d_z_o])
    return d_z, d_z, {"h": np.zeros_like(d_h), "c": d_c_before}, d_w_c


def gru_forward(a, s, before: Vectors):
    a_r, a_u, a_c = np.split(a, 3)
    s_r, s_u, s_c = np.split(s, 3)
    h_before = before["h"]
    r = sigmoid(a_r + s_r)
    u = sigmoid(a_u + s_u)
    g = np.tanh(a_c + r * s_c)
    return {"h": (1 - u) * h_before + u * g}, (r, u, g, s_c, h_before)


def gru_backward(d_after: Vectors, saved, clip: float):
    r, u, g, s_c, h_before = saved
    d_h = d_after["h"]
    d_z_u = d_h * (g - h_before) * u * (1 - u)
    d_z_c = d_h * u * (1 - g**2)
    # The candidate's sum is a_c + r * s_c: the reset gate and s_c receive its gradient after the clip.
    d_z_c_clipped = np.clip(d_z_c, -clip, clip)
    d_z_r = d_z_c_clipped * s_c * r * (1 - r)
    d_a = np.concatenate([d_z_r, d_z_u, d_z_c])
    d_s = np.concatenate([d_z_r, d_z_u, d_z_c_clipped * r])
    return d_a, d_s, {"h": d_h * (1 - u)}, None


def rnn_forward(a, s):
    h = np.tanh(a + s)
    return {"h": h}, h


def rnn_backward(d_after: Vectors, h):
    d_z = d_after["h"] * (1 - h**2)
    return d_z, d_z, {"h": np.zeros_like(h)}, None


# ---- Layers: a cell with its products.


def peephole_weights(parameters: Vectors, setting: Setting, l: int) -> np.ndarray:
    """[3, γ]: into i, f, o. Zeros make the plain LSTM."""
    if setting.peepholes == "off":
        return np.zeros((3, len(parameters[f"layers.{l}.h0"])))
    return parameters[f"layers.{l}.w_c"]


def layer_forward(parameters: Vectors, setting: Setting, l: int, x, before: Vectors):
    W_x, W_h, b = (parameters[f"layers.{l}.{name}"] for name in ("W_x", "W_h", "b"))
    # The product of a one-hot vector with W_x is a row of W_x.
    a = (W_x[x] if l == 0 else x @ W_x) + b
    s = before["h"] @ W_h
    if setting.cell == "lstm":
        after, saved = lstm_forward(a, s, before, peephole_weights(parameters, setting, l), setting.peepholes)
    elif setting.cell == "gru":
        after, saved = gru_forward(a, s, before)
    else:
        after, saved = rnn_forward(a, s)
    return after, (x, before["h"], saved)


def layer_backward(parameters: Vectors, setting: Setting, l: int, d_after: Vectors, saved, gradients, seen):
    """Adds to `gradients` and `seen`; gives the gradients of the state before and of x (None for a token)."""
    x, h_before, cell_saved = saved
    if setting.cell == "lstm":
        w_c = peephole_weights(parameters, setting, l)
        d_a, d_s, d_before, d_w_c = lstm_backward(d_after, cell_saved, w_c, setting.peepholes)
    elif setting.cell == "gru":
        d_a, d_s, d_before, d_w_c = gru_backward(d_after, cell_saved, setting.clip)
    else:
        d_a, d_s, d_before, d_w_c = rnn_backward(d_after, cell_saved)

    # One clip a gate, on the gradient of its sum. (The GRU's d_s is already within it where r scales it down.)
    seen.append(np.abs(d_a))
    d_a = np.clip(d_a, -setting.clip, setting.clip)
    d_s = np.clip(d_s, -setting.clip, setting.clip)

    gradients[f"layers.{l}.b"] += d_a
    gradients[f"layers.{l}.W_h"] += np.outer(h_before, d_s)
    if setting.cell == "lstm" and setting.peepholes != "off":
        gradients[f"layers.{l}.w_c"] += d_w_c
    d_before["h"] = d_before["h"] + parameters[f"layers.{l}.W_h"] @ d_s
    if l == 0:
        gradients["layers.0.W_x"][x] += d_a
        return d_before, None
    gradients[f"layers.{l}.W_x"] += np.outer(x, d_a)
    return d_before, parameters[f"layers.{l}.W_x"] @ d_a


def stack_forward(parameters: Vectors, setting: Setting, token: int, before: list[Vectors]):
    """One time step of all layers: the states after it, and the saved values, a layer each."""
    x, after, saved_steps = token, [], []
    for l in range(setting.layers):
        state, saved = layer_forward(parameters, setting, l, x, before[l])
        x = state["h"]
        after.append(state)
        saved_steps.append(saved)
    return after, saved_steps


def head(parameters: Vectors, h, target: int, weight: float, gradients: Vectors):
    """weight · −log p(target | h). Adds the head's own gradients; gives the loss and the gradient of h."""
    z = h @ parameters["dense.W"] + parameters["dense.b"] if "dense.W" in parameters else None
    y = h if z is None else np.where(z > 0, z, LEAK * z)
    logits = y @ parameters["out.W"] + parameters["out.b"]
    shifted = logits - logits.max()
    log_p = shifted - np.log(np.exp(shifted).sum())

    d_logits = weight * np.exp(log_p)
    d_logits[target] -= weight
    gradients["out.W"] += np.outer(y, d_logits)
    gradients["out.b"] += d_logits
    if z is None:  # softmax directly on h
        return -weight * log_p[target], parameters["out.W"] @ d_logits
    d_z = (parameters["out.W"] @ d_logits) * np.where(z > 0, 1.0, LEAK)
    gradients["dense.W"] += np.outer(h, d_z)
    gradients["dense.b"] += d_z
    return -weight * log_p[target], parameters["dense.W"] @ d_z


# ---- The algorithms.


def row_pass(parameters: Vectors, setting: Setting, read: Callable[[int], int], start, gradients, seen):
    """One row's window, forward and backward; read(n) is the n'th token from the window's start, n = 0, 1, …

    Adds to `gradients` and `seen`. Gives the row's share of the loss, the state after k1 inputs (a value: no
    gradient will pass through it) and the gradient of the state that the window started from.
    """
    states, saved_steps = [start], []
    for n in range(setting.k2):
        after, saved = stack_forward(parameters, setting, read(n), states[-1])
        states.append(after)
        saved_steps.append(saved)

    # The next window starts k1 tokens on. Where that is past this window, the gap is read forward only.
    beyond = states[-1]
    for n in range(setting.k2, setting.k1):
        beyond, _ = stack_forward(parameters, setting, read(n), beyond)
    kept = states[setting.k1] if setting.k1 <= setting.k2 else beyond

    loss = 0.0
    d_states = [zeros_like(state) for state in start]
    for n in reversed(range(setting.k2)):
        top = states[n + 1][-1]["h"]
        share, d_x = head(parameters, top, read(n + 1), setting.weights[n] / setting.rows, gradients)
        loss += share
        for l in reversed(range(setting.layers)):
            # An h is read twice: by its own layer a step later (already in d_states) and by what is above.
            d_after = {**d_states[l], "h": d_states[l]["h"] + d_x}
            d_states[l], d_x = layer_backward(parameters, setting, l, d_after, saved_steps[n][l], gradients, seen)
    return loss, kept, d_states


def update(parameters: Vectors, gradients: Vectors, m: Vectors, v: Vectors, t: int, setting: Setting):
    """The parameters after update t = 1, 2, …; the moments m and v change in place (RMSprop has no m)."""
    after = {}
    rate = setting.learning_rate * setting.rate_factor(t)
    norm = np.sqrt(sum(np.sum(g**2) for g in gradients.values()))
    for name, w in parameters.items():
        g = gradients[name]
        if setting.clip_norm < norm + 1e-6:
            g = g * (setting.clip_norm / (norm + 1e-6))
        if setting.decoupled:
            w = w - rate * setting.weight_decay * w
        else:
            g = g + setting.weight_decay * w
        if setting.optimiser == "adam":
            m[name] = BETA_1 * m[name] + (1 - BETA_1) * g
            v[name] = BETA_2 * v[name] + (1 - BETA_2) * g**2
            m_hat = m[name] / (1 - BETA_1**t)
            v_hat = v[name] / (1 - BETA_2**t)
            after[name] = w - rate * m_hat / (np.sqrt(v_hat) + ADAM_EPSILON)
        elif setting.optimiser == "sgd":
            m[name] = setting.momentum * m[name] + g
            after[name] = w - rate * m[name]
        else:
            v[name] = RHO * v[name] + (1 - RHO) * g**2
            after[name] = w - rate * g / np.sqrt(v[name] + RMSPROP_EPSILON)
    return after


def batches_per_epoch(size: int, setting: Setting) -> int:
    """How many batches fit before the last row's window, of k2 + 1 tokens, would run past the end."""
    last = (setting.rows - 1) * size // setting.rows
    count = 0
    while last + count * setting.k1 + setting.k2 + 1 <= size:
        count += 1
    if count == 0:
        raise ValueError(f"No window fits: {size} tokens for {setting.rows} rows with k2 = {setting.k2}.")
    return count


def train(
    parameters: Vectors,
    tokens: Sequence[int],
    setting: Setting,
    batches: int,
    first_batch: int = 0,
    rotation: Callable[[int], int] = lambda epoch: 0,
    resets: Callable[[int], Sequence[bool] | None] = lambda batch: None,
) -> list[Step]:
    """Trains on `batches` batches from `first_batch` on, the optimiser and the carried state being new there.

    rotation(epoch) is how far the train set stands rotated in that epoch; resets(batch) says which rows'
    carried state is set to 0 before that batch (reset = "random" only).
    """
    # A misspelt word would otherwise fall into some other branch, and the truth would be another one.
    assert setting.cell in ("lstm", "gru", "rnn"), setting
    assert setting.cell != "lstm" or setting.peepholes in ("paper", "lasagne", "off"), setting
    assert setting.reset in ("epoch", "never", "random"), setting
    assert setting.optimiser in ("adam", "rmsprop", "sgd"), setting
    assert len(setting.weights) == setting.k2, setting
    parameters = {name: np.array(value, dtype=np.float64) for name, value in parameters.items()}
    size = len(tokens)
    per_epoch = batches_per_epoch(size, setting)
    parts = ("h", "c") if setting.cell == "lstm" else ("h",)
    gamma = len(parameters["layers.0.h0"])
    carried = [{p: np.zeros((setting.rows, gamma)) for p in parts} for _ in range(setting.layers)]
    m, v = zeros_like(parameters), zeros_like(parameters)

    steps = []
    for t, batch in enumerate(range(first_batch, first_batch + batches), start=1):
        epoch, i = divmod(batch, per_epoch)
        offset = rotation(epoch)
        starts = [j * size // setting.rows + i * setting.k1 for j in range(setting.rows)]

        fresh = [setting.reset == "epoch" and i == 0] * setting.rows
        if setting.reset == "random" and (chosen := resets(batch)) is not None:
            fresh = chosen

        loss, seen, gradients = 0.0, [], zeros_like(parameters)
        carried_next = [zeros_like(state) for state in carried]
        for j in range(setting.rows):

            def read(n: int, position: int = starts[j] + offset) -> int:
                return int(tokens[(position + n) % size])

            if not setting.carried:
                start = [{p: parameters[f"layers.{l}.{p}0"] for p in parts} for l in range(setting.layers)]
            elif fresh[j]:
                start = [{p: np.zeros(gamma) for p in parts} for _ in range(setting.layers)]
            else:
                start = [{p: carried[l][p][j] for p in parts} for l in range(setting.layers)]

            share, kept, d_start = row_pass(parameters, setting, read, start, gradients, seen)
            loss += share
            for l in range(setting.layers):
                for p in parts:
                    carried_next[l][p][j] = kept[l][p]
                    if not setting.carried:
                        gradients[f"layers.{l}.{p}0"] += d_start[l][p]

        # The carried state was computed with the weights before this update, as the next batch must find it.
        carried = carried_next
        parameters = update(parameters, gradients, m, v, t, setting)
        seen = np.concatenate(seen)
        clipped = float(np.mean(seen > setting.clip))
        steps.append(Step(float(loss), gradients, parameters, carried, starts, clipped, seen))
    return steps
