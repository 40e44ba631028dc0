"""The engine that runs kernels on the CPU: what it computes, and what it finds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.gpu import hosted
from tests.gpu.support import host_compiler
from winolab.algorithm import Problem, gamma
from winolab.device import H100
from winolab.gpu.codegen.emit import kernel
from winolab.gpu.params import INT, POINTER, Layout
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import Request
from winolab.options import KernelConfig
from winolab.ref.arithmetic.accumulate import Accumulation, matmul
from winolab.ref.arithmetic.formats import FORMATS

CONFIG = KernelConfig()
PROBLEM = Problem.of((2, 12, 13, 200), (37, 3, 3, 200), padding=1)  # every pipeline stage twice
SEEDS = range(4)


@pytest.fixture(autouse=True)
def every_source_is_checked(monkeypatch) -> None:
    monkeypatch.setattr(host_compiler, "CHECKED_EVERY", 1)


def run(body: str, arrays: list[np.ndarray], threads: int = 32, seed: int = 0, blocks: int = 1):
    """One kernel: ``body`` sees pointers a, b, … to the arrays, and t, the thread's index."""
    names = "abcdefgh"[: len(arrays)]
    types = {"float32": "float", "uint32": "unsigned", "uint16": "unsigned short", "int32": "int"}
    fields = " ".join(f"{types[x.dtype.name]}* {n};" for n, x in zip(names, arrays, strict=True))
    pointers = " ".join(f"auto {n} = p.{n};" for n in names)
    source = f"""{kernel("pipeline")}{kernel("mma")}
    struct P {{ {fields} }};
    extern "C" __global__ void __cluster_dims__({blocks}, 1, 1) __launch_bounds__({threads})
        test(const __grid_constant__ P p) {{
      extern __shared__ __align__(1024) unsigned char memory[];
      const int t = threadIdx.x;
      {pointers}
      {body}
    }}"""
    shared = 32768
    layout = Layout((" ".join(names), POINTER))
    params = layout.pack(*(x.ctypes.data for x in arrays))
    hosted.load(source, {"test": shared}, seed)["test"]((blocks, 1, 1), threads, params)


@dataclass
class Changed:
    """A plan whose source is another."""

    plan: Any
    text: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plan, name)

    def source(self) -> str:
        return self.text

    def translation_units(self) -> tuple[Any, ...]:
        return (self,)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, PROBLEM.x_shape).astype("f")
    w = rng.uniform(-1, 1, PROBLEM.w_shape).astype("f")
    p = plan(Request(PROBLEM, "forward", H100, gamma(8, 6, 3)))
    return p, x, w, hosted.execute(p, x, w)


def test_the_order_of_threads_changes_nothing(case) -> None:
    p, x, w, y = case
    for seed in SEEDS:
        assert np.array_equal(hosted.execute(p, x, w, seed=seed), y)


@pytest.mark.parametrize(
    ("statement", "instead", "message"),
    [
        ("barrier_arrive(&shared.v_empty[v_pipe.stage]);", "", "deadlock"),
        ("barrier_init(&shared.v_empty[s], CONSUMERS);", "", "not initialised"),
        ("barrier_wait(&shared.u_full[u_pipe.stage], u_pipe.phase);", "", "an arrival too many"),
        ("const float4*>(v + j * L", "const float4*>(v + 1 + j * L", "not aligned"),
        ("shared.columns[tile] =", "shared.columns[tile + BT] =", "outside its array"),
        ("float* y = p.y +", "float* y = p.y - 1 +", "zones around out"),
    ],
)
def test_broken_kernels_are_found_out(case, statement, instead, message) -> None:
    p, x, w, _ = case
    source = p.source()
    assert source.count(statement) == 1
    changed = Changed(p, source.replace(statement, instead))
    with pytest.raises(hosted.HostError, match=message):
        hosted.execute(changed, x, w, seed=2)


