"""Simulated arithmetics whose products a GPU sums, by the kernel of their order: NumPy's bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from winolab.gpu import driver
from winolab.gpu.codegen import simulated
from winolab.gpu.codegen.simulated import KERNEL
from winolab.gpu.runtime.loader import load
from winolab.ref.arithmetic.simulated import Arithmetic, Carrier, Float


@dataclass(frozen=True)
class OnGpu(Float):
    """A Float whose matrix products are summed on CuPy's current device. Carriers are NumPy's."""

    def summed_products(self, a: Carrier, b: Carrier) -> Carrier:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        (rows, depth), columns = a.shape[-2:], b.shape[-1]
        shape = (*batch, rows, columns)
        if depth == 0 or math.prod(shape) == 0:
            return np.zeros(shape)
        edge = simulated.tile(self.accumulation)
        a = simulated.operand(np.broadcast_to(a, (*batch, rows, depth)), edge)
        b = np.broadcast_to(b, (*batch, depth, columns))
        b = simulated.operand(np.swapaxes(b, -1, -2), edge)
        cp = driver.cupy()
        left, right = cp.asarray(a), cp.asarray(b)
        filled = (len(a), a.shape[-1], b.shape[-1], depth)
        y = cp.empty((len(a), *filled[1:3]), np.float32)
        index = cp.cuda.Device().id
        source = simulated.source(
            self.accumulation, self.accumulate, self.fused, depth.bit_length()
        )
        kernels = load(source, f"simulated {self.accumulation} sums", {KERNEL: 0}, index)
        simulated.launch(kernels, [v.data.ptr for v in (left, right, y)], filled, edge)
        got = cp.asnumpy(y)[:, :rows, :columns]
        return got.reshape(shape).astype(np.float64)


def on_gpu(run: Arithmetic) -> OnGpu:
    """The same arithmetic with its sums on a GPU.

    Raises ValueError where they stay on the CPU: exact numbers, mpmath's, sums in FP64.
    """
    if not isinstance(run, Float) or run.accumulation.kind not in simulated.ORDERS:
        raise ValueError(
            f"precision {run.name} is computed on the CPU alone: leave gpu=True, or --gpu, out, or "
            "take a simulated format such as 'fp32'"
        )
    return OnGpu(**{field.name: getattr(run, field.name) for field in fields(run)})
