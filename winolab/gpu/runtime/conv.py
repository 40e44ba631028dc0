"""The convolutions of CuPy arrays, torch CUDA tensors and what has ``__dlpack__``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from winolab.arguments.epilogue import Activation, Epilogue
from winolab.calls import described_by, keep, recall
from winolab.gpu import driver
from winolab.gpu.planner.request import ITEMSIZE
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.arrays import library_of
from winolab.gpu.runtime.call import prepare_call, record_filter
from winolab.gpu.runtime.layout_copy import KERNEL, Finishing, LayoutCopy
from winolab.gpu.runtime.loader import load
from winolab.gpu.runtime.planned import plan_for
from winolab.gpu.runtime.replay import Recording, address_of
from winolab.gpu.runtime.resolve import Transformed, resolve_filter
from winolab.options import Convolution, ConvOptions
from winolab.problem import NAMES, Problem

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
    bias: Any = None,
    residual: Any = None,
) -> Any:
    """The result of ``direction`` on the GPU that holds a and b, on the caller's current stream.

    ``a`` and ``b`` are x and w forward, dy and w for backward data, x and dy for backward filter,
    float32, float16 or bfloat16, of ``problem``'s shapes in the layout, with any strides; in w's
    place may stand a Transformed; ``bias`` and ``residual`` are y's. The result has a's library and
    memory order. By ``asked``, which with the shapes implies problem and options, ``calls.recall``
    finds the call again. Raises ValueError for what the kernels cannot run, TypeError for other
    dtypes, MemoryError where memory does not suffice.
    """
    library = library_of(a)
    names = NAMES[direction]
    a = library.array(names[0], a)
    if not isinstance(b, Transformed):
        b = library.array(names[1], b)
    if out is not None:
        out = library.array("out", out)
    if bias is not None:
        bias = library.array("bias", bias)
    if residual is not None:
        residual = library.array("residual", residual)
    more = () if bias is None and residual is None else (bias, residual)
    every = (a, b, out, *more)
    # The caller looked by ``asked``: what has no hash, or is asked in other words, is found by its
    # problem.
    resolved = (direction, problem, options)
    call = recall(resolved, *every)
    if call is None:
        call = prepare_call(
            direction,
            problem,
            library,
            options,
            library.describe(a),
            b if isinstance(b, Transformed) else library.describe(b),
            *(None if array is None else library.describe(array) for array in (out, *more)),
        )
    kept_by = (resolved, asked) if asked and asked.unique else (resolved,)
    keep(call, kept_by, every, library.layout_key)
    return call.run(*every)


def activate(y: Any, activation: Activation) -> Any:
    """The activation of an array on a GPU, as a new one."""
    library = library_of(y)
    described = library.describe(y)
    index, dtype = described.index, described.dtype
    with library.on(index):
        made = library.empty(described.shape, dtype, index)
        ends = described, library.describe(made)
        layouts = [ArrayLayout(each.shape, each.strides, each.aligned) for each in ends]
        driver.make_current(index)
        recording = _activation(*layouts, dtype, activation, index)
        recording.replay(library.stream(index), library.address(y), library.address(made))
    return made


@lru_cache(maxsize=256)
def _activation(
    source: ArrayLayout, target: ArrayLayout, dtype: str, activation: Activation, index: int
) -> Recording:
    finishing = Finishing(Epilogue(activation=activation), dtype, 0, None)
    copy = LayoutCopy.of(source, target, ITEMSIZE[dtype], finishing)
    kernels = load(copy.source(), f"activation {activation}", {KERNEL: 0}, index)
    return Recording(kernels, lambda k: copy.launch(k, address_of(0), address_of(1)))


def transform_if_used(
    direction: str, problem: Problem, w: Any, options: ConvOptions = DEFAULTS
) -> Transformed | None:
    """The same as ``transform`` if the kernel that ``convolve`` runs transforms its filter apart,
    None if it reads w as it is."""
    asked = resolve_filter(direction, problem, options, library_of(w).describe(w))
    usual = None if problem.empty else plan_for(asked, asked.fresh)
    return transform(direction, problem, w, options) if usual and usual.prepared_size else None


def transform(
    direction: str, problem: Problem, w: Any, options: ConvOptions = DEFAULTS
) -> Transformed:
    """w transformed for ``direction``, kept in device memory as long as the result lives.

    Raises what ``convolve`` does, and ValueError where the planned kernel takes w as it is.
    """
    library = library_of(w)
    w = library.array("w", w)
    asked = resolve_filter(direction, problem, options, library.describe(w))
    index, dtype = asked.index, asked.dtype
    if problem.empty:
        return Transformed(None, dtype, index, False, None, 0)
    with library.on(index):
        chosen = plan_for(asked, asked.fresh, apart=True)
        assert chosen  # there is something to sum
        if asked.b and asked.b.copied:
            w = library.contiguous(w)
        memory = library.empty((chosen.prepared_size,), "uint8", index)
        address, stream = library.address(memory), library.stream(index)
        driver.make_current(index)
        layout = ArrayLayout.of(library.describe(w), options.layout)
        recording = record_filter(chosen, layout, index)
        recording.replay(stream, library.address(w), address)
    aligned = asked.a.layout.aligned(ITEMSIZE[dtype])
    aligned = aligned and asked.fresh.aligned(ITEMSIZE[asked.computed])
    return Transformed(chosen, dtype, index, aligned, memory, address)
