"""Kernels in compiled files, a .so's function or a .cubin's kernel, by a signature in TOML.

The signature states the arguments in order, each an array (x, w, y, or dy, dx, dw), "workspace",
"stream", or a type and an expression of the problem's sizes:

    name = "conv3x3"
    arguments = ["x", "w", "y", "int N", "int H", "int W", "int C", "int K"]
    grid = ["ceildiv(N*OH*OW, 128)", "ceildiv(K, 64)", 1]    # of a .cubin
    block = [256]
    shared = 0                                               # dynamic bytes
    workspace = "4*N*OH*OW*K"                                # bytes
    layout = "channels_last"
    serves = "filter=3 stride=1 groups=1 aligned"
    device = "cuda"                                          # of a .so, whose arrays lie there

Sizes, channels last: N images, D × H × W inputs of C channels, K filters of T × R × S taps in G
groups, OD × OH × OW outputs, and SD, SH, SW strides, PD, PH, PW low paddings, LD, LH, LW
dilations.
"""

from __future__ import annotations

import ast
import ctypes
import operator
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from winolab.gpu import driver
from winolab.judge.candidate import Candidate, Declined
from winolab.judge.libraries import CuPy, NumPy
from winolab.judge.problems import Serves
from winolab.problem import NAMES, Problem

TYPES: dict[str, Any] = {
    "int": ctypes.c_int32,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "long": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
KEYS = ("name", "arguments", "grid", "block", "shared", "workspace", "layout", "serves", "device",
        "dims")  # fmt: skip
CHOICES: dict[str, tuple] = {
    "dims": (2, 1, 3),
    "layout": ("channels_last", "channels_first"),
    "device": ("cpu", "cuda"),
}
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceildiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}


def value(expression: Any, names: dict[str, int]) -> Any:
    """A number, or an expression of the names. Raises ValueError for another text."""
    try:
        return _value(_parsed(str(expression)), names)
    except (SyntaxError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ValueError(
            f"expression {expression!r}; expected + - * // % of {', '.join(names)}, "
            f"{', '.join(FUNCTIONS)} and numbers ({error})"
        ) from None


@cache
def _parsed(expression: str) -> ast.expr:
    """Parsed once, when a signature is read: Python 3.11's parser may fail in several threads."""
    return ast.parse(expression, mode="eval").body


def _value(node: Any, names: dict[str, int]) -> Any:
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, int | float):
            raise TypeError(f"{node.value!r} is no number; expected sizes, as N*H*W")
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, names)
    if isinstance(node, ast.BinOp):
        of = OPERATORS[type(node.op)]
        return of(_value(node.left, names), _value(node.right, names))
    return FUNCTIONS[node.func.id](*(_value(each, names) for each in node.args))


def names_of(p: Problem) -> dict[str, int]:
    """The sizes of a problem, missing dimensions as sizes of 1, in front."""
    more = 3 - p.ndim
    ones, zeros = (1,) * more, (0,) * more
    found = {"N": p.batch, "C": p.in_channels, "K": p.out_channels, "G": p.groups}
    lows = tuple(lo for lo, _ in p.padding)
    for letters, values in (
        (("D", "H", "W"), ones + p.input),
        (("T", "R", "S"), ones + p.filter),
        (("OD", "OH", "OW"), ones + p.output),
        (("SD", "SH", "SW"), ones + p.stride),
        (("PD", "PH", "PW"), zeros + lows),
        (("LD", "LH", "LW"), ones + p.dilation),
    ):
        found |= dict(zip(letters, values, strict=True))
    return found


