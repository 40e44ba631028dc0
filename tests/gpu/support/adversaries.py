"""Data that split products may not serve, and what results of it must be."""

from __future__ import annotations

from winolab.judge.data import CHANGES, made

__all__ = ["BY_IMAGE", "DATA", "made"]
UNSERVED = (
    *("subnormal", "an image 2^-20 as large", "an image 1e-30 as large", "one huge element"),
    *("a large channel of small weights", "infinity", "NaN", "infinity in the filter"),
    *("NaN in the filter", "one tap 2^8 as large", "one huge tap"),
    *("NaN at both ends", "NaN by zeros", "infinity by zeros"),
)
# What correlations on 9.0 serve by a scale for each image.
BY_IMAGE = ("an image 2^-20 as large", "an image 1e-30 as large")
OTHERS = ("negative zeros", "sums that cancel")  # which are no matter of split products
# name -> (what is changed in standard normal data, whether split products cannot serve that)
DATA = {name: (change, name in UNSERVED) for name, change in CHANGES.items() if name not in OTHERS}
