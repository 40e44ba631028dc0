"""Kept rows of our kernels as times of plans: what models are fitted to and picks are judged by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from experiments.harness.facts import ROOT
from experiments.harness.machines import stored
from experiments.measure.cases import cases
from experiments.measure.layer_rows import latest
from winolab.bench.layers import Layer
from winolab.bench.networks import BatchedLayer, parse
from winolab.device import DATASHEETS, Device
from winolab.gpu.families.fused2d.config import KC
from winolab.gpu.planner.request import Plan

RESULTS = ROOT / "experiments" / "results"
# What names of Γ on Tensor Cores had of policies that went (docs/notes/006). Rows with them stand
# for the plan without, whose time is 0.7 and 1.4 % longer on the mean.
GONE = re.compile(r"(?<=share=\d) stages=[23]\b| whole=1\b")
# What Γ on FFMA units had, whose last block of filters was not filled up. Rows with it stand for
# the plan without: of nine pairs the mean of both times is equal, -8 to 8 % each (docs/notes/052).
COMPACT = " compact=1"
DEVICES = {device.name: device for device in DATASHEETS.values()}
# Files of whole layers of every kind, and the kernels there that models are fitted to.
LAYERS = (
    "depthwise", "strided", "grouped", "implicit_gemm", "pointwise", "thin", "networks_forward",
    "networks_backward_data", "networks_backward_filter", "grouped_products",
)  # fmt: skip
# And Ω2(1,1), in part.
WHOLE = ("depthwise", "grouped", "implicit GEMM", "cuBLASLt", "patches", "skinny", "Γ1(1,1)")
GEMM = "implicit_gemm"  # whose rows are all of one version, and have no pick among them
# When correlations of split products had launches that waited for the sample of x, and took 1.04 to
# 1.4 times as long as before and since (docs/notes/093).
CROWDED = "2026-11-29T00:03", "2026-11-29T02:48"
COLUMNS, POSITIONS = KINDS = "columns", "positions,"  # in the names of direct plans
# Since when their shares are added up by more threads at once: of 16 bits 1 to 17 µs less, which is
# up to a quarter of the call (docs/notes/100).
GATHERED = "2026-11-29T05:55"
# Since when depthwise kernels ask for all filters at once, which of one image was up to a third of
# the call, and the implicit GEMM multiplies instead of dividing and copies by half the
# instructions (docs/notes/096, 097).
AT_ONCE = "2026-11-29T06:19"
# Since when split products without transforms add up in slices and share factors, up to a third of
# the call (docs/notes/101).
SLICED = "2026-11-29T09:22"
# Since when the blocks of a cluster whose copies walk positions do not order what they wrote where
# they meet, and send sums by a thread each: half a microsecond (docs/notes/107).
MET = "2026-11-29T18:20"
SQUARE = re.compile(
    r"(\d+)x(\d+)x(\d+)x(\d+):(?:(\d+)x)?(\d+)x\d+(?:/(\d+))?"
    r"(?: dilation (\d+))?(?: padding (\d+))?(?: groups (\d+))?"
)
# Steps of throughput_variants.jsonl whose kernels are today's; others timed what was changed since.
STEPS = (
    "split Γ: which plans are the fastest, layer by layer",
    "split Γ, three to seven filter rows: the six plans of the least predicted time",
    "split Γ, two filter rows: boxes of eight tiles, blocks of eight rows",
    "split Γ with ten states, 48 channels a block",
    "split Γ: ten states of five taps",
    "split Γ: rows of tiles filled up, so that boxes bring several",
    "split Γ: less error where FP32's sums have it, and pairs of blocks",
    "Γ on Tensor Cores: rows run on from image to image",
    "Γ on FFMA units: plans whose predicted time is within 20 % of the least",
    "Γ16 on FFMA units: load warps, sums cut where they need not be",
    "nested Winograd: calls that its time model is fitted to",
    "direct products in 16 bits: blocks, and clusters that share sums",
    "direct products in 16 bits: blocks of 96 to 224 channels",
    "filter gradients: plans whose predicted time is within 30 % (FFMA) or 15 % of the least",
    "gradients: vector stores, clusters",
    "an H200 by an H100's constants",
    "split Γ: odd channels' boxes copied word by word by three warps",
    "one device model: default picks before and after, and with and without a policy",
    "Γ on Tensor Cores by mma.sync, for compute capability 8.x, run on an H100",
)


@dataclass(frozen=True)
class Timed:
    """A plan's name on a layer, and the median of its calls with a cold L2 cache."""

    step: str  # of variants; "" of throughput.jsonl
    layer: Layer | BatchedLayer
    direction: str
    group: str  # of precisions
    device: Device
    kernel: str
    products: str
    variant: str
    workspace: int | None  # bytes, where the row says so
    seconds: float
    cut: tuple[tuple[str, int], ...] = ()  # what else a row says of the plan: its fields' values
    source: str = ""  # digest of what was compiled, where the row says so

    @property
    def where(self) -> tuple[str, Layer | BatchedLayer, str, str]:
        """What is timed: device, layer, direction, group."""
        return self.device.name, self.layer, self.direction, self.group


