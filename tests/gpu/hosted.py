"""CUDA sources compiled for the CPU and launched there: see host/engine.hpp."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from tests.gpu.every_kernel.views import Place
from tests.gpu.support.host_compiler import COUNT, OUTER_PRODUCTS, HostError, build
from winolab.gpu.codegen.emit import kernel
from winolab.gpu.codegen.translation_unit import kernels_by_unit
from winolab.gpu.params import Finish, Params, View
from winolab.gpu.planner.correlation import three
from winolab.gpu.runtime.array_layout import ArrayLayout
from winolab.gpu.runtime.cache.source import Source
from winolab.problem import shapes

# Files of codegen/kernels/ with inline PTX, for which host/ has C++.
REPLACED = (
    *("pipeline", "mma", "mma_tf32", "pairs", "tensor_map", "im2col_map", "cluster_copy"),
    "multicast",
)
MESSAGE = 2048
SPACES = r"(?ms)^namespace (\w+) \{$.*?^\}  // namespace \1$"


@lru_cache(maxsize=64)
def translate(source: str) -> str:
    """``source`` as C++: kernels of inline PTX replaced, shared memory found at run time."""
    for name in REPLACED:
        source = source.replace(kernel(name), "")
    elsewhere = OUTER_PRODUCTS.replace("template", "extern template")
    source = source.replace(kernel("ffma"), f"{kernel('ffma')}{elsewhere}\n")
    # Each pattern begins with what to look for: one that begins with ^ or \b tries every character.
    source = re.sub(r"#include <cuda.*", "", source)
    source = re.sub(r"asm volatile\(\"fence.mbarrier_init[^;]*;[^;]*;", "", source)
    # Unrolling is for registers; here it would only make the compiler slower.
    source = re.sub(r"#pragma unroll.*", "", source)
    source = re.sub(
        r"extern\s+__shared__\s+(?:__align__\(\w+\)\s*)?([\w ]+?)\s+(\w+)\[\];",
        r"\1* const \2 = reinterpret_cast<\1*>(host::now->block->shared());",
        source,
    )
    source = re.sub(
        r"__shared__\s+(?:__align__\(\w+\)\s*)?([\w ]+?)\s+(\w+)((?:\[[^\]]+\])*);",
        r"using shared_\2 = \1\3; shared_\2& \2 = host::static_shared<shared_\2>(__COUNTER__);",
        source,
    )
    # of several namespaces', none
    struct, fields = ("", []) if re.search(SPACES, source) else shared_members(source)
    members = ", ".join(
        f'{{"{n}", offsetof({struct}, {n}), sizeof({struct}::{n})}}' for n in fields
    )
    entries, table = [], []
    for name, cluster, threads, space in _kernels(source):
        described = f'"{name}", enter_{name}, {{{cluster}}}, {threads}, host_members, {len(fields)}'
        entries += [
            f"namespace {space} {{" if space else "",
            f"static void enter_{name}(void** a) {{ host::call({name}, a); }}",
            f"static const host::Kernel kernel_{name} = {{{described}}};",
            "}" if space else "",
        ]
        table.append(f"{space}::kernel_{name}")
    return "\n".join(
        [
            '#include "kernel.hpp"',
            '#line 1 "kernel"',
            source,
            f"static const host::Member host_members[] = {{{members or '{}'}}};",
            *entries,
            "const host::Kernel host_kernels[] = {" + ", ".join(table) + "};",
        ]
    )


def shared_members(source: str) -> tuple[str, list[str]]:
    """The struct of a kernel's shared memory, where there is one, and the names of its fields."""
    found = re.search(r"struct (\w*Shared) \{(.*?)\n\s*\};", source, re.DOTALL)
    text = re.sub(r"//.*", "", found.group(2)) if found else ""
    names = []
    for statement in text.split(";"):
        declared = re.sub(r"\[[^\]]*\]", "", re.sub(r"alignas\([^)]*\)", "", statement))
        names += [part.split()[-1] for part in declared.split(",") if part.split()]
    return found.group(1) if found else "", names


@lru_cache(maxsize=64)
def _kernels(source: str) -> list[tuple[str, str, str, str]]:
    """Name, cluster and most threads of every kernel, as expressions of the source, and the
    namespace that it is in, or "".
    """
    found = []
    spaces = [(match.span(), match.group(1)) for match in re.finditer(SPACES, source)]
    for match in re.finditer(
        r"__global__\b(.*?)\b(?!__)(\w+)\s*\(\s*(?:const|[\w ]+\**)", source, re.DOTALL
    ):
        attributes, name = match.groups()
        if ";" in attributes:
            continue
        cluster = _argument("__cluster_dims__", attributes) or "1"
        threads = (_argument("__launch_bounds__", attributes) or "1024").split(",")[0]
        at = match.start()
        space = next((name for (first, last), name in spaces if first <= at < last), "")
        found.append((name, cluster, threads, space))
    return found


