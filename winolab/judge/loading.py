"""Loads the kernel that is judged: a function, a module of torch or a compiled file."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from typing import Any

from winolab.arguments.words import type_of
from winolab.gpu import driver
from winolab.gpu.machine import MachineError, NotInstalled, absent
from winolab.judge import native
from winolab.judge.candidate import Candidate, Declined
from winolab.judge.libraries import library
from winolab.judge.problems import Serves
from winolab.problem import Problem

OPTIONS = ("stride", "padding", "dilation", "groups")
COMPILED = (".so", ".cubin")


def load(
    named: str,
    *,
    arrays: str | None = None,
    device: str | None = None,
    layout: str | None = None,
    direction: str = "forward",
    serves: str = "",
    signature: str | None = None,
    dims: int | None = None,
) -> Candidate:
    """The kernel FILE:FUNCTION or MODULE:FUNCTION, or the compiled FILE, of that name.

    Raises ValueError for what is not there, or is no kernel, MachineError where its arrays' library
    is missing.
    """
    file, _, attribute = named.partition(":")
    if Path(file).suffix in COMPILED:
        candidate = native.load(Path(file), signature, direction, serves, attribute)
        if device and candidate.arrays.cuda != (device == "cuda"):
            raise ValueError(f"device {device!r}; {file} takes arrays of the other, it says")
        return candidate
    if signature is not None:
        kinds = " or ".join(COMPILED)
        raise ValueError(f"signature {signature!r} of {named}; one is of a compiled file, {kinds}")
    if not (file and attribute):
        missing = "function" if file else "file"
        raise ValueError(f"{named!r} names no {missing}; expected FILE.py:FUNCTION")
    found: Any = _module(file)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{file} has no {attribute!r}; expected the name of a function in it")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{named} is {type_of(found)}; expected a function or a module")
    if type(found).__module__.startswith("triton."):
        raise ValueError(f"{named} is a Triton kernel; expected a Python function that launches it")
    torch = sys.modules.get("torch")
    library_name = arrays or _library(found, torch)
    if library_name == "torch" and (lacking := absent("torch")):
        raise lacking
    cuda = device == "cuda" or (device is None and _cuda(library_name, torch))
    if device == "cpu" and library_name == "cupy":
        raise ValueError("arrays of cupy lie on a GPU; leave --device out, or name --arrays numpy")
    if device == "cuda":
        _needs_gpu(library_name)
    candidate = Candidate(
        named,
        lambda *_: None,
        library(library_name, cuda),
        layout or ("channels_first" if library_name == "torch" else "channels_last"),
        direction,
        dims or int(next(iter(re.findall(r"([123])d", attribute.lower())), 2)),
        Serves(serves),
        file=_source(found),
    )
    if torch and _is_module(found, torch):
        return _of_module(candidate, found, torch)
    return _of_function(candidate, found)


def _module(file: str) -> Any:
    path = Path(file)
    if path.suffix != ".py":
        try:
            return pkgutil.resolve_name(file)
        except NotInstalled:
            raise
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"{file!r} is no file .py and no module: {error}") from None
    if not path.is_file():
        raise ValueError(f"there is no file {file}; expected FILE.py:FUNCTION or MODULE:FUNCTION")
    spec = importlib.util.spec_from_file_location(f"judged_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{file} cannot be imported: {type(error).__name__}: {said}") from error
    return module


def _source(found: Any) -> str:
    """The file of a function, or a module's class, as its code names it; "" for a built-in one."""
    function = getattr(found, "forward", found)
    return str(getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", ""))


def _library(found: Any, torch: Any) -> str:
    """The library whose arrays a function is about: what its file imports."""
    names = getattr(found, "__globals__", {})
    where = str(getattr(found, "__module__", None) or "torch")  # PyTorch's built-in ones have none
    imported = {
        value.__name__.partition(".")[0] for value in names.values() if inspect.ismodule(value)
    }
    if torch and (
        _is_module(found, torch)
        or (where.partition(".")[0] in ("torch", "winolab") and "torch" in where)
        or "torch" in imported
    ):
        return "torch"
    return "cupy" if "cupy" in imported else "numpy"


def _cuda(name: str, torch: Any) -> bool:
    return name == "cupy" or (name == "torch" and torch is not None and torch.cuda.is_available())


def _needs_gpu(name: str) -> None:
    """Raise MachineError where there is no GPU, ValueError where arrays lie on none."""
    if name == "numpy":
        raise ValueError("arrays of numpy lie on the CPU; leave --device out, or name --arrays")
    if name == "torch" and not importlib.import_module("torch").cuda.is_available():
        raise MachineError("device 'cuda': PyTorch finds no GPU; nvidia-smi has to list one")
    if name == "cupy":
        driver.cupy()


def _is_module(found: Any, torch: Any) -> bool:
    kind = torch.nn.Module
    return isinstance(found, kind) or (isinstance(found, type) and issubclass(found, kind))


def _of_function(candidate: Candidate, function: Any) -> Candidate:
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (ValueError, TypeError):  # a built-in one, as PyTorch's
        parameters = {}
    kinds = {p.kind for p in parameters.values()}
    known = set(parameters)
    if not parameters or inspect.Parameter.VAR_KEYWORD in kinds:
        known |= set(OPTIONS)
    shape_name = {"backward_data": "input_shape", "backward_filter": "filter_shape"}
    third = shape_name.get(candidate.direction)

    def called(a: Any, b: Any, problem: Problem, out: Any) -> Any:
        given = _options(problem, known)
        if "layout" in known:
            given["layout"] = candidate.layout
        if out is not None:
            given["out"] = out
        more = ()
        if third:
            more = (candidate.shapes(problem)[2],)
        return function(a, b, *more, **given)

    return replace(candidate, called=called, out="out" in known)


def _options(p: Problem, known: set[str]) -> dict[str, Any]:
    """The keywords of a problem. Raises Declined for one that the function does not have."""
    even = all(lo == hi for lo, hi in p.padding)
    values = {
        "stride": p.stride,
        "padding": tuple(lo for lo, _ in p.padding) if even else p.padding,
        "dilation": p.dilation,
        "groups": p.groups,
    }
    ones = (1,) * p.ndim
    usual = {"stride": ones, "padding": (0,) * p.ndim, "dilation": ones, "groups": 1}
    given = {}
    for name, value in values.items():
        if name in known:
            given[name] = value
        elif value != usual[name]:
            raise Declined(f"it has no argument {name}")
    return given


def _of_module(candidate: Candidate, found: Any, torch: Any) -> Candidate:
    """A module's class is constructed as Conv2d is; a module has the geometry that it has."""
    layers: dict[Any, Any] = {}

    def called(a: Any, b: Any, p: Problem, out: Any) -> Any:
        if any(lo != hi for lo, hi in p.padding):
            raise Declined("both ends are padded alike")
        if isinstance(found, type):
            key = get_ident(), replace(p, batch=1, input=(1 << 20,) * p.ndim)
            if key not in layers:
                pads = tuple(lo for lo, _ in p.padding)
                with torch.random.fork_rng():  # of its weights
                    layers[key] = found(
                        p.in_channels, p.out_channels, p.filter, stride=p.stride, padding=pads,
                        dilation=p.dilation, groups=p.groups, bias=False,
                    ).eval()  # fmt: skip
            layer = layers[key].to(a.device, a.dtype)
        else:  # weights are a call's, so that each thread has a module of its own
            if get_ident() not in layers:
                layers[get_ident()] = copy.deepcopy(found)
            layer = layers[get_ident()].to(a.device, a.dtype)
        with torch.no_grad():
            layer.weight.copy_(b)
            return layer(a)

    own = None
    if not isinstance(found, type):
        kind = type(found).__name__
        missing = [name for name in ("weight", *OPTIONS) if not hasattr(found, name)]
        if missing or getattr(found, "transposed", False):
            what = f"has no {', '.join(missing)}" if missing else "is a transposed convolution"
            raise ValueError(
                f"the module {kind} {what}; expected a convolution, as torch.nn.Conv2d"
            )
        if getattr(found, "bias", None) is not None:
            raise ValueError("the module adds a bias; expected one with bias=False")
        candidate = replace(candidate, ndim=found.weight.dim() - 2)
        own = _geometry(found)
    return replace(candidate, called=called, layout="channels_first", own=own)


def _geometry(module: Any) -> Callable[[Problem], Problem]:
    filters, channels, *taps = module.weight.shape
    pads = module.padding
    if isinstance(pads, str):
        reach = [d * (r - 1) for d, r in zip(module.dilation, taps, strict=True)]
        pads = tuple(r // 2 if pads == "same" else 0 for r in reach)
        if module.padding == "same" and any(r % 2 for r in reach):
            raise ValueError('the module pads "same" unevenly; expected both ends padded alike')

    def own(p: Problem) -> Problem:
        extent = [d * (r - 1) + 1 for d, r in zip(module.dilation, taps, strict=True)]
        sizes = [max(size, e - 2 * lo) for size, e, lo in zip(p.input, extent, pads, strict=True)]
        return Problem.of(
            (p.batch, *sizes, channels * module.groups),
            (filters, *taps, channels),
            stride=module.stride,
            padding=[(lo, lo) for lo in pads],
            dilation=module.dilation,
            groups=module.groups,
        )

    return own
