"""The command ``winolab bench``: the kernels beside cuDNN and PyTorch on the GPU at hand."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from winolab.arguments.arrays import precision_named
from winolab.arguments.shapes import nonempty
from winolab.bench import compare, cudnn, frameworks
from winolab.bench.compare import Effort
from winolab.bench.contenders import GROUPS
from winolab.bench.layers import LAYERS, Layer, parse_layer
from winolab.bench.networks import BatchedLayer
from winolab.cli import environment, process
from winolab.cli.screen import fitted
from winolab.cli.screen.render import AsJson, document, plain
from winolab.gpu import driver
from winolab.gpu.planner.request import DIRECTIONS
from winolab.lines import Lines

Row = dict[str, Any]
LEGEND = (
    "Effective TFLOPS: 2·N·OC·OH·OW·FH·FW·IC over the median time with a cold L2 cache, filter "
    "transform included. cuDNN frugal: fastest algorithm whose workspace does not grow with the "
    "data; any: fastest of all; both without TF32. error: relative RMS on U[-1, 1) of the kernel "
    "named, against FP64."
)
JUDGES = ("cudnn", "torch")  # as a whole
MOST = 400  # characters of a reason


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(name="bench")(command)


def command(
    layers: Annotated[
        str,
        typer.Option(
            help=f"With commas: {', '.join(LAYERS)}, outputs and filters as "
            "128x96x96x64:64x3x3, or inputs as 32x224x224x3>64x7x7s2p3 (stride, padding; causal "
            "p3-0)."
        ),
    ] = "dragon",
    direction: Annotated[
        str, typer.Option(help=f"With commas: {', '.join(DIRECTIONS)}.")
    ] = "forward",
    precision: Annotated[
        str, typer.Option(help=f"Of the arrays, with commas: {', '.join(GROUPS)}.")
    ] = "fp32",
    out: Annotated[Path | None, typer.Option(help="File that rows are added to.")] = None,
    wide: fitted.Wide = False,
    as_json: AsJson = False,
) -> None:
    """Time these kernels beside every algorithm of cuDNN and PyTorch, with their errors.

    For example:

    ```
    winolab bench --layers resnet --direction forward,backward_data
    winolab bench --layers 32x56x56x64:64x3x3 --precision fp32,fp16
    ```
    """
    cases = [
        (name, layer, way, group)
        for name, layer in named(layers)
        for way in known("direction", direction, DIRECTIONS)
        for group in known("precision", precision, tuple(GROUPS))
    ]
    driver.cupy()
    rows = []
    with Lines(out).checked() if out else nullcontext() as file:  # before minutes are spent
        for found in measured(cases, Effort()):
            rows += found
            if file:
                for row in found:
                    file.append(plain(row))
            if not as_json:
                print(line(found), file=sys.stderr, flush=True)
    if as_json:
        print(document(rows))
    else:
        process.console(wide).print(table(rows))


Case = tuple[str, Layer | BatchedLayer, str, str]


def named(text: str) -> list[tuple[str, Layer | BatchedLayer]]:
    """Layers by list or by shape, each with the name of its list ("given" for a shape)."""
    found = []
    for name in text.split(","):
        if name in LAYERS:
            found += [(name, layer) for layer in LAYERS[name]]
        else:
            layer = parse_layer(name)
            nonempty(layer.problem)
            found.append(("given", layer))
    return found


def ready() -> None:
    """Raise MachineError where rows could not be compared with cuDNN's: no GPU, no CuPy, no cuDNN.

    The command does without cuDNN, and says so.
    """
    driver.cupy()
    cudnn.handle(0)


def context() -> Row:
    """What every row says of the machine, read while its clocks are up."""
    cp, runtime = driver.cupy(), driver.cupy().cuda.runtime
    top = compare.sgemm()
    gpus = environment.gpus()
    return {
        "commit": environment.commit(),
        "device": driver.device(0).name,
        "driver": gpus[0]["driver_version"] if gpus else None,
        "cuda": f"{runtime.runtimeGetVersion() // 1000}.{runtime.runtimeGetVersion() % 1000 // 10}",
        "cudnn": environment.found(cudnn.version),
        "cupy": cp.__version__,
        "torch": environment.found(frameworks.version),
        **environment.clocks(),
        "sgemm_tflops": round(top, 2),
    }


def measured(cases: Sequence[Case], effort: Effort, seconds: float = 1e9) -> Iterator[list[Row]]:
    """The rows of each case, in order, until ``seconds`` are over; what is left is left out."""
    machine, end = context(), time.monotonic() + seconds
    for name, layer, direction, group in cases:
        if time.monotonic() > end:
            return
        started = time.monotonic()
        algorithm = layer.named(direction)
        rows = compare.compare(direction, layer.problem, group, algorithm, effort)
        compare.free()
        took = round(time.monotonic() - started, 2)
        labels = {"layers": name, "layer": str(layer), "kernel_of": kernel_name(layer)}
        yield [{**machine, **labels, "took_s": took, **row} for row in rows]


def kernel_name(layer: Layer | BatchedLayer) -> str | None:
    """Γα(n,r) of the list that the layer is from."""
    return f"Γ{layer.kernel[0]}({layer.kernel[1]},{layer.kernel[2]})" if layer.kernel else None


def best(rows: Sequence[Row], **wanted: Any) -> Row | None:
    """The fastest of the rows with these values, or None."""
    mine = [
        row for row in rows if "tflops" in row and all(row.get(k) == v for k, v in wanted.items())
    ]
    return max(mine, key=lambda row: row["tflops"], default=None)


def columns(rows: Sequence[Row]) -> dict[str, Row | None]:
    """Who stands in a case's line of the table; cuDNN in FP32 means FMA."""
    group = rows[0]["precision"]
    strict: Row = {"method": "cudnn", "products": group}
    found = {
        "ours": best(rows, method="winolab", chosen=True) or best(rows, method="winolab"),
        "FFMA" if group == "fp32" else "fastest": best(rows, method="winolab", products=group),
        "cuDNN frugal": best(rows, **strict, frugal=True),
        "cuDNN any": best(rows, **strict),
        "PyTorch": best(rows, method="torch", products=group),
    }
    if group == "fp32":
        found["TF32"] = best([r for r in rows if "tf32" in r.get("products", "")])
    return found


