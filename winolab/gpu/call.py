"""One convolution of arrays that lie in a certain way: planned, loaded and recorded once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple, cast

from winolab.gpu import launch
from winolab.gpu.arrays import Described, Library
from winolab.gpu.cache import dump
from winolab.gpu.dtypes import check_float16, common_dtype, precision_of, result_dtype
from winolab.gpu.guard import GuardedPlan, scaled, verify
from winolab.gpu.launch import Kernels
from winolab.gpu.places import Overlap, Place, is_contiguous, shapes
from winolab.gpu.plan import ITEMSIZE, Plan, Request, plan
from winolab.gpu.preference import beside_filter
from winolab.gpu.record import Recording, address_of
from winolab.nouns import Algorithm, Problem, parse_algorithm
from winolab.problem import check_layout, whole
from winolab.ref.split import Scale

NAMES = {
    "forward": ("x", "w", "y"),
    "backward_data": ("dy", "w", "dx"),
    "backward_filter": ("x", "dy", "dw"),
}
ON_RANGE = ("fallback", "raise")
A, B, OUT, WORKSPACE = range(4)  # numbers of the recorded addresses
GRAPHS = 32  # of a call at most: layers of one shape share it, each with its own addresses


class Wishes(NamedTuple):
    """What a caller asks for beside the problem: winolab.conv_forward's arguments."""

    layout: str = "channels_last"
    algorithm: str | Algorithm | None = None
    precision: Any = None
    out_dtype: Any = None
    workspace_limit: int | None = None
    on_range: str = "fallback"
    scale: Scale | None = None  # of split products
    variant: Any = None

    @property
    def named(self) -> Algorithm | None:
        """The algorithm, where there is one. Raises as parse_algorithm."""
        return None if self.algorithm is None else parse_algorithm(self.algorithm)

    def checked(self) -> Wishes:
        """The same, the algorithm no text. Raises TypeError for a limit that is no integer,
        ValueError for a negative one, for on_range and for what names no algorithm."""
        limit = self.workspace_limit
        if limit is not None and whole(limit, "workspace_limit") < 0:
            raise ValueError(f"workspace_limit is {limit}; expected bytes, 0 or more, or None")
        if self.on_range not in ON_RANGE:
            raise ValueError(f"on_range {self.on_range!r}; expected one of {', '.join(ON_RANGE)}")
        return self._replace(algorithm=self.named)


@dataclass(frozen=True, eq=False)
class Transformed:
    """A filter in device memory, transformed for a plan; ``memory`` keeps ``address`` valid.

    Of an empty problem it is nothing, without a plan.
    """

    plan: Plan | None
    dtype: str
    index: int
    aligned: bool  # as the plan takes the arrays to be
    memory: Any
    address: int
    number: int = field(default_factory=count().__next__)  # no other's, ever


@dataclass(frozen=True)
class Call:
    """A prepared convolution. ``copies`` says which operands are copied to be read."""

    library: Library
    index: int
    plan: Plan | None  # None: the result has no elements, or is zero
    first: bool  # axes are channels-first
    copies: tuple[bool, bool]
    shape: tuple[int, ...]  # of the result, channels last
    dtype: str  # that the kernel writes
    detour: bool  # the result is copied to where, or how, it is wanted
    out_first: bool  # a new result lies channels-first
    out_dtype: str
    workspace: int
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
        if True in self.copies:
            first, second = self.copies
            a, b = self._copied(a) if first else a, self._copied(b) if second else b
            read = self._read(a, b)
        target = out
        if out is None or self.detour:
            target = library.empty(self.shape, self.dtype, index)
        if self.recording:
            memory, address = library.memory(self.workspace, index) if self.workspace else (None, 0)
            launch.make_current(index)
            stream = library.stream(index)
            self.recording.replay(stream, *read, library.address(target), address)
            if self.workspace or self.detour or True in self.copies:
                first, second = self.copies
                library.used(stream, memory, first and a, second and b, self.detour and target)
            if target is out:
                library.written(out)
            if self.flags:
                verify(launch.integers(address, self.flags, stream))
            del memory  # its allocator hands it out again in the order of the stream
        else:
            target[...] = 0
        if self.narrowed:
            check_float16(library.largest(target))
        if target is out:
            return out
        if self.first:
            target = library.channels_first(target)
        return self._moved(target, out) if self.detour else target

    def _read(self, a: Any, b: Any) -> tuple[int, int]:
        """The operands' addresses."""
        address = self.library.address
        return address(a), b.address if isinstance(b, Transformed) else address(b)

    def _copied(self, operand: Any) -> Any:
        library = self.library
        return library.contiguous(library.channels_last(operand) if self.first else operand)

    def _moved(self, target: Any, out: Any) -> Any:
        library = self.library
        if out is None:
            shape = tuple(target.shape) if self.out_first else self.shape
            out = library.empty(shape, self.out_dtype, self.index)
            if self.first and not self.out_first:
                out = library.channels_first(out)
        library.copy(out, target)
        return out


