"""One convolution of arrays that lie in a certain way: planned, loaded and recorded once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from operator import attrgetter
from typing import Any

from winolab.arguments.arrays import check_float16
from winolab.gpu import driver
from winolab.gpu.codegen.translation_unit import kernels_by_unit
from winolab.gpu.params import Kernels
from winolab.gpu.planner.fallback import verify
from winolab.gpu.planner.request import ITEMSIZE, Plan
from winolab.gpu.runtime import loader, smaller
from winolab.gpu.runtime.array_layout import ArrayLayout, Overlap
from winolab.gpu.runtime.arrays import Described, Library
from winolab.gpu.runtime.cache import dump, dumped
from winolab.gpu.runtime.cache.plans import source_of
from winolab.gpu.runtime.layout_copy import KERNEL, LayoutCopy
from winolab.gpu.runtime.planned import BIAS, OUT, RESIDUAL, WORKSPACE, A, B, PlannedCall
from winolab.gpu.runtime.replay import Recording, Tape, address_of
from winolab.gpu.runtime.resolve import Resolved, Transformed, resolve
from winolab.options import ConvOptions
from winolab.problem import NAMES, Problem

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
    after: Recording | None  # what applies an epilogue behind all else
    flags: int  # how many the call waits for, by which kernels say that ranges are too wide; or 0
    narrowed: bool  # whether it waits to see that the result does not overflow out_dtype
    overlap: Overlap | None  # of operands and ``out``, where the kernels write to that
    anew: Callable[[], Call]  # the same call with a new result
    transformed: bool  # whether its filter is, a Transformed
    again: Callable[[], Recording | None]  # another recording of the same launches
    less: Callable[[MemoryError], Call]  # the same call with less workspace, or raises the error
    instead: list[Call] = field(default_factory=list, compare=False)  # what stands for it, if any

    @cached_property
    def quick(self) -> Callable[[Any, Any], Any] | None:
        """``run`` of two operands and a new result, which looks at nothing else; None where there
        is more to do."""
        recording, library, index = self.recording, self.library, self.index
        more = self.flags or self.narrowed or self.after or self.dtype != self.out_dtype
        if more or recording is None:
            return None
        current, stream_of, address = library.looks()
        address_b = attrgetter("address") if self.transformed else address
        new, replay = self._maker(self.dtype), recording.replay
        size, memory = self.workspace, library.memory

        def quickly(a: Any, b: Any) -> Any:
            if current() != index:
                with library.on(index):
                    return quickly(a, b)
            target = new()
            driver.make_current(index)
            stream = stream_of(index)
            if not size:
                replay(stream, address(a), address_b(b), address(target), 0)
                return target
            try:
                workspace, place = memory(size, index)
            except MemoryError as error:
                found = self._smaller(error)  # beside the result, whose memory is not to be had
                del target
                return found.run(a, b, None)
            replay(stream, address(a), address_b(b), address(target), place)
            library.used(stream, workspace)
            return target

        return quickly

    def tape(self, *where: int) -> Tape:
        """``quick``'s launches without Python, once more; ``where``: the stream, and the addresses
        of operands, result and workspace."""
        recording = self.again()
        assert recording  # else there is no ``quick``
        return recording.tape(*where)

    def run(self, a: Any, b: Any, out: Any, *more: Any) -> Any:
        """The result: ``out``, or a new array. ``b`` may be a Transformed; ``more``: bias and
        residual, or neither."""
        if out is None and not more and self.quick:
            return self.quick(a, b)
        if self.instead:
            return self.settled.run(a, b, out, *more)
        library, index = self.library, self.index
        if library.current() != index:
            with library.on(index):
                return self.run(a, b, out, *more)
        read = self._read(a, b)
        added = [0 if array is None else library.address(array) for array in more]
        if self.overlap and self.overlap((*read, 0, 0, *added), library.address(out)):
            library.copy(out, self.anew().run(a, b, None, *more))
            return out
        converted = self.dtype != self.out_dtype
        target = self._new(self.dtype, converted) if out is None or converted else out
        if self.recording:
            try:
                memory, address = self._workspace()
            except MemoryError as error:
                found = self._smaller(error)
                del target
                return found.run(a, b, out, *more)
            driver.make_current(index)
            stream = library.stream(index)
            self.recording.replay(stream, *read, library.address(target), address, *added)
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
        if converted:
            found = self._new(self.out_dtype) if out is None else out
            library.copy(found, target)
            target = found
        if self.after:
            driver.make_current(index)
            stream = library.stream(index)
            self.after.replay(stream, 0, 0, library.address(target), 0, *added)
        return target

    @property
    def settled(self) -> Call:
        """What stands for it where its workspace did not fit into memory; else the call itself."""
        return self.instead[0].settled if self.instead else self

    def _smaller(self, error: MemoryError) -> Call:
        """What stands for it from now on. Raises as ``less``."""
        if not self.instead:
            found = self.less(error)
            self.instead.append(found)
            vars(self)["quick"] = found.quick and (lambda a, b: found.run(a, b, None))
        return self.settled

    def _workspace(self) -> tuple[Any, int]:
        """Memory, and its address."""
        return self.library.memory(self.workspace, self.index) if self.workspace else (None, 0)

    def _read(self, a: Any, b: Any) -> tuple[int, int]:
        """The operands' addresses."""
        address = self.library.address
        return address(a), b.address if isinstance(b, Transformed) else address(b)

    def _new(self, dtype: str, written: bool = False) -> Any:
        """A new array, axes as the caller has them; ``written``: it lies as kernels write it."""
        return self._maker(dtype, written)()

    def _maker(self, dtype: str, written: bool = False) -> Callable[[], Any]:
        """What makes it."""
        shape, first = self.laid(written)
        return self.library.maker(shape, dtype, self.index, first)

    def laid(self, written: bool = False) -> tuple[tuple[int, ...], bool | None]:
        """A new result's shape as it lies in memory, and where its channels are moved to for the
        caller."""
        shape, moved = self.shape, self.out_first and not written
        if moved:
            shape = shape[0], shape[-1], *shape[1:-1]
        return shape, None if self.first == moved else self.first