def line(rows: Sequence[Row]) -> str:
    """A case in one line, as it is measured; below it why what should have run did not."""
    parts = [
        f"{name} {row['tflops']:.1f}" for name, row in columns(rows).items() if row is not None
    ]
    row = rows[0]
    case = f"{row['layer']} {row['direction']} {row['precision']}"
    missing = [f"  left out: {text}" for text in left_out(rows, algorithms=False)]
    return "\n".join([f"{case}: {', '.join(parts) or 'nobody ran it'}", *missing])


def left_out(rows: Sequence[Row], algorithms: bool = True) -> list[str]:
    """Who has no time and why, ours first, each reason once; ``algorithms``: single ones of cuDNN
    too, of which every case lacks some."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, reason in row.get("reasons", {}).items():
            if algorithms or name in JUDGES or name.startswith("winolab"):
                who = found.setdefault(shorten(reason, MOST, placeholder=" …"), [])
                who.append(" ".join(name.split()[:3]))  # without its plan, or layout and mode
    lines = []
    for reason, names in found.items():
        first, *others = dict.fromkeys(names)
        more = f" and {len(others)} more" if others else ""
        lines.append(f"{first}{more}: {reason}")
    return sorted(lines, key=lambda text: not text.startswith("winolab"))


def table(rows: Sequence[Row]) -> RenderableType:
    """A line a case."""
    cases: dict[tuple, list[Row]] = {}
    for row in rows:
        cases.setdefault((row["layer"], row["direction"], row["precision"]), []).append(row)
    names = list(dict.fromkeys(name for mine in cases.values() for name in columns(mine)))
    lines = []
    for case, mine in cases.items():
        found = columns(mine)
        ours = found["ours"]
        kernel = f"{ours['kernel']} {ours['products']}" if ours else "none"
        cells = [_tflops(found.get(name)) for name in names]
        ratios = [_ratio(ours, found[name]) for name in ("cuDNN frugal", "cuDNN any")]
        error = f"{float(ours['relative_rms_u11']):.1e}" if ours else ""
        lines.append((*case, kernel, *cells, *ratios, error))
    texts = fitted.texts("layer", "direction", "arrays", "kernel")
    grid = fitted.of_rows([*texts, *fitted.numbers(*names, "/ frugal", "/ any", "error")], lines)
    first = rows[0]
    title = (
        f"{first['device']}, driver {first['driver']}, CUDA {first['cuda']}, "
        f"{'cuDNN ' + first['cudnn'] if first['cudnn'] else 'no cuDNN'}, "
        f"SGEMM {first['sgemm_tflops']} TFLOPS"
    )
    missing = [Text(f"Left out: {text}") for text in left_out(rows)]
    return Group(Text(title), Text(), grid, Text(), *missing, Text(LEGEND, style="dim"))


def _tflops(row: Row | None) -> str:
    return f"{row['tflops']:.1f}" if row else ""


def _ratio(ours: Row | None, theirs: Row | None) -> str:
    return f"{ours['tflops'] / theirs['tflops']:.2f}" if ours and theirs else ""


def known(name: str, text: str, known: Sequence[str]) -> list[str]:
    """The values with commas. Raises ValueError for one that is none of ``known``."""
    values = [precision_named(v) if name == "precision" else v for v in text.split(",")]
    for value in values:
        if value not in known:
            raise ValueError(f"{name} {value!r}; expected {', '.join(known)}")
    return values
