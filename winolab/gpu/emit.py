"""CUDA source of a family's kernels: constants, transforms printed from exact programs, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files

from winolab.ref.program import Program


def unit(
    title: str,
    constants: Mapping[str, int],
    programs: Mapping[str, Program],
    kernels: Sequence[str],
) -> str:
    """One translation unit: what ``kernels``, names of files in kernels/, need stands before them.

    ``programs`` become device functions of the names that they are given.
    """
    parts = [
        f"// {title}",
        "\n".join(f"constexpr int {name} = {value};" for name, value in constants.items()),
        *(program.cuda(name) for name, program in programs.items()),
        *map(kernel, kernels),
    ]
    return "\n\n".join(parts)


@lru_cache(maxsize=32)
def kernel(name: str) -> str:
    """The text of kernels/``name``.cuh."""
    return files("winolab.gpu").joinpath("kernels", f"{name}.cuh").read_text()
