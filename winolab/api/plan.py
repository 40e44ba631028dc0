"""What the command shows, from Python: the planner's decision without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from winolab.algorithm import Algorithm
from winolab.arguments.arrays import DtypeLike, precision_of_shapes
from winolab.arguments.shapes import nonempty
from winolab.arguments.values import Padding, Sizes, layer_shapes
from winolab.device import Device, datasheet
from winolab.options import ConvOptions
from winolab.problem import Direction, Layout, Problem

if TYPE_CHECKING:
    from winolab.api.planned import Planned


def plan(
    input_shape: Sequence[int],
    filter_shape: Sequence[int],
    *,
    direction: Direction = "forward",
    algorithm: str | Algorithm | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
    precision: str | DtypeLike | None = "fp32",
    device: str | Device = "h100",
    workspace_limit: int | None = None,
    tolerance: float | str | None = None,
) -> Planned:
    """The kernels that a call on a GPU would run, and what else was considered; needs no GPU.

    ``input_shape`` and ``filter_shape`` are x's and w's in ``layout`` in every ``direction``:
    "forward", "backward_data" or "backward_filter". The arrays are taken to be aligned and dense in
    that memory order: of channels-first ones the answer says which are copied, or that kernels read
    them where they lie. ``precision`` is "fp32", "fp32_ffma", "fp32_split", "fp16", "bf16", or, of
    16-bit arrays in FP32 arithmetic, "fp16_ffma" or "bf16_ffma", or a dtype; None is "fp32".
    ``device`` is a name of ``winolab devices`` or a Device; ``workspace_limit`` is in bytes;
    ``tolerance`` counts for data uniform on [-1, 1]. The other arguments are those of
    :func:`winolab.conv_forward`.

    The result prints, ``plot()`` draws it, and ``to_dict()`` has it as JSON has: kernel, config,
    workspace in bytes, predicted time in µs and relative RMS error of the plan and of the fastest
    of every kernel.

    Raises ValueError, in one line, for shapes, algorithms, precisions and devices that are unknown
    or do not fit, a tolerance beside an algorithm or that nothing keeps to, where no kernel runs
    the problem or stays within the limit, TypeError for values of other types.

    >>> found = winolab.plan((128, 48, 48, 128), (128, 3, 3, 128), padding=1)
    >>> found.chosen.kernel, found.to_dict()["plan"]["workspace_bytes"]
    ('Γ8(6,3)', 1621248)
    """
    from winolab.api.planned import planned
    from winolab.gpu.planner.request import Request

    asked = ConvOptions(
        layout,
        algorithm,
        precision_of_shapes(precision),
        workspace_limit=workspace_limit,
        tolerance=tolerance,
    ).checked()
    whole = Problem.of(
        *layer_shapes(input_shape, filter_shape),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        layout=layout,
    )
    gpu = device if isinstance(device, Device) else datasheet(device)
    request = Request(
        nonempty(whole),
        direction,
        gpu,
        asked.named,
        asked.precision,
        workspace_limit=workspace_limit,
        tolerance=asked.tolerance,
    )
    return planned(request, asked)
