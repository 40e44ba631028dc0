"""The kernels around a simulated convolution's sums, printed from its programs and formats.

winolab.ref.algorithms.engine defines the bits; kernels/simulated_tiles.cuh gathers inputs and
transforms them, and sums back; kernels/simulated_fp64.cuh sums the oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from winolab.arguments.words import plural
from winolab.gpu.codegen.emit import unit
from winolab.gpu.codegen.simulated import SIDE
from winolab.gpu.codegen.structs import layout
from winolab.gpu.params import MOST, MOST_BLOCKS, Kernels, uncounted
from winolab.ref.algebra.program import Program
from winolab.ref.algebra.schedule import Op
from winolab.ref.algebra.transforms import Programs
from winolab.ref.algorithms.engine import Engine
from winolab.ref.arithmetic.formats import Format

STATES, OUTPUTS, FP64 = "winolab_simulated_states", "winolab_simulated_outputs", "winolab_fp64"
DIMENSIONS = 3
TILE = 4  # outputs of the oracle's thread along an edge
THREADS, WARP = 256, 32
PARAMS = {
    STATES: layout("StatesParams", "simulated_tiles"),
    OUTPUTS: layout("OutputsParams", "simulated_tiles"),
    FP64: layout("Fp64Params", "simulated_fp64"),
}
ALONE = Program(1, (), ((1, 0),))  # of a dimension that a problem lacks
IDENTITY = Programs(ALONE, ALONE, ALONE)


def around(
    programs: Sequence[Programs], taps: Sequence[int], product: Format | None, wide: bool = False
) -> str:
    """The translation unit for tiles of these programs and taps, the last dimension last; states
    are rounded to ``product``, unless it is None. ``wide``: in FP64, on the inputs' magnitudes.

    Raises ValueError for more than three dimensions.
    """
    return _around(tuple(programs), tuple(taps), product, wide)


@lru_cache(maxsize=64)
def _around(
    programs: tuple[Programs, ...], taps: tuple[int, ...], product: Format | None, wide: bool
) -> str:
    lacking = DIMENSIONS - len(programs)
    if lacking < 0:
        raise ValueError(
            f"tiles of {plural(len(programs), 'dimension')}; expected 1 to {DIMENSIONS}"
        )
    every = (*[IDENTITY] * lacking, *programs)
    constants = {"ROUNDS": int(product is not None), "WIDE": int(wide)}
    for i, (of, r) in enumerate(zip(every, (*[1] * lacking, *taps), strict=True)):
        sizes = {"I": of.BT.inputs, "A": of.AT.inputs, "N": len(of.AT.outputs), "R": r}
        constants |= {f"{name}{i}": size for name, size in sizes.items()}
    if product is not None:
        constants |= {
            "PRECISION": product.precision,
            "EMIN": product.emin,
            "EMAX": product.emax,
            "INFINITIES": int(product.infinities),
        }
    else:
        constants |= {"PRECISION": 24, "EMIN": -126, "EMAX": 127, "INFINITIES": 1}
    printed = {f"bt{i}": of.BT for i, of in enumerate(every)}
    printed |= {f"at{i}": of.AT for i, of in enumerate(every)}
    in_fp64 = tuple(printed) if wide else ()
    return unit("around simulated sums", constants, printed, ("simulated_tiles",), in_fp64)


@lru_cache(maxsize=2)
def oracle(wide: bool = False) -> str:
    """The translation unit of FP64 sums, of FP32 numbers' products or of ``wide`` ones'."""
    constants = {"TILE": TILE, "WIDE": int(wide)}
    return unit("sums in FP64", constants, {}, ("simulated_fp64",))


def magnitude(program: Program) -> tuple[Program, float]:
    """The program on magnitudes, where nothing is subtracted, and what its largest register is of
    its largest input, at most; 1 at least."""
    ops = [
        Op({"sub": "add", "fms": "fma"}.get(op.kind, op.kind), op.a, op.b, abs(op.constant))
        for op in program.ops
    ]
    gains = [1.0] * program.inputs
    for op in ops:
        gains.append(float(op.constant) * gains[op.a] + (0.0 if op.b is None else gains[op.b]))
    outputs = tuple((abs(sign), register) for sign, register in program.outputs)
    return Program(program.inputs, tuple(ops), outputs), max(gains)


def along(engine: Engine) -> list[int]:
    """What the states' kernel is told of each dimension of the engine's problem and region."""
    problem = engine.problem
    spread = engine.spread or (1,) * problem.ndim
    told = [1, 0, 0, 1, 1, 1, 1] * (DIMENSIONS - problem.ndim)
    pieces = engine.region.pieces(problem)
    for i, (s, q) in enumerate(zip(engine.region.segments, pieces, strict=True)):
        stride, dilation = problem.stride[i], problem.dilation[i]
        origin = s.start * stride - problem.padding[i][0]
        told += [s.tiles, origin, s.tile.n * stride, dilation, problem.input[i], spread[i], q]
    return told


def launch_states(
    kernels: Kernels,
    addresses: Sequence[int],
    shape: tuple[int, int, int, int],
    dimensions: Sequence[int],
) -> None:
    """v = BT of the gathered inputs, of the addresses of x, the tiles' ids and v; ``shape``: tiles,
    tiles filled up, depth, channels; ``dimensions`` are ``along``'s.

    Raises ValueError for more blocks than CUDA launches.
    """
    _, filled, depth, _ = shape
    tall = -(-depth // (THREADS // WARP))
    if tall > MOST_BLOCKS:
        raise uncounted("the number of blocks of a simulated sum's terms", tall)
    params = PARAMS[STATES].pack(*addresses, *shape, *dimensions)
    kernels[STATES]((-(-filled // WARP), tall, 1), THREADS, params)


def launch_outputs(
    kernels: Kernels, addresses: Sequence[int], shape: tuple[int, int, int, int]
) -> None:
    """y = AT of the sums, of the addresses of m and y; ``shape``: tiles, tiles filled up, output
    channels, these filled up.

    Raises ValueError for more blocks than CUDA launches.
    """
    tiles, _, channels, _ = shape
    blocks = -(-tiles * channels // THREADS)
    if blocks > MOST:
        raise uncounted("the number of blocks of simulated outputs", blocks)
    kernels[OUTPUTS]((blocks, 1, 1), THREADS, PARAMS[OUTPUTS].pack(*addresses, *shape))


def launch_oracle(
    kernels: Kernels, addresses: Sequence[int], shape: tuple[int, int, int, int]
) -> None:
    """c = aᵀ b in FP64, as ``simulated.launch`` has it.

    Raises ValueError for more blocks than CUDA launches.
    """
    matrices, rows, columns, depth = shape
    across = -(-columns // (SIDE * TILE))
    blocks = across * -(-rows // (SIDE * TILE))
    if matrices * blocks > MOST:
        raise uncounted("the number of blocks of an oracle", matrices * blocks)
    params = PARAMS[FP64].pack(*addresses, rows, columns, depth, across, blocks)
    kernels[FP64]((matrices * blocks, 1, 1), THREADS, params)
