"""Data that kernels may not serve: what is changed in standard normal numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

Change = Callable[[np.ndarray, np.ndarray], None]
BEYOND = "beyond the range"


def _one(value: float) -> Change:
    def change(a: np.ndarray, b: np.ndarray) -> None:
        a.reshape(-1)[a.size // 3] = value

    return change


def _scaled(a_factor: float, b_factor: float = 1.0) -> Change:
    def change(a: np.ndarray, b: np.ndarray) -> None:
        a *= a_factor
        b *= b_factor

    return change


def _image(factor: float) -> Change:
    def change(a: np.ndarray, b: np.ndarray) -> None:
        a[-1] *= factor

    return change


def _wide(binades: int) -> Change:
    def change(a: np.ndarray, b: np.ndarray) -> None:
        a *= np.exp2(-binades * np.random.default_rng(5).random(a.shape))

    return change


def _relu(a: np.ndarray, b: np.ndarray) -> None:
    np.maximum(a, 0, out=a)


def _channels(a: np.ndarray, b: np.ndarray) -> None:
    a[..., ::2] *= 2.0**-14


def _channel(a_factor: float, b_factor: float) -> Change:
    def change(a: np.ndarray, b: np.ndarray) -> None:
        at = min(3, a.shape[-1] - 1, b.shape[-1] - 1)
        a[..., at] *= a_factor
        b[..., at] *= b_factor

    return change


def _first(a: np.ndarray, b: np.ndarray) -> None:
    b[0] *= 1e-30


def _filter(value: float) -> Change:
    def change(a: np.ndarray, b: np.ndarray) -> None:
        b.reshape(-1)[b.size // 3] = value

    return change


def _cancelling(a: np.ndarray, b: np.ndarray) -> None:
    """Half of the channels sum to more than 65504, the largest of FP16, and the others to less."""
    half, count = b.shape[-1] // 2, max(1, b[0].size // 2)
    a[...] = np.abs(a) * min(2048.0, 2e5 / count)
    b[...] = np.abs(b)
    b[..., half:] *= -1


def _corners(value: float) -> Change:
    def change(a: np.ndarray, b: np.ndarray) -> None:
        a.reshape(-1)[[0, -1]] = value

    return change


def _by_zeros(value: float) -> Change:
    """The value's products with half of the other operand are with zeros: NaN."""

    def change(a: np.ndarray, b: np.ndarray) -> None:
        a.reshape(-1)[a.size // 3] = value
        b[::2] = 0

    return change


def _beyond(a: np.ndarray, b: np.ndarray) -> None:
    """What is scaled so that each product overflows, and none cancels another."""
    a[...], b[...] = 1.0, 1.0


def _edges(a: np.ndarray, b: np.ndarray) -> None:
    """Filters of small whole numbers whose taps sum to 0, as those that find edges."""
    taps = b.reshape(len(b), -1, b.shape[-1])
    taps[...] = np.rint(2 * taps)
    taps[:, -1] -= taps.sum(axis=1)


def _negative_zeros(a: np.ndarray, b: np.ndarray) -> None:
    a[a < 0] = -0.0


CHANGES: dict[str, Change] = {
    "normal": _scaled(1.0),
    "1e-20": _scaled(1e-20),
    "1e30": _scaled(1e30),
    "1e30 by 1e-30": _scaled(1e30, 1e-30),
    "subnormal": _scaled(1e-40),
    "after ReLU": _relu,
    "wide exponents": _wide(20),
    "all zero": _scaled(0.0),
    "an image of zeros": _image(0.0),
    "an image 2^-6 as large": _image(2.0**-6),
    "an image 2^-20 as large": _image(2.0**-20),
    "an image 1e-30 as large": _image(1e-30),
    "channels 2^14 apart": _channels,
    "a large channel of small weights": _channel(2.0**24, 2.0**-24),
    "a dead channel of tiny weights": _channel(0.0, 1e-30),
    "one huge element": _one(1e9),
    "infinity": _one(np.inf),
    "NaN": _one(np.nan),
    "infinity in the filter": _filter(-np.inf),
    "NaN in the filter": _filter(np.nan),
    "one tap 2^8 as large": _filter(2.0**8),
    "one tap 2^4 as large": _filter(2.0**4),
    "one huge tap": _filter(1e9),
    "a tiny output channel": _first,
    "negative zeros": _negative_zeros,
    "sums that cancel": _cancelling,
    "NaN at both ends": _corners(np.nan),
    "NaN by zeros": _by_zeros(np.nan),
    "infinity by zeros": _by_zeros(-np.inf),
    "filters that sum to 0": _edges,
    BEYOND: _beyond,
}


def made(
    name: str, a_shape: tuple[int, ...], b_shape: tuple[int, ...], seed: int = 17
) -> list[np.ndarray]:
    """The two operands of that name, channels last, in float32; "uniform" is U[-1, 1)."""
    rng = np.random.default_rng(seed)
    if name == "uniform":
        a, b = rng.uniform(-1, 1, a_shape), rng.uniform(-1, 1, b_shape)
    else:
        a, b = rng.standard_normal(a_shape), rng.standard_normal(b_shape)
        if a.size and b.size:
            CHANGES[name](a, b)
    with np.errstate(over="ignore", under="ignore"):
        return [v.astype("float32") for v in (a, b)]


def typed(
    name: str, a_shape: tuple[int, ...], b_shape: tuple[int, ...], dtype: np.dtype
) -> list[np.ndarray] | None:
    """The same in that type; None where they, or their convolution, are out of its range."""
    both = made(name, a_shape, b_shape)
    info = ml_dtypes.finfo(dtype)
    most, least = float(info.max), float(info.tiny)
    if name == BEYOND:
        return [(v * most**0.75).astype(dtype) for v in both]
    largest = [float(np.max(np.abs(v), initial=0, where=np.isfinite(v))) for v in both]
    finite = [np.where(np.isfinite(v), np.abs(v), 0).astype(np.float64) for v in both]
    if max(largest) > most / 2:
        return None
    count = max(1, b_shape[-1] * math.prod(b_shape[1:-1]))
    size = 0.0
    if finite[0].size and finite[1].size:
        size = math.sqrt((finite[0] ** 2).mean() * (finite[1] ** 2).mean() * count)
    part = 4 if name == "sums that cancel" else 8
    tiny = name != "subnormal" and any(0 < n < 16 * least for n in largest)
    if tiny or max(size, largest[0] * largest[1]) > most / part:
        return None
    with np.errstate(all="ignore"):
        return [v.astype(dtype) for v in both]
