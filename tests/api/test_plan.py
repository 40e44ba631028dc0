"""The planner's door: what winolab.plan says without a GPU, and what it refuses in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import winolab
from winolab.cli.command import app
from winolab.device import H100, datasheet
from winolab.gpu.planner.planner import plan
from winolab.gpu.planner.request import DIRECTIONS, Request
from winolab.problem import Problem

X, W = (128, 48, 48, 128), (128, 3, 3, 128)


def test_what_is_beyond_the_limit_is_marked() -> None:
    found = winolab.plan(X, W, padding=1, precision="fp32_ffma", workspace_limit=0)
    shown = str(found).partition("the choice, and")[2].splitlines()[1:]
    marked = ["beyond the limit" in line for line in shown[: len(found.fastest)]]
    assert marked == [plan.workspace > 0 for plan in found.fastest]
    assert any(marked)
    assert not marked[0]
    assert "beyond the limit" not in str(winolab.plan(X, W, padding=1, precision="fp32_ffma"))


def test_why_no_kernel_runs_an_algorithm_does_not_contradict_itself() -> None:
    with pytest.raises(ValueError, match=r"only Tensor Cores and FFMA units of 9\.0 run") as raised:
        winolab.plan(X, W, padding=1, algorithm="winograd:2x2:3x3", device="rtx3090")
    assert "run winograd:2x2:3x3, and FFMA" not in str(raised.value)
    with pytest.raises(ValueError, match=r"not fft:8:3, which NumPy arrays run on the reference"):
        winolab.plan(X, W, padding=1, algorithm="fft:8:3")


@pytest.mark.parametrize("precision", ["fp32_ffma", "fp16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_it_says_what_a_call_would_run(direction: Any, precision: str) -> None:
    found = winolab.plan(X, W, direction=direction, padding=1, precision=precision)
    taken = plan(Request(Problem.of(X, W, padding=1), direction, H100, precision=precision))
    assert found.chosen == taken
    assert str(found).startswith(f"{taken}\nerror ")
    told = json.loads(json.dumps(found.to_dict()))
    assert (told["x"], told["w"], told["device"]) == ([*X], [*W], H100.name)
    assert (told["direction"], told["precision"]) == (direction, precision)
    assert told["plan"]["kernel"] == taken.kernel
    assert told["plan"]["config"] == str(taken.config)
    assert told["plan"]["workspace_bytes"] == taken.workspace
    assert abs(told["plan"]["predicted_us"] - 1e6 * taken.predicted) <= 5e-4
    assert {(k["kernel"], k["products"]) for k in told["kernels"]} >= {
        (taken.kernel, taken.precision)
    }


@pytest.mark.parametrize("direction", ["forward", "backward-data"])
def test_the_command_prints_it(direction: str) -> None:
    asked = ["--input", "8x14x14x32", "--filter", "48x3x3", "--padding", "1"]
    asked += ["--precision", "fp32_ffma", "--device", "a100", "--json"]
    printed = CliRunner().invoke(app, ["plan", direction, *asked])
    way: Any = direction.replace("-", "_")
    found = winolab.plan(
        (8, 14, 14, 32), (48, 3, 3, 32), direction=way, padding=1,
        precision="fp32_ffma", device="a100",
    )  # fmt: skip
    assert json.loads(printed.stdout) == json.loads(json.dumps(found.to_dict()))


def test_arguments_mean_what_they_do_in_calls() -> None:
    usual = winolab.plan((8, 14, 12, 32), (48, 3, 3, 32), padding=1, precision="fp16")
    for same in (
        winolab.plan(
            (8, 32, 14, 12), [48, 32, 3, 3], padding="same", layout="channels_first",
            precision="float16",
        ),
        winolab.plan(
            (8, 14, 12, 32), (48, 3, 3, 32), padding=((1, 1), (1, 1)), precision="fp16",
            device=datasheet("NVIDIA H100 80GB HBM3"), workspace_limit=1 << 30,
        ),
    ):  # fmt: skip
        assert same.chosen == usual.chosen
    named = winolab.plan(X, W, padding=1, precision="fp16", algorithm="gamma:8:6:3@paper")
    value = winolab.gamma(8, 6, 3, points="paper")
    assert named == winolab.plan(X, W, padding=1, precision="fp16", algorithm=value)
    assert named.to_dict()["plan"]["points"] == "paper"


@pytest.mark.parametrize(
    ("x", "w", "how", "copied", "kind"),
    [
        ((8, 32, 28, 28), (32, 1, 3, 3), {"groups": 32, "padding": 1}, (), "planes"),
        ((8, 256, 28, 28), (512, 256, 1, 1), {"precision": "fp16"}, (), "workspace"),
        (
            (8, 32, 28, 28), (32, 32, 3, 3), {"precision": "fp16", "padding": 1},
            ("x", "w", "y"), "stages",
        ),
    ],
)  # fmt: skip
def test_channels_first_arrays_are_copied_or_read_where_they_lie(x, w, how, copied, kind) -> None:
    """As calls do: the depthwise pick's twin on planes, cuBLASLt's product, else copies."""
    found = winolab.plan(x, w, layout="channels_first", **how)
    assert found.chosen
    assert found.copied is not None
    assert kind in str(found.chosen.config)
    assert tuple(name for name, _ in found.copied) == copied
    told = found.to_dict()
    assert dict(found.copied) == told["copied_bytes"]
    assert (told["copying_us"] > 0) == bool(copied)
    if copied:
        assert told["copied_bytes"]["x"] == 2 * 8 * 32 * 28 * 28
        assert "arrays     channels first: x, w and y by copies, " in str(found)
    else:
        assert "arrays     channels first, read and written where they lie" in str(found)
    last = winolab.plan((x[0], *x[2:], x[1]), (w[0], *w[2:], w[1]), **how)
    assert last.copied is None
    assert "copied_bytes" not in last.to_dict()
    assert "arrays  " not in str(last)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"direction": "backwards"}, ValueError, "direction 'backwards'; expected one of"),
        ({"precision": "fp8"}, ValueError, "precision 'fp8'; expected one of"),
        ({"device": "h1000"}, ValueError, "unknown device 'h1000'; expected one of"),
        ({"device": 9}, TypeError, "device is of type int; expected a name"),
        ({"layout": "nchw"}, ValueError, "layout 'nchw'"),
        ({"algorithm": "gamma:8:6:5"}, ValueError, "alpha must be n"),
        ({"workspace_limit": -1}, ValueError, "workspace_limit is -1"),
        (
            {"workspace_limit": 64, "precision": "fp32_ffma", "algorithm": "gamma:8:6:3"},
            ValueError,
            "a workspace of 64 B",
        ),
        ({"stride": 2, "algorithm": "gamma:8:6:3"}, ValueError, "stride"),
        ({"groups": 3}, ValueError, "input channels in 3 group"),
        ({"padding": -9}, ValueError, "padding"),
    ],
    ids=str,
)
def test_it_refuses_in_one_line(how: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as refused:
        winolab.plan((8, 14, 14, 32), (48, 3, 3, 32), **{"precision": "fp16", **how})
    assert "\n" not in str(refused.value)


def test_nothing_to_compute_is_no_plan() -> None:
    with pytest.raises(ValueError, match="leave nothing to compute"):
        winolab.plan((0, 14, 14, 32), (48, 3, 3, 32))
