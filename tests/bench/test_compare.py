"""How a comparison is conducted, with NumPy in the GPU's place."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.stand_in import CuPy
from winolab.algorithm import Problem, parse_algorithm
from winolab.bench import compare, contenders, cudnn, frameworks, oracle, timing
from winolab.bench.contenders import Arrays, Contender
from winolab.bench.layers import parse_layer
from winolab.device import H100
from winolab.gpu import driver, machine
from winolab.gpu.machine import MachineError
from winolab.gpu.params import POINTER, Layout
from winolab.gpu.planner.correlation import CORRELATIONS
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.ranking import AS_EXACT, loses, loss
from winolab.gpu.planner.request import Request

PROBLEM = Problem.of((2, 6, 5, 3), (4, 3, 3, 3), padding=1)


class Clock:
    """Time that passes where a contender says so, and nowhere else."""

    seconds = 0.0

    @classmethod
    def advance(cls, seconds: float) -> None:
        cls.seconds += seconds


class Event:
    """A CUDA event on that clock."""

    def record(self) -> None:
        self.at = Clock.seconds

    def synchronize(self) -> None:
        pass


@pytest.fixture
def host(monkeypatch):
    """NumPy in CuPy's place."""
    cuda = SimpleNamespace(
        Event=Event,
        Device=lambda: SimpleNamespace(mem_info=(8 << 30, 8 << 30)),
        get_elapsed_time=lambda a, b: (b.at - a.at) * 1e3,
        get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
    )

    monkeypatch.setattr(CuPy, "cuda", cuda)
    monkeypatch.setattr(driver, "cupy", CuPy)
    monkeypatch.setattr(compare, "FLUSH", 1 << 10)
    return CuPy


def exact(direction: str, off: float, pause: float, order: str = "NHWC"):
    """A contender that computes in FP64 with a relative error, and takes its time."""

    def run(arrays: Arrays, workspace: int) -> None:
        Clock.advance(pause)
        first, second = (arrays.values(np.asarray(a)) for a in arrays.operands["NHWC"])
        y = np.asarray(oracle.fp64(direction, PROBLEM, first, second)) * (1 + off)
        arrays.results[order][...] = y if order == "NHWC" else np.moveaxis(y, -1, 1)

    return run


def labels(method: str, **more) -> dict:
    return {"method": method, "kernel": "K", "products": "fp32", **more}


@pytest.mark.parametrize("direction", ["forward", "backward_data", "backward_filter"])
def test_rows_of_a_case(host, monkeypatch, direction: str) -> None:
    def broken(arrays: Arrays, workspace: int) -> None:
        raise cudnn.Unsupported("CUDNN_STATUS_EXECUTION_FAILED")

    mine = [Contender("w", "NHWC", 8, labels("winolab", chosen=True), exact(direction, 1e-6, 1e-4))]
    theirs = [
        Contender("a", "NCHW", 0, labels("cudnn", frugal=True),
                  exact(direction, 0, 0.001, "NCHW")),
        Contender("b", "NHWC", 0, labels("cudnn", frugal=True), exact(direction, 0, 0.02)),
        Contender("c", "NHWC", 1 << 40, labels("cudnn", frugal=False), exact(direction, 0, 0)),
        Contender("d", "NHWC", 0, labels("cudnn", frugal=False), broken),
        cudnn.Unsupported("e: CUDNN_STATUS_NOT_SUPPORTED"),
    ]  # fmt: skip
    monkeypatch.setattr(compare, "ours", lambda *_: mine)
    monkeypatch.setattr(compare, "judges", lambda *_, **__: theirs)
    monkeypatch.setattr(compare, "frameworks", lambda *_: [])
    *rows, refused = compare.compare(direction, PROBLEM, effort=compare.Effort(rounds=3), plans={})
    assert [row["layout"] for row in rows] == ["NHWC", "NCHW", "NHWC"]
    assert [row["rounds"] for row in rows] == [3, 3, 1]
    assert abs(rows[0]["relative_rms_u11"] / 1e-6 - 1) < 0.1
    assert rows[1]["relative_rms_u11"] < 1e-7
    assert rows[0]["mare_u01" if direction == "backward_filter" else "mare_u12"] < 2e-6
    assert set(refused["reasons"]) == {"c", "d", "e"}
    assert "MiB free" in refused["reasons"]["c"]


