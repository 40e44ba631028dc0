"""The compile table, kernels.csv: what every kernel that the planner picks takes, per GPU.

``python -m tests.gpu.kernels`` brings it up to date: it plans every case below, compiles what is
new or changed, and writes registers, spills, stack and shared memory as the assembler reports them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path

import typer

from tests.gpu.support.picked import of_gamma
from winolab.algorithm import parse_algorithm
from winolab.bench.layers import SQUARES, parse_layer
from winolab.device import datasheet
from winolab.gpu.codegen.emit import fingerprint
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.fallback import CorrelationWithFallback, PlanWithFallback
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Plan, Request
from winolab.gpu.runtime import nvrtc

TABLE = Path(__file__).with_name("kernels.csv")
COMMAND = "python -m tests.gpu.kernels"
HOPPER, EARLIER = "h100", ("a100", "rtx3090", "rtx4090")  # sm_90a; sm_80, sm_86, sm_89
PAPERS = ("dragon", "resnet", "odd", "table3")  # of SQUARES
OTHERS = (
    *("128x64x64x96:96x3x3", "32x85x85x96:96x7x7"),  # with fewer filters in the last block
    "32x51x51x160:160x7x7",  # ten states, rows filled up by a tile
    "32x85x85x96:96x9x9",  # ten states of five taps
    *("128x13x13x384:384x4x4", "64x18x18x448:448x5x5"),  # a packed batch
)
TWO_LEVEL = {  # sums of 32 products, by kernels that spilled on 8.0 in stages of eight channels
    "128x28x28x256:256x2x2": "gamma:8:7:2",
    "128x24x24x256:256x3x3": "gamma:8:6:3",
    "64x24x24x256:256x6x6": "gamma:8:3:6",
}
# Fused Ω in 16 bits, nobody's pick: by the paper's tiles.
FUSED = (
    *(("32x56x56x128:128x3x3", "omega:4:3:2", p) for p in ("fp16", "bf16")),
    *(("32x56x56x128:128x3x3", "omega:8:3:6", p) for p in ("fp16", "bf16")),
    ("32x56x56x128:128x5x5", "omega:8:5:4", "fp16"),
    *(("32x56x56x128:128x7x7", k, "fp16") for k in ("omega:8:7:2", "omega:16:7:10")),
    *(("32x56x56x128:128x9x9", "omega:16:9:8", p) for p in ("fp16", "bf16")),
)
# Γ with moduli beyond points, nobody's pick: a tile has more states than inputs.
MODULI = (
    ("32x56x56x128:128x3x3", "gamma:9:6:3@0,3/4,-3/4,4/3,-4/3,inf,x^2+1"),
    ("32x56x56x128:128x3x3", "gamma:12:8:3@0,3/4,-3/4,4/3,-4/3,inf,x^2+6/7*x+1,x^2-6/7*x+1"),
    ("32x56x56x128:128x5x5", "gamma:12:6:5@0,3/4,-3/4,4/3,-4/3,inf,x^2+x+1,x^2-x+1"),
    ("32x56x56x128:128x7x7", "gamma:15:6:7@0,3/4,-3/4,5/4,-5/4,inf,x^2+1,x^2+x+1,x^2-x+1"),
    (
        "32x56x56x128:128x9x9",
        "gamma:19:8:9@0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf,x^2+1,x^2+x+1,x^2-x+1",
    ),
)
# Ω with them.
GRADIENTS = (
    ("32x56x56x128:128x3x3", "omega:9:3:6@0,3/4,-3/4,4/3,-4/3,inf,x^2+1"),
    (
        "32x56x56x128:128x9x9",
        "omega:19:9:8@0,1/2,-1/2,3/4,-3/4,5/4,-5/4,2,-2,inf,x^2+1,x^2+x+1,x^2-x+1",
    ),
)
# Im2col-Winograd's kernels as published, nobody's pick: each policy on.
PUBLISHED = (
    ("128x28x28x256:256x3x3", "gamma:4:2:3;variant=ruse+fused"),
    ("128x24x24x256:256x3x3", "gamma:8:6:3;variant=ruse"),
    ("64x32x32x256:256x5x5", "gamma:8:4:5;variant=ruse+fused"),
    ("32x32x32x256:256x9x9", "gamma:16:8:9;variant=ruse+fused"),
    ("32x32x32x256:256x9x9", "gamma:16:8:9;variant=c64+fused"),
)
# Threads of a block that ask, by setmaxnreg, for as many registers as a constant of that name says.
ROLES = {
    "CONSUMER_REGISTERS": "CONSUMERS",
    "PRODUCER_REGISTERS": "PRODUCERS",
    "LOADER_REGISTERS": "LOADERS",
}
DIRECT = {"CONSUMER_REGISTERS": "128 * GROUPS", "PRODUCER_REGISTERS": "PRODUCERS"}
PRODUCTS = {"CONSUMER_REGISTERS": "128 * GROUPS", "PRODUCER_REGISTERS": "128"}
ASKED = {
    "winolab_fused2d": ROLES,
    "winolab_gamma_ffma": ROLES,
    "winolab_gamma_ffma_fallback": ROLES,
    "winolab_gamma_wgmma": ROLES,
    "winolab_wgrad_ffma": ROLES,
    "winolab_wgrad_mma": ROLES,
    "winolab_wgrad_direct_columns": DIRECT,
    "winolab_wgrad_direct_narrow": DIRECT,
    "winolab_wgrad_direct_split": DIRECT,
    "winolab_wgrad_winograd_products_wgmma": PRODUCTS,
    "winolab_direct_split": {"CONSUMER_REGISTERS": "CONSUMERS", "PRODUCER_REGISTERS": "128"},
    "winolab_direct": {"CONSUMER_REGISTERS": "CONSUMERS", "PRODUCER_REGISTERS": "128"},
    "winolab_implicit_gemm_wgmma": {
        "CONSUMER_REGISTERS": "CONSUMERS",
        "PRODUCER_REGISTERS": "PRODUCERS",
    },
    "winolab_nested_products": {"CONSUMER_REGISTERS": "CONSUMERS", "PRODUCER_REGISTERS": "128"},
}
# Bytes that units still spill, outside their main loops or hardly in them, by names' parts.
SPILLS = {
    "32x32x8 stages=3+2 passes=1 rows=4 share=7": 16,  # 3.5 % faster than what spills nothing
    # Outputs of four channels, each judged by itself: once a work tile, outside the products.
    "Γ8(5,4) fp32_split rows=8 share=4": 188,
    "Γ8(6,3) fp32_split rows=8 share=3 u_ring=2 narrow=32 run=1 images=4": 16,
    # Transforms of 512 threads that have 64 or 128 registers and wait for memory, on mma.sync.
    "Ω9(3,6) fp32_split 128x128x32 stages=3": 8,
    "Ω19(9,8) fp32_split 128x128x32 stages=3": 40,
    "Γ19(8,9) fp32": 116,  # 736 threads leave 80 registers: nobody's pick, and no GPU timed it
    # Where α = 16 is asked for on two maps of 7 × 7: 3 to 8 % slower than what spills nothing.
    "64x32x8 stages=2+2 passes=2 rows=4 share=7 split_k=8 xvec=2 partial=24 load_warp=1": 212,
    "64x32x8 stages=2+2 passes=2 rows=8 share=7 split_k=2 xvec=2 partial=24 load_warp=1": 80,
}


@dataclass(frozen=True)
class Case:
    """A question to the planner; "" leaves the algorithm, or its family, to it."""

    device: str
    direction: str
    layer: str
    precision: str
    algorithm: str = ""
    family: str = ""  # "gamma": where others are faster

    def plan(self) -> Plan:
        """What the planner picks. Raises ValueError where it has no kernel."""
        problem = parse_layer(self.layer).problem
        algorithm = parse_algorithm(self.algorithm) if self.algorithm else None
        aligned = problem.in_channels % 4 == 0 and problem.out_channels % 4 == 0
        device = datasheet(self.device)
        request = Request(
            problem, self.direction, device, algorithm, self.precision, aligned=aligned
        )
        return of_gamma(request) if self.family else plan(request)


@dataclass(frozen=True)
class Row:
    """What one kernel takes: a line of the table. ``unit`` says from which source it comes."""

    compiler: str
    arch: str
    unit: str
    kernel: str
    registers: int
    spills: int  # bytes stored and loaded
    stack: int  # bytes
    shared: int  # bytes of dynamic shared memory
    source: str  # hash
    device: str  # with what follows, a case that picks the unit
    direction: str
    layer: str
    precision: str
    algorithm: str
    family: str

    @property
    def case(self) -> Case:
        """The question whose answer the unit is."""
        return Case(*(getattr(self, field.name) for field in fields(Case)))


@dataclass(frozen=True)
class Unit:
    """A translation unit that some case picks, or one namespace of it."""

    case: Case
    arch: str
    name: str
    source: str
    shared: tuple[tuple[str, int], ...]
    space: str = ""  # the namespace

    @classmethod
    @cache
    def all(cls, case: Case) -> list[Unit]:
        """What the planner picks; split products come with a fallback, and Γ's with what launches
        it. ValueError for nothing.
        """
        picked = case.plan()
        arch = nvrtc.architecture(picked.device.compute_capability)
        repeated = isinstance(picked, PlanWithFallback)
        found: list[Unit] = [
            cls(
                case,
                arch,
                f"{p.kernel} {p.precision} {p.config}",
                p.source(),
                (*p.shared().items(),),
            )
            for p in ((picked.primary, picked.fallback) if repeated else (picked,))
        ]
        if isinstance(picked, CorrelationWithFallback):
            tail = (entry := "winolab_gamma_ffma_fallback", picked.shared()[entry])
            name = f"{found[1].name}, tail"
            found.append(cls(case, arch, name, picked.behind.source(), (tail,), "fallback"))
        return found

    @classmethod
    def of(cls, row: Row) -> Unit:
        """The unit that the row's case picks: of the row's name, where there is one."""
        units = cls.all(row.case)
        return next((unit for unit in units if unit.name == row.unit), units[0])

    @cached_property
    def hash(self) -> str:
        """Digest of the source."""
        return fingerprint(self.source)[:16]

    def compile(self, launched: Mapping[str, int] = {}) -> list[Row]:
        """The unit's rows, from the assembler.

        Raises CompileError, also where warps ask for more registers than ``launched``, registers of
        a thread by kernel, gives a block: they would wait for ever.
        """
        text = self.source.split(f"namespace {self.space} {{")[-1]
        asked = sorted(set(re.findall(r"registers_(?:grow|shrink)<(\w+)>", text)))
        fit = "".join(
            f"\nstatic_assert({' + '.join(f'{ASKED[name][r]} * {r}' for r in asked)} "
            f'<= THREADS * {registers}, "registers of {name}");'
            for name, registers in launched.items()
            if asked and name in ASKED
        )
        fit = f"\nnamespace {self.space} {{{fit}\n}}" if self.space else fit
        resources = nvrtc.compile_cubin(self.source + fit, self.arch).resources
        planned = {name for name, _ in self.shared}
        if not (planned <= set(resources) if self.space else planned == set(resources)):
            raise ValueError(f"{self.name}: {sorted(resources)} compiled, {self.shared} planned")
        return [
            Row(
                compiler(), self.arch, self.name, kernel, resources[kernel].registers,
                resources[kernel].spills, resources[kernel].stack, shared, self.hash,
                **asdict(self.case),
            )
            for kernel, shared in sorted(self.shared)
        ]  # fmt: skip


def allowed(unit: str) -> int:
    """Bytes that a unit of that name may spill."""
    return max((size for part, size in SPILLS.items() if part in unit), default=0)


def compiler() -> str:
    """NVRTC's version, on which the assembler's figures depend."""
    return "NVRTC {}.{}".format(*nvrtc.version())


def cases(device: str) -> Iterator[Case]:
    """The papers' layers: every direction, by the planner's choice and by the papers' kernels."""
    layers = {str(layer): layer for name in PAPERS for layer in SQUARES[name]}
    for text, layer in layers.items():
        for direction in CORRELATIONS:
            yield Case(device, direction, text, "fp32_ffma")
            if algorithm := layer.named(direction):
                yield Case(device, direction, text, "fp32_ffma", str(algorithm))
        yield Case(device, "backward_filter", text, "fp32_ffma")
    for text, name in TWO_LEVEL.items():
        yield Case(device, "forward", text, "fp32_ffma", f"{name};variant=two_level:32")
    for text, name in MODULI if device == HOPPER else ():
        yield Case(device, "forward", text, "fp32_ffma", name)
    for (text, name), precision in product(GRADIENTS, ("fp32_split", "fp16")):
        yield Case(device, "backward_filter", text, precision, name)
    for text, name in GRADIENTS if device == HOPPER else ():
        yield Case(device, "backward_filter", text, "fp32_ffma", name)
    for text, name in PUBLISHED:
        yield Case(device, "forward", text, "fp32_ffma", name)
    split = (*(str(layer) for name in ("dragon", "table3") for layer in SQUARES[name]), *OTHERS)
    for text in split if device == HOPPER else ():  # by wgmma
        yield Case(device, "forward", text, "fp32_split")
        yield Case(device, "forward", text, "fp32_split", family="gamma")
    for layer in SQUARES["dragon"] if device == HOPPER else ():
        yield Case(device, "forward", str(layer), "fp16")
    for text, name, precision in FUSED:
        for variant in ("fused", *(["fused:fp16"] if precision == "fp16" else [])):
            yield Case(device, "backward_filter", text, precision, f"{name};variant={variant}")
    for layer in SQUARES["resnet"]:
        yield Case(device, "forward", str(layer), "fp32_ffma", "direct")
        for direction in (*CORRELATIONS, "backward_filter"):
            for precision in ("fp32_split", "fp16", "bf16"):
                yield Case(device, direction, str(layer), precision)
        for precision in ("fp32_split", "fp16", "bf16"):  # what a larger workspace would pick
            yield Case(device, "backward_filter", str(layer), precision, "omega:9:3:7")


