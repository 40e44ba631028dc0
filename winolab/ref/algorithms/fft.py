"""FFT convolution by overlap-save, three directions, with four or three real products a complex.

The form is that of tiled Winograd (Lavin & Gray, section 4.4): tiles of α inputs that overlap by
r − 1, of whose cyclic correlation n = α − r + 1 outputs are kept. A real transform has Hermitian
symmetry, so α0·…·(⌊α/2⌋ + 1) states are multiplied. scipy.fft transforms; every other operation
runs in the arithmetic, whose transform format must be FP32 or FP64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from winolab.algorithm import Algorithm, Fft, Problem, Tile
from winolab.arguments.words import plural
from winolab.ref.algorithms.engine import Engine, Region
from winolab.ref.algorithms.im2col import masked
from winolab.ref.algorithms.winograd import (
    data_adjoint,
    evaluate,
    filter_adjoint,
    group_slices,
    rotated,
)
from winolab.ref.arithmetic.simulated import Arithmetic, Float


@dataclass(frozen=True, order=True, repr=False)
class Window(Tile):
    """n outputs of r taps in a cyclic correlation of length n + r − 1, which may be any."""

    def __post_init__(self) -> None:
        if self.n < 1 or self.r < 1:
            raise ValueError(f"an FFT of {self.inputs} cannot hold {plural(self.r, 'tap')}")
        object.__setattr__(self, "alpha", self.inputs)


def sizes(problem: Problem, algorithm: Algorithm) -> tuple[int, ...]:
    """The length of the transform along each dimension.

    Raises ValueError for strides, dilation, filters longer than the transform, and another number
    of dimensions.
    """
    if not problem.unit:
        raise ValueError(
            f"{algorithm} needs stride 1 and dilation 1, not stride {problem.stride} and dilation "
            f"{problem.dilation}; use dwm or direct"
        )
    named = Fft.of(algorithm).sizes
    lengths = named * (problem.ndim if len(named) == 1 else 1)
    if len(lengths) != problem.ndim:
        raise ValueError(
            f"{algorithm} has {plural(len(lengths), 'dimension')}; the problem has {problem.ndim}"
        )
    for d, (length, taps) in enumerate(zip(lengths, problem.filter, strict=True)):
        if length < taps:
            raise ValueError(
                f"{algorithm}: a transform of {length} is shorter than the filter's "
                f"{plural(taps, 'tap')} in spatial dimension {d}; take at least {taps}, better a "
                "power of two above twice it"
            )
    return lengths


def windows(problem: Problem, algorithm: Algorithm, direction: str) -> tuple[Window, ...]:
    """The window along each dimension: outputs and taps that one transform serves.

    For the filter gradient the outputs are the filter's taps and the taps are pieces of dy.
    """
    lengths = sizes(problem, algorithm)
    if direction == "backward_filter":
        return tuple(Window(f, a - f + 1) for a, f in zip(lengths, problem.filter, strict=True))
    return tuple(Window(a - f + 1, f) for a, f in zip(lengths, problem.filter, strict=True))


@dataclass(frozen=True)
class Fourier(Engine):
    """The tiled engine with Fourier transforms in place of programs."""

    products: int = 3

    def filters(self, w: np.ndarray) -> np.ndarray:
        """The conjugate spectra (states…, K, OC): a correlation multiplies by the conjugate."""
        return np.conj(self._spectrum(self._pieces(w)))

    def _outputs(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        v = self._spectrum(v)
        states, tiles, channels = v.shape[: self._ndim], v.shape[self._ndim], u.shape[-1]
        count, depth = math.prod(states), u.shape[-2]
        with np.errstate(all="ignore"):  # infinities
            m = self._multiplied(v.reshape(count, tiles, depth), u.reshape(count, depth, channels))
        axes = range(self._ndim)
        m = m.reshape(*states, tiles, channels)
        with np.errstate(all="ignore"):
            from scipy.fft import irfftn

            y = np.asarray(irfftn(m, s=self._lengths, axes=axes))
        y = y[tuple(slice(s.tile.n) for s in self.region.segments)]
        return np.ascontiguousarray(y).reshape(math.prod(y.shape[:-1]), channels)

    @property
    def gains(self) -> tuple[Fraction, Fraction]:
        """Largest sums: of all inputs and of all taps, doubled where parts are added."""
        doubled = Fraction(1 if self.products == 4 else 2)
        taps = math.prod(s.tile.r for s in self.region.segments)
        return doubled * math.prod(self._lengths), doubled * taps

    @property
    def _lengths(self) -> list[int]:
        return [s.tile.alpha for s in self.region.segments]

    def _spectrum(self, x: np.ndarray) -> np.ndarray:
        """The real transform along the leading axes, zeros appended up to its lengths."""
        with np.errstate(all="ignore"):
            from scipy.fft import rfftn

            return np.asarray(rfftn(x, s=self._lengths, axes=range(self._ndim)))

    def _multiplied(self, v: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Per state, the complex matrix product v (P, K) · u (K, OC) as real matrix products."""
        run = self.arithmetic
        a, b, c, d = np.real(v), np.imag(v), np.real(u), np.imag(u)
        if self.products == 4:
            real = run.sub(run.matmul(a, c), run.matmul(b, d))
            imag = run.add(run.matmul(a, d), run.matmul(b, c))
            return _complex(real, imag)
        # Lavin & Gray, eq. 16 to 18, with the real and imaginary parts that they interchange.
        shared = run.matmul(run.add(a, b), c)
        real = run.sub(shared, run.matmul(b, run.add(c, d)))
        imag = run.add(shared, run.matmul(a, run.sub(d, c)))
        return _complex(real, imag)


