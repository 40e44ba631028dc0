"""Structs as kernel files declare them: what is read from there lies as a C++ compiler has it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from struct import calcsize

import pytest

import winolab
from tests.gpu.support import host_compiler
from winolab.gpu.codegen import emit, simulated
from winolab.gpu.codegen.simulated_tiles import FP64, OUTPUTS, STATES
from winolab.gpu.codegen.simulated_tiles import PARAMS as AROUND
from winolab.gpu.codegen.structs import layout, layouts, size
from winolab.gpu.families import epilogue, scale, wgrad, winrs
from winolab.gpu.families.axes import PARAMS as AXIS
from winolab.gpu.families.depthwise import launch as depthwise
from winolab.gpu.families.direct import launch as direct
from winolab.gpu.families.fused2d import launch as fused2d
from winolab.gpu.families.gamma import filter
from winolab.gpu.families.gamma_ffma import launch as gamma_ffma
from winolab.gpu.families.gamma_mma.launch import PARAMS as GAMMA_MMA
from winolab.gpu.families.gamma_wgmma import input, launch
from winolab.gpu.families.grouped import launch as grouped
from winolab.gpu.families.im2col import launch as im2col
from winolab.gpu.families.implicit_gemm import launch as implicit_gemm
from winolab.gpu.families.nested import launch as nested
from winolab.gpu.families.patches import launch as patches
from winolab.gpu.families.skinny import launch as skinny
from winolab.gpu.families.thin import launch as thin
from winolab.gpu.families.wgrad_direct import chunks
from winolab.gpu.families.wgrad_direct import config as wgrad_direct_config
from winolab.gpu.families.wgrad_direct import launch as wgrad_direct
from winolab.gpu.families.wgrad_grouped import launch as wgrad_grouped
from winolab.gpu.families.wgrad_im2col import launch as wgrad_im2col
from winolab.gpu.families.wgrad_thin import launch as wgrad_thin
from winolab.gpu.families.wgrad_winograd import launch as wgrad_winograd
from winolab.gpu.params import INT, LONG, POINTER, Layout, Params
from winolab.gpu.planner.recast import fold_kernels, phase_copies
from winolab.gpu.runtime import layout_copy

FFMA = gamma_ffma
# Struct, its file, its layouts; before these, structs that lie in it, as files declare them.
STRUCTS = {
    "scale": ("ScaleParams", "scale", [scale.PARAMS], []),
    "gradients": ("GradientParams", "gradient_scheduler", [wgrad.PARAMS], []),
    "gradients in boxes": (
        "BoxParams",
        "boxes",
        [wgrad.PARAMS, winrs.PARAMS],
        [("GradientParams", "gradient_scheduler")],
    ),
    "reduce": ("ReduceParams", "split_k", [wgrad.REDUCE_PARAMS], []),
    "depthwise": ("DepthwiseParams", "depthwise/arrays", [depthwise.PARAMS], []),
    "depthwise plain": ("DepthwisePlainParams", "depthwise/plain", [depthwise.PLAIN], []),
    "depthwise planes": ("DepthwisePlanesParams", "depthwise/planes", [depthwise.PLANES], []),
    "depthwise gradients of planes": (
        "DepthwiseFilterPlanesParams",
        "depthwise/filter_planes",
        [depthwise.FILTER_PLANES],
        [],
    ),
    "depthwise staged": (
        "DepthwiseStagedParams",
        "depthwise/stages",
        [depthwise.MAPS, depthwise.PARAMS],
        [("DepthwiseParams", "depthwise/arrays")],
    ),
    "direct": (
        "DirectParams",
        "direct/walk",
        [direct.PARAMS, *3 * [AXIS]],
        [("DirectAxis", "axes")],
    ),
    "direct split": (
        "DirectSplitParams",
        "direct/split",
        [direct.SPLIT_PARAMS, direct.PARAMS, *3 * [AXIS]],
        [("DirectAxis", "axes"), ("DirectParams", "direct/walk")],
    ),
    "direct filter": (
        "DirectFilterParams",
        "direct/split_filter",
        [direct.FILTER_PARAMS],
        [],
    ),
    "implicit GEMM": (
        "ImplicitParams",
        "implicit_gemm/operands",
        [implicit_gemm.PARAMS, *3 * [AXIS], implicit_gemm.LAST],
        [("Quotient", "quotient"), ("DirectAxis", "axes")],
    ),
    "fill": ("FillParams", "implicit_gemm/fill", [implicit_gemm.FILL_PARAMS], []),
    "direct ffma": (
        "DirectFfmaParams",
        "direct/ffma",
        [direct.FFMA_PARAMS, *3 * [AXIS]],
        [("DirectAxis", "axes")],
    ),
    "grouped": (
        "GroupedParams",
        "grouped/patches",
        [grouped.PARAMS, *3 * [AXIS]],
        [("Quotient", "quotient"), ("DirectAxis", "axes")],
    ),
    "skinny": ("SkinnyParams", "skinny/kernel", [skinny.PARAMS], []),
    "thin": (
        "ThinParams",
        "thin/positions",
        [thin.PARAMS, *3 * [AXIS]],
        [("DirectAxis", "axes")],
    ),
    "wgrad grouped": (
        "WgradGroupedParams",
        "wgrad_grouped/tiles",
        [wgrad_grouped.PARAMS, *2 * [wgrad_grouped.ROWS], *3 * [wgrad_grouped.AXIS]],
        [
            ("Quotient", "quotient"),
            ("WgradGroupedRows", "wgrad_grouped/tiles"),
            ("WgradGroupedAxis", "wgrad_grouped/tiles"),
        ],
    ),
    "wgrad thin": (
        "WgradThinParams",
        "wgrad_thin/kernel",
        [wgrad_thin.PARAMS],
        [("ThinAxis", "wgrad_thin/kernel")],
    ),
    "im2col": (
        "PositionsParams",
        "im2col/kernel",
        [im2col.PARAMS],
        [("Quotient", "quotient")],
    ),
    "im2col again": ("AgainParams", "positions_again", [im2col.AGAIN_PARAMS], []),
    "patches": (
        "PatchParams",
        "patches/kernel",
        [patches.PARAMS],
        [("Quotient", "quotient")],
    ),
    "wgrad im2col": ("Im2colParams", "wgrad_im2col/kernel", [wgrad_im2col.PARAMS], []),
    "dw again": ("GradientAgainParams", "wgrad_im2col/again", [wgrad_im2col.AGAIN_PARAMS], []),
    "simulated": ("SimulatedParams", "simulated", [simulated.PARAMS], []),
    "states": ("StatesParams", "simulated_tiles", [AROUND[STATES]], []),
    "outputs": ("OutputsParams", "simulated_tiles", [AROUND[OUTPUTS]], []),
    "oracle": ("Fp64Params", "simulated_fp64", [AROUND[FP64]], []),
    "stack": (
        "StackParams",
        "stack",
        [phase_copies.PARAMS],
        [("Quotient", "quotient"), ("StackAxis", "stack")],
    ),
    "fold filter": (
        "FoldFilterParams",
        "fold",
        [fold_kernels.FILTER_PARAMS],
        [("Quotient", "quotient")],
    ),
    "fold": (
        "FoldParams",
        "fold",
        [fold_kernels.PARAMS],
        [("Quotient", "quotient"), ("FoldAxis", "fold")],
    ),
    "layout copy": ("LayoutCopyParams", "layout_copy", [layout_copy.PARAMS], []),
    "layout finish": ("LayoutFinishParams", "layout_copy", [layout_copy.FINISH_PARAMS], []),
    "epilogue": ("EpilogueParams", "epilogue", [epilogue.PARAMS], []),
    "fused2d": ("Fused2dParams", "fused2d/block", [fused2d.PARAMS], []),
    "fused2d filter": ("Fused2dFilterParams", "fused2d/filter", [fused2d.FILTER_PARAMS], []),
    "ffma filter": ("GammaFfmaFilterParams", "gamma_ffma/filter", [FFMA.FILTER_PARAMS], []),
    "ffma": ("PlainParams", "gamma_ffma/block", [FFMA.PARAMS], []),
    "fused filter": ("FusedParams", "gamma_ffma/block", [FFMA.FUSED_PARAMS], []),
    "mma": ("GammaMmaParams", "gamma_mma/block", [GAMMA_MMA], []),
    "wgmma": ("GammaWgmmaParams", "gamma_wgmma/block", [launch.PARAMS], []),
    "wgmma filter": ("GammaFilterParams", "gamma_filter", [filter.PARAMS], []),
    "scaled": (
        "ScaledParams",
        "gamma_filter_scaled",
        [filter.PARAMS, filter.SCALED],
        [("GammaFilterParams", "gamma_filter")],
    ),
    "pad": ("PadParams", "gamma_wgmma/pad_channels", [input.PAD_PARAMS], []),
    "nested filter": ("NestedFilterParams", "nested/filter_params", [nested.FILTER_PARAMS], []),
    "nested input": (
        "InputParams",
        "nested/input_params",
        [nested.INPUT_PARAMS, nested.FILTER_PARAMS, nested.DESCRIBERS],
        [("NestedFilterParams", "nested/filter_params")],
    ),
    "nested products": ("ProductsParams", "nested/products", [nested.PRODUCTS_PARAMS], []),
    "nested output": ("OutputParams", "nested/output_params", [nested.OUTPUT_PARAMS], []),
    "transform": (
        "TransformParams",
        "wgrad_winograd/transform",
        [wgrad_winograd.TRANSFORM_PARAMS],
        [("TransformSide", "wgrad_winograd/transform")],
    ),
    "products": ("GemmParams", "wgrad_winograd/scheduler", [wgrad_winograd.GEMM_PARAMS], []),
    "losses": ("LossesParams", "wgrad_winograd/kernel", [wgrad_winograd.LOSSES_PARAMS], []),
    "finish": ("FinishParams", "wgrad_winograd/kernel", [wgrad_winograd.FINISH_PARAMS], []),
    "columns": (
        "ColumnParams",
        "wgrad_direct/column_sweep",
        [wgrad.PARAMS, wgrad_direct.COLUMN_PARAMS],
        [("GradientParams", "gradient_scheduler"), ("Start", "wgrad_direct/column_sweep")],
    ),
    "split": (
        "SplitParams",
        "wgrad_direct/split_stage",
        [wgrad.PARAMS, wgrad_direct.COLUMN_PARAMS, wgrad_direct.SPLIT_PARAMS],
        [
            ("GradientParams", "gradient_scheduler"),
            ("Start", "wgrad_direct/column_sweep"),
            ("ColumnParams", "wgrad_direct/column_sweep"),
        ],
    ),
    "fallback": (
        "FallbackParams",
        "gamma_ffma/fallback_kernel",
        [scale.PARAMS, FFMA.FILTER_PARAMS, FFMA.PARAMS, FFMA.FALLBACK_PARAMS],
        [
            ("ScaleParams", "scale"),
            ("GammaFfmaFilterParams", "gamma_ffma/filter"),
            ("PlainParams", "gamma_ffma/block"),
        ],
    ),
}
# Fields that are structs of the same file, by the struct: their own fields lie flat in a layout.
INNER = {
    "GroupedParams": "^(by_[a-z]+)_",
    "FoldFilterParams": "^(by_inner)_",
    "FoldParams": "^(depth|height|width|by_[a-z]+)_",
    "StackParams": "^(depth|height|width|by_[a-z]+)_",
    "TransformParams": "^(x|dy)_",
    "WgradGroupedParams": "^(by_[a-z]+)_",
    "WgradThinParams": "^(depths|rows|columns)_",
    "PositionsParams": "^(of_width|of_height|of_depth|by_blocks_m)_",
    "PatchParams": "^(by_(?:row|lines|columns|rows|levels|pairs|taps))_",
}
KNOWN = f"""
struct alignas(64) TensorMap {{ char bytes[128]; }};
struct Header; struct Row; struct Loss; struct float2; struct uint4;
using EpilogueElement = float; using Element = float; using Number = float;
using Input = float; using Output = float; using Out = float; using Stored = float;
using StackElement = float; using FoldElement = float;
constexpr int ORDERED = {chunks.ORDERED}, STARTS = {chunks.STARTS};
"""


FUSED = ("LayoutFinishParams", "EpilogueParams")  # in sources that apply an epilogue


def text_of(struct: str, file: str) -> str:
    return emit.kernel(file, frozenset({emit.EPILOGUE} if struct in FUSED else ()))


def declaration(struct: str, file: str) -> str:
    """The struct's text."""
    found = re.search(
        rf"^struct (?:__align__\(8\) )?{struct}\b.*?^\}};", text_of(struct, file), re.M | re.S
    )
    assert found
    text = found[0].replace("split::", "").replace("__align__", "alignas")
    return text.replace("  GammaFfmaParams gamma", "  PlainParams gamma")