@pytest.mark.parametrize(
    "statement",
    [
        "barrier_wait(&shared.v_full[v_pipe.stage], v_pipe.phase);",
        "if (first == 0) barrier_wait(&shared.v_empty[pipe.stage], pipe.phase ^ 1);",
        "      cluster_sync();\n      store_share<SPLIT_K>(p, shared, work, pass, added);",
    ],
)
def test_without_a_wait_some_order_of_threads_shows_it(case, statement) -> None:
    p, x, w, y = case
    source = p.source()
    assert source.count(statement) == 1
    last = statement.split("\n")[-1] if "\n" in statement else ""
    changed = Changed(p, source.replace(statement, last))

    def right(seed: int) -> bool:
        try:
            return np.array_equal(hosted.execute(changed, x, w, seed=seed), y)
        except hosted.HostError:
            return False

    assert not all(right(seed) for seed in SEEDS)


def test_a_block_must_outlive_those_that_read_it(case) -> None:
    p, x, w, _ = case
    source = p.source()
    meeting = "      cluster_sync();\n"
    for before in (meeting, "      store_share<SPLIT_K>(p, shared, work, pass, added);\n"):
        assert source.count(before + meeting) == 1
        source = source.replace(before + meeting, before)
    with pytest.raises(hosted.HostError, match="which has ended"):
        hosted.execute(Changed(p, source), x, w, seed=2)


def test_the_host_has_every_function_of_inline_ptx() -> None:
    for name in hosted.REPLACED:
        text = (host_compiler.HEADERS / f"{name}.hpp").read_text()
        functions = re.findall(r"^__device__ [^(=;]*?(\w+)\(", kernel(name), re.MULTILINE)
        assert functions
        for function in functions:
            assert re.search(rf"\b{function}\(", text), f"host/{name}.hpp lacks {function}"


def test_warps_exchange_values() -> None:
    got = np.zeros((6, 64), np.int32)
    body = """
      a[t] = __shfl_sync(~0u, t, 5, 16), a[64 + t] = __shfl_xor_sync(~0u, t, 3);
      a[128 + t] = __shfl_down_sync(~0u, t, 4), a[192 + t] = __shfl_up_sync(~0u, t, 1, 8);
      a[256 + t] = __popc(__ballot_sync(~0u, t % 3 == 0));
      a[320 + t] = __any_sync(~0u, t == 40) * 2 + __all_sync(~0u, t < 32);"""
    run(body, [got], 64, seed=3)
    t = np.arange(64)
    lane, warp = t % 32, t // 32 * 32
    expected = [
        t // 16 * 16 + 5,
        t ^ 3,
        np.where(lane < 28, t + 4, t),
        np.where(t % 8 > 0, t - 1, t),
        [sum(i % 3 == 0 for i in range(w, w + 32)) for w in warp],
        np.where(warp == 32, 2, 1),
    ]
    assert np.array_equal(got, np.array(expected))


def test_copies_arrive_when_they_are_waited_for() -> None:
    source, got = np.arange(64, dtype="f"), np.zeros((3, 32), "f")
    body = """
      float* s = reinterpret_cast<float*>(memory);
      copy_async<4>(s + t, a + t, true), copy_async_commit();
      copy_async<4>(s + 32 + t, a + 32 + t, t < 20), copy_async_commit();
      copy_async_wait<1>();
      __syncthreads();
      b[t] = s[31 - t], b[32 + t] = s[63 - t];
      __syncthreads();
      copy_async_wait<0>();
      __syncthreads();
      b[64 + t] = s[63 - t];"""
    run(body, [source, got])
    assert np.array_equal(got[0], source[31::-1])
    assert np.isnan(got[1]).all()
    assert np.array_equal(got[2], np.where(np.arange(32) > 11, source[:31:-1], 0))


def test_copies_end_a_barrier_s_phase() -> None:
    source, got = np.arange(64, dtype="f"), np.zeros((2, 64), "f")
    body = """
      auto barrier = reinterpret_cast<unsigned long long*>(memory);
      float* s = reinterpret_cast<float*>(memory + 64);
      if (t == 0) barrier_init(barrier, 32);
      __syncthreads();
      if (t < 32) {
        copy_async<4>(s + t, a + t, true);
        copy_async<4>(s + 32 + t, a + 32 + t, t < 20);
        copy_async_arrive(barrier);
      }
      __syncthreads();
      b[t] = s[63 - t];
      barrier_wait(barrier, 0);
      b[64 + t] = s[63 - t];"""
    run(body, [source, got], 64)
    assert np.isnan(got[0]).all()
    assert np.array_equal(got[1, ::-1], np.where(np.arange(64) < 52, source, 0))


