"""Forward and backward data for CuPy arrays, torch CUDA tensors and what has ``__dlpack__``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from winolab.gpu import launch
from winolab.gpu.arrays import Library, library_of
from winolab.gpu.launch import View
from winolab.gpu.plan import plan, three
from winolab.nouns import Algorithm, Problem

__all__ = ["conv_backward_data", "conv_forward"]


def conv_forward(
    x: Any,
    w: Any,
    *,
    problem: Problem,
    layout: str = "channels_last",
    algorithm: Algorithm | None = None,
    precision: str | None = None,
    out: Any = None,
    variant: Any = None,
) -> Any:
    """y = x ⋆ w on the GPU that holds x and w, on the caller's current stream.

    ``x`` and ``w`` are float32, of ``problem``'s shapes in ``layout``, with any strides; y has x's
    library and memory order. ``algorithm`` None lets the planner choose. Raises ValueError for what
    the kernels cannot run, TypeError for other dtypes, MemoryError where memory does not suffice.
    """
    return _run("forward", x, w, problem, layout, algorithm, precision, out, variant)


def conv_backward_data(
    dy: Any,
    w: Any,
    *,
    problem: Problem,
    layout: str = "channels_last",
    algorithm: Algorithm | None = None,
    precision: str | None = None,
    out: Any = None,
    variant: Any = None,
) -> Any:
    """dx, the gradient with respect to x; arguments and errors are those of ``conv_forward``."""
    return _run("backward_data", dy, w, problem, layout, algorithm, precision, out, variant)


def _run(direction, x, w, problem, layout, algorithm, precision, out, variant) -> Any:
    if precision not in (None, "fp32"):
        raise ValueError(f"precision {precision!r}; the CUDA kernels compute in fp32")
    library = library_of(x)
    x, w = library.array("x" if direction == "forward" else "dy", x), library.array("w", w)
    index = library.device(x)
    if library.device(w) != index:
        raise ValueError(f"arrays on devices {index} and {library.device(w)}; move one of them")
    x_shape, y_shape = problem.x_shape, problem.y_shape
    if direction == "backward_data":
        x_shape, y_shape = y_shape, x_shape
    first = layout == "channels_first"
    x_last, w_last = (library.channels_last(a) if first else a for a in (x, w))
    for name, array, shape in (("the input", x_last, x_shape), ("w", w_last, problem.w_shape)):
        if tuple(array.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(array.shape)} channels last, not {shape}")
    x_last = library.with_contiguous_channels(x_last)

    with _current(library, x, index):
        buffer = None if out is None else library.array("out", out)
        y_last = None
        if buffer is not None:
            y_last = library.channels_last(buffer) if first else buffer
            if tuple(y_last.shape) != y_shape:
                raise ValueError(
                    f"out has shape {tuple(y_last.shape)} channels last, not {y_shape}"
                )
        target = y_last
        if target is None or not library.contiguous_channels(target):
            target = library.empty(y_shape, x_last)
        _launch(direction, problem, algorithm, variant, library, index, x_last, w_last, target)
        if y_last is not None:
            if target is not y_last:
                y_last[...] = target
            return out
        y = library.channels_first(target) if first else target
        return library.like(y, x)


def _launch(direction, problem, algorithm, variant, library, index, x, w, y) -> None:
    a, b, out = _view(library, x, 4), _view(library, w, 5), _view(library, y, 4)
    aligned = all(
        view.address % 16 == 0 and all(s % 4 == 0 for s in view.strides) for view in (a, out)
    )
    chosen = plan(
        problem, direction, launch.device(index), algorithm, aligned=aligned, variant=variant
    )
    if 0 in y.shape:
        return
    if 0 in (*x.shape, *w.shape):
        y[...] = 0
        return
    workspace = library.workspace(chosen.workspace, x)
    title = f"{chosen.kernel} {chosen.precision} {chosen.variant}"
    kernels = launch.load(chosen.source(), title, chosen.shared(), index)
    chosen.launch(kernels, a, b, out, library.address(workspace), index)


def _view(library: Library, array: Any, kept: int) -> View:
    """The array's address and its first ``kept`` strides, three of them spatial."""
    first, *spatial, last = library.strides(array)
    return View(library.address(array), (first, *three(tuple(spatial), 0), last)[:kept])


@contextmanager
def _current(library: Library, array: Any, index: int) -> Iterator[None]:
    cp = launch.cupy()
    with cp.cuda.Device(index), library.stream(array):
        yield
