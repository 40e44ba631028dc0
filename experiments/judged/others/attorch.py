"""attorch's convolution in Triton, by the first of its configurations that suits small problems;
only where its files lie in the folder that the environment names, and Triton is."""

from __future__ import annotations

import importlib
import os
import sys
import types
from pathlib import Path
from typing import Any

import torch  # noqa: F401  # arrays that judge takes

from experiments.judged.others.sources import FOLDER

CONFIGURATION = 7  # of 16, 64 outputs by 64 filters: to try all takes minutes a shape

# The package's own __init__ imports every layer, and more of Triton than a convolution needs.
_package = types.ModuleType("attorch")
_package.__path__ = [str(Path(os.environ[FOLDER]) / "attorch" / "attorch")]
sys.modules["attorch"] = _package
_layer: Any = importlib.import_module("attorch.conv_layer")
_layer.conv2d_forward_kernel.configs = _layer.conv2d_forward_kernel.configs[
    CONFIGURATION : CONFIGURATION + 1
]


def conv(x, w, stride=(1, 1), padding: Any = (0, 0), groups=1):
    """Channels first; its products are TF32."""
    if any(not isinstance(p, int) for p in padding):
        raise ValueError("both ends are padded alike")
    return _layer.Conv2dAutoGrad.apply(x, w, None, *stride, *padding, groups)
