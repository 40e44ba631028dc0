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
from winolab.api.accuracy import accuracy
from winolab.api.bound import bound
from winolab.api.cost import cost
from winolab.api.plan import plan
from winolab.api.predict import predict
from winolab.api.tolerance import tolerance
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
from winolab.ref.error.moments import Moments
from winolab.ref.error.search import best_points
from winolab.version import __version__

__all__ = [
    "Algorithm",
    "Moments",
    "PreparedFilter",
    "Problem",
    "Tile",
    "Transforms",
    "__version__",
    "accuracy",
    "arithmetic",
    "best_points",
    "bound",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_forward",
    "cost",
    "decomposition",
    "direct",
    "dwm",
    "fft",
    "gamma",
    "omega",
    "parse_algorithm",
    "plan",
    "predict",
    "prepare_filter",
    "tolerance",
    "transforms",
    "winograd",
    "winrs",
]