def prepare_call(
    direction: str,
    problem: Problem,
    library: Library,
    wishes: Wishes,
    a: Described,
    b: Described | Transformed,
    out: Described | None,
) -> Call:
    """Plan, load and record, for arrays that lie like these. Errors: winolab.conv_forward's."""
    transformed = b if isinstance(b, Transformed) else None
    names = NAMES[direction]
    arguments = (*names[:2], "out")  # as the caller names them
    given = {name: array for name, array in zip(arguments, (a, b, out), strict=True) if array}
    places = _places(given, dict(zip(arguments, shapes(direction, problem), strict=True)), wishes)
    dtype = common_dtype(names, a.dtype, b.dtype)
    precision = precision_of(wishes.precision, names[0], dtype)
    wanted = result_dtype(direction, dtype, wishes.out_dtype, out)
    # dw that shall not overflow unnoticed is seen in float32 first
    gradient = direction == "backward_filter"
    narrowed = gradient and wanted == "float16" and wishes.on_range == "raise"
    computed = "float32" if narrowed else wanted
    size, out_size = ITEMSIZE[dtype], ITEMSIZE[computed]

    place_a, place_b = places[names[0]], places.get(names[1])
    strict = transformed is not None and transformed.aligned
    copies_a = not place_a.direct or (strict and not place_a.aligned(size))
    copies_a = copies_a or (gradient and not place_a.steps_fit)
    if copies_a:
        place_a = Place.fresh(place_a.shape)
    copies_b = False
    if place_b:
        copies_b = not (place_b.direct and place_b.steps_fit if gradient else place_b.forward)
        if copies_b:
            place_b = Place.fresh(place_b.shape)

    empty = problem.empty
    fresh = Place.fresh(shapes(direction, problem)[2])
    place_out = places.get("out", fresh)
    out_first = out is None and wishes.layout == "channels_first" and is_contiguous(a)
    plain = place_out.direct and place_out.distinct
    detour = out_first or not plain or (strict and not place_out.aligned(out_size))

    def choose(target: Place) -> Plan | None:
        if transformed or empty:
            return transformed and scaled(transformed.plan, wishes.scale)
        aligned = place_a.aligned(size) and target.aligned(out_size)
        if place_b and gradient:
            aligned = aligned and place_b.aligned(size)
        return planned(problem, direction, a.index, wishes, precision, computed, aligned)

    chosen = choose(fresh if detour else place_out)
    written = getattr(chosen, "out_dtype", dtype)
    if transformed and chosen and written not in ("float32", wanted):
        raise ValueError(
            f"the prepared filter's kernel writes {written}, which does not hold what {wanted} "
            "does: prepare it with out_dtype float32"
        )
    if written != wanted and not detour:
        detour = True
        chosen = choose(fresh)
    if detour:
        place_out = fresh

    if place_b and getattr(chosen, "reads_filters_in_place", False) and not copies_b:
        copies_b = not (place_b.direct and place_b.aligned(size))
        if copies_b:
            place_b = Place.fresh(place_b.shape)

    recording, overlap, workspace, flags = None, None, 0, 0
    if wishes.on_range == "raise" and isinstance(chosen, GuardedPlan):
        chosen, flags = chosen.split, chosen.flags * (not empty)
    if chosen and not empty:
        filters = [name in ("w", "dw") for name in names]
        view_a = place_a.view(address_of(A), filter=filters[0])
        view_b = place_b.view(address_of(B), filter=filters[1]) if place_b else None
        view_out = place_out.view(address_of(OUT), filter=filters[2])
        workspace = chosen.workspace
        if transformed:
            workspace = beside_filter(chosen)
            limit = wishes.workspace_limit
            if limit is not None and workspace > limit:
                raise ValueError(
                    f"the prepared filter's kernel takes a workspace of {workspace} B, and the "
                    f"limit is {limit} B: raise it, or prepare the filter with it"
                )

        def record(kernels: Kernels) -> None:
            end = (address_of(WORKSPACE), a.index)
            if view_b:
                chosen.launch(kernels, view_a, view_b, view_out, *end)
            else:
                cast(Any, chosen).run(kernels, view_a, address_of(B), view_out, *end)

        recording = Recording(load(chosen, a.index), record, GRAPHS)
        if out and not detour:
            read = {A: not copies_a and place_a, B: not copies_b and place_b}
            overlap = Overlap({n: p for n, p in read.items() if p}, size, place_out, out_size)
    anew = wishes._replace(out_dtype=wanted)
    lies = replace(b, memory=None) if isinstance(b, Transformed) else b  # not kept alive by a call
    return Call(
        library,
        a.index,
        chosen,
        wishes.layout == "channels_first",
        (copies_a, copies_b),
        fresh.shape,
        written,
        detour,
        out_first,
        wanted,
        workspace,
        recording,
        flags,
        narrowed and not empty,
        overlap,
        cache(partial(prepare_call, direction, problem, library, anew, a, lies, None)),
    )