def test_blocks_of_a_cluster_store_to_each_other() -> None:
    got = np.zeros((4, 32), np.uint32)
    body = """
      auto barrier = reinterpret_cast<unsigned long long*>(memory);
      auto values = reinterpret_cast<uint2*>(memory + 64);
      if (t == 0) barrier_init(barrier, 32), barriers_ready();
      cluster_sync();
      const int rank = cluster_rank(), next = (rank + 1) % 4;
      *cluster_pointer(values + t, next) = make_uint2(rank, t);
      barrier_release_cluster(cluster_pointer(barrier, next));
      barrier_acquire_cluster(barrier, 0);
      a[rank * 32 + t] = values[t].x * 100 + values[t].y;
      cluster_sync();"""
    for seed in SEEDS:
        run(body, [got], blocks=4, seed=seed)
        ranks = np.array([3, 0, 1, 2])[:, None]
        assert np.array_equal(got, ranks * 100 + np.arange(32))


def test_sixteen_bits_are_rounded_to_nearest_even() -> None:
    rng = np.random.default_rng(0)
    halves = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype("f")
    ties = (halves[1:].astype("d") + halves[:-1]).astype("f") / 2
    wide = rng.integers(0, 0x7F800000, 50000, dtype=np.uint32).view("f")
    x = np.concatenate([halves, ties, np.nextafter(ties, 0, dtype="f"), wide, [np.inf, 65520]])
    x = np.concatenate([x, -x]).astype("f")
    half, bfloat, back = np.zeros(len(x), "u4"), np.zeros(len(x), "u4"), np.zeros(len(x), "f")
    body = f"""
      for (int i = t; i < {len(x)}; i += 32) {{
        float rest;
        b[i] = pack(a[i], 0.0f), c[i] = pack<true>(0.0f, a[i]);
        unpack(b[i], d[i], rest);
      }}"""
    run(body, [x, half, bfloat, back])
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
        assert np.array_equal(half.astype("u2").view(np.float16), expected)
        assert np.array_equal(back, expected.astype("f"))
        expected = x.astype(ml_dtypes.bfloat16)
        assert np.array_equal((bfloat >> 16).astype("u2").view(ml_dtypes.bfloat16), expected)


