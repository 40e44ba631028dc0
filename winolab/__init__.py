"""winolab: Winograd convolution, exact; its error before it runs; its kernels from matrices.

Public names are imported when they are first asked for, and ``import winolab`` alone takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from winolab.version import __version__

if TYPE_CHECKING:
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
    from winolab.ref.records.table import Record, records

__all__ = [
    "Algorithm",
    "Moments",
    "PreparedFilter",
    "Problem",
    "Record",
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
    "records",
    "tolerance",
    "transforms",
    "winograd",
    "winrs",
]

_HOMES = {
    "algorithm": "Algorithm Problem Tile direct dwm fft gamma omega parse_algorithm winograd winrs",
    "api.accuracy": "accuracy",
    "api.bound": "bound",
    "api.cost": "cost",
    "api.plan": "plan",
    "api.predict": "predict",
    "api.tolerance": "tolerance",
    "conv": "PreparedFilter conv_backward_data conv_backward_filter conv_forward prepare_filter",
    "ref.algebra.transforms": "Transforms transforms",
    "ref.algorithms.dwm.decompose": "decomposition",
    "ref.arithmetic.simulated": "arithmetic",
    "ref.error.moments": "Moments",
    "ref.records.table": "Record records",
    "ref.error.search": "best_points",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, or a module of the package."""
    if name.startswith("_"):
        raise AttributeError(f"module 'winolab' has no attribute {name!r}")
    home = _HOME.get(name, name)
    try:
        module = import_module(f"winolab.{home}")
    except ModuleNotFoundError as error:
        if error.name != f"winolab.{home}":
            raise
        raise AttributeError(f"module 'winolab' has no attribute {name!r}") from None
    found = getattr(module, name) if name in _HOME else module
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