def planned(
    problem: Problem,
    direction: str,
    index: int,
    wishes: Wishes,
    precision: str,
    out_dtype: str,
    aligned: bool,
    prepared: bool = False,
) -> Plan:
    """The plan for device ``index``; arguments and errors are those of ``plan``."""
    request = Request(
        problem,
        direction,
        launch.device(index),
        wishes.named,
        precision,
        aligned=aligned,
        variant=wishes.variant,
        workspace_limit=wishes.workspace_limit,
        out_dtype=out_dtype,
    )
    return scaled(plan(request, prepared), wishes.scale)


def prepared(chosen: Plan | None) -> int:
    """Bytes of the plan's transformed filter, at the beginning of its workspace; 0 without one."""
    return getattr(chosen, "prepared", 0)


def load(chosen: Plan, index: int) -> Mapping[str, launch.Kernel]:
    """The plan's kernels; plan, source and resources are dumped where WINOLAB_DUMP says so."""
    p, title = chosen.problem, f"{chosen.kernel} {chosen.precision} {chosen.variant}"
    of = f"{chosen.direction} x{p.x_shape} w{p.w_shape} padding {p.padding}"
    name = re.sub(r"\W+", "-", f"{of} {title}")
    dump(f"{name}.plan", f"{chosen}\n")
    return launch.load(chosen.source(), title, chosen.shared(), index)


def _places(
    given: dict[str, Any], expected: dict[str, tuple[int, ...]], wishes: Wishes
) -> dict[str, Place]:
    """Where the arrays lie. Raises ValueError for other shapes and for different devices."""
    check_layout(wishes.layout)
    first = next(iter(given))
    index = given[first].index
    places = {}
    for name, array in given.items():
        if array.index != index:
            raise ValueError(
                f"{first} is on CUDA device {index} and {name} on {array.index}; move one of them"
            )
        if isinstance(array, Transformed):
            continue
        place = places[name] = Place.of(array, wishes.layout)
        if place.shape != expected[name]:
            raise ValueError(
                f"{name} has shape {place.shape} with channels last; expected {expected[name]}"
            )
    return places
