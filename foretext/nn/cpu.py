"""Which tensors our own CPU code takes; all others go to PyTorch's."""

from __future__ import annotations

import torch
from torch import Tensor


def full_precision_on_cpu(x: Tensor) -> bool:
    """float32, in which models run, and float64, in which tests compare the mathematics of the same code."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
