"""Data that split products may not serve, and what results of it must be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Change = Callable[[np.ndarray, np.ndarray], None]


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


def _compensated(a: np.ndarray, b: np.ndarray) -> None:
    a[..., 3] *= 2.0**24
    b[..., 3] *= 2.0**-24


def _dead(a: np.ndarray, b: np.ndarray) -> None:
    a[..., 3] = 0
    b[..., 3] *= 1e-30


def _first(a: np.ndarray, b: np.ndarray) -> None:
    b[0] *= 1e-30


def _filter(value: float) -> Change:
    def change(a: np.ndarray, b: np.ndarray) -> None:
        b.reshape(-1)[b.size // 3] = value

    return change


# name -> (what is changed in standard normal data, whether split products cannot serve that)
DATA: dict[str, tuple[Change, bool]] = {
    "normal": (_scaled(1.0), False),
    "1e-20": (_scaled(1e-20), False),
    "1e30": (_scaled(1e30), False),
    "1e30 by 1e-30": (_scaled(1e30, 1e-30), False),
    "subnormal": (_scaled(1e-40), True),
    "after ReLU": (_relu, False),
    "wide exponents": (_wide(20), False),
    "all zero": (_scaled(0.0), False),
    "an image of zeros": (_image(0.0), False),
    "an image 2^-6 as large": (_image(2.0**-6), False),
    "an image 2^-20 as large": (_image(2.0**-20), True),
    "an image 1e-30 as large": (_image(1e-30), True),
    "channels 2^14 apart": (_channels, False),
    "a large channel of small weights": (_compensated, True),
    "a dead channel of tiny weights": (_dead, False),
    "one huge element": (_one(1e9), True),
    "infinity": (_one(np.inf), True),
    "NaN": (_one(np.nan), True),
    "infinity in the filter": (_filter(-np.inf), True),
    "NaN in the filter": (_filter(np.nan), True),
    "one tap 2^8 as large": (_filter(2.0**8), True),
    "one tap 2^4 as large": (_filter(2.0**4), False),
    "one huge tap": (_filter(1e9), True),
    "a tiny output channel": (_first, False),
}


def made(name: str, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> list[np.ndarray]:
    """The tensors of that name, in float32."""
    rng = np.random.default_rng(17)
    a, b = rng.standard_normal(a_shape), rng.standard_normal(b_shape)
    DATA[name][0](a, b)
    return [v.astype("float32") for v in (a, b)]