def test_the_fastest_of_cudnn_is_one_that_runs(host, monkeypatch) -> None:
    def broken(arrays: Arrays, workspace: int) -> None:
        raise cudnn.Unsupported("CUDNN_STATUS_EXECUTION_FAILED")

    asked = []
    theirs = [
        cudnn.Unsupported("a: CUDNN_STATUS_NOT_SUPPORTED"),
        Contender("b", "NHWC", 0, labels("cudnn"), exact("forward", 0, 0.02)),
        Contender("c", "NCHW", 8, labels("cudnn"), exact("forward", 0, 0.001, "NCHW")),
        Contender("d", "NHWC", 1 << 40, labels("cudnn"), exact("forward", 0, 0)),
        Contender("e", "NHWC", 0, labels("cudnn"), broken),
    ]
    monkeypatch.setattr(compare, "judges", lambda *_, **how: asked.append(how) or theirs)
    arrays = Arrays("forward", PROBLEM, "fp32")
    arrays.fill(-1, 1)
    (found,) = compare.fastest_of_cudnn("forward", PROBLEM, arrays)
    assert (found.name, asked) == ("c", [{"maths": ("fma",)}])
    theirs[1:4] = []
    assert compare.fastest_of_cudnn("forward", PROBLEM, arrays) == []
    uneven = Problem.of((1, 8, 8, 4), (4, 2, 2, 4), padding="same")
    monkeypatch.undo()
    assert list(compare.fastest_of_cudnn("forward", uneven, arrays)) == []


def test_judges_that_cannot_run_are_left_out_with_their_reason(host, monkeypatch) -> None:
    def missing(*_, **__):
        raise MachineError(text)
        yield

    mine = [Contender("w", "NHWC", 0, labels("winolab", chosen=True), exact("forward", 0, 1e-4))]
    monkeypatch.setattr(compare, "ours", lambda *_: mine)
    for text in ("libcudnn was not found: install it", "cuDNN 9.1.0 does not start"):
        for judge in ("judges", "frameworks"):
            monkeypatch.setattr(compare, judge, missing)
        row, refused = compare.compare("forward", PROBLEM, plans={})
        assert row["cold_us"][1] == pytest.approx(100)
        assert refused["reasons"] == {"cudnn": text, "torch": text}


def test_a_problem_that_cudnn_cannot_say_is_measured_without_it(host, monkeypatch) -> None:
    uneven = Problem.of((2, 6, 5, 3), (4, 2, 2, 3), padding="same")
    mine = [Contender("w", "NHWC", 0, labels("winolab"), lambda *_: Clock.advance(1e-4))]
    monkeypatch.setattr(compare, "ours", lambda *_: mine)
    effort = compare.Effort(torch=False)
    *rows, refused = compare.compare("forward", uneven, effort=effort, plans={})
    assert len(rows) == 1
    assert "pads both sides alike" in refused["reasons"]["cudnn"]


def test_a_gpu_that_no_kernel_is_for_is_a_reason(host, monkeypatch) -> None:
    turing = replace(H100, name="a T4", compute_capability=(7, 5))
    monkeypatch.setattr(driver, "device", lambda index: turing)
    monkeypatch.setattr(compare, "judges", lambda *_, **__: [])
    (refused,) = compare.compare("forward", PROBLEM, effort=compare.Effort(torch=False))
    assert refused["method"] == "refused"
    assert "a T4 has compute capability 7.5" in refused["reasons"]["winolab"]
    assert not contenders.unserved("forward", PROBLEM, "fp32", H100)


def test_a_reason_is_kept_up_to_what_it_asks_for(host) -> None:
    def refuse() -> None:
        raise MachineError(f"kernels are kept in {'folder/' * 40}:\nset WINOLAB_CACHE")

    assert compare.failure(refuse).endswith(": set WINOLAB_CACHE")


def test_a_torch_that_sees_no_gpu_says_what_to_install(monkeypatch) -> None:
    def broken(name: str):
        raise OSError("libcudart.so.12: cannot open shared object file")

    blind = SimpleNamespace(
        __version__="2.9.0+cpu", cuda=SimpleNamespace(is_available=lambda: False)
    )
    for spec, load, message in (
        (None, broken, r"torch is not installed: pip install '.\[torch\]'"),
        ("torch", broken, r"cannot be imported: install it anew \(libcudart"),
        ("torch", lambda name: blind, r"torch 2\.9\.0\+cpu sees no GPU: install one built"),
    ):
        monkeypatch.setattr(machine, "find_spec", lambda name, spec=spec: spec)
        monkeypatch.setattr(frameworks.importlib, "import_module", load)
        with pytest.raises(MachineError, match=message):
            list(frameworks.frameworks("forward", PROBLEM, "fp32"))
        monkeypatch.undo()


