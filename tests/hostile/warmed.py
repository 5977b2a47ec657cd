"""Everything that a command imports, imported by a server that forks processes: each would else do it anew."""

from __future__ import annotations

import matplotlib.backends.backend_agg
import matplotlib.figure
import onnx
import torch
from typer.main import get_command

from unroll.cli import app

torch.set_num_threads(1)
get_command(app)
assert matplotlib.figure
assert onnx
