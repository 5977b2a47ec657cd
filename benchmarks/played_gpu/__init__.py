"""A GPU that is played: tensors "on" it lie in the host's memory, and what is launched is written down, not run.

    with played():          torch says that there is an NVIDIA GPU
        ...
    now.record.entries      what was asked of it, in order

torch's products are computed on the host. Kernels compute nothing, so that what they would have written stays 0. A
tensor of the host that is handed to a launch raises; where torch's operations mix both, `mixed` counts it.
"""

from played_gpu.launches import RENAMED, Record, now
from played_gpu.tensors import played

__all__ = ["RENAMED", "Record", "now", "played"]