def test_contenders_of_one_name_are_refused(host, monkeypatch) -> None:
    twice = [Contender("w", "NHWC", size, labels("winolab"), exact("forward", 0, 0.001))
             for size in (0, 8)]  # fmt: skip
    monkeypatch.setattr(compare, "ours", lambda *_: twice)
    for others in ("judges", "frameworks"):
        monkeypatch.setattr(compare, others, lambda *_, **__: [])
    with pytest.raises(ValueError, match="contenders of the same name"):
        compare.compare("forward", PROBLEM, plans={})


def test_plans_that_differ_in_their_workspace_have_names_of_their_own() -> None:
    layer = parse_layer("128x96x96x64:64x3x3").problem
    tiled = parse_algorithm("omega:9:3:7")
    asked = Request(layer, "backward_filter", H100, tiled, "fp16", aligned=True)
    both = {plan(asked): True, plan(replace(asked, workspace_limit=layer.batch << 18)): False}
    assert len({str(p.config) for p in both}) == 1 < len(both)
    assert len({c.name for c in contenders.ours(both)}) == 2


def test_plans_with_other_fallbacks_take_part_once(monkeypatch) -> None:
    """Direct products that are picked, and those within FRUGAL of the data, for this layer."""
    monkeypatch.setattr(driver, "device", lambda index: H100)
    problem = parse_layer("32x32x32x256:256x9x9").problem
    found = contenders.entered("backward_filter", problem, "fp32", None)
    names = [c.name for c in contenders.ours(found)]
    assert len(set(names)) == len(names)
    (picked,) = (p for p, chosen in found.items() if chosen)
    assert picked == plan(Request(problem, "backward_filter", H100, None, "fp32"))


def test_what_is_faster_but_not_worth_its_workspace_takes_part() -> None:
    """At 14² × 512, 3 × 3, nested Winograd beside Γ that is picked; at 48² × 128 it is slower."""
    shown = {}
    for text in ("32x14x14x512:512x3x3", "128x48x48x128:128x3x3"):
        found = contenders.entered("forward", parse_layer(text).problem, "fp32", None, H100)
        (picked,) = (p for p, chosen in found.items() if chosen)
        assert picked.kernel.startswith("Γ")
        nested = (p for p in found if p.precision == "fp32_split")
        shown[text] = [p for p in nested if p.kernel.startswith("F(")]
        assert all(p.predicted < picked.predicted for p in shown[text])
        assert not any(map(loses, shown[text]))
    assert [len(plans) for plans in shown.values()] == [1, 0]


@pytest.mark.parametrize(
    ("layer", "kernel"),
    [("128x48x48x128:128x3x3", "Γ6(4,3)"), ("64x64x64x128:128x5x5", None)],
)
@pytest.mark.parametrize("direction", CORRELATIONS)
def test_what_errs_less_in_little_more_time_takes_part(layer, kernel, direction) -> None:
    """Once, and only where nothing of its kernel does: of 5 × 5 no other kernel is as fast."""
    found = contenders.entered(direction, parse_layer(layer).problem, "fp32", None, H100)
    (first, *more) = [p for p in found if p.precision == "fp32_split"]
    assert found[first]
    assert [p.kernel for p in more] == ([kernel] if kernel else [])
    for p in more:
        assert loss(p) < loss(first)
        assert first.predicted < p.predicted <= AS_EXACT * first.predicted


@pytest.mark.parametrize("group", ["fp16", "bf16"])
def test_arrays_of_sixteen_bits(host, group: str) -> None:
    arrays = Arrays("forward", PROBLEM, group)
    arrays.fill(-1, 1)
    last, first = (arrays.operands[order][0] for order in contenders.ORDERS)
    assert (np.moveaxis(last, -1, 1) == first).all()
    values = np.asarray(arrays.values(last), "float64")
    assert 0.9 < np.abs(values).max() <= 1
    arrays.poison()
    assert np.isnan(arrays.result("NHWC")).all()
    assert np.isnan(arrays.result("NCHW")).all()


def test_bits_of_bf16_are_to_nearest_even(host) -> None:
    values = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, -1.01], "float32")
    assert contenders._wide(contenders._bits(values)).tolist() == [1, 1, 1 + 2**-6, -1.0078125]


def test_a_single_round_is_its_own_quartiles(host) -> None:
    (found,) = timing.interleave({"x": lambda: None}, rounds=1, flush=64, warm=True).values()
    assert found.rounds == 1
    assert found.low == found.median == found.high


def test_calls_leave_after_their_rounds(host) -> None:
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    found = timing.interleave(calls, rounds={"a": 1, "b": 3}, flush=64, warmup=0)
    assert "".join(order) == "abbb"
    assert [found[name].rounds for name in "ab"] == [1, 3]


