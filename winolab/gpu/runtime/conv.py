"""The convolutions of CuPy arrays, torch CUDA tensors and what has ``__dlpack__``."""

from __future__ import annotations

from typing import Any

from winolab.calls import described_by, keep, recall
from winolab.gpu import driver
from winolab.gpu.params import Kernels
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import ITEMSIZE
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.arrays import library_of
from winolab.gpu.runtime.call import kernels_of, prepare_call, request_of
from winolab.gpu.runtime.dtypes import precision_of, result_dtype
from winolab.gpu.runtime.replay import Recording, address_of
from winolab.gpu.runtime.resolve import Transformed, prepared
from winolab.options import Convolution, ConvOptions
from winolab.problem import NAMES, Problem, shapes

DEFAULTS = ConvOptions()

described_by[Transformed] = lambda w: w.number


def convolve(
    direction: str,
    problem: Problem,
    a: Any,
    b: Any,
    options: ConvOptions = DEFAULTS,
    out: Any = None,
    asked: Convolution | None = None,
) -> Any:
    """The result of ``direction`` on the GPU that holds a and b, on the caller's current stream.

    ``a`` and ``b`` are x and w forward, dy and w for backward data, x and dy for backward filter,
    float32, float16 or bfloat16, of ``problem``'s shapes in the layout, with any strides; in w's
    place may stand a Transformed. The result has a's library and memory order. By ``asked``, which
    with the shapes implies problem and options, ``calls.recall`` finds the call again. Raises
    ValueError for what the kernels cannot run, TypeError for other dtypes, MemoryError where
    memory does not suffice.
    """
    library = library_of(a)
    names = NAMES[direction]
    a = library.array(names[0], a)
    if not isinstance(b, Transformed):
        b = library.array(names[1], b)
    if out is not None:
        out = library.array("out", out)
    # The caller looked by ``asked``: what has no hash, or is asked in other words, is found by its
    # problem.
    resolved = (direction, problem, options)
    call = recall(resolved, a, b, out)
    if call is None:
        call = prepare_call(
            direction,
            problem,
            library,
            options,
            library.describe(a),
            b if isinstance(b, Transformed) else library.describe(b),
            None if out is None else library.describe(out),
        )
    kept_by = (resolved, asked) if asked and asked.unique else (resolved,)
    keep(call, kept_by, a, b, out, library.layout_key)
    return call.run(a, b, out)


def transform(
    direction: str, problem: Problem, w: Any, options: ConvOptions = DEFAULTS
) -> Transformed:
    """w transformed for ``direction``, kept in device memory as long as the result lives.

    Raises what ``convolve`` does, and ValueError where the planned kernel takes w as it is.
    """
    library = library_of(w)
    w = library.array("w", w)
    described = library.describe(w)
    index, dtype = described.index, described.dtype
    layout = ArrayLayout.of(described, options.layout)
    if layout.shape != problem.w_shape:
        raise ValueError(
            f"w has shape {layout.shape} with channels last; expected {problem.w_shape}"
        )
    precision = precision_of(options.precision, "w", dtype)
    wanted = result_dtype(direction, dtype, options.out_dtype, None)
    if problem.empty:
        return Transformed(None, dtype, index, False, None, 0)
    first, _, last = shapes(direction, problem)
    aligned = ArrayLayout.fresh(first).aligned(ITEMSIZE[dtype])
    aligned = aligned and ArrayLayout.fresh(last).aligned(ITEMSIZE[wanted])
    with library.on(index):
        request = request_of(problem, direction, index, options, precision, wanted, aligned)
        chosen = plan(request, prepared=True).scaled(options.scale)
        memory = library.empty((prepared(chosen),), "uint8", index)
        address = library.address(memory)
        if not layout.forward:
            w = library.contiguous(w)
            layout = ArrayLayout.of(library.describe(w), options.layout)
        driver.make_current(index)
        view = layout.view(address_of(0), filter=True)

        def record(kernels: Kernels) -> None:
            chosen.prepare(kernels, view, address_of(1), index)

        stream = library.stream(index)
        Recording(kernels_of(chosen, index), record).replay(stream, library.address(w), address)
    return Transformed(chosen, dtype, index, aligned, memory, address)
