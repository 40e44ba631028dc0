# pyright: reportUnnecessaryTypeIgnoreComment=error
"""Calls that a type checker accepts and refuses; nothing runs them, ``make types`` reads them.

A comment that ignores an error is itself an error where there is none: every wrong literal below
has to be found.
"""

from __future__ import annotations

import numpy as np

import winolab


def accepted(x: np.ndarray, w: np.ndarray) -> None:
    winolab.conv_forward(x, w, layout="channels_first", padding="same", on_range="raise")
    winolab.conv_forward(x, w, padding=((1, 0), (0, 1)), stride=(2, 1), precision=np.float32)
    winolab.conv_backward_data(x, w, padding=[1, 1], output_padding=1, algorithm="gamma:8:6:3")
    prepared = winolab.prepare_filter(w, x.shape, direction="backward_data")
    winolab.conv_backward_data(x, prepared, x.shape)
    winolab.plan(x.shape, w.shape, direction="backward_filter", padding="same_lower")
    winolab.Problem.of((1, 8, 8, 3), (4, 3, 3, 3), padding="valid")


def refused(x: np.ndarray, w: np.ndarray) -> None:
    winolab.conv_forward(x, w, layout="NCHW")  # pyright: ignore[reportArgumentType]
    winolab.conv_backward_data(x, w, layout="NHWC")  # pyright: ignore[reportArgumentType]
    winolab.conv_backward_filter(x, x, w.shape, layout="CHWN")  # pyright: ignore[reportArgumentType]
    winolab.conv_forward(x, w, padding="smae")  # pyright: ignore[reportArgumentType]
    winolab.conv_forward(x, w, stride="2")  # pyright: ignore[reportArgumentType]
    winolab.conv_forward(x, w, groups=1.5)  # pyright: ignore[reportArgumentType]
    winolab.conv_forward(x, w, on_range="ignore")  # pyright: ignore[reportArgumentType]
    winolab.prepare_filter(w, x.shape, layout="NCHW")  # pyright: ignore[reportArgumentType]
    winolab.prepare_filter(w, x.shape, direction="backward")  # pyright: ignore[reportArgumentType]
    winolab.plan(x.shape, w.shape, direction="dgrad")  # pyright: ignore[reportArgumentType]
    winolab.plan(x.shape, w.shape, layout="NCHW")  # pyright: ignore[reportArgumentType]
    winolab.Problem.of(x.shape, w.shape, layout="NCHW")  # pyright: ignore[reportArgumentType]