def units(device: str) -> dict[str, Unit]:
    """The translation units that the cases pick on ``device``, by name; earlier GPUs take turns
    with them."""
    found, every = {}, list(cases(device))
    asked = every if device == HOPPER else every[EARLIER.index(device) :: len(EARLIER)]
    for case in asked:
        try:
            picked = Unit.all(case)
        except ValueError:  # no kernel of that precision there
            continue
        for unit in picked:
            found.setdefault(unit.name, unit)
    return found


def read() -> list[Row]:
    """The table."""
    numbers = ("registers", "spills", "stack", "shared")
    with TABLE.open(newline="") as file:
        rows = csv.DictReader(file)
        return [Row(**row | {n: int(row[n]) for n in numbers}) for row in rows]  # type: ignore


def by_unit(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows of every architecture and unit, in the table's order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.arch, row.unit), []).append(row)
    return found


def main() -> None:
    """Write the table; what has not changed is not compiled again."""
    known = by_unit(read() if TABLE.exists() else [])
    picked = [u for device in (HOPPER, *EARLIER) for u in units(device).values()]
    made: dict[Unit, list[Row]] = {}
    for unit in picked:
        rows = known.get((unit.arch, unit.name), [])
        if rows and (rows[0].source, rows[0].compiler) == (unit.hash, compiler()):
            made[unit] = [replace(row, **asdict(unit.case)) for row in rows]
    new = [unit for unit in picked if unit not in made]
    print(f"{len(new)} of {len(picked)} units to compile")
    with ProcessPoolExecutor() as pool:
        made |= dict(zip(new, pool.map(Unit.compile, new), strict=True))
    rows = sorted(
        (row for unit in picked for row in made[unit]), key=lambda r: (r.arch, r.unit, r.kernel)
    )
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(Row.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, rows))
    spilled = [f"{row.arch} {row.unit} {row.kernel}: {row.spills} B" for row in rows if row.spills]
    print("\n".join(spilled) or "no spills")


if __name__ == "__main__":
    typer.run(main)
