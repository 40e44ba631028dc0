"""How many stages of a block shape fit into shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from winolab.options import KernelConfig

C = TypeVar("C", bound=KernelConfig)
LEAST = 2  # one is filled while another is multiplied


def as_fit(config: C, size: Callable[[C], int], most: int, name: str = "stages") -> C | None:
    """The config with as many stages as fit into ``most`` bytes, up to its own number; None where
    LEAST do not. ``size``: a config's bytes; ``name``: its field that counts them."""
    while size(config) > most and getattr(config, name) > LEAST:
        config = replace(config, **{name: getattr(config, name) - 1})
    return config if size(config) <= most else None