def prepare_call(
    direction: str,
    problem: Problem,
    library: Library,
    options: ConvOptions,
    a: Described,
    b: Described | Transformed,
    out: Described | None,
    bias: Described | None = None,
    residual: Described | None = None,
) -> Call:
    """Resolve, plan and record, for arrays that lie like these. Errors: winolab.conv_forward's."""
    given = resolve(direction, problem, options, a, b, out, bias, residual)
    asked, made = smaller.planned(given)
    # another call for the same operands, which it does not keep alive
    later = replace(b, memory=None) if isinstance(b, Transformed) else b
    again = replace(options, out_dtype=asked.out_dtype)
    arrays = a, later, None, bias, residual
    plain = replace(given, transformed=None)

    def less(error: MemoryError) -> Call:
        if isinstance(later, Transformed):  # whose plan is what it is
            smaller.check_capture(library, plain.index, error)
            raise smaller.NoWorkspace(f"{error}: the prepared filter's kernel takes it") from error
        smaller.less(plain, library, error, made.end)
        return prepare_call(direction, problem, library, options, a, later, out, bias, residual)

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
        recording=record(asked, made),
        after=finish_after(asked, made),
        flags=made.flags,
        narrowed=asked.narrowed and not problem.empty,
        overlap=overlap_of(asked, made),
        anew=cache(partial(prepare_call, direction, problem, library, again, *arrays)),
        transformed=isinstance(b, Transformed),
        again=partial(record, replace(asked, transformed=None), made, 0),
        less=less,
    )


