"""One convolution of arrays that lie in a certain way: planned, loaded and recorded once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from winolab.arguments.arrays import check_float16
from winolab.gpu import driver
from winolab.gpu.params import Kernels
from winolab.gpu.planner.fallback import PlanWithFallback, verify
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import ITEMSIZE, Plan, Request
from winolab.gpu.runtime import loader
from winolab.gpu.runtime.array_layout import ArrayLayout, Overlap
from winolab.gpu.runtime.arrays import Described, Library
from winolab.gpu.runtime.cache import dump
from winolab.gpu.runtime.layout_copy import KERNEL, LayoutCopy
from winolab.gpu.runtime.replay import Recording, address_of
from winolab.gpu.runtime.resolve import Operand, Resolved, Transformed, resolve
from winolab.options import ConvOptions
from winolab.problem import NAMES, Problem

A, B, OUT, WORKSPACE = range(4)  # numbers of the recorded addresses
ALIGNED = 256  # bytes, of what lies in the workspace
GRAPHS = 32  # of a call at most: layers of one shape share it, each with its own addresses


@dataclass(frozen=True)
class Call:
    """A prepared convolution, with the copies that its launches begin and end with."""

    library: Library
    index: int
    plan: Plan | None  # None: the result has no elements, or is zero
    first: bool  # axes are channels-first
    shape: tuple[int, ...]  # of the result, channels last
    dtype: str  # that the kernel writes
    out_first: bool  # a new result has channels before spatial dimensions in memory
    out_dtype: str
    workspace: int  # bytes, copies included
    copies: tuple[str, ...]  # of "a", "b", "out": what is copied to where kernels have it
    recording: Recording | None  # None: there is nothing to sum
    flags: int  # how many the call waits for, by which kernels say that ranges are too wide; or 0
    narrowed: bool  # whether it waits to see that the result does not overflow out_dtype
    overlap: Overlap | None  # of operands and ``out``, where the kernels write to that
    anew: Callable[[], Call]  # the same call with a new result

    def run(self, a: Any, b: Any, out: Any) -> Any:
        """The result: ``out``, or a new array. ``b`` may be a Transformed."""
        library, index = self.library, self.index
        if library.current() != index:
            with library.on(index):
                return self.run(a, b, out)
        read = self._read(a, b)
        if self.overlap and self.overlap(read, library.address(out)):
            library.copy(out, self.anew().run(a, b, None))
            return out
        converted = self.dtype != self.out_dtype
        target = self._new(self.dtype, converted) if out is None or converted else out
        if self.recording:
            memory, address = library.memory(self.workspace, index) if self.workspace else (None, 0)
            driver.make_current(index)
            stream = library.stream(index)
            self.recording.replay(stream, *read, library.address(target), address)
            if self.workspace or converted:
                library.used(stream, memory, converted and target)
            if target is out:
                library.written(out)
            if self.flags:
                verify(driver.integers(address, self.flags, stream))
            del memory  # its allocator hands it out again in the order of the stream
        else:
            target[...] = 0
        if self.narrowed:
            check_float16(library.largest(target, a, b))
        if not converted:
            return target
        found = self._new(self.out_dtype) if out is None else out
        library.copy(found, target)
        return found

    def _read(self, a: Any, b: Any) -> tuple[int, int]:
        """The operands' addresses."""
        address = self.library.address
        return address(a), b.address if isinstance(b, Transformed) else address(b)

    def _new(self, dtype: str, written: bool = False) -> Any:
        """A new array, axes as the caller has them; ``written``: it lies as kernels write it."""
        library, shape = self.library, self.shape
        moved = self.out_first and not written
        if moved:
            shape = shape[0], shape[-1], *shape[1:-1]
        made = library.empty(shape, dtype, self.index)
        if self.first == moved:
            return made
        return library.channels_first(made) if self.first else library.channels_last(made)