def _argument(name: str, text: str) -> str | None:
    match = re.search(name + r"\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text)
    return match and match.group(1)


@dataclass(frozen=True)
class Kernel:
    """A kernel on the CPU that is called as one that ``winolab.gpu.driver`` loaded."""

    library: ctypes.CDLL
    index: int
    name: str
    shared: int  # bytes
    seed: int  # other than 0: threads run in another order

    def __call__(
        self, grid: Sequence[int], threads: int, params: Params, early: bool = False
    ) -> None:
        """Raises HostError with what went wrong."""
        values = params.buffer()
        message = ctypes.create_string_buffer(MESSAGE)
        failed = self.library.host_launch(
            self.index,
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(threads, 1, 1),
            ctypes.c_size_t(self.shared),
            (ctypes.c_void_p * 1)(ctypes.addressof(values)),
            ctypes.c_uint64(self.seed),
            message,
            ctypes.c_size_t(MESSAGE),
        )
        if failed:
            raise HostError(f"{self.name}: {message.value.decode(errors='replace')}")


def load(
    source: str | Source,
    shared: Mapping[str, int],
    seed: int = 0,
    flags: tuple[str, ...] = (),
) -> dict[str, Kernel]:
    """The kernels of a CUDA source by name, as ``winolab.gpu.runtime.loader.load`` has them."""
    source = Source.of(source).printed()
    library = ctypes.CDLL(str(build(translate(source), flags)))
    indices = {name: index for index, (name, *_) in enumerate(_kernels(source))}
    return {n: Kernel(library, indices[n], n, size, seed) for n, size in shared.items()}


@dataclass(frozen=True)
class Requests:
    """What a kernel's warp asks of one array of its shared memory: see host/count.hpp."""

    member: str  # "static" for what is in no struct
    warp: int
    write: bool
    bytes: int  # of a lane
    requests: int
    phases: int
    wavefronts: int  # phases, where there is no conflict


def requests(plan: Any, a: np.ndarray, b: np.ndarray) -> dict[str, list[Requests]]:
    """Shared-memory requests of a plan's kernels, by kernel, summed over blocks."""
    kernels, found = counting(plan)
    execute(plan, a, b, kernels=kernels)
    return found


def counting(plan: Any) -> tuple[dict[str, Any], dict[str, list[Requests]]]:
    """A plan's kernels, and what they ask of shared memory once they have run, by kernel."""
    names = [*shared_members(plan.source())[1], "static"]
    found: dict[str, list[Requests]] = {}

    def counted(kernel: Kernel):
        def call(*arguments: Any) -> None:
            kernel(*arguments)
            raw = np.zeros((4096, 5), "int64")
            count = kernel.library.host_requests(ctypes.c_void_p(raw.ctypes.data), len(raw))
            found[kernel.name] = [
                Requests(names[m], int(w), bool(write), int(size), *map(int, rest))
                for (m, w, write, size), rest in zip(
                    raw[:count, :2].copy().view("int32"), raw[:count, 2:], strict=True
                )
            ]

        return call

    kernels = load(plan.source(), plan.shared(), flags=COUNT)
    return {name: counted(kernel) for name, kernel in kernels.items()}, found


def loaded(plan: Any, seed: int = 0) -> dict[str, Any]:
    """A plan's kernels, of all its translation units."""
    return {
        name: kernel
        for unit, shared in kernels_by_unit(plan)
        for name, kernel in load(unit.source(), shared, seed).items()
    }


def execute(
    plan: Any,
    a: np.ndarray,
    b: np.ndarray,
    *,
    seed: int = 0,
    dtype: str = "float32",
    kernels: Any = None,
    left: np.ndarray | None = None,
    places: Sequence[Place] = (),
    epilogue: Sequence[np.ndarray] = (),
    apart: bool = False,
) -> np.ndarray:
    """The result of a plan's kernels for channels-last arrays, a workspace and output of NaN;
    ``apart``: of a filter that is made ready beforehand.

    Arrays lie in ``places``, or without gaps, and maps as the plan's config takes them to, channels
    last or first. Every array lies between zones of NaN; HostError where one of them or an operand
    was written to. ``left`` receives the bytes that the workspace begins with in the end;
    ``epilogue`` has the bias and the residual of a plan that adds both.
    """
    shape = shapes(plan.direction, plan.problem)[2]
    filter_at = 2 if plan.direction == "backward_filter" else 1
    orders = ["nhwc" if i == filter_at else plan.config.memory_order for i in range(3)]
    every = zip((a.shape, b.shape, shape), orders, strict=True)
    places = places or [(ArrayLayout.fresh(s, order), 0) for s, order in every]
    guarded_a, guarded_b = (Guarded.of(v, at) for v, at in zip((a, b), places, strict=False))
    out = Guarded(shape, dtype, places[2])
    workspace = Guarded((plan.beside if apart else plan.workspace,), "uint8")
    kernels = kernels or loaded(plan, seed)
    held = {"a": guarded_a, "b": guarded_b, "out": out, "w": workspace}
    views = [g.view(filter=i == filter_at) for i, g in enumerate((guarded_a, guarded_b, out))]
    if epilogue:
        bias, residual = Guarded.of(epilogue[0]), Guarded.of(epilogue[1], places[2])
        held |= {"bias": bias, "residual": residual}
        bias_at, residual_at = (g.array.ctypes.data for g in (bias, residual))
        views[2] = replace(views[2], finish=Finish(bias_at, residual_at, 0.0))
    place = workspace.array.ctypes.data
    if apart:
        held["filter"] = Guarded((plan.prepared_size,), "uint8")
        ready = held["filter"].array.ctypes.data
        plan.prepare(kernels, views[1], ready, 0)
        plan.run(kernels, views[0], ready, views[2], place, 0)
    else:
        plan.launch(kernels, *views, place, 0)
    for name, guarded in held.items():
        guarded.check(name)
    if left is not None:
        left[...] = workspace.array[: left.size]
    return out.array


def pixels_view(x: Any) -> View:
    """An array of pixels, channels last, as plans take it: NumPy's, or on a GPU CuPy's."""
    return View(_address(x), _strides(x, 4))


def filter_view(w: Any) -> View:
    """A filter, as plans take it."""
    return View(_address(w), _strides(w, 5))


def _address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def prepared(plan: Any, w: np.ndarray, kernels: Any = None) -> np.ndarray:
    """What a plan makes of a filter alone, as words, from memory of NaN between zones of NaN."""
    words = Guarded((plan.prepared_size // 4,), "uint32")
    plan.prepare(kernels or loaded(plan), filter_view(w), words.array.ctypes.data, 0)
    words.check("the transformed filter")
    return words.array


class Guarded:
    """An array of NaN in memory of NaN, with zones around it; in bytes, all are 255."""

    ZONE = 4096

    def __init__(self, shape: tuple[int, ...], dtype: str, place: Place | None = None) -> None:
        self.place, first = place or (ArrayLayout.fresh(shape), 0)
        size = np.dtype(dtype).itemsize
        self.memory = np.full(max(0, self.place.span) * size + 3 * self.ZONE, 0xFF, "uint8")
        self._first = self.ZONE + -(self.memory.ctypes.data + self.ZONE) % 256 + first * size
        strides = [stride * size for stride in self.place.strides]
        self.array = np.ndarray(shape, dtype, self.memory, self._first, strides)
        self.given: np.ndarray | None = None  # the memory of an operand

    @classmethod
    def of(cls, array: np.ndarray, place: Place | None = None) -> Guarded:
        """A copy of ``array``."""
        guarded = cls(array.shape, array.dtype.name, place)
        guarded.array[...] = array
        guarded.given = guarded.memory.copy()
        return guarded

    def view(self, *, filter: bool) -> View:
        """The array as plans take it."""
        return self.place.view(self.array.ctypes.data, filter=filter)

    def check(self, name: str) -> None:
        """Raises HostError where anything beside the array was written to, or an operand was."""
        if self.given is not None and not (self.memory == self.given).all():
            raise HostError(f"{name} or what lies around it was written to")
        around = self.memory.copy()
        shape, strides = (*self.array.shape, self.array.itemsize), (*self.array.strides, 1)
        np.ndarray(shape, "uint8", around, self._first, strides)[...] = 0xFF
        if not (around == 0xFF).all():
            raise HostError(f"the zones around {name} were written to")


def _strides(array: np.ndarray, kept: int) -> tuple[int, ...]:
    first, *spatial, last = (s // array.itemsize for s in array.strides)
    return (first, *three(tuple(spatial), 0), last)[:kept]
