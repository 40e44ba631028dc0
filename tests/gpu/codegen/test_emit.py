from __future__ import annotations

import re
import subprocess

import pytest

from tests.gpu.support import host_compiler
from winolab.gpu.codegen.emit import (
    EPILOGUE,
    FAMILIES,
    SHARED,
    TF32,
    _chosen,
    fingerprint,
    headers,
    kernel,
    path,
    unit,
    without,
)
from winolab.ref.algebra.transforms import transforms

WGMMA = {
    "FILTER_FILE": "gamma_filter_cluster.cuh",
    "FILTERS_FILE": "filters_shared.cuh",
    "OUTPUTS_FILE": "outputs_fours.cuh",
    "FINISH_FILE": "finish_exchange.cuh",
    "FETCH_FILE": "fetch_boxes.cuh",
}
DEPTHWISE = (
    *("rows", "scatter", "plain", "any", "filter_rows", "filter_any"),
    *("staged_rows", "staged_scatter", "staged_filter", "planes", "filter_planes"),
)
ROOTS = {
    "layout_copy": {},
    "fold": {},
    "stack": {},
    "simulated": {},
    "simulated_fp64": {},
    "simulated_tiles": {},
    **{f"depthwise/{name}": {} for name in DEPTHWISE},
    "direct/kernel": {},
    "direct/split": {},
    "direct/ffma": {},
    "im2col/kernel": {},
    "grouped/kernel": {},
    "implicit_gemm/fill": {},
    "implicit_gemm/kernel": {},
    "implicit_gemm/wgmma": {},
    "fused2d/kernel": {},
    "gamma_ffma/kernel": {},
    "gamma_ffma/fallback_kernel": {},
    "gamma_mma/kernel": WGMMA,
    "gamma_wgmma/kernel": WGMMA,
    "nested/kernel": {
        "ROWS_FILE": "rows_scaled.cuh",
        "FILTER_FILE": "filter.cuh",
        "INPUT_FILE": "input.cuh",
        "OUTPUT_FILE": "output.cuh",
    },
    "patches/kernel": {},
    "skinny/kernel": {},
    "thin/channels": {},
    "thin/outputs": {},
    "wgrad_direct/columns": {},
    "wgrad_direct/narrow": {},
    "wgrad_direct/split": {},
    "wgrad_im2col/kernel": {},
    "wgrad_ffma/kernel": {"SEGMENTS_FILE": "flat.cuh"},
    "wgrad_grouped/kernel": {},
    "wgrad_thin/kernel": {},
    "wgrad_mma/kernel": {"SEGMENTS_FILE": "flat.cuh", "PRODUCE_FILE": "produce.cuh"},
    "wgrad_winograd/kernel": {"PRODUCTS_FILE": "products_mma.cuh", "SUMS_FILE": "sums.cuh"},
}


def test_a_unit_has_constants_and_exact_programs_before_the_kernels() -> None:
    program = transforms(6, 3).programs.BT
    source = unit("F(6,3)", {"N": 6}, {"transform": program}, ("pipeline", "gamma_ffma/kernel"))
    parts = ["// F(6,3)", "constexpr int N = 6;", program.cuda("transform")]
    files = [kernel("pipeline"), kernel("gamma_ffma/produce"), kernel("gamma_ffma/kernel")]
    places = [source.index(part) for part in (*parts, *files)]
    assert places == sorted(places)
    assert all(source.count(file) == 1 for file in files)


def test_constants_are_numbers() -> None:
    source = unit("", {"LOAD_WARP": True, "FUSED": False, "UNITS": 1 << 40}, {}, ())
    assert "constexpr int LOAD_WARP = 1;\nconstexpr int FUSED = 0;\n" in source
    assert f"constexpr long long UNITS = {1 << 40};" in source


def test_only_code_counts_for_a_fingerprint() -> None:
    text = 'float sum = __fadd_rn(a.x, b);  // why\n\nasm("mov %0;" : "=f"(sum));\n'
    assert fingerprint(text) == fingerprint(text.replace("  // why\n\n", " "))
    named = text.replace("sum", "total")
    assert fingerprint(text) == fingerprint(named.replace("(a.", "(v."))
    for old, new in (("__fadd", "__fsub"), ("a.x", "a.y"), ("float", "int"), ("mov", "add"),
                     (", b)", ", a)")):  # fmt: skip
        assert fingerprint(text) != fingerprint(text.replace(old, new)), new


def test_a_file_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="no kernel file 'gamma_ffma/missing'"):
        path("gamma_ffma/missing")


def test_a_profile_tells_a_kernel_s_family() -> None:
    """Entries have the name of their family's folder, or are those of several; each is one's."""
    entries = {}
    for file in (*FAMILIES.glob("*/*.cuh"), *SHARED.glob("*.cuh")):
        for entry in re.findall(r" (winolab_\w+)\(const __grid_constant__", file.read_text()):
            assert entries.setdefault(entry, file) == file
    assert len(entries) > 40
    folders = {file.parent.name for file in FAMILIES.glob("*/*.cuh")}
    for entry, file in entries.items():
        named = {f for f in folders if re.match(rf"winolab_{f}(_|$)", entry)}
        assert named == {file.parent.name} & folders, entry