def prepare_call(
    direction: str,
    problem: Problem,
    library: Library,
    options: ConvOptions,
    a: Described,
    b: Described | Transformed,
    out: Described | None,
) -> Call:
    """Resolve, plan and record, for arrays that lie like these. Errors: winolab.conv_forward's."""
    asked = resolve(direction, problem, options, a, b, out)
    made = PlannedCall.of(asked)
    recording, overlap = record(asked, made)
    # another call for the same operands, which it does not keep alive
    later = replace(b, memory=None) if isinstance(b, Transformed) else b
    anew = replace(options, out_dtype=asked.out_dtype)
    return Call(
        library=library,
        index=asked.index,
        plan=made.plan,
        first=options.layout == "channels_first",
        shape=asked.fresh.shape,
        dtype=made.written,
        out_first=asked.out_first,
        out_dtype=asked.out_dtype,
        workspace=made.end,
        copies=tuple(made.copies),
        recording=recording,
        flags=made.flags,
        narrowed=asked.narrowed and not problem.empty,
        overlap=overlap,
        anew=cache(partial(prepare_call, direction, problem, library, anew, a, later, None)),
    )


@dataclass(frozen=True)
class Copied:
    """A caller's array, by its number, and its copy in the workspace from byte ``place`` on."""

    number: int
    place: int
    copy: LayoutCopy

    @property
    def end(self) -> int:
        """Bytes of workspace up to its end."""
        return self.place + self.copy.bytes


@dataclass(frozen=True)
class PlannedCall:
    """A plan, and how its operands and its result come to lie as it takes them."""

    plan: Plan | None  # None: nothing is to be summed
    written: str  # the dtype that its kernels write
    b: Operand | None
    out: ArrayLayout  # where its kernels write
    workspace: int  # bytes, of the plan
    flags: int  # as Call's
    copies: dict[str, Copied]  # as Call's, in the order of their launches

    @classmethod
    def of(cls, asked: Resolved) -> PlannedCall:
        """The plan for what was asked. Raises ValueError where there is none, or none within the
        limit or that holds the result."""
        problem, options, transformed = asked.problem, asked.options, asked.transformed
        out_size, fresh = ITEMSIZE[asked.computed], asked.fresh
        wanted = asked.wanted
        fits = wanted.direct and wanted.distinct and (not asked.strict or wanted.aligned(out_size))
        out = wanted if fits else fresh
        chosen = _plan_for(asked, out)
        written = chosen.out_dtype if chosen else asked.dtype
        if transformed and chosen and written not in ("float32", asked.out_dtype):
            raise ValueError(
                f"the prepared filter's kernel writes {written}, which does not hold what "
                f"{asked.out_dtype} does: prepare it with out_dtype float32"
            )
        if written != asked.out_dtype and out is not fresh:
            out = fresh
            chosen = _plan_for(asked, out)
        b = asked.b
        if b and not b.copied and chosen and chosen.reads_filters_in_place:
            b = Operand.of(b.layout, b.layout.direct and b.layout.aligned(ITEMSIZE[asked.dtype]))
        flags = 0
        if options.on_range == "raise" and isinstance(chosen, PlanWithFallback):
            chosen, flags = chosen.primary, chosen.flags * (not problem.empty)
        workspace = 0
        if chosen and not problem.empty:
            workspace = chosen.beside if transformed else chosen.workspace
            limit = options.workspace_limit
            if transformed and limit is not None and workspace > limit:
                raise ValueError(
                    f"the prepared filter's kernel takes a workspace of {workspace} B, and the "
                    f"limit is {limit} B: raise it, or prepare the filter with it"
                )
        copies: dict[str, Copied] = {}
        if chosen and not problem.empty:
            place = _ceil(workspace)
            for name, number, source, target, size in (
                ("a", A, asked.a.given, asked.a.layout, ITEMSIZE[asked.dtype]),
                ("b", B, b and b.given, b and b.layout, ITEMSIZE[asked.dtype]),
                ("out", OUT, out, wanted, ITEMSIZE[written]),
            ):
                if not source or not target or source == target:
                    continue
                if name == "out" and written != asked.out_dtype:
                    continue  # the library converts it
                copies[name] = Copied(number, place, LayoutCopy.of(source, target, size))
                place = _ceil(copies[name].end)
        return cls(chosen, written, b, out, workspace, flags, copies)

    @property
    def end(self) -> int:
        """Bytes of workspace, copies included."""
        return max([self.workspace, *(each.end for each in self.copies.values())])

    def address(self, name: str, number: int) -> int:
        """What stands for an array's address while its kernels' launches are recorded."""
        copied = self.copies.get(name)
        return address_of(WORKSPACE) + copied.place if copied else address_of(number)