def name(p: Plan) -> str:
    """Kernel, precision and block shape."""
    return f"{p.kernel} {p.precision} {p.config}"


@cache
def rows() -> tuple[Timed, ...]:
    """All rows of whole calls that can be told by a plan's name."""
    every = (
        *_throughput(),
        *_variants(),
        *_networks("positions", "Ω2(1,1)", "Γ1(1,1)", "cuBLASLt"),
        *_networks("thin", "thin", "patches"),
        *_networks("skinny", "skinny"),
        *_networks("networks_backward_filter", "thin"),
        *_networks("networks_forward", "F(2×2,3×3)"),
        *_fused(),
        *(row for file in LAYERS for row in _layers(file)),
        *_fused_omega(),
        *_changed(),
    )
    return tuple(map(_filled, every))


def _filled(row: Timed) -> Timed:
    """The row, if it is with COMPACT of the plan without, of whatever workspace."""
    if not row.variant.endswith(COMPACT):
        return row
    return replace(row, variant=row.variant.removesuffix(COMPACT), workspace=None)


def _lines(file: str) -> list[dict]:
    return stored(RESULTS / f"{file}.jsonl")


def _networks(file: str, *kernels: str) -> Iterator[Timed]:
    """Those of kernels on layers of networks."""
    for row in _lines(file):
        if row.get("kernel") in kernels and not _gone(row):
            yield Timed(
                "", parse(row["layer"]), row["direction"], row["precision"],
                DEVICES[row["device"]], row["kernel"], row["products"], row["plan"],
                row["workspace"], 1e-6 * row["us"],
            )  # fmt: skip


def _fused() -> Iterator[Timed]:
    """The policies of the fused F(2×2,3×3), on layers that fill a stage's channels."""
    for row in _lines("fused2d"):
        mine = (row["kernel"], row["products"], row["layout"]) == ("F(2×2,3×3)", "fp32", "NHWC")
        if mine and (channels := int(row["input"].rpartition("x")[2])) >= KC:
            taps = f"{row['filter'].removesuffix(f'x{channels}')}p1"
            yield Timed(
                "", parse(f"{row['input']}>{taps}"), row["direction"], row["precision"],
                DEVICES[row["device"]], row["kernel"], row["products"], row["plan"],
                row["workspace"], 1e-6 * row["cold_us"][1], source=row.get("source", ""),
            )  # fmt: skip


def _layers(file: str) -> Iterator[Timed]:
    """Those of LAYERS, of what runs no transforms, as they were measured last."""
    kept = (row for row in _lines(file) if not _gone(row))
    for row in kept if file == GEMM else latest(kept):
        kernel, group = row.get("kernel", ""), row["precision"]
        products = row.get("products", "fp32_split" if group == "fp32" else group)
        split = products == "fp32_split"
        direct = kernel == "Ω2(1,1)" and (split or any(kind in row["plan"] for kind in KINDS))
        if kernel in WHOLE or direct:
            cut = {name: row[name] for name in ("rows", "workers", "segments") if name in row}
            yield Timed(
                "", layer_of(row["layer"]), row["direction"], group, DEVICES[row["device"]], kernel,
                products, row["plan"], row.get("workspace"), 1e-6 * row["us"],
                tuple(cut.items()), row.get("source", ""),
            )  # fmt: skip