def packed(*parts: Layout) -> Params:
    """The struct of these, of zeros."""
    zeros = (
        part.pack(*(bytes(128) if kind.endswith("s") else 0 for _, kind in part.fields))
        for part in parts
    )
    return Params.of(*zeros)


def test_every_field_lies_where_a_compiler_has_it(tmp_path) -> None:
    texts = [KNOWN]
    for number, (struct, file, parts, inner) in enumerate(STRUCTS.values()):
        whole = packed(*parts)
        declared = [*(declaration(*i) for i in inner), declaration(struct, file)]
        checks = [f"sizeof({struct}) == {len(whole.data)}"]
        include = "quotient" if ("Quotient", "quotient") in inner else ""
        counts = {"ORDERED": chunks.ORDERED, "STARTS": chunks.STARTS}
        own = layouts(struct, file, struct in FUSED, include=include, **counts)
        fields = own[-1].fields
        before = [part.fields for part in parts].index(fields)
        first = sum(len(part.fields) for part in parts[:before])
        for (name, _), offset in zip(fields, whole.offsets[first:][: len(fields)], strict=True):
            member = re.sub(INNER.get(struct, "^()$"), r"\1.", name)
            checks.append(f"__builtin_offsetof({struct}, {member}) == {offset}")
        asserts = "\n".join(f'static_assert({check}, "");' for check in checks)
        texts.append("\n".join((f"namespace n{number} {{", *declared, asserts, "}")))
    options = ("-x", "c++", "-std=c++17", "-w", "-c", "-", "-o", tmp_path / "made.o")
    command = [*host_compiler.compiler(), *options]
    run = subprocess.run(command, input="\n".join(texts), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_structs_within_others_part_the_runs_of_fields() -> None:
    """By hand, from the kernel files."""
    before, behind = layouts("InputParams", "nested/input_params")
    assert before.fields[:4] == (("x", POINTER), ("v", POINTER), ("header", POINTER),
                                 ("batch_stride", LONG))  # fmt: skip
    assert behind.fields == (("describers", INT),)
    sides = layout("TransformParams", "wgrad_winograd/transform").fields
    assert [name for name, _ in sides[:36:12]] == ["x_data", "dy_data", "images"]
    with pytest.raises(ValueError, match=r"InputParams of nested/input_params\.cuh has 2 runs"):
        layout("InputParams", "nested/input_params")
    with pytest.raises(ValueError, match="there is no struct Params"):
        layout("Params", "nested/input_params")


def test_sizes_are_those_of_c() -> None:
    """scale.cuh and accuracy_check.cuh assert theirs when they are compiled, too."""
    assert (scale.HEADER, scale.ROW, scale.LOSS, scale.SUSPECT) == (1280, 16, 12, 40)
    assert size("Header", "scale", SAMPLERS=128) == 1072  # alignas(16) before its maxima
    assert (wgrad_direct_config.WORK, wgrad_direct_config.SOURCE) == (40, 40)
    assert size("Unit", "gradient_scheduler") == 48  # of 44 bytes, __align__(16)
    assert dict(wgrad_direct.COLUMN_PARAMS.fields)["lpt_order"] == f"{2 * chunks.ORDERED}s"
    assert calcsize(dict(wgrad_direct.COLUMN_PARAMS.fields)["starts"]) == 12 * chunks.STARTS


def test_every_struct_of_parameters_is_checked() -> None:
    declared = set()
    for file in emit.ROOT.rglob("*.cuh"):
        declared |= set(re.findall(r"^struct (\w*Params)\b", file.read_text(), re.M))
    assert declared == {struct for struct, *_ in STRUCTS.values()} | {"ScanParams"}  # of two scans


def test_no_struct_is_written_out_in_python_but_cublaslts() -> None:
    """Those of kernels are read where kernels declare them."""
    made = {}
    for path in Path(winolab.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        imported = re.search(r"from winolab.gpu.params import [^()]*\([^)]*\bLayout\b", text)
        imported = imported or re.search(r"from winolab.gpu.params import .*\bLayout\b", text)
        if imported or path.name == "params.py":
            made[path.name] = re.findall(r"(\w+) = Layout\(|\bLayout\(\*run\)", text)
    assert {name for name, found in made.items() if found} == {"params.py", "structs.py"}
    assert made["params.py"] == ["PRODUCT"]
