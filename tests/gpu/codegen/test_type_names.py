"""Names of types in kernel files: each belongs to one file, but for alternatives."""

from __future__ import annotations

import re

from winolab.gpu.codegen import emit

# Types of several files of which a source includes one: a policy, by the files that have it.
ALTERNATIVES = {
    # The shared kernels' are scales from data or fixed ones; a gradient's segments as runs of
    # positions or as boxes.
    ("fixed_scale", "scale"): {"Row", "ChannelFactors", "BlockFactors", "Factors"},
    ("accuracy_check", "fixed_scale"): {"AccuracyCheck"},
    ("boxes", "flat"): {"Params", "WorkTile", "Units"},
    # A family's kernel names the others by macro or by a constant: how x comes, what is wgmma's A,
    # who finishes outputs; with scales or without; from memory or stages.
    ("gamma_wgmma/fetch_boxes", "gamma_wgmma/fetch_elements"): {"Fetch", "Raw"},
    ("gamma_wgmma/filters_registers", "gamma_wgmma/filters_shared"): {"FilterRing", "Products"},
    ("gamma_wgmma/outputs_fours", "gamma_wgmma/outputs_pairs"): {"Outputs"},
    ("gamma_wgmma/finish_exchange", "gamma_wgmma/finish_tensor"): {"Staging", "Delivered"},
    ("nested/rows_fixed", "nested/rows_scaled"): {"TileOutputs"},
    ("depthwise/rows", "depthwise/staged_rows"): {"Walk"},
    ("wgrad_winograd/products_mma", "wgrad_winograd/products_wgmma"): {"GemmShared"},
    ("wgrad_winograd/sums", "wgrad_winograd/sums_fp64"): {"SegmentSum"},
    # Two families', each with its own products: rows of times are of both texts.
    ("implicit_gemm/products", "wgrad_grouped/products"): {"TwoParts"},
    ("wgrad_direct/column_stages", "wgrad_direct/split_stage"): {"Finished", "SumParams"},
}
# Types of numbers, which a source has one of each: what its arrays hold, by its constants.
NUMBERS = {"Element", "Out", "Output"}
# A struct or union and its body, functions' own too; an alias that belongs to no struct.
NAMED = re.compile(
    r"^ *(?:struct|union|enum|class) (?:\w+\(.*\) )?(\w+)[^;\n]*\{"
    r"|^using (\w+) =|^typedef [^;\n]*?\b(\w+)(?:\[\w+\])*;",
    re.M,
)


def named(text: str) -> set[str]:
    """Names of types that a kernel file defines."""
    return {name for found in NAMED.findall(text) for name in found if name}


def test_what_names_types() -> None:
    text = """
struct A;
struct alignas(4 * sizeof(Element)) B : A {
  struct Inner { int i; };
  using type = int;
};
union U {
typedef float Sums[MT][NT][4];
using Either2 = Either<A, B>::type;
template <>
struct Words<2> {
  const struct B& b;
"""
    assert named(text) == {"B", "Inner", "U", "Sums", "Either2", "Words"}


def test_a_type_s_name_belongs_to_one_file() -> None:
    """Several files have it only as alternatives with one interface, or as a type of numbers."""
    files: dict[str, list[str]] = {}
    for file in sorted(emit.ROOT.rglob("*.cuh")):
        for name in named(file.read_text()):
            where = file.stem if file.parent == emit.SHARED else f"{file.parent.name}/{file.stem}"
            files.setdefault(name, []).append(where)
    several = {name: tuple(found) for name, found in files.items() if len(found) > 1}
    assert several.keys() >= NUMBERS
    found: dict[tuple[str, ...], set[str]] = {}
    for name in several.keys() - NUMBERS:
        found.setdefault(several[name], set()).add(name)
    assert found == ALTERNATIVES
