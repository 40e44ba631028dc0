"""Convolutions of torch tensors as operators and modules of PyTorch: this package imports torch."""

from winolab.gpu.machine import absent

if lacking := absent("torch"):
    raise lacking

from winolab.torch.compare import compare
from winolab.torch.convert import convert
from winolab.torch.functional import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from winolab.torch.modules import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from winolab.torch.warmup import compile_in_background, warmup

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "compare",
    "compile_in_background",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convert",
    "warmup",
]
