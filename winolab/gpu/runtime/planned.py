"""A call's plan, and the copies that its launches begin and end with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from winolab.gpu.params import MAX_STRIDE, Finish, aligned
from winolab.gpu.planner.recast import images as cut
from winolab.gpu.planner.request import ITEMSIZE, Plan, Request
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.cache.plans import planned
from winolab.gpu.runtime.layout_copy import LayoutCopy
from winolab.gpu.runtime.replay import address_of
from winolab.gpu.runtime.resolve import Operand, Resolved, aligned_for
from winolab.options import ConvOptions

A, B, OUT, WORKSPACE, BIAS, RESIDUAL = range(6)  # numbers of the recorded addresses


@dataclass(frozen=True)
class Argument:
    """A caller's array, by its number: where it lies, where kernels read it, bytes an element."""

    number: int
    given: ArrayLayout
    read: ArrayLayout
    itemsize: int


@dataclass(frozen=True)
class Copied:
    """A caller's array, by its number, and its copy in the workspace from byte ``place`` on; None
    of a result that an epilogue changes where it lies."""

    number: int
    place: int | None
    copy: LayoutCopy

    @property
    def end(self) -> int:
        """Bytes of workspace up to its end."""
        return 0 if self.place is None else self.place + self.copy.bytes


@dataclass(frozen=True)
class PlannedCall:
    """A plan, and how its operands and its result come to lie as it takes them."""

    plan: Plan | None  # None: nothing is to be summed
    written: str  # the dtype that its kernels write
    a: Operand
    b: Operand | None
    out: ArrayLayout  # where its kernels write
    workspace: int  # bytes, of the plan
    flags: int  # as Call's
    copies: dict[str, Copied]  # as Call's, in the order of their launches
    fused: bool  # whether the plan's kernels apply the epilogue
    after: LayoutCopy | None  # of the result: what applies it behind all else

    @classmethod
    def of(cls, asked: Resolved) -> PlannedCall:
        """The plan for what was asked. Raises ValueError where there is none, or none within the
        limit or that holds the result."""
        problem, options, transformed = asked.problem, asked.options, asked.transformed
        out_size, fresh = ITEMSIZE[asked.computed], asked.fresh
        wanted = asked.wanted
        fits = wanted.direct and wanted.distinct and asked.taken(wanted)
        out = wanted if fits else fresh
        chosen = plan_for(asked, out)
        if chosen and (in_planes := _by_planes(asked, chosen, out)):
            return cls.of(in_planes)
        written = chosen.out_dtype if chosen else asked.dtype
        if transformed and chosen and written not in ("float32", asked.out_dtype):
            raise ValueError(
                f"the prepared filter's kernel writes {written}, which does not hold what "
                f"{asked.out_dtype} does: prepare it with out_dtype float32"
            )
        rows = chosen is not None and chosen.regular_rows
        far = chosen is not None and not _near(out, chosen.neighbours)
        merges = chosen is not None and chosen.merges_pixels
        apart = merges and asked.direction != "forward" and not out.side_by_side
        if merges and asked.gradient:  # no request says where rows of dw begin
            apart = apart or out.aligned_rows(out_size) != fresh.aligned_rows(out_size)
        irregular = far or apart or (rows and not out.regular)
        if out is not fresh and (written != asked.out_dtype or irregular):
            out = fresh
            chosen = plan_for(asked, out)
        a, b = asked.a, asked.b
        if b and not b.copied and chosen and chosen.reads_filters_in_place:
            b = Operand.of(b.layout, b.layout.direct and b.layout.aligned(ITEMSIZE[asked.dtype]))
        if chosen and chosen.regular_rows:
            a, b = _regular(a), b and _regular(b)
        if chosen and chosen.merges_pixels:
            a = a if asked.direction == "backward_data" else _side_by_side(a)
            b = b if not b or asked.gradient else _side_by_side(b)
        if chosen and not _near(a.layout, chosen.neighbours):
            a = Operand.of(a.given, False)
        if chosen and b and asked.gradient and not _near(b.layout, chosen.neighbours):
            b = Operand.of(b.given, False)
        if step := chosen.plane_step if chosen else 0:
            a = _as_planes(a, step, ITEMSIZE[asked.dtype])
            b = _as_planes(b, step, ITEMSIZE[asked.dtype]) if b and asked.gradient else b
            if out is fresh and written == asked.out_dtype and not asked.gradient:
                out = wanted.planes(step, out_size) or out
        flags = 0
        if options.on_range == "raise" and chosen and chosen.flags:
            chosen, flags = chosen.primary, chosen.flags * (not problem.empty)
        elif options.on_range == "raise" and transformed and chosen and chosen.checks_accuracy:
            raise ValueError(
                f"the prepared filter's kernel, {chosen.kernel}, computes again what products lose "
                "and cannot say so: give the filter itself, or on_range='fallback'"
            )
        workspace = 0
        if chosen and not problem.empty:
            workspace = chosen.beside if transformed else chosen.workspace
            limit = options.workspace_limit
            if transformed and limit is not None and workspace > limit:
                raise ValueError(
                    f"the prepared filter's kernel takes a workspace of {workspace} B, and the "
                    f"limit is {limit} B: raise it, or prepare the filter with it"
                )
        made = chosen is not None and not problem.empty and written == asked.out_dtype
        size, out_size, finishing = ITEMSIZE[asked.dtype], ITEMSIZE[written], asked.finishing
        arrays = {"a": Argument(A, a.given, a.layout, size)}
        if b:
            arrays["b"] = Argument(B, b.given, b.layout, size)
        fused = None
        if chosen and made and finishing:
            given = residual = asked.residual
            fits = True
            if given and residual:
                fits = residual.lies_as(wanted, out_size)
                if not fits and wanted.dense:  # copied to where y lies
                    fits, residual = True, replace(wanted, address_aligned=True)
                arrays["residual"] = Argument(RESIDUAL, given, residual, out_size)
            fused = chosen.with_epilogue(finishing.epilogue) if fits and out == wanted else None
            if fused and asked.bias:
                bias = ArrayLayout.fresh(asked.bias.shape)
                arrays["bias"] = Argument(BIAS, asked.bias, bias, out_size)
            chosen = fused or chosen
            finishing = None if fused else replace(finishing, residual=residual)
        copies: dict[str, Copied] = {}
        place = aligned(workspace)
        for name, each in arrays.items():
            if chosen and not problem.empty and each.given != each.read:
                copy = LayoutCopy.of(each.given, each.read, each.itemsize)
                copies[name] = Copied(each.number, place, copy)
                place = aligned(copies[name].end)
        if made and (finishing or out != wanted):
            copy = LayoutCopy.of(out, wanted, out_size, finishing)
            copies["out"] = Copied(OUT, None if out == wanted else place, copy)
        after = None
        if finishing and not made and 0 not in wanted.shape:
            after = LayoutCopy.of(wanted, wanted, ITEMSIZE[asked.out_dtype], finishing)
        return cls(chosen, written, a, b, out, workspace, flags, copies, bool(fused), after)

    @property
    def end(self) -> int:
        """Bytes of workspace, copies included."""
        return max([self.workspace, *(each.end for each in self.copies.values())])

    def address(self, name: str, number: int) -> int:
        """What stands for an array's address while its kernels' launches are recorded."""
        copied = self.copies.get(name)
        if copied is None or copied.place is None:
            return address_of(number)
        return address_of(WORKSPACE) + copied.place

    def finish(self, asked: Resolved) -> Finish | None:
        """What the plan's kernels are told of the epilogue, while launches are recorded."""
        if not self.fused or not asked.finishing:
            return None
        bias = self.address("bias", BIAS) if asked.bias else 0
        residual = self.address("residual", RESIDUAL) if asked.residual else 0
        return Finish(bias, residual, asked.finishing.slope)