def load(path: Path, signature: str | None, direction: str, serves: str, symbol: str) -> Candidate:
    """The compiled kernel of a file; its signature is a file, a text, or lies beside it.

    Raises ValueError for a signature that does not say what to launch.
    """
    said = _signature(path, signature, direction)
    if not path.is_file():
        raise ValueError(f"there is no file {path}; expected a compiled kernel, .so or .cubin")
    symbol = symbol or said["name"]
    cuda = path.suffix == ".cubin" or said.get("device", "cpu") == "cuda"
    arrays: NumPy = CuPy() if cuda else NumPy()
    kernel = _cubin(path, symbol, said) if path.suffix == ".cubin" else _shared(path, symbol)

    def called(a: Any, b: Any, p: Problem, out: Any) -> None:
        if not all(_contiguous(each) for each in (a, b, out)):
            raise Declined("its signature has no strides")
        if any(lo != hi for lo, hi in p.padding):
            raise Declined("its signature has one padding a dimension")
        names, given = names_of(p), []
        size = int(value(said.get("workspace", 0), names))
        workspace = arrays.module.empty(max(1, -(-size // 4)), np.float32)
        known = dict(zip(NAMES[direction], (a, b, out), strict=True)) | {"workspace": workspace}
        for each in said["arguments"]:
            kind, _, expression = each.partition(" ")
            if each in known:
                given.append(ctypes.c_void_p(_address(known[each])))
            elif each == "stream":
                given.append(ctypes.c_void_p(driver.cupy().cuda.get_current_stream().ptr))
            else:
                given.append(TYPES[kind](value(expression, names)))
        kernel(given, names)

    serves = serves or said.get("serves", "")
    if serves:  # its one padding a dimension limits it, too
        serves = f"{serves} symmetric"
    return Candidate(
        f"{path}:{symbol}", called, arrays, said.get("layout", "channels_last"), direction,
        said.get("dims", 2), Serves(serves), out=True,
    )  # fmt: skip


def _signature(path: Path, given: str | None, direction: str) -> dict[str, Any]:
    where = f"signature of {path}"
    if given and "=" in given:
        text = given.replace(";", "\n")
    else:
        beside = Path(given) if given else path.with_suffix(".toml")
        if not beside.is_file():
            raise ValueError(
                f"{path} needs a signature: write {beside}, or pass --signature, such as "
                '\'name="conv"; arguments=["x","w","y","int N"]\''
            )
        where, text = str(beside), beside.read_text()
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where} is no TOML: {error}") from None
    needed = ("name", "arguments", *(("grid", "block") if path.suffix == ".cubin" else ()))
    missing, unknown = [k for k in needed if k not in said], [k for k in said if k not in KEYS]
    if missing or unknown:
        what = f"no {', '.join(missing)}" if missing else f"an unknown key {unknown[0]}"
        raise ValueError(f"{where} has {what}; expected {', '.join(KEYS)}")
    for key, choices in CHOICES.items():
        if said.get(key, choices[0]) not in choices:
            expected = ", ".join(map(str, choices))
            raise ValueError(f"{where} has {key} {said[key]!r}; expected {expected}")
    names = names_of(Problem.of((1, 1, 1, 1), (1, 1, 1, 1)))
    for expression in (*said.get("grid", ()), *said.get("block", ()), said.get("workspace", 0)):
        value(expression, names)
    for each in said["arguments"]:
        kind, _, expression = str(each).partition(" ")
        if each in (*NAMES[direction], "workspace", "stream"):
            continue
        if kind not in TYPES or not expression:
            raise ValueError(
                f"{where} has argument {each!r}; expected {', '.join(NAMES[direction])}, "
                f"workspace, stream, or a type ({', '.join(TYPES)}) and an expression"
            )
        value(expression, names)
    return said


def _shared(path: Path, symbol: str) -> Callable[[list, dict], None]:
    try:
        function = getattr(ctypes.CDLL(str(path.resolve())), symbol)
    except (OSError, AttributeError) as error:
        raise ValueError(f"{path} has no function {symbol!r} to load: {error}") from None
    function.restype = ctypes.c_int

    def run(given: list, names: dict[str, int]) -> None:
        function(*given)

    return run


def _cubin(path: Path, symbol: str, said: dict[str, Any]) -> Callable[[list, dict], None]:
    kernel = driver.cupy().RawModule(path=str(path.resolve())).get_function(symbol)
    shared = int(said.get("shared", 0))
    if shared > 48 << 10:
        kernel.max_dynamic_shared_size_bytes = shared

    def run(given: list, names: dict[str, int]) -> None:
        grid, block = (
            tuple(int(value(v, names)) for v in [*said[key], 1, 1][:3]) for key in ("grid", "block")
        )
        scalars = tuple(_scalar(each) for each in given)
        if 0 not in grid:
            kernel(grid, block, scalars, shared_mem=shared)

    return run


def _scalar(given: Any) -> Any:
    """An argument as CuPy's launches take it."""
    if isinstance(given, ctypes.c_float):
        return np.float32(given.value)
    if isinstance(given, ctypes.c_double):
        return np.float64(given.value)
    if isinstance(given, ctypes.c_int32):
        return np.int32(given.value)
    return np.uint64(given.value or 0)


def _contiguous(array: Any) -> bool:
    return array is None or bool(array.flags.c_contiguous)


def _address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
