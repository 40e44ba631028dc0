"""The convolutions of CuPy arrays, torch CUDA tensors and what has ``__dlpack__``."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from winolab.arguments.arrays import check_float16
from winolab.arguments.epilogue import Activation, Epilogue
from winolab.calls import described_by, keep, recall
from winolab.gpu import driver
from winolab.gpu.planner.request import ITEMSIZE
from winolab.gpu.runtime import loader, smaller
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.arrays import Library, library_of
from winolab.gpu.runtime.call import prepare_call, record_filter
from winolab.gpu.runtime.layout_copy import KERNEL, Finishing, LayoutCopy
from winolab.gpu.runtime.planned import plan_for, request_of, taken_aligned
from winolab.gpu.runtime.replay import Recording, address_of
from winolab.gpu.runtime.resolve import Resolved, Transformed, resolve, resolve_filter
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
    if options.in_pieces and not isinstance(b, Transformed):
        return _in_pieces(direction, problem, library, every, options)
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


def _in_pieces(
    direction: str,
    problem: Problem,
    library: Library,
    arrays: tuple[Any, ...],
    options: ConvOptions,
) -> Any:
    """The result of pieces: each by kernels of stride and dilation 1 on views of the arrays, summed
    in float32 and rounded once; an epilogue behind it."""
    described: Any = [None if v is None else library.describe(v) for v in arrays]
    asked = resolve(direction, problem, options, *described)
    a, b, out, *more = arrays
    with library.on(asked.index):
        y = total = _summed(asked, library, a, b)
        if asked.narrowed and not problem.empty:
            check_float16(library.largest(total, a, b))
        if asked.out_dtype != "float32":
            y = _fresh(asked, library, asked.out_dtype)
            library.copy(y, total)
        if asked.finishing and not problem.empty:
            _finish(asked, library, y, *more)
        if out is None and not asked.out_first:
            return y
        if out is None:
            out = _fresh(asked, library, asked.out_dtype, first=True)
        library.copy(out, y)
    return out


def _summed(asked: Resolved, library: Library, a: Any, b: Any) -> Any:
    """The sum of the pieces in their order."""
    # The planner, which other calls may not need.
    from winolab.gpu.planner.recast.pieces import planned

    total = _fresh(asked, library, "float32")
    total[...] = 0
    if asked.problem.empty:
        return total
    options, names = asked.options, NAMES[asked.direction]
    before = (slice(None),) * (2 if options.layout == "channels_first" else 1)
    request = request_of(replace(asked, computed="float32"), aligned=False)
    for part, algorithm, _ in planned(request):
        first, second, result = ((*before, *part.of(name)) for name in names)
        how = replace(options, algorithm=algorithm, out_dtype="float32", activation=None)
        z = convolve(asked.direction, part.problem, a[first], b[second], how)
        library.add(total[result], z)
    return total


def _fresh(asked: Resolved, library: Library, dtype: str, *, first: bool = False) -> Any:
    """A new array for the result, axes as the caller has them; ``first``: channels lie before
    spatial dimensions in memory."""
    shape = asked.fresh.shape
    moved = (shape[0], shape[-1], *shape[1:-1]) if first else shape
    made = library.empty(moved, dtype, asked.index)
    if (asked.options.layout == "channels_first") == first:
        return made
    return library.channels_last(made) if first else library.channels_first(made)


def _finish(asked: Resolved, library: Library, y: Any, bias: Any = None, residual: Any = None):
    """Apply the epilogue to a result where it lies."""
    layout = ArrayLayout.of(library.describe(y), asked.options.layout)
    copy = LayoutCopy.of(layout, layout, ITEMSIZE[asked.out_dtype], asked.finishing)
    kernels = loader.load(copy.source(), "an epilogue", {KERNEL: 0}, asked.index)
    added = (address_of(1) * (bias is not None), address_of(2) * (residual is not None))
    ends = address_of(0), address_of(0)
    driver.make_current(asked.index)
    recording = Recording(kernels, lambda k: copy.launch(k, *ends, KERNEL, *added))
    given = [0 if v is None else library.address(v) for v in (bias, residual)]
    recording.replay(library.stream(asked.index), library.address(y), *given)


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
    kernels = loader.load(copy.source(), f"activation {activation}", {KERNEL: 0}, index)
    return Recording(kernels, lambda k: copy.launch(k, address_of(0), address_of(1)))


def transform_if_used(
    direction: str, problem: Problem, w: Any, options: ConvOptions = DEFAULTS, a: Any = None
) -> Transformed | None:
    """The same as ``transform`` if the kernel that ``convolve`` runs transforms its filter apart,
    None if it reads w as it is, and where memory lacks for that filter or lacked for the call;
    ``a``: the other operand, where it may lie in another memory order than a fresh one."""
    if options.in_pieces:  # each piece has a filter of its own
        return None
    library = library_of(w)
    asked = resolve_filter(direction, problem, options, library.describe(w))
    if problem.empty or smaller.is_short(asked):
        return None
    usual = plan_for(asked, asked.fresh)
    if not usual or not usual.prepared_size:
        return None
    if a is not None:
        both = library.describe(a), library.describe(w)
        lies = resolve(direction, problem, options, *both, None)
        usual = plan_for(lies, lies.fresh)
        if not usual or not usual.prepared_size:
            return None
    try:
        return transform(direction, problem, w, options, smallest=False)
    except MemoryError as error:
        smaller.log.warning("filters of %s are transformed by every call: %s", direction, error)
        return None


def transform(
    direction: str,
    problem: Problem,
    w: Any,
    options: ConvOptions = DEFAULTS,
    *,
    smallest: bool = True,
) -> Transformed:
    """w transformed for ``direction``, kept in device memory as long as the result lives.

    ``smallest``: where memory lacks for it, a plan of a smaller filter is taken. Raises what
    ``convolve`` does, and ValueError where the planned kernel takes w as it is and for what runs in
    pieces, each with a filter of its own.
    """
    if options.in_pieces:
        raise ValueError(
            f"{options.named} runs in pieces on a GPU, each with a filter of its own: give w itself"
        )
    library = library_of(w)
    w = library.array("w", w)
    asked = resolve_filter(direction, problem, options, library.describe(w))
    index, dtype = asked.index, asked.dtype
    if problem.empty:
        return Transformed(None, dtype, index, (False, False), None, 0)
    with library.on(index):
        chosen = smaller.filter_plan(asked)
        try:
            memory = library.empty((chosen.prepared_size,), "uint8", index)
        except MemoryError as error:
            if not smallest:
                raise
            smaller.less(asked, library, error, chosen.prepared_size, apart=True)
            chosen = smaller.filter_plan(asked)
            memory = library.empty((chosen.prepared_size,), "uint8", index)
        if b := asked.b:
            copied = b.copied or (chosen.merges_pixels and not b.layout.side_by_side)
            if copied and chosen.merges_pixels and options.layout == "channels_first":
                w = library.channels_first(library.contiguous(library.channels_last(w)))
            elif copied:
                w = library.contiguous(w)
        address, stream = library.address(memory), library.stream(index)
        driver.make_current(index)
        layout = ArrayLayout.of(library.describe(w), options.layout)
        recording = record_filter(chosen, layout, index)
        recording.replay(stream, library.address(w), address)
    aligned = taken_aligned(asked, chosen)
    return Transformed(chosen, dtype, index, aligned, memory, address)