def record(asked: Resolved, made: PlannedCall, graphs: int = GRAPHS) -> Recording | None:
    """The plan's launches between copies, as ``graphs`` graphs at most; None where there is nothing
    to sum."""
    chosen = made.plan
    if not chosen or asked.problem.empty:
        return None
    a, b = made.a, made.b
    is_filter = [name in ("w", "dw") for name in NAMES[asked.direction]]
    view_a = a.layout.view(made.address("a", A), filter=is_filter[0])
    view_b = b and b.layout.view(made.address("b", B), filter=is_filter[1])
    view_out = made.out.view(made.address("out", OUT), filter=is_filter[2])
    view_out = replace(view_out, finish=made.finish(asked))

    def launches(kernels: Kernels) -> None:
        for name, copied in made.copies.items():
            if name != "out":
                ends = address_of(copied.number), made.address(name, copied.number)
                copied.copy.launch(kernels, *ends, key=name)
        end = (address_of(WORKSPACE), asked.index)
        if view_b:
            chosen.launch(kernels, view_a, view_b, view_out, *end)
        else:
            chosen.run(kernels, view_a, address_of(B), view_out, *end)
        if copied := made.copies.get("out"):
            ends = made.address("out", OUT), address_of(OUT)
            copied.copy.launch(kernels, *ends, "out", *_added(asked, made))

    kernels = dict(kernels_of(chosen, asked.index))
    for name, copied in made.copies.items():
        kernels[name] = _loaded(copied.copy, name, asked.index)
    return Recording(kernels, launches, graphs)


def record_filter(chosen: Plan, w: ArrayLayout, index: int) -> Recording:
    """The launches that transform a filter which lies like that."""
    view = w.view(address_of(0), filter=True)
    return Recording(
        kernels_of(chosen, index), lambda k: chosen.prepare(k, view, address_of(1), index)
    )


def _added(asked: Resolved, made: PlannedCall) -> tuple[int, int]:
    """What stands for the addresses of bias and residual; 0 where there is none."""
    return (
        made.address("bias", BIAS) if asked.bias else 0,
        made.address("residual", RESIDUAL) if asked.residual else 0,
    )


def _loaded(copy: LayoutCopy, name: str, index: int) -> driver.Launchable:
    return loader.load(copy.source(), titled(name), {KERNEL: 0}, index)[KERNEL]


def titled(name: str) -> str:
    """What the log calls a copy of an array of that name."""
    return f"a copy of {name} in another memory order"


def finish_after(asked: Resolved, made: PlannedCall) -> Recording | None:
    """The launch that applies an epilogue behind all others, if there is one."""
    if not (copy := made.after):
        return None
    result = address_of(OUT)
    return Recording(
        {KERNEL: _loaded(copy, "out", asked.index)},
        lambda kernels: copy.launch(kernels, result, result, KERNEL, *_added(asked, made)),
    )


def overlap_of(asked: Resolved, made: PlannedCall) -> Overlap | None:
    """Where a call would write to what it still reads; None where there is no ``out`` of the
    caller's."""
    if not asked.out:
        return None
    size, out_size = ITEMSIZE[asked.dtype], ITEMSIZE[asked.out_dtype]
    read: dict[int, tuple[ArrayLayout, int]] = {}
    if made.out == asked.out and made.written == asked.out_dtype:
        for number, operand in ((A, made.a), (B, made.b)):
            if operand and not operand.copied:
                read[number] = operand.layout, size
    added = ((BIAS, "bias", asked.bias), (RESIDUAL, "residual", asked.residual))
    for number, name, given in added:
        if given and name not in made.copies:
            read[number] = given, out_size
    return Overlap(read, asked.out, out_size) if read else None


def kernels_of(chosen: Plan, index: int) -> Mapping[str, driver.Launchable]:
    """The plan's kernels, of all its units; plan, sources and resources are dumped where
    WINOLAB_DUMP says so."""
    if dumped():  # a plan's text may take its transforms
        problem = chosen.problem.told(chosen.direction)
        name = re.sub(r"\W+", "-", f"{problem} {chosen.title}")
        dump(f"{name}.plan", f"{chosen}\n")
    units = [
        loader.Asked(source_of(unit), unit.title, shared)
        for unit, shared in kernels_by_unit(chosen)
    ]
    return loader.load_units(units, index)
