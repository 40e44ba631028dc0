"""Rows as ``winolab bench`` measures them, typed."""

from __future__ import annotations

MACHINE = {
    "device": "a GPU", "driver": "1", "cuda": "13.0", "cudnn": "9.19.0", "sgemm_tflops": 50.0,
}  # fmt: skip


def row(method: str, products: str, tflops: float, **more) -> dict:
    case = {"layer": "32x56x56x64:64x3x3", "direction": "forward", "precision": "fp32"}
    names = {"method": method, "kernel": "K", "products": products, "tflops": tflops}
    return {**MACHINE, **case, **names, "relative_rms_u11": 1e-6, **more}


ROWS = [
    row("winolab", "fp32", 100, chosen=False),
    row("winolab", "fp32_split", 200, chosen=True, relative_rms_u11=5e-7),
    row("cudnn", "fp32", 20, frugal=True),
    row("cudnn", "fp32", 25, frugal=True),
    row("cudnn", "fp32", 50, frugal=False),
    row("cudnn", "tf32 allowed", 150, frugal=True),
    row("torch", "tf32", 160),
    row("torch", "fp32", 30),
    {**row("cudnn", "fp32", 0), "method": "refused", "reasons": {}},
]
del ROWS[-1]["tflops"]
