"""winolab: Winograd convolution, exact; its error before it runs; its kernels from matrices."""

from winolab.algorithm import (
    Algorithm,
    Problem,
    Tile,
    direct,
    dwm,
    fft,
    gamma,
    omega,
    parse_algorithm,
    winograd,
    winrs,
)
from winolab.api import plan
from winolab.conv import (
    PreparedFilter,
    conv_backward_data,
    conv_backward_filter,
    conv_forward,
    prepare_filter,
)
from winolab.ref.algebra.transforms import Transforms, transforms
from winolab.ref.algorithms.dwm.decompose import decomposition
from winolab.ref.arithmetic.simulated import arithmetic
from winolab.ref.error.search import best_points
from winolab.version import __version__

__all__ = [
    "Algorithm",
    "PreparedFilter",
    "Problem",
    "Tile",
    "Transforms",
    "__version__",
    "arithmetic",
    "best_points",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_forward",
    "decomposition",
    "direct",
    "dwm",
    "fft",
    "gamma",
    "omega",
    "parse_algorithm",
    "plan",
    "prepare_filter",
    "transforms",
    "winograd",
    "winrs",
]
