"""cuDNN's convolution algorithms, forced one by one, to compare with and for nothing else.

Through the legacy API, which lets a caller name the algorithm, by ctypes on the libcudnn that torch
or the nvidia-cudnn wheels bring. Numbers are those of cuDNN's public headers (cudnn_ops.h and
cudnn_cnn.h, versions 8 and 9).
"""

from __future__ import annotations

import ctypes
import importlib.util
import weakref
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path

from winolab.algorithm import Problem
from winolab.gpu import driver
from winolab.gpu.machine import MachineError

# Per direction, cuDNN's name of each algorithm and its number.
ALGORITHMS: dict[str, dict[str, int]] = {
    "forward": {
        "IMPLICIT_GEMM": 0,
        "IMPLICIT_PRECOMP_GEMM": 1,
        "GEMM": 2,
        "DIRECT": 3,
        "FFT": 4,
        "FFT_TILING": 5,
        "WINOGRAD": 6,
        "WINOGRAD_NONFUSED": 7,
    },
    "backward_data": {
        "ALGO_0": 0,
        "ALGO_1": 1,
        "FFT": 2,
        "FFT_TILING": 3,
        "WINOGRAD": 4,
        "WINOGRAD_NONFUSED": 5,
    },
    "backward_filter": {
        "ALGO_0": 0,
        "ALGO_1": 1,
        "FFT": 2,
        "ALGO_3": 3,
        "WINOGRAD_NONFUSED": 5,
        "FFT_TILING": 6,
    },
}
# Those whose workspace does not grow with the data: what papers on fused kernels compare with.
FRUGAL = {
    "forward": ("IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM"),
    "backward_data": ("ALGO_0", "ALGO_1"),
    "backward_filter": ("ALGO_0", "ALGO_1", "ALGO_3"),
}
LAYOUTS = {"NCHW": 0, "NHWC": 1}
MATH = {"default": 0, "tensor": 1, "fma": 3}
PRECISIONS = {"fp32": 0, "fp16": 2, "bf16": 9}
FLOAT, CROSS_CORRELATION = 0, 1
INSTALL = (
    "libcudnn was not found: install torch, or the wheel nvidia-cudnn-cu12 or nvidia-cudnn-cu13, "
    "whichever nvidia-smi's CUDA version says"
)


class Unsupported(ValueError):
    """cuDNN does not run this algorithm on this problem; the text is cuDNN's own status."""


