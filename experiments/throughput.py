"""How fast the CUDA kernels are beside PyTorch's and cuDNN's, in one run: ``python -m
experiments.throughput [--layers NAME]``. Rows are added to experiments/results/throughput.jsonl.

Effective TFLOPS are 2·N·OC·OH·OW·FH·FW·IC / time, whatever is multiplied. The filter transform is
counted unless a row says "prepared". Rounds are interleaved; a row has the median and quartiles.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from experiments.facts import ROOT
from winolab.environment import provenance
from winolab.gpu import conv, launch
from winolab.gpu.gamma import GammaPlan
from winolab.gpu.launch import View
from winolab.gpu.plan import Plan, plan
from winolab.gpu.timing import Times, interleave
from winolab.nouns import Algorithm, Problem, gamma

RESULTS = ROOT / "experiments" / "results" / "throughput.jsonl"
FLUSH = 256 << 20  # bytes, several times the L2 cache
SGEMM = 8192

# (alpha, n, r), batch, output height and width, channels in and out.
Layer = tuple[tuple[int, int, int], int, tuple[int, int], int, int]


def square(kernel: tuple[int, int, int], batch: int, sizes: dict[int, int]) -> list[Layer]:
    """Layers of outputs hw × hw with as many channels in as out."""
    return [(kernel, batch, (hw, hw), c, c) for hw, c in sizes.items()]


LAYERS: dict[str, list[Layer]] = {
    # the shapes of the published kernels' measurements
    "dragon": [
        *square((8, 6, 3), 128, {96: 64, 48: 128, 24: 256, 12: 512}),
        *square((8, 4, 5), 64, {128: 64, 64: 128, 32: 256}),
        *square((16, 8, 9), 32, {128: 64, 64: 128, 32: 256}),
    ],
    "resnet": square((8, 6, 3), 32, {56: 64, 28: 128, 14: 256, 7: 512}),
    "odd": [
        ((8, 6, 3), 32, (48, 48), 63, 65),
        ((8, 6, 3), 32, (47, 47), 127, 129),
        ((8, 4, 5), 32, (31, 31), 99, 101),
        ((16, 8, 9), 16, (61, 61), 61, 67),
    ],
    # Im2col-Winograd, Table 3, one column a kernel, and smaller and larger outputs at equal work
    "grid": [
        *square((8, 7, 2), 128, {112: 64, 56: 128, 28: 256, 14: 512}),
        *square((8, 5, 4), 128, {80: 64, 40: 128, 20: 256, 10: 512}),
        *square((8, 6, 3), 128, {96: 64, 48: 128, 24: 256, 12: 512}),
        *square((8, 4, 5), 64, {128: 64, 64: 128, 32: 256, 16: 512}),
        *square((8, 3, 6), 64, {96: 64, 48: 128, 24: 256, 12: 512}),
        *square((8, 2, 7), 32, {128: 64, 64: 128, 32: 256, 16: 512}),
        *square((16, 10, 7), 32, {80: 64, 40: 128, 20: 256, 10: 512}),
        *square((16, 9, 8), 32, {144: 64, 72: 128, 36: 256, 18: 512}),
        *square((16, 8, 9), 32, {128: 64, 64: 128, 32: 256, 16: 512}),
    ],
}


def problem_of(layer: Layer) -> Problem:
    """The layer's problem: r × r filters, ⌊r/2⌋ padding in front, its output as stated."""
    (_, _, r), batch, output, channels, out_channels = layer
    pads = [(r // 2, r - 1 - r // 2)] * 2
    return Problem.of((batch, *output, channels), (out_channels, r, r, channels), padding=pads)


def measure(layer: Layer, direction: str, torch: Any) -> Iterator[dict[str, Any]]:
    """Rows of one layer: its kernel, cold and warm, with the filter prepared, and cuDNN's."""
    problem, algorithm = problem_of(layer), gamma(*layer[0])
    chosen = plan(problem, direction, launch.device(0), algorithm)
    x_shape, y_shape = problem.x_shape, problem.y_shape
    if direction == "backward_data":
        x_shape, y_shape = y_shape, x_shape
    x = torch.rand(x_shape, device="cuda") * 2 - 1
    w = torch.rand(problem.w_shape, device="cuda") * 2 - 1
    y = torch.empty(y_shape, device="cuda")
    run = conv.conv_forward if direction == "forward" else conv.conv_backward_data
    calls: dict[str, Callable[[], Any]] = {
        "winolab": lambda: run(x, w, problem=problem, algorithm=algorithm, out=y),
        "winolab prepared": prepared(chosen, x, w, y, torch),
    }
    for memory, order in (("NHWC", torch.channels_last), ("NCHW", torch.contiguous_format)):
        calls[f"torch {memory}"] = library(direction, problem, x, w, order, torch)
    common = {
        "input": "x".join(map(str, problem.x_shape)),
        "filter": "x".join(map(str, problem.w_shape)),
        "direction": direction,
        "algorithm": str(algorithm),
        "plan": str(chosen.variant),
        "predicted_us": chosen.predicted * 1e6,
        "workspace": chosen.workspace,
        **errors(layer, direction, algorithm, torch),
    }
    for l2, flush in (("cold", FLUSH), ("warm", 0)):
        for method, times in interleave(calls, rounds=7, flush=flush).items():
            yield {**common, "method": method, "l2": l2, **speed(problem, times)}


def prepared(chosen: Plan, x: Any, w: Any, y: Any, torch: Any) -> Callable[[], None]:
    """The main kernel alone, its filter transformed once."""
    assert isinstance(chosen, GammaPlan)
    title = f"{chosen.kernel} {chosen.variant}"
    kernels = launch.load(chosen.source(), title, chosen.shared(), 0)
    u = torch.empty(chosen.workspace, dtype=torch.uint8, device="cuda")
    a, b, out = (View(t.data_ptr(), strides(t)) for t in (x, w, y))
    chosen.transform_filter(kernels, 0, b, u.data_ptr())
    torch.cuda.synchronize()
    return lambda: chosen.correlate(kernels, 0, a, u.data_ptr(), out)


def strides(a: Any) -> tuple[int, ...]:
    first, height, width, last = a.stride()
    return first, 0, height, width, last


def library(direction: str, problem: Problem, x: Any, w: Any, order: Any, torch: Any) -> Any:
    """PyTorch's convolution in FP32 without TF32, cuDNN's fastest algorithm by its benchmark."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    pads = [lo for lo, _ in problem.padding]
    if any(lo != hi for lo, hi in problem.padding):  # cuDNN pads evenly: one column more
        pads = [max(pair) for pair in problem.padding]
    a, b = (t.movedim(-1, 1).contiguous(memory_format=order) for t in (x, w))
    if direction == "forward":
        return lambda: torch.nn.functional.conv2d(a, b, padding=pads)
    shape = (problem.batch, problem.in_channels, *problem.input)
    if any(lo != hi for lo, hi in problem.padding):
        a = torch.nn.functional.pad(a, (0, 1, 0, 1)).contiguous(memory_format=order)
    return lambda: torch.nn.grad.conv2d_input(shape, b, a, padding=pads)


def errors(layer: Layer, direction: str, algorithm: Algorithm, torch: Any) -> dict[str, float]:
    """Relative RMS on U[-1, 1) and MARE on U[1, 2) of one image, against FP64."""
    kernel, _, output, channels, out_channels = layer
    problem = problem_of((kernel, 1, output, channels, out_channels))
    forward = direction == "forward"
    shape = problem.x_shape if forward else problem.y_shape
    run = conv.conv_forward if forward else conv.conv_backward_data
    generator = torch.Generator("cuda").manual_seed(0)
    found = {}
    for name, scale, shift in (("relative_rms_u11", 2, -1), ("mare_u12", 1, 1)):
        x, w = (
            torch.rand(s, device="cuda", generator=generator) * scale + shift
            for s in (shape, problem.w_shape)
        )
        y = run(x, w, problem=problem, algorithm=algorithm).double()
        pads = [edge for pair in reversed(problem.padding) for edge in pair]
        a, b = (t.double().movedim(-1, 1) for t in (x, w))
        if forward:
            exact = torch.nn.functional.conv2d(torch.nn.functional.pad(a, pads), b)
        else:
            exact = torch.nn.functional.conv_transpose2d(a, b)
            (top, _), (left, _) = problem.padding
            height, width = problem.input
            exact = exact[:, :, top : top + height, left : left + width]
        error, exact = y - exact.movedim(1, -1), exact.movedim(1, -1)
        relative = (
            (error.abs() / exact.abs()).mean()
            if name.startswith("mare")
            else (error.square().mean() / exact.square().mean()).sqrt()
        )
        found[name] = float(relative)
    return found


def speed(problem: Problem, times: Times) -> dict[str, float]:
    """Microseconds and effective TFLOPS."""
    return {
        "low_us": times.low * 1e6,
        "median_us": times.median * 1e6,
        "high_us": times.high * 1e6,
        "rounds": times.rounds,
        "tflops": 2 * problem.macs / times.median / 1e12,
    }


def sgemm(torch: Any) -> float:
    """TFLOPS of a square FP32 matrix product without TF32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.randn(SGEMM, SGEMM, device="cuda") for _ in range(2))
    times = interleave({"sgemm": lambda: torch.mm(a, b)}, rounds=5)
    return 2 * SGEMM**3 / times["sgemm"].median / 1e12


def main(
    layers: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(LAYERS)}.")] = "dragon",
    directions: Annotated[str, typer.Option(help="Comma-separated.")] = "forward,backward_data",
    output: Annotated[str, typer.Option(help="File that rows are added to.")] = str(RESULTS),
) -> None:
    """Measure the named layers on this GPU and print what was found."""
    torch = importlib.import_module("torch")
    device = launch.device(0)
    top = sgemm(torch)
    context = {
        **provenance(),
        "device": device.name,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "torch": torch.__version__,
        "sgemm_tflops": top,
    }
    with open(output, "a") as file:
        for name in layers.split(","):
            for layer in LAYERS[name]:
                for direction in directions.split(","):
                    rows = [
                        {**context, "layers": name, **row}
                        for row in measure(layer, direction, torch)
                    ]
                    file.writelines(json.dumps(row) + "\n" for row in rows)
                    file.flush()
                    (alpha, n, r), *_ = layer
                    cold = {row["method"]: row for row in rows if row["l2"] == "cold"}
                    best = cold["winolab"]["tflops"]
                    limit = best / (n * r / alpha * top)
                    others = " ".join(f"{m} {row['tflops']:.1f}" for m, row in cold.items())
                    first = rows[0]
                    typer.echo(
                        f"{direction:13s} {first['algorithm']} {first['input']} {first['filter']}: "
                        f"{others}; /(Φ·SGEMM) {limit:.3f} rms {first['relative_rms_u11']:.1e} "
                        f"mare {first['mare_u12']:.1e}"
                    )


if __name__ == "__main__":
    typer.run(main)
