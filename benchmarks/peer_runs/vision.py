"""Imports torchvision, which some libraries import for their image data sets.

Where torchvision was built for GPUs and PyTorch was not, its operators cannot be loaded, and it
refuses to be imported because two of them are unknown. Nothing here calls them: declaring them is
enough.
"""

from __future__ import annotations

import sys

import torch

__all__ = ["OPERATORS"]

OPERATORS = torch.library.Library("torchvision", "FRAGMENT")

try:
    import torchvision
except RuntimeError:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    for operator in ("nms", "qnms"):
        OPERATORS.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401