def _ceil(place: int) -> int:
    return -(-place // ALIGNED) * ALIGNED


def _plan_for(asked: Resolved, out: ArrayLayout) -> Plan | None:
    """The plan whose kernels write to ``out``; None where there is nothing to sum."""
    transformed, options = asked.transformed, asked.options
    if transformed:
        return transformed.plan and transformed.plan.scaled(options.scale)
    if asked.problem.empty:
        _check_empty(asked)
        return None
    size = ITEMSIZE[asked.dtype]
    aligned = maps = asked.a.layout.aligned(size)
    if asked.b and asked.gradient:
        aligned = maps = maps and asked.b.layout.aligned(size)
    if not out.aligned(ITEMSIZE[asked.computed]):
        aligned, maps = False, maps and asked.gradient
    asks = asked.problem, asked.direction, asked.index, options, asked.precision, asked.computed
    return plan(request_of(*asks, aligned, maps), prepared=False).scaled(options.scale)


def _check_empty(asked: Resolved) -> None:
    """Raise ValueError for what is refused of problems that have elements."""
    problem = replace(asked.problem.without_images, batch=1)
    if asked.options.algorithm or asked.options.config:
        options = replace(asked.options, workspace_limit=None)
        asks = problem, asked.direction, asked.index, options, asked.precision, asked.computed
        plan(request_of(*asks, aligned=False), prepared=False)
    else:
        device = driver.device(asked.index)
        Request(asked.problem, asked.direction, device, precision=asked.precision).check()


def record(asked: Resolved, made: PlannedCall) -> tuple[Recording | None, Overlap | None]:
    """The plan's launches, and where they would write to what they still read; None where there
    are no launches, or no ``out`` of the caller's."""
    chosen = made.plan
    if not chosen or asked.problem.empty:
        return None, None
    a, b = asked.a, made.b
    is_filter = [name in ("w", "dw") for name in NAMES[asked.direction]]
    view_a = a.layout.view(made.address("a", A), filter=is_filter[0])
    view_b = b and b.layout.view(made.address("b", B), filter=is_filter[1])
    view_out = made.out.view(made.address("out", OUT), filter=is_filter[2])

    def copy(kernels: Kernels, name: str) -> None:
        if copied := made.copies.get(name):
            ends = address_of(copied.number), made.address(name, copied.number)
            copied.copy.launch(kernels, *(ends[::-1] if name == "out" else ends), key=name)

    def launches(kernels: Kernels) -> None:
        copy(kernels, "a")
        copy(kernels, "b")
        end = (address_of(WORKSPACE), asked.index)
        if view_b:
            chosen.launch(kernels, view_a, view_b, view_out, *end)
        else:
            chosen.run(kernels, view_a, address_of(B), view_out, *end)
        copy(kernels, "out")

    kernels = dict(kernels_of(chosen, asked.index))
    for name, copied in made.copies.items():
        title = f"a copy of {name} in another memory order"
        loaded = loader.load(copied.copy.source(), title, {KERNEL: 0}, asked.index)
        kernels[name] = loaded[KERNEL]
    recording = Recording(kernels, launches, GRAPHS)
    if made.out != asked.out or made.written != asked.out_dtype:
        return recording, None
    operands = {A: a, B: b}
    read = {n: each.layout for n, each in operands.items() if each and not each.copied}
    sizes = ITEMSIZE[asked.dtype], ITEMSIZE[asked.computed]
    return recording, Overlap(read, sizes[0], made.out, sizes[1])


def request_of(
    problem: Problem,
    direction: str,
    index: int,
    options: ConvOptions,
    precision: str,
    out_dtype: str,
    aligned: bool,
    aligned_maps: bool | None = None,
) -> Request:
    """What the planner is asked for device ``index``; arguments are Request's."""
    return Request(
        problem,
        direction,
        driver.device(index),
        options.named,
        precision,
        aligned=aligned,
        aligned_maps=aligned_maps,
        config=options.config,
        workspace_limit=options.workspace_limit,
        out_dtype=out_dtype,
        tolerance=options.tolerance,
    )


def kernels_of(chosen: Plan, index: int) -> Mapping[str, driver.Kernel]:
    """The plan's kernels; plan, source and resources are dumped where WINOLAB_DUMP says so."""
    p, title = chosen.problem, f"{chosen.kernel} {chosen.precision} {chosen.config}"
    of = f"{chosen.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}"
    name = re.sub(r"\W+", "-", f"{of} {title}")
    dump(f"{name}.plan", f"{chosen}\n")
    return loader.load(chosen.source(), title, chosen.shared(), index)