def test_every_round_begins_with_another_call(host) -> None:
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    timing.interleave(calls, rounds={"a": 4, "b": 4, "c": 2}, flush=64, warmup=0)
    assert "".join(order) == "abcbcaabba"


@pytest.mark.parametrize("everybody", [True, False])
def test_long_calls_take_few_rounds_and_hopeless_ones_may_go_unchecked(
    host, monkeypatch, everybody: bool
) -> None:
    pauses = {"short": 0.0001, "long": 0.002, "longer": 0.004, "elsewhere": 0.02}
    mine, *theirs = (
        Contender(name, "NCHW" if name == "elsewhere" else "NHWC", 0,
                  labels("winolab", chosen=True) if name == "short" else
                  labels("cudnn", frugal=True),
                  lambda arrays, workspace, pause=pause: Clock.advance(pause))
        for name, pause in pauses.items()
    )  # fmt: skip
    monkeypatch.setattr(compare, "ours", lambda *_: [mine])
    monkeypatch.setattr(compare, "judges", lambda *_, **__: theirs)
    monkeypatch.setattr(compare, "frameworks", lambda *_: [])
    effort = compare.Effort(rounds=7, errors=everybody)
    found = dict(zip(pauses, compare.compare("forward", PROBLEM, effort=effort, plans={}),
                     strict=True))  # fmt: skip
    assert [row["rounds"] for row in found.values()] == [7, compare.FEW, 1, 1]
    checked = {name for name, row in found.items() if "mare_u12" in row}
    assert checked == set(pauses) - (set() if everybody else {"longer"})


class Prepared(SimpleNamespace):
    """A plan whose filter is transformed apart, in terms of addresses."""

    direction, problem, prepared_size = "forward", PROBLEM, 64

    def launch(self, kernels, a, b, out, workspace, index) -> None:
        kernels["whole"]((1, 1, 1), 32, ADDRESSES.pack(a.address, b.address, out.address))

    def prepare(self, kernels, b, prepared, index) -> None:
        kernels["filter"]((1, 1, 1), 32, ADDRESSES.pack(0, b.address, prepared))

    def run(self, kernels, a, prepared, out, workspace, index) -> None:
        kernels["main"]((1, 1, 1), 32, ADDRESSES.pack(a.address, prepared, out.address))


ADDRESSES = Layout(("a b out", POINTER))
ADDRESS = ctypes.POINTER(ctypes.c_uint64)


def test_calls_replay_on_the_arrays_and_a_filter_is_transformed_once_a_filling(
    host, monkeypatch
) -> None:
    seen: list[tuple[str, tuple[int, ...]]] = []

    class Launch(SimpleNamespace):
        def __init__(self, kernel, grid, threads, params, early) -> None:
            super().__init__(kernel=kernel, params=params)

        def on(self, stream: int) -> None:
            pass

        def start(self) -> int:
            values = ctypes.cast(ctypes.c_void_p.from_address(self.params), ADDRESS)
            seen.append((self.kernel.handle, tuple(values[i] for i in range(3))))
            return 0

    monkeypatch.setattr(driver, "Launch", Launch)
    host.cuda.get_current_stream = lambda: SimpleNamespace(ptr=0)
    kernels = {name: driver.Kernel(name, name, 0, None) for name in ("whole", "filter", "main")}  # pyright: ignore[reportArgumentType]
    arrays = Arrays("forward", PROBLEM, "fp32")
    a, b, out = arrays.addresses()
    plan = Prepared()
    contenders.bound(plan, lambda: kernels, 0)(arrays, 0)  # pyright: ignore[reportArgumentType]
    assert seen == [("whole", (a, b, out))]
    run = contenders.bound_prepared(plan, lambda: kernels, 0)
    for filled in (True, False, True):
        if filled:
            arrays.fill(-1, 1)
        run(arrays, 0)
    names = [name for name, _ in seen[1:]]
    assert names == ["filter", "main", "main", "filter", "main"]
    (_, (_, taken, made)), (_, (read, used, written)) = seen[1:3]
    assert (taken, read, written) == (b, a, out)
    assert used == made


def test_laps_add_up_by_part(monkeypatch) -> None:
    monkeypatch.setattr(timing.time, "monotonic", lambda: Clock.seconds)
    lap = timing.Laps()
    for part, seconds in (("a", 1.0), ("b", 2.0), ("a", 0.25)):
        Clock.advance(seconds)
        lap(part)
    assert lap.seconds == pytest.approx({"a": 1.25, "b": 2.0})