def _preprocessed(text: str, *options: str) -> list[str]:
    command = [*host_compiler.compiler(), "-x", "c++", "-E", "-P", *options, "-"]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_what_applies_an_epilogue_is_in_sources_that_ask_for_it_alone() -> None:
    plain = unit("", {}, {}, ("layout_copy",))
    fused = unit("", {EPILOGUE: 1}, {}, ("layout_copy",))
    assert "EpilogueParams" not in plain
    assert "LayoutFinishParams finish;" in fused
    assert fused.count("unsigned behind(") == plain.count("unsigned behind(") == 1
    assert not re.search("#(ifdef|else|endif)", plain + fused)


def test_a_condition_of_another_kind_is_refused() -> None:
    """It stood in sources as it was, and was true for every one of them."""
    text = f"#ifndef {EPILOGUE}\nint y;\n#endif\n"
    said = "#ifndef EPILOGUE: of EPILOGUE, FALLBACK, LEFT_OUT, TF32 use #ifdef, #else"
    with pytest.raises(ValueError, match=said):
        _chosen(text, frozenset())


@pytest.mark.parametrize("root", ROOTS)
def test_a_compiler_resolves_includes_alike(root, tmp_path) -> None:
    for name, text in headers().items():
        (tmp_path / name).write_text(text)
    macros = [f'-D{macro}="{file}"' for macro, file in ROOTS[root].items()]
    folders = [f"-I{folder}" for folder in (tmp_path, SHARED)]
    include = f'#include "{path(root)}"\n'
    wanted = _preprocessed(unit("", {}, {}, (root,), files=ROOTS[root]))
    assert wanted == _preprocessed(include, *folders, *macros)
    assert len(wanted) > 200


def test_every_file_is_of_a_root() -> None:
    others = {
        "PRODUCTS_FILE": "products_wgmma.cuh",
        "SUMS_FILE": "sums_fp64.cuh",
        "SEGMENTS_FILE": "boxes.cuh",
        "PRODUCE_FILE": "produce_ahead.cuh",
        "FILTER_FILE": "gamma_filter_fixed.cuh",
        "FILTERS_FILE": "filters_registers.cuh",
        "OUTPUTS_FILE": "outputs_pairs.cuh",
        "FINISH_FILE": "finish_tensor.cuh",
        "FETCH_FILE": "fetch_elements.cuh",
    }
    staged = {
        "ROWS_FILE": "rows_fixed.cuh",
        "FILTER_FILE": "staged_filter.cuh",
        "INPUT_FILE": "staged_input.cuh",
        "OUTPUT_FILE": "staged_output.cuh",
    }
    exchanged = {**others, "FINISH_FILE": "finish_exchange.cuh"}
    texts = [unit("", {}, {}, ("gamma_wgmma/pad_channels", "gamma_wgmma/kernel"), (), exchanged)]
    texts += [unit("", {}, {}, (root,), (), files) for root, files in ROOTS.items()]
    texts += [unit("", {}, {}, (root,), (), others) for root in ROOTS if root != "nested/kernel"]
    texts.append(unit("", {}, {}, ("nested/kernel",), (), staged))
    texts.append(unit("", {EPILOGUE: 1}, {}, ("layout_copy",)))
    texts += [unit("", {TF32: 1}, {}, (f"{f}im2col/kernel",)) for f in ("", "wgrad_")]
    for file in (*SHARED.glob("*.cuh"), *FAMILIES.glob("*/*.cuh")):
        family = "" if file.parent == SHARED else f"{file.parent.name}/"
        assert any(kernel(family + file.stem) in text for text in texts), file


def test_a_lean_unit_has_the_constants_that_its_files_name() -> None:
    files = ("gamma_filter_fixed",)
    source = unit("", {"R": 3, "STAGES": 2, "ROWS": 1}, {}, files, lean=True)
    assert "int R = 3;" in source
    assert "STAGES" not in source
    assert "int ROWS = " not in source
    assert "int ROWS = 1;" in unit("", {"R": 3, "ROWS": 1}, {}, files)


def test_kernels_can_be_left_out() -> None:
    kept = "struct A {\n  int a;\n};\n"
    short = 'extern "C" __global__ void winolab_a(int* p) {\n  *p = 1;\n}\n'
    bounded = (
        'extern "C" __global__ void __launch_bounds__(128, 2)\n'
        "    winolab_a_filter(const __grid_constant__ A p) {\n"
        "  if (p.a) {\n    return;\n  }\n}\n"
    )
    source = kept + short + bounded + kept
    assert without(source, ["winolab_a"]) == kept + bounded + kept
    assert without(source, ["winolab_a_filter"]) == kept + short + kept
    assert without(source, ["winolab_a", "winolab_a_filter"]) == kept + kept
    assert without(source, ["winolab_filter", "a"]) == source