def _complex(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    """The parts put together; 1j times an infinity would make NaN of the real part."""
    m = np.empty(real.shape, np.result_type(real, 1j))
    m.real, m.imag = real, imag
    return m


def forward(
    x: np.ndarray, w: np.ndarray, problem: Problem, algorithm: Algorithm, arithmetic: Arithmetic
) -> np.ndarray:
    """y (N, *output, OC) of x (N, *input, IC) and w (OC, *filter, IC/groups), as carriers.

    Raises ValueError where :func:`sizes` does, and for arithmetics without a Fourier transform.
    """
    return evaluated(x, w, problem, algorithm, arithmetic, "forward")


def backward_data(
    dy: np.ndarray, w: np.ndarray, problem: Problem, algorithm: Algorithm, arithmetic: Arithmetic
) -> np.ndarray:
    """dx (N, *input, IC): the forward algorithm on rotated filters."""
    return evaluated(dy, w, problem, algorithm, arithmetic, "backward_data")


def backward_filter(
    x: np.ndarray, dy: np.ndarray, problem: Problem, algorithm: Algorithm, arithmetic: Arithmetic
) -> np.ndarray:
    """dw (OC, *filter, IC/groups): pieces of dy as filters, summed over pieces and images."""
    return evaluated(x, dy, problem, algorithm, arithmetic, "backward_filter")


def evaluated(
    a: np.ndarray,
    b: np.ndarray,
    problem: Problem,
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    direction: str,
    engine: type[Fourier] = Fourier,
) -> np.ndarray:
    """What ``engine`` makes of the tiles of a direction."""
    tiles = windows(problem, algorithm, direction)
    if direction == "forward":
        return _run(a, b, problem, tiles, algorithm, arithmetic, engine)
    if direction == "backward_data":
        w = rotated(b, problem.groups)
        return _run(a, w, data_adjoint(problem), tiles, algorithm, arithmetic, engine)
    arithmetic = arithmetic.of_data(a, b)
    parts = [
        _run(
            a[..., i].swapaxes(0, -1),
            b[..., o].swapaxes(0, -1),
            filter_adjoint(problem),
            tiles,
            algorithm,
            arithmetic,
            engine,
        ).swapaxes(0, -1)
        for i, o in group_slices(problem)
    ]
    return np.concatenate(parts)


def _run(
    x: np.ndarray,
    w: np.ndarray,
    problem: Problem,
    tiles: Sequence[Window],
    algorithm: Algorithm,
    arithmetic: Arithmetic,
    made: type[Fourier],
) -> np.ndarray:
    if not isinstance(arithmetic, Float) or arithmetic.transform.name not in ("fp32", "fp64"):
        raise ValueError(
            f"{algorithm} cannot run in {arithmetic.name}: its transforms are scipy.fft's, in fp32 "
            "or fp64; use another algorithm or transform=fp32"
        )
    arithmetic = arithmetic.of_data(x, w)
    boxes = [
        Region(box)
        for box in product(*(masked(o, t) for o, t in zip(problem.output, tiles, strict=True)))
    ]

    def engine(group: Problem, box: Region) -> Fourier:
        return made(group, box, (), arithmetic, products=Fft.of(algorithm).products)

    return evaluate(x, w, problem, boxes, engine, arithmetic)