def _by_planes(asked: Resolved, chosen: Plan, out: ArrayLayout) -> Resolved | None:
    """The same asked of the plan that works on planes, where x and y are such and the chosen one
    takes longer with the copies that it needs; None of others."""
    operands = [asked.a, asked.b] if asked.gradient and asked.b else [asked.a]
    maps = [(each.layout, each.given, asked.dtype) for each in operands]
    if not asked.gradient:
        maps.append((out, asked.wanted, asked.computed))
    given = [replace(lies, order="nchw") for _, lies, _ in maps]
    copied = [prod(v.shape) * ITEMSIZE[dtype] for here, v, dtype in maps if here != v]
    lie = all(v.direct and (v.steps_fit or not asked.gradient) for v in given)
    fits = asked.gradient or (given[-1].distinct and chosen.out_dtype == asked.out_dtype)
    if not (copied and lie and fits) or asked.options.config or not (plan := chosen.in_planes):
        return None
    from winolab.gpu.planner.memory_order import takes_less  # which few calls need

    limit = asked.options.workspace_limit
    over = limit is not None and plan.workspace > limit
    if over or not takes_less(plan, chosen, copied):
        return None
    places = [Operand(v, each.given) for v, each in zip(given, operands, strict=False)]
    found = replace(asked, order="nchw", options=replace(asked.options, config=plan.config))
    return replace(found, a=places[0], b=places[1] if asked.gradient else asked.b)


def _regular(operand: Operand) -> Operand:
    """The operand read in place only where its rows lie at one distance."""
    return operand if operand.copied else Operand.of(operand.given, operand.layout.regular)


def _side_by_side(operand: Operand) -> Operand:
    """The operand read in place only where the pixels of its rows lie side by side."""
    return operand if operand.layout.side_by_side else Operand.of(operand.given, False)


def _near(lies: ArrayLayout, along: int) -> bool:
    """Whether pixels along that dimension are no farther from each other than kernels take."""
    return lies.strides[along - 1] <= MAX_STRIDE


def _as_planes(operand: Operand, step: int, itemsize: int) -> Operand:
    """The operand read in place where it would be copied and is planes at such steps."""
    planes = operand.given.planes(step, itemsize) if operand.copied else None
    return Operand(planes, operand.given) if planes else operand


