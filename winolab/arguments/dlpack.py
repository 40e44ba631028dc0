"""Arrays of other libraries on the CPU, as NumPy's and back, by DLPack: memory is shared.

NumPy's DLPack knows no bfloat16, whose elements travel as 16-bit integers here.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import ml_dtypes
import numpy as np

from winolab.arguments.words import with_article

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
UINT, BFLOAT = 1, 4  # DLPack's codes of element types
# Where a capsule's memory has the code: behind data, device and the number of dimensions.
CODE = {b"dltensor": 20, b"dltensor_versioned": 52}


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of that name; bfloat16 is ml_dtypes'."""
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def foreign(value: Any) -> bool:
    """Whether it is an array of another library, which has DLPack."""
    return hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic)


def numpy_view(name: str, value: Any) -> np.ndarray:
    """The foreign array's memory as NumPy's array; a copy where numbers are not as they lie.

    Raises TypeError for what has no numbers to read, or none that NumPy knows.
    """
    of_torch = hasattr(value, "detach")
    if of_torch:  # without its graph, and what views negate computed
        value = value.detach().resolve_conj().resolve_neg()
    try:
        renamed = str(value.dtype).endswith("bfloat16")
        array = np.from_dlpack(_Renamed(value, UINT) if renamed else value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        kind, said = type(value), str(error).partition("\n")[0]
        package = kind.__module__.partition(".")[0]
        what = f"{with_article(package)} {kind.__name__}"
        if of_torch:
            what += f" of {value.dtype}"
        instead = ", within JAX's transforms to winolab.jax" if package.startswith("jax") else ""
        raise TypeError(
            f"{name} is {what}, which has no numbers that NumPy could read ({said}): pass an array "
            f"that has{instead}"
        ) from None
    if of_torch and not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return array.view(BFLOAT16) if renamed else array


def returned(result: np.ndarray, like: Any) -> Any:
    """The result as an array of the library that ``like`` is of.

    Raises TypeError for elements that the library does not know.
    """
    # A subclass may be of another package than the library that has its base.
    packages = [kind.__module__.partition(".")[0] for kind in type(like).__mro__]
    package = next((p for p in packages if hasattr(sys.modules.get(p), "from_dlpack")), packages[0])
    has_namespace = hasattr(like, "__array_namespace__")
    library = like.__array_namespace__() if has_namespace else sys.modules[package]
    try:
        if result.dtype == BFLOAT16:
            return library.from_dlpack(_Renamed(result.view(np.uint16), BFLOAT))
        return library.from_dlpack(result)
    except (AttributeError, BufferError, RuntimeError, TypeError) as error:
        raise TypeError(
            f"the result has dtype {result.dtype}, which {package} does not take "
            f"({str(error).partition(chr(10))[0]}); ask for another out_dtype"
        ) from None


class _Writable:
    """The memory of a tensor of PyTorch's, which may be written: NumPy takes for read-only what
    DLPack before version 1.0 hands over, as PyTorch 2.8 does."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array  # which keeps the memory
        data = array.__array_interface__["data"][0], False
        self.__array_interface__ = array.__array_interface__ | {"data": data}


class _Renamed:
    """An array whose elements DLPack calls by another code."""

    def __init__(self, array: Any, code: int) -> None:
        self._array, self._code = array, code

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **how: Any) -> Any:
        capsule = self._array.__dlpack__(**how)
        name = _function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)(capsule)
        arguments = ctypes.py_object, ctypes.c_char_p
        address = _function("PyCapsule_GetPointer", ctypes.c_void_p, *arguments)(capsule, name)
        ctypes.c_uint8.from_address(address + CODE[name]).value = self._code
        return capsule


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))
