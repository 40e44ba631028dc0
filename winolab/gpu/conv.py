"""The convolutions of CuPy arrays, torch CUDA tensors and what has ``__dlpack__``."""

from __future__ import annotations

from typing import Any, cast

from winolab.gpu import launch
from winolab.gpu.arrays import library_of
from winolab.gpu.call import (
    NAMES,
    Transformed,
    Wishes,
    call_for,
    load,
    precision_of,
    prepare_call,
    prepared,
    result_dtype,
)
from winolab.gpu.launch import Kernels
from winolab.gpu.places import ITEMSIZE, Place, shapes
from winolab.gpu.plan import plan
from winolab.gpu.record import Recording, address_of
from winolab.nouns import Problem, parse_algorithm

DEFAULTS = Wishes()


def convolve(
    direction: str, problem: Problem, a: Any, b: Any, wishes: Wishes = DEFAULTS, out: Any = None
) -> Any:
    """The result of ``direction`` on the GPU that holds a and b, on the caller's current stream.

    ``a`` and ``b`` are x and w forward, dy and w for backward data, x and dy for backward filter,
    float32, float16 or bfloat16, of ``problem``'s shapes in the layout, with any strides; in w's
    place may stand a Transformed. The result has a's library and memory order. Raises ValueError
    for what the kernels cannot run, TypeError for other dtypes, MemoryError where memory does not
    suffice.
    """
    library = library_of(a)
    names = NAMES[direction]
    a = library.array(names[0], a)
    if out is not None:
        out = library.array("out", out)
    described = library.describe(a)
    described_out = None if out is None else library.describe(out)
    if isinstance(b, Transformed):
        call = b.calls.get(key := (wishes, described, described_out))
        if call is None:
            call = prepare_call(direction, problem, library, wishes, described, b, described_out)
            b.calls[key] = call
    else:
        b = library.array(names[1], b)
        call = call_for(
            direction, problem, library, wishes, described, library.describe(b), described_out
        )
    return call.run(a, b, out)


def conv_forward(x: Any, w: Any, *, problem: Problem, out: Any = None, **wishes: Any) -> Any:
    """y = x ⋆ w; ``wishes`` are the fields of Wishes, errors those of ``convolve``."""
    return convolve("forward", problem, x, w, Wishes(**wishes), out)


def conv_backward_data(dy: Any, w: Any, *, problem: Problem, out: Any = None, **wishes: Any) -> Any:
    """dx, the gradient with respect to x; as ``conv_forward``."""
    return convolve("backward_data", problem, dy, w, Wishes(**wishes), out)


def conv_backward_filter(
    x: Any, dy: Any, *, problem: Problem, out: Any = None, **wishes: Any
) -> Any:
    """dw, the gradient with respect to w; as ``conv_forward``."""
    return convolve("backward_filter", problem, x, dy, Wishes(**wishes), out)


def transform(direction: str, problem: Problem, w: Any, wishes: Wishes = DEFAULTS) -> Transformed:
    """w transformed for ``direction``, kept in device memory as long as the result lives.

    Raises what ``convolve`` does, and ValueError where the planned kernel takes w as it is.
    """
    library = library_of(w)
    w = library.array("w", w)
    described = library.describe(w)
    index, dtype = described.index, described.dtype
    place = Place.of(described, wishes.layout)
    if place.shape != problem.w_shape:
        raise ValueError(
            f"w has shape {place.shape} with channels last; expected {problem.w_shape}"
        )
    first, _, last = shapes(direction, problem)
    precision = precision_of(wishes.precision, "w", dtype)
    wanted = result_dtype(direction, dtype, wishes.out_dtype, None)
    aligned = Place.fresh(first).aligned(ITEMSIZE[dtype])
    aligned = aligned and Place.fresh(last).aligned(ITEMSIZE[wanted])
    with library.on(index):
        chosen = plan(
            problem,
            direction,
            launch.device(index),
            parse_algorithm(wishes.algorithm) if wishes.algorithm else None,
            precision,
            aligned=aligned,
            variant=wishes.variant,
            workspace_limit=wishes.workspace_limit,
            out_dtype=wanted,
            prepared=True,
        )
        memory = library.empty((prepared(chosen),), "uint8", index)
        address = library.address(memory)
        if not place.forward:
            w = library.contiguous(w)
            place = Place.of(library.describe(w), wishes.layout)
        launch.make_current(index)
        view = place.view(address_of(0), filter=True)

        def record(kernels: Kernels) -> None:
            cast(Any, chosen).prepare(kernels, view, address_of(1), index)

        stream = library.stream(index)
        Recording(load(chosen, index), record).replay(stream, library.address(w), address)
    return Transformed(chosen, dtype, index, aligned, memory, address)
