"""On a GPU: cycles of loads and stores of shared memory, openCNN's Table 1, on the GPU at hand.

``python -m experiments.measure.fused.shared_memory`` replaces the rows of this GPU in
experiments/results/shared_memory.jsonl. A kernel each has loads (LDS) or stores (STS) of 32, 64 and
128 bits, by all lanes of a warp or by those that Yan et al.'s layout has at work in a round (0 to 7
and 16 to 23), by one warp and by sixteen of a multiprocessor. The compiler may change what is
written: ``python -m pytest tests/experiments/measure/fused/test_shared_memory.py`` counts the
instructions in the machine code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import typer

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from winolab.cli import bench
from winolab.cli.screen.render import plain
from winolab.gpu import driver
from winolab.gpu.params import INT, POINTER, Layout
from winolab.gpu.runtime import loader

RESULTS = ROOT / "experiments" / "results" / "shared_memory.jsonl"
PARAMS = Layout(("cycles", POINTER), ("turns", INT))
UNROLLED, TURNS, TRIES = 64, 64, 5  # instructions of a turn; turns timed; the least counts
WARPS = (1, 16)


@dataclass(frozen=True)
class Access:
    """One kind of access."""

    type: str  # LDS or STS
    width: int  # bits
    divergent: bool

    @property
    def lanes(self) -> int:
        """Lanes of a warp that are at work."""
        return 16 if self.divergent else 32

    @property
    def kernel(self) -> str:
        """Its kernel's name."""
        return f"{self.type.lower()}{self.width}{'_divergent' * self.divergent}"


def accesses() -> Iterator[Access]:
    """Every kind: Table 1's, and the pattern of Figure 5 with each."""
    for divergent in (False, True):
        for kind in ("LDS", "STS"):
            for width in (32, 64, 128):
                yield Access(kind, width, divergent)


def source() -> str:
    """The translation unit of all kernels. Lanes lie one after the other: no bank conflicts."""
    text = ["struct SharedMemoryParams { long long* cycles; int turns; };"]
    for a in accesses():
        words = a.width // 32
        vector = {1: "b32", 2: "v2.b32", 4: "v4.b32"}[words]
        names = [f"r{i}" for i in range(words)]
        registers = ", ".join(f"%{i}" for i in range(words))
        registers = f"{{{registers}}}" if words > 1 else registers
        if a.type == "LDS":
            outputs = ", ".join(f'"=r"({n})' for n in names)
            access = f'"ld.volatile.shared.{vector} {registers}, [%{words}];" : {outputs} : "r"(at)'
        else:
            inputs = ", ".join(f'"r"({n})' for n in names)
            access = f'"st.volatile.shared.{vector} [%{words}], {registers};" : : {inputs}, "r"(at)'
        active = "(threadIdx.x & 8) == 0" if a.divergent else "true"
        text.append(f"""
extern "C" __global__ void __launch_bounds__(512)
    {a.kernel}(const __grid_constant__ SharedMemoryParams p) {{
  __shared__ __align__(16) unsigned words[16 * 32 * 4];
  unsigned at = (unsigned)__cvta_generic_to_shared(words) + threadIdx.x * {4 * words};
  unsigned {", ".join(f"{n} = threadIdx.x" for n in names)};
  for (int i = threadIdx.x; i < 16 * 32 * 4; i += blockDim.x) words[i] = i;
  __syncthreads();
  const long long begin = clock64();
  if ({active}) {{
#pragma unroll 1
    for (int turn = 0; turn < p.turns; ++turn) {{
#pragma unroll
      for (int i = 0; i < {UNROLLED}; ++i) asm volatile({access} : "memory");
    }}
  }}
  __syncthreads();
  if (threadIdx.x == 0) p.cycles[0] = clock64() - begin;
}}""")
    return "\n".join(text)


def cycles(kernel: Any, warps: int) -> float:
    """Cycles of a multiprocessor from one instruction of a warp to the next: of turns that are
    more, less those that are fewer, so that what surrounds them does not count."""
    cp = driver.cupy()
    found = cp.zeros(1, "int64")
    least = []
    for turns in (TURNS, 2 * TURNS):
        times = []
        for _ in range(TRIES):
            kernel((1, 1, 1), 32 * warps, PARAMS.pack(found.data.ptr, turns))
            times.append(int(found[0]))
        least.append(min(times))
    return (least[1] - least[0]) / (TURNS * UNROLLED * warps)


def main() -> None:
    """Measure every kind, and replace the rows of this GPU."""
    bench.ready()
    kinds = list(accesses())
    kernels = loader.load(source(), "shared memory", {a.kernel: 0 for a in kinds}, 0)
    machine = {**bench.context(), "run": datetime.now(UTC).isoformat(timespec="milliseconds")}
    rows = []
    for a in kinds:
        for warps in WARPS:
            took = cycles(kernels[a.kernel], warps)
            rows.append({
                "type": a.type, "width": a.width, "lanes": a.lanes, "warps": warps,
                "cycles": round(took, 3), "bytes_a_cycle": round(a.lanes * a.width / 8 / took, 2),
                **machine,
            })  # fmt: skip
            print(f"{a.kernel} {warps} warps: {took:.2f} cycles, "
                  f"{rows[-1]['bytes_a_cycle']} bytes a cycle", flush=True)  # fmt: skip
    kept = [row for row in stored(RESULTS) if row["device"] != machine["device"]]
    lines = (json.dumps(plain(row)) + "\n" for row in [*kept, *rows])
    RESULTS.write_text("".join(lines))


if __name__ == "__main__":
    typer.run(main)