LAYOUTS = {
    "k": ("(k / 8 * 64 + m / 8 * 8 + m % 8) * 16 + k % 8 * 2", "1024, 128", "2048"),
    "mn": ("(k / 8 * 8 + m / 8) * 128 + k % 8 * 16 + m % 8 * 2", "1024, 128", "2048"),
    "k swizzled": ("m * 128 + k * 2", "0, 1024, Swizzle::B128", "32"),
    "mn swizzled": ("k * 128 + m * 2", "0, 1024, Swizzle::B128", "2048"),
}


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_matrix_products_are_the_references_to_the_bit(layout, bf16) -> None:
    """wgmma of 64 × 64 × 64 with A and B in one layout, and mma from load_matrices."""
    rng = np.random.default_rng(1)
    dtype = ml_dtypes.bfloat16 if bf16 else np.float16
    x, y = (rng.standard_normal((64, 64)).astype(dtype) for _ in range(2))
    least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    for v, rows in ((x, slice(8)), (y, slice(None))):  # subnormal factors, sums, or both
        chosen = rng.random(v[rows].shape) < 0.5
        v[rows][chosen] = rng.integers(-100, 101, chosen.sum()) * least
    x[48:, 16:32] = y[24:40, 32:48] = 0  # whole rows and columns of an instruction's, as padding is
    x[5, 35], y[50, 20] = np.inf, np.nan  # what zeros do not hide
    place, descriptor, step = LAYOUTS[layout]
    swizzle = "at ^= at >> 3 & 0x70;" if "swizzled" in layout else ""
    flag, mn = str(bf16).lower(), str(layout.startswith("mn")).lower()
    got = np.full((2, 64, 64), np.nan, "f")
    body = f"""
      auto s = reinterpret_cast<unsigned short*>(memory);
      for (int e = t; e < 4096; e += 128) {{
        const int m = e / 64, k = e % 64;
        unsigned at = {place};
        {swizzle}
        s[at / 2] = a[e], s[4096 + at / 2] = b[e];
      }}
      fence_async(), __syncthreads();
      float d[32];
      const auto da = matrix_descriptor(s, {descriptor});
      const auto db = matrix_descriptor(s + 4096, {descriptor});
      wgmma_fence();
      for (int k = 0; k < 4; ++k)
        wgmma<64, {flag}, {mn}, {mn}>(d, descriptor_offset(da, k * {step}),
                                     descriptor_offset(db, k * {step}), k > 0);
      wgmma_commit(), wgmma_wait<0>(), wgmma_pin(d);
      const int lane = t % 32, row = t / 32 * 16 + lane / 4, column = lane % 4 * 2;
      for (int i = 0; i < 32; ++i)
        c[(row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + column + i % 2] = d[i];
      __syncthreads();
      for (int e = t; e < 4096; e += 128) s[e] = a[e], s[4096 + e] = b[e];
      __syncthreads();
      for (int n = 0; n < 64; n += 8) {{
        float sum[4] = {{}};
        for (int k = 0; k < 64; k += 16) {{
          unsigned fa[4], fb[4];
          load_matrices(fa, s + (t / 32 * 16 + lane % 16) * 64 + k + lane / 16 * 8);
          load_matrices(fb, s + 4096 + (n + lane % 8) * 64 + k + lane / 8 % 2 * 8);
          const unsigned pair[2] = {{fb[0], fb[1]}};
          mma<{flag}>(sum, fa, pair);
        }}
        for (int i = 0; i < 4; ++i)
          c[4096 + (row + i / 2 * 8) * 64 + n + column + i % 2] = sum[i];
      }}"""
    run(body, [x.view("u2"), y.view("u2"), got], 128)
    order = Accumulation.parse("tensor_core:16:2:truncate")
    exact = x.astype("d"), y.astype("d").T
    fmt = FORMATS["bf16" if bf16 else "fp16"]
    expected = matmul(*exact, order, fmt, FORMATS["fp32"], True)
    assert np.isnan(expected).sum() == 64 + 16
    for found in got:
        np.testing.assert_array_equal(found, expected)


@dataclass(frozen=True)
class Reading:
    """A plan of one kernel without arrays of interest, for counting."""

    body: str
    problem: Problem = PROBLEM
    direction: str = "forward"
    workspace: int = 0
    config: KernelConfig = CONFIG

    def source(self) -> str:
        return f"""struct Shared {{
          float used[4096];  // what is counted
        }};
        struct P {{ int stride; }};
        extern "C" __global__ void test(const __grid_constant__ P p) {{
          extern __shared__ __align__(128) unsigned char memory[];
          Shared& shared = *reinterpret_cast<Shared*>(memory);
          const int t = threadIdx.x;
          {self.body}
        }}"""

    def shared(self) -> dict[str, int]:
        return {"test": 16384}

    def launch(self, kernels, *_: Any) -> None:
        kernels["test"]((1, 1, 1), 32, Layout(("stride", INT)).pack(0))


@pytest.mark.parametrize(
    ("body", "phases", "wavefronts"),
    [
        ("shared.used[t] = 0;", 1, 1),
        ("shared.used[t * 2] = 0;", 1, 2),
        ("shared.used[t * 32] = 0;", 1, 32),
        ("shared.used[t / 8] = 0;", 1, 1),
        ("if (t < 16) shared.used[t * 2] = 0;", 1, 1),
        ("for (int i = 0; i < 3; ++i) shared.used[t + i * 33] = 0;", 3, 3),
        ("reinterpret_cast<float2*>(shared.used)[t] = make_float2(0, 0);", 2, 2),
        ("reinterpret_cast<float4*>(shared.used)[t] = make_float4(0, 0, 0, 0);", 4, 4),
        ("reinterpret_cast<float4*>(shared.used)[t * 2] = make_float4(0, 0, 0, 0);", 4, 8),
    ],
)
def test_bank_conflicts_are_counted(body, phases, wavefronts) -> None:
    nothing = np.zeros(PROBLEM.x_shape, "f"), np.zeros(PROBLEM.w_shape, "f")
    (found,) = hosted.requests(Reading(body), *nothing)["test"]
    assert (found.member, found.warp, found.write) == ("used", 0, True)
    assert (found.phases, found.wavefronts) == (phases, wavefronts)
