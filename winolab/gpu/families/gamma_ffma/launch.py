"""Launches of Γα(n,r) on FFMA units: a group's filter is transformed, then all else is done."""

from __future__ import annotations

from winolab.gpu.codegen.structs import layout
from winolab.gpu.families import correlation_params
from winolab.gpu.families.epilogue import finished
from winolab.gpu.families.gamma_ffma.tiling import FILTER_THREADS, Tiling
from winolab.gpu.params import Kernels, Params, View

# The kernels' parameter structs, field for field.
FILTER_PARAMS = layout("GammaFfmaFilterParams", "gamma_ffma/filter")
PARAMS = layout("PlainParams", "gamma_ffma/block")
FUSED_PARAMS = layout("FusedParams", "gamma_ffma/block")
FALLBACK_PARAMS = layout("FallbackParams", "gamma_ffma/fallback_kernel")  # behind three structs


def launch(call: Tiling, kernels: Kernels, a: View, b: View, out: View, workspace: int) -> None:
    """Compute all groups on the current stream."""
    if call.config.fused:
        _launch_fused(call, kernels, a, b, out)
        return
    prepare(call, kernels, b, workspace)
    run(call, kernels, a, workspace, out, call.device.early_launches)


def _launch_fused(call: Tiling, kernels: Kernels, x: View, w: View, y: View) -> None:
    """The same by blocks that transform the filter: one launch a group."""
    for group in range(call.correlation.groups):
        x_at, _, y_at, *values = _values(call, group, x, 0, y)
        address, *strides = correlation_params.filter_map(call.correlation, w, group, 4)
        params = FUSED_PARAMS.pack(x_at, address, y_at, *strides, *values)
        _launch(call, kernels, group, params, y, early=False)


def prepare(call: Tiling, kernels: Kernels, b: View, prepared: int) -> None:
    """Transform the filter."""
    for group in range(call.correlation.groups):
        params = filter_params(call, group, b, prepared)
        kernels["winolab_gamma_ffma_filter"](call.filter_grid, FILTER_THREADS, params)


def run(call: Tiling, kernels: Kernels, x: View, prepared: int, y: View, early: bool) -> None:
    """Convolve with a transformed filter; ``early``: the launch before transforms it."""
    for group in range(call.correlation.groups):
        params = main_params(call, group, x, prepared, y)
        _launch(call, kernels, group, params, y, early and group == 0)


def _launch(
    call: Tiling, kernels: Kernels, group: int, params: Params, y: View, early: bool
) -> None:
    params = finished(params, y, group * call.correlation.out_channels, "float32")
    kernels["winolab_gamma_ffma"]((call.grid, 1, 1), call.config.threads, params, early)


def fall_back(
    call: Tiling, kernels: Kernels, scan: Params, x: View, w: View | None, prepared: int, y: View
) -> None:
    """Compute all groups where the flags ask for it: a launch a group scans x, transforms w,
    if there is one, and convolves."""
    blocks = call.filter_grid if w else (0, 0, 0)
    for group in range(call.correlation.groups):
        params = Params.of(
            scan,
            filter_params(call, group, w, prepared),
            main_params(call, group, x, prepared, y),
            FALLBACK_PARAMS.pack(*blocks, group),
        )
        early = call.device.early_launches
        kernels["winolab_gamma_ffma_fallback"]((call.grid, 1, 1), call.threads, params, early)


def filter_params(call: Tiling, group: int, w: View | None, prepared: int) -> Params:
    """Parameters of the transform of a group's filter; zeros without one."""
    c = call.correlation
    if w is None:
        return FILTER_PARAMS.pack(*(0 for _ in FILTER_PARAMS.fields))
    address, *strides = correlation_params.filter_map(c, w, group, 4)
    depth, height, width = call.outer
    return FILTER_PARAMS.pack(
        address,
        _filter(call, group, prepared),
        *strides,
        c.out_channels,
        c.channels,
        depth * height * width,
        height,
        width,
        call.chunks,
        call.blocks_m,
    )


def main_params(call: Tiling, group: int, x: View, prepared: int, y: View) -> Params:
    """Parameters of a group's convolution, the transformed filters at address ``prepared``."""
    return PARAMS.pack(*_values(call, group, x, prepared, y))


def _values(call: Tiling, group: int, x: View, prepared: int, y: View) -> tuple[int, ...]:
    """What both structs have: addresses of a group's x, U and y, and how they are cut."""
    return (
        x.address + 4 * group * call.correlation.channels,
        _filter(call, group, prepared),
        y.address + 4 * group * call.correlation.out_channels,
        *correlation_params.values(call, x, y),
    )


def _filter(call: Tiling, group: int, prepared: int) -> int:
    """The address of a group's transformed filter."""
    return prepared + group * (call.workspace // call.correlation.groups)
