"""The command ``bench`` as far as it goes without a GPU, and the layers it knows."""

from __future__ import annotations

import json
import math
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.cli.bench_rows import ROWS, row
from winolab.algorithm import gamma
from winolab.bench.layers import SQUARES, TABLE3, Layer, grid, parse_layer
from winolab.cli import bench
from winolab.gpu.machine import MachineError


def test_the_fastest_of_each_kind_stands_in_the_table() -> None:
    found = {name: one and one["tflops"] for name, one in bench.columns(ROWS).items()}
    assert found == {
        "ours": 200, "FFMA": 100, "cuDNN frugal": 25, "cuDNN any": 50, "PyTorch": 30, "TF32": 160,
    }  # fmt: skip
    text = shown(bench.table(ROWS))
    for expected in ("200.0", "8.00", "4.00", "5.0e-07", "SGEMM 50.0", "a GPU"):
        assert expected in text
    assert "ours 200.0" in bench.line(ROWS)


def test_a_case_that_nobody_of_ours_runs_has_a_line() -> None:
    assert "none" in shown(bench.table([one for one in ROWS if one["method"] != "winolab"]))


def test_who_is_left_out_is_told_with_the_reason_once() -> None:
    cache = "compiled kernels are kept in /c, which cannot be used: set WINOLAB_CACHE"
    reasons = {
        "cudnn FFT NHWC fma fp32": "cudnnX: CUDNN_STATUS_NOT_SUPPORTED",
        "cudnn DIRECT NHWC fma fp32": "cudnnX: CUDNN_STATUS_NOT_SUPPORTED",
        "winolab Γ8(6,3) fp32 best 8 96 B": cache,
        "winolab Γ8(6,3) fp32 best 16 96 B": cache,
        "winolab Γ4(2,3) fp32 best 8 96 B": cache,
        "torch": "torch is " + "not " * 200 + "installed",
    }
    refused = {**row("", "", 0), "method": "refused", "reasons": reasons}
    del refused["tflops"]
    ours, many, torch = bench.left_out([refused, refused])
    assert ours == f"winolab Γ8(6,3) fp32 and 1 more: {cache}"
    assert many == "cudnn FFT NHWC and 1 more: cudnnX: CUDNN_STATUS_NOT_SUPPORTED"
    assert len(torch) < 450
    assert torch.endswith(" …")
    case, *below = bench.line([refused]).splitlines()
    assert case == "32x56x56x64:64x3x3 forward fp32: nobody ran it"
    assert below == [f"  left out: {ours}", f"  left out: {torch}"]
    text = shown(bench.table([*ROWS, refused]))
    assert text.count(f"Left out: {ours}") == 1
    assert text.count("CUDNN_STATUS_NOT_SUPPORTED") == 1
    assert "left out" not in bench.line(ROWS).lower()


def test_layers_by_list_and_by_shape() -> None:
    assert [name for name, _ in bench.named("resnet,4x8x8x16:32x3x3")] == ["resnet"] * 4 + ["given"]
    layer = parse_layer("4x8x9x16:32x3x3")
    assert layer == Layer(4, (8, 9), 16, 32, 3)
    assert layer.problem.y_shape == (4, 8, 9, 32)
    assert str(layer) == "4x8x9x16:32x3x3"
    with pytest.raises(ValueError, match="expected N x OH x OW x IC"):
        parse_layer("drago")
    with pytest.raises(ValueError, match="square"):
        parse_layer("4x8x9x16:32x3x5")


@pytest.mark.parametrize(
    "text", ["0x1x1x1:1x1x1", "1x0x1x1:1x1x1", "1x1x1x0:1x1x1", "1x1x1x1:0x3x3", "1x1x1x1:1x2x2"]
)
def test_layers_with_nothing_to_compute_are_refused(text) -> None:
    """Even filters with outputs of 1 × 1 too, for which inputs have no size."""
    with pytest.raises(ValueError, match="leave nothing to compute; expected sizes above 0"):
        bench.command(text)


@pytest.mark.parametrize("name", SQUARES)
def test_outputs_and_symmetric_padding(name: str) -> None:
    for layer in SQUARES[name]:
        problem = layer.problem
        assert problem.output == layer.output
        assert all(low == high == layer.taps // 2 for low, high in problem.padding)
        if layer.kernel:
            assert layer.algorithm == gamma(*layer.kernel)
            assert layer.kernel[2] == layer.taps
        else:
            assert layer.algorithm is None


def test_the_grid_has_ten_shapes_a_kernel_at_equal_work() -> None:
    for kernel in TABLE3:
        mine = [layer.problem.macs for layer in grid() if layer.kernel == kernel]
        assert len(mine) == 10
        assert max(mine) / math.fsum(mine) * 10 < 1.08
    widths = {layer.output[1] % layer.kernel[1] == 0 for layer in SQUARES["table3"] if layer.kernel}
    assert widths == {True}


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="direction 'sideways'; expected forward"):
        bench.command("resnet", direction="sideways")
    with pytest.raises(ValueError, match="precision 'fp8'; expected fp32"):
        bench.command("resnet", precision="fp8")


def test_without_a_gpu_it_says_so(monkeypatch) -> None:
    def missing():
        raise MachineError("CuPy counts 0 CUDA devices")

    monkeypatch.setattr(bench.driver, "cupy", missing)
    with pytest.raises(MachineError, match="0 CUDA devices"):
        bench.command("resnet")


def test_rows_are_added_to_a_file_that_is_opened_first(monkeypatch, tmp_path, capsys) -> None:
    def measured(*_):
        measuring.append(True)
        yield ROWS[:1]
        assert len(file.read_text().splitlines()) == 1  # written as soon as it is measured
        yield ROWS[1:]

    measuring: list[bool] = []
    monkeypatch.setattr(bench.driver, "cupy", lambda: None)
    monkeypatch.setattr(bench, "measured", measured)
    with pytest.raises(FileNotFoundError):
        bench.command("resnet", out=tmp_path / "no" / "rows")
    assert not measuring
    file = tmp_path / "rows"
    bench.command("resnet", out=file, as_json=True)
    assert [json.loads(text) for text in file.read_text().splitlines()] == ROWS


def test_without_cudnn_or_torch_the_machine_is_told_all_the_same(monkeypatch) -> None:
    def missing(*_):
        raise MachineError("libcudnn was not found")

    runtime = SimpleNamespace(runtimeGetVersion=lambda: 12090)
    cuda = SimpleNamespace(runtime=runtime, Device=lambda index: nullcontext())
    host = SimpleNamespace(__version__="14.0", cuda=cuda)
    monkeypatch.setattr(bench.driver, "cupy", lambda: host)
    monkeypatch.setattr(bench.driver, "device", lambda index: SimpleNamespace(name="a GPU"))
    monkeypatch.setattr(bench.compare, "sgemm", lambda: 50.0)
    monkeypatch.setattr(bench.cudnn, "library", missing)
    monkeypatch.setitem(sys.modules, "torch", None)
    machine = bench.context()
    assert (machine["cudnn"], machine["torch"], machine["cuda"]) == (None, None, "12.9")
    bench.cudnn.handle.cache_clear()
    with pytest.raises(MachineError, match="libcudnn"):
        bench.ready()
    assert "no cuDNN" in shown(bench.table([{**row, **machine} for row in ROWS]))


def shown(table) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()