def plan_for(asked: Resolved, out: ArrayLayout, apart: bool = False) -> Plan | None:
    """The plan whose kernels write to ``out``; None where there is nothing to sum. ``apart``: one
    whose filter is transformed apart."""
    transformed, options = asked.transformed, asked.options
    if transformed:
        return transformed.plan and transformed.plan.scaled(options.scale)
    if asked.problem.empty:
        _check_empty(asked)
        return None
    request = _request_of_arrays(asked, out)
    chosen = planned(request, apart)
    if not apart:
        chosen = _product_of_planes(request, chosen, asked, out)
    return chosen.scaled(options.scale)


def _request_of_arrays(asked: Resolved, out: ArrayLayout) -> Request:
    """What the planner is asked for arrays that lie as those do, and a result like ``out``."""
    size = ITEMSIZE[asked.dtype]
    aligned = maps = asked.a.layout.aligned(size)
    if asked.b and asked.gradient:
        aligned = maps = maps and asked.b.layout.aligned(size)
    if not out.aligned(ITEMSIZE[asked.computed]):
        aligned, maps = False, maps and asked.gradient
    finished = asked.finishing is not None and out == asked.wanted  # else by the pass that copies y
    return request_of(
        asked, aligned=aligned, aligned_maps=maps, aligned_outputs=_outputs(asked, out),
        aligned_rows=_rows(asked, out), finished=finished,
    )  # fmt: skip


def images_at_once(asked: Resolved) -> tuple[int, ConvOptions]:
    """How many images of a correlation a call may compute for each to have the bits that it has in
    every batch, and how; 0: each is a call of its own, by the usual plan."""
    options = replace(asked.options, batch_invariant=False)
    if asked.problem.empty:
        return asked.problem.batch, options
    if options.in_pieces:
        return 0, options
    images, how = cut.images_at_once(_request_of_arrays(asked, asked.fresh), planned)
    if images:
        named = {"algorithm": how.algorithm, "precision": how.precision, "config": how.config}
        options = replace(options, **named, tolerance=None)
    return images, options


def _outputs(asked: Resolved, out: ArrayLayout) -> bool:
    """Whether y or dy allows vector loads."""
    if asked.direction == "forward":
        return out.aligned(ITEMSIZE[asked.computed])
    dy = asked.b if asked.gradient and asked.b else asked.a
    return dy.layout.aligned(ITEMSIZE[asked.dtype])


def _rows(asked: Resolved, out: ArrayLayout) -> bool:
    """Whether rows of x or dx without gaps begin at vectors."""
    if asked.direction == "backward_data":
        return out.aligned_rows(ITEMSIZE[asked.computed])
    return asked.a.layout.aligned_rows(ITEMSIZE[asked.dtype])


def taken_aligned(asked: Resolved, chosen: Plan) -> tuple[bool, bool]:
    """Whether the plan of a filter apart takes a and the result to be aligned, as new ones are."""
    a, out = asked.a.layout, asked.fresh
    return (
        aligned_for(chosen, a, ITEMSIZE[asked.dtype], result=False),
        aligned_for(chosen, out, ITEMSIZE[asked.computed], result=True),
    )


def _product_of_planes(request: Request, chosen: Plan, asked: Resolved, out: ArrayLayout) -> Plan:
    """The plan, or cuBLASLt's for maps that it has copied and that lie channels-first."""
    maps = [asked.a, asked.b] if asked.gradient else [asked.a]
    copied = [(each.given, request.dtype) for each in maps if each and each.copied]
    if out != asked.wanted and not asked.gradient:
        copied.append((asked.wanted, asked.computed))
    if not copied or {*request.problem.filter} != {1}:
        return chosen
    from winolab.gpu.planner.memory_order import product_of_planes  # which few calls need

    def sizes(step: int) -> Iterator[int]:
        for lies, dtype in copied:
            if lies.planes(step, ITEMSIZE[dtype]):
                yield prod(lies.shape) * ITEMSIZE[dtype]

    return product_of_planes(request, chosen, planned, sizes)


def _check_empty(asked: Resolved) -> None:
    """Raise ValueError for what is refused of problems that have elements."""
    problem = replace(asked.problem.without_images, batch=1)
    if asked.options.algorithm or asked.options.config:
        options = replace(asked.options, workspace_limit=None)
        planned(request_of(replace(asked, problem=problem, options=options), aligned=True))
    else:
        Request(asked.problem, asked.direction, asked.device, precision=asked.precision).check()


def request_of(
    asked: Resolved,
    *,
    aligned: bool,
    aligned_maps: bool | None = None,
    aligned_outputs: bool | None = None,
    aligned_rows: bool | None = None,
    finished: bool = False,
) -> Request:
    """What the planner is asked; the other arguments are Request's."""
    options = asked.options
    return Request(
        asked.problem,
        asked.direction,
        asked.device,
        options.named,
        asked.precision,
        aligned=aligned,
        aligned_maps=aligned_maps,
        aligned_outputs=aligned_outputs,
        aligned_rows=aligned_rows,
        config=options.config,
        workspace_limit=options.workspace_limit,
        out_dtype=asked.computed,
        tolerance=options.tolerance,
        finished=finished,
        in_phases=options.on_range != "raise",  # else flags would be several
    )
