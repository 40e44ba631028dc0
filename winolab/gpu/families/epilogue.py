"""What families tell their kernels of the epilogue that these apply as they store y."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from winolab.arguments.epilogue import KINDS, Epilogue
from winolab.gpu.codegen.emit import EPILOGUE
from winolab.gpu.codegen.structs import layout
from winolab.gpu.params import Params, View
from winolab.gpu.planner.request import ITEMSIZE
from winolab.ref.epilogue import HIGH, LOG2E, LOW

FINISHED = {"float32": 0, "float16": 1, "bfloat16": 2}
PARAMS = layout("EpilogueParams", "epilogue")


def constants(epilogue: Epilogue | None, dtype: str) -> Mapping[str, int]:
    """The constants of epilogue.cuh for a y of that dtype; none without an epilogue."""
    if not epilogue:
        return {}
    kind = epilogue.activation and epilogue.activation.kind
    numbers = {"LOG2E": LOG2E, "LN2_HIGH": HIGH, "LN2_LOW": LOW}
    return {
        EPILOGUE: 1,
        "FINISHED": FINISHED[dtype],
        "BIAS": epilogue.bias,
        "RESIDUAL": epilogue.residual,
        "ACTIVATION": KINDS.index(kind) + 1 if kind else 0,
        **{name: int(np.float32(value).view(np.int32)) for name, value in numbers.items()},
    }


def typed(types: tuple[str, str], epilogue: Epilogue | None) -> dict[str, int]:
    """The constants of a kernel for operands and a result of these dtypes, with its epilogue."""
    operands, result = (FINISHED[t] for t in types)
    return {"INPUT": operands, "OUTPUT": result, **constants(epilogue, types[1])}


def finished(params: Params, y: View, first: int, dtype: str) -> Params:
    """A kernel's parameters with those of y's epilogue, if it has one; ``first``: the output
    channel that the kernel begins with."""
    finish = y.finish
    if not finish:
        return params
    size = ITEMSIZE[dtype] * first
    ends = (address and address + size for address in (finish.bias, finish.residual))
    return Params.of(params, PARAMS.pack(*ends, finish.slope))
