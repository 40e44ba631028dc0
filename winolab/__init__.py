"""winolab: Winograd convolution, exactly; its error before it runs; its kernels from its matrices."""

from winolab.conv import conv_backward_data, conv_backward_filter, conv_forward
from winolab.nouns import Algorithm, Problem, Tile, direct, gamma, parse_algorithm, winograd
from winolab.ref.arithmetic import arithmetic
from winolab.ref.transforms import Transforms, transforms

__all__ = [
    "Algorithm",
    "Problem",
    "Tile",
    "Transforms",
    "arithmetic",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_forward",
    "direct",
    "gamma",
    "parse_algorithm",
    "transforms",
    "winograd",
]