def _gone(row: dict) -> bool:
    """Whether a row's call took as long as it does no more."""
    by_columns = COLUMNS in row.get("plan", "") and row.get("products") in ("fp16", "bf16")
    shared = by_columns and row.get("workspace")
    run, kernel = row.get("run", ""), row.get("kernel")
    one = kernel == "depthwise" and str(row.get("layer")).startswith("1x")
    old = (shared and run < GATHERED) or ((one or kernel == "implicit GEMM") and run < AT_ONCE)
    split = kernel == "Γ1(1,1)" and row.get("products") == "fp32_split" and run < SLICED
    met = kernel == "Ω2(1,1)" and POSITIONS in row["plan"] and "split_k" in row["plan"]
    return bool(old) or split or (met and run < MET) or _crowded(row)


def _crowded(row: dict) -> bool:
    split = row.get("products") == "fp32_split" and row["direction"] != "backward_filter"
    sampled = split and row["kernel"] != "implicit GEMM"
    return sampled and CROWDED[0] <= row.get("run", "") < CROWDED[1]


def layer_of(text: str) -> BatchedLayer:
    """A layer of experiments.measure.layers, in either of its texts."""
    if ">" in text:
        return parse(text)
    found = SQUARE.fullmatch(text)
    if not found:
        raise ValueError(f"layer {text!r} is of no kind that experiments.measure.layers writes")
    batch, height, width, channels, taps = (int(found[n]) for n in (1, 2, 3, 4, 6))
    stride, dilation, groups = (int(found[n] or 1) for n in (7, 8, 10))
    padding = int(found[9]) if found[9] else dilation * (taps - 1) // 2
    filters = int(found[5] or channels)
    return BatchedLayer(
        (height, width), channels, filters, (taps,) * 2, (stride,) * 2, (padding,) * 2,
        (dilation,) * 2, groups if found[5] else channels, batch,
    )  # fmt: skip


def _fused_omega() -> Iterator[Timed]:
    """Ω of 16 bits in one launch."""
    for row in _lines("fused_omega"):
        if row["kind"] == "fused":
            x, w = row["input"], row["filter"].split("x")
            layer = parse(f"{x}>{'x'.join(w[:3])}p{int(w[1]) // 2}")
            yield Timed(
                "", layer, "backward_filter", row["precision"], DEVICES[row["device"]],
                row["kernel"], row["products"], row["plan"], row["workspace"],
                1e-6 * median(row["cold_us"]),
            )  # fmt: skip


def _changed() -> Iterator[Timed]:
    """Picks before and after a change, by their names (experiments.measure.picks). Fused F(2×2,3×3)
    with so few channels takes 1 µs more than its model has a term for; its picks are the faster."""
    for row in _lines("changed_picks"):
        if row["kernel"] == "F(2×2,3×3)" or _gone(row):
            continue
        yield Timed(
            row["step"], parse(row["layer"]), row["direction"], row["precision"],
            DEVICES[row["device"]], row["kernel"], row["products"], row["plan"], row["workspace"],
            1e-6 * median(row["cold_us"]), source=row.get("source", ""),
        )  # fmt: skip


def _throughput() -> Iterator[Timed]:
    layers = {str(c.layer): c.layer for c in cases()}
    for row in _lines("throughput"):
        if row["method"] == "winolab" and not row.get("prepared") and not _gone(row):
            yield Timed(
                "", layers[row["case"][0]], row["direction"], row["precision"],
                DEVICES[row["device"]], row["kernel"], row["products"], GONE.sub("", row["plan"]),
                row["workspace"], 1e-6 * median(row["cold_us"]),
            )  # fmt: skip


def _variants() -> Iterator[Timed]:
    for row in _lines("throughput_variants"):
        if row["step"].startswith(STEPS):
            words = str(row["variant"]).split()
            products = row.get("products")
            if words[0] in ("fp32", "fp32_split", "fp16", "bf16"):
                products = words.pop(0)
            if words[0] == "mma.sync":  # of one tile
                words.insert(0, "Γ8(6,3)")
            if words[0][0] not in "ΓΩF":
                continue
            channels = row["channels"]
            layer = Layer(
                row["batch"], (row["output"],) * 2, channels, row.get("out_channels", channels),
                row["filter"],
            )  # fmt: skip
            us = row.get("us") or 2e-6 * layer.problem.macs / row["tflops"]
            group = row.get("group") or (products if products in ("fp16", "bf16") else "fp32")
            yield Timed(
                row["step"], layer, row["direction"], group, DEVICES[row["device"]], words[0],
                products or "", GONE.sub("", " ".join(words[1:])), None, 1e-6 * us,
            )  # fmt: skip
