"""Whether maps that lie channels-first are copied for the plan that is picked, or read and written
in place by another. Plans are ranked without knowing the memory order. Two families work on planes:
depthwise kernels, each of which knows its plan ``in_planes``, and cuBLASLt's products of one tap,
which may be faster than another family's pick."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from winolab.algorithm import direct
from winolab.arguments.variants import CUBLASLT
from winolab.device import Device
from winolab.gpu.families.axes import pointwise
from winolab.gpu.machine import without_cublaslt
from winolab.gpu.params import MATMUL
from winolab.gpu.planner.device_model import MODEL
from winolab.gpu.planner.rates import copying
from winolab.gpu.planner.request import Plan, Request


def takes_less(other: Plan, chosen: Plan, copied: Iterable[int]) -> bool:
    """Whether ``other`` is predicted to take less time than ``chosen`` and copies of so many bytes
    each."""
    return other.predicted < chosen.predicted + copies(chosen.device, copied)


def copies(device: Device, sizes: Iterable[int]) -> float:
    """Seconds of copies of so many bytes each, by launches of their own."""
    return sum(MODEL.device.launch + copying(device, 2 * size) for size in sizes)


def product_of_planes(
    request: Request,
    chosen: Plan,
    planned: Callable[[Request], Plan],
    sizes: Callable[[int], Iterable[int]],
) -> Plan:
    """``chosen``, or the product that reads and writes maps as planes: where that is what was named
    or is predicted to take less time than ``chosen`` between copies of them.

    ``planned`` answers requests; ``sizes`` says the bytes of maps that ``chosen`` has copied and
    that are planes at multiples of so many bytes.
    """
    says = bool(request.algorithm or request.config)
    if chosen.plane_step or not pointwise(request.problem):
        return chosen
    if says and MATMUL not in chosen.shared():
        return chosen
    if not says and (request.tolerance or without_cublaslt()):
        return chosen
    asked = request if says else replace(request, algorithm=direct(variant=CUBLASLT))
    try:
        other = planned(replace(asked, planes=True))
    except ValueError:  # of that precision, or within the limit, there is none
        return chosen
    copied = list(sizes(other.plane_step)) if other.plane_step else []
    return other if copied and (says or takes_less(other, chosen, copied)) else chosen