@dataclass(frozen=True)
class Forced:
    """One algorithm of cuDNN for one problem.

    ``layout`` is the memory order of all three arrays, NHWC or NCHW (D in front of H in 3-D);
    ``math`` "fma" forbids TF32, "default" allows it, "tensor" asks for Tensor Cores; ``precision``
    is that of the arrays, products are summed in FP32. Raises ValueError for what cuDNN's
    descriptors cannot say.
    """

    direction: str
    problem: Problem
    algorithm: str
    layout: str = "NHWC"
    math: str = "fma"
    precision: str = "fp32"

    def __post_init__(self) -> None:
        for name, known in (
            ("direction", ALGORITHMS),
            ("layout", LAYOUTS),
            ("math", MATH),
            ("precision", PRECISIONS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name} {getattr(self, name)!r}; expected one of {', '.join(known)}"
                )
        if self.algorithm not in ALGORITHMS[self.direction]:
            known = ", ".join(ALGORITHMS[self.direction])
            raise ValueError(f"{self.direction} algorithm {self.algorithm!r}; expected {known}")
        if any(low != high for low, high in self.problem.padding):
            raise ValueError(
                f"cuDNN pads both sides alike; this problem has padding {self.problem.padding}"
            )

    def __str__(self) -> str:
        return f"cudnn {self.algorithm} {self.layout} {self.math} {self.precision}"

    @property
    def number(self) -> int:
        """The algorithm's number in cuDNN's header."""
        return ALGORITHMS[self.direction][self.algorithm]

    @property
    def frugal(self) -> bool:
        """Whether it is one of the memory-frugal algorithms."""
        return self.algorithm in FRUGAL[self.direction]

    @property
    def dimensions(self) -> dict[str, tuple[int, ...]]:
        """Dimensions as descriptors take them, at least two spatial ones: x, w, y, and options."""
        p = self.problem
        more = max(0, 2 - p.ndim)
        ones = (1,) * more
        return {
            "x": (p.batch, p.in_channels, *ones, *p.input),
            "w": (p.out_channels, p.in_channels // p.groups, *ones, *p.filter),
            "y": (p.batch, p.out_channels, *ones, *p.output),
            "padding": ((0,) * more) + tuple(low for low, _ in p.padding),
            "stride": ones + p.stride,
            "dilation": ones + p.dilation,
        }


def forced(
    direction: str,
    problem: Problem,
    precision: str = "fp32",
    layouts: tuple[str, ...] = ("NHWC", "NCHW"),
    maths: tuple[str, ...] = ("fma", "default"),
) -> Iterator[Forced]:
    """Every algorithm of a direction in these layouts and modes.

    16-bit arrays have the mode "tensor": by default cuDNN 9.19 left Tensor Cores unused (27 to 30
    TFLOPS on an H100).
    """
    maths = maths if precision == "fp32" else ("tensor",)
    for layout, math, algorithm in product(layouts, maths, ALGORITHMS[direction]):
        yield Forced(direction, problem, algorithm, layout, math, precision)


class Call:
    """A forced algorithm, ready to run on one device.

    Raises Unsupported where cuDNN refuses it, MachineError without libcudnn.
    """

    def __init__(self, chosen: Forced, index: int = 0) -> None:
        self.forced, self._library, self._handle = chosen, library(), handle(index)
        dimensions, layout = chosen.dimensions, LAYOUTS[chosen.layout]
        data = PRECISIONS[chosen.precision]
        self._descriptors = {}
        for name in "xy":
            shape = _ints(dimensions[name])
            self._descriptors[name] = self._made("Tensor")
            self._check("SetTensorNdDescriptorEx", self._descriptors[name], layout, data,
                        len(shape), shape)  # fmt: skip
        shape = _ints(dimensions["w"])
        self._descriptors["w"] = self._made("Filter")
        self._check(
            "SetFilterNdDescriptor", self._descriptors["w"], data, layout, len(shape), shape
        )
        self._convolution = self._made("Convolution")
        options = [_ints(dimensions[name]) for name in ("padding", "stride", "dilation")]
        self._check("SetConvolutionNdDescriptor", self._convolution, len(options[0]), *options,
                    CROSS_CORRELATION, FLOAT)  # fmt: skip
        self._check("SetConvolutionGroupCount", self._convolution, chosen.problem.groups)
        self._check("SetConvolutionMathType", self._convolution, MATH[chosen.math])
        _ = self.workspace

    @cached_property
    def workspace(self) -> int:
        """Bytes of workspace that the algorithm asks for."""
        size = c_size_t()
        name, (a, b, out) = _SIGNATURES[self.forced.direction]
        descriptors = [self._descriptors[array] for array in (a, b)]
        self._check(f"Get{name}WorkspaceSize", self._handle, *descriptors, self._convolution,
                    self._descriptors[out], self.forced.number, byref(size))  # fmt: skip
        return size.value

    def __call__(self, first: int, second: int, out: int, workspace: int) -> None:
        """Run on CuPy's current stream; arguments are device addresses.

        ``first`` and ``second`` are x and w forward, dy and w backward data, x and dy backward
        filter; ``workspace`` has at least the bytes asked for.
        """
        stream = driver.cupy().cuda.get_current_stream().ptr
        self._check("SetStream", self._handle, c_void_p(stream))
        name, (a, b, result) = _SIGNATURES[self.forced.direction]
        if self.forced.direction == "backward_data":  # cuDNN takes w before dy
            first, second = second, first
        self._check(
            name,
            self._handle,
            byref(_ONE),
            self._descriptors[a],
            c_void_p(first),
            self._descriptors[b],
            c_void_p(second),
            self._convolution,
            self.forced.number,
            c_void_p(workspace),
            c_size_t(self.workspace),
            byref(_ZERO),
            self._descriptors[result],
            c_void_p(out),
        )

    def _made(self, kind: str) -> c_void_p:
        descriptor = c_void_p()
        self._check(f"Create{kind}Descriptor", byref(descriptor))
        destroy = getattr(self._library, f"cudnnDestroy{kind}Descriptor")
        weakref.finalize(self, destroy, descriptor)
        return descriptor

    def _check(self, function: str, *arguments) -> None:
        status = getattr(self._library, f"cudnn{function}")(*arguments)
        if status:
            text = self._library.cudnnGetErrorString(status).decode()
            raise Unsupported(f"{self.forced}: cudnn{function}: {text}")


# Per direction, cuDNN's function and its arrays in the function's order, the result last.
_SIGNATURES = {
    "forward": ("ConvolutionForward", "xwy"),
    "backward_data": ("ConvolutionBackwardData", "wyx"),
    "backward_filter": ("ConvolutionBackwardFilter", "xyw"),
}
_ONE, _ZERO = c_float(1), c_float(0)


@cache
def library() -> ctypes.CDLL:
    """libcudnn. Raises MachineError that says what to install."""
    for name in _libraries():
        try:
            found = ctypes.CDLL(name)
        except OSError:
            continue
        found.cudnnGetErrorString.restype = c_char_p
        found.cudnnGetVersion.restype = c_size_t
        return found
    raise MachineError(INSTALL)


def _libraries() -> Iterator[str]:
    """Where libcudnn may be: the wheels' folder, then the system's."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield from sorted(map(str, Path(folder).glob("cudnn/lib/libcudnn.so.[0-9]*")), reverse=True)
    yield from ("libcudnn.so.9", "libcudnn.so.8")


def version() -> str:
    """cuDNN's version, as 9.19.0."""
    number = library().cudnnGetVersion()
    base = 10000 if number >= 90000 else 1000  # 90100 is 9.1.0, 8907 is 8.9.7
    return f"{number // base}.{number % base // 100}.{number % 100}"


@cache
def handle(index: int) -> c_void_p:
    """cuDNN's handle of a device, kept for the life of the process.

    Raises MachineError where cuDNN does not start.
    """
    made = c_void_p()
    with driver.cupy().cuda.Device(index):
        status = library().cudnnCreate(byref(made))
    if status:
        text = library().cudnnGetErrorString(status).decode()
        raise MachineError(
            f"cuDNN {version()} does not start (cudnnCreate: {text}): nvidia-smi's CUDA version "
            "says whether nvidia-cudnn-cu12 or nvidia-cudnn-cu13 fits"
        )
    return made


def _ints(values: tuple[int, ...]) -> ctypes.Array:
    return (c_int * len(values))(*values)
