from __future__ import annotations

from winolab.gpu.codegen.emit import fingerprint, kernel, unit
from winolab.ref.algebra.transforms import transforms


def test_a_unit_has_constants_and_exact_programs_before_the_kernels() -> None:
    program = transforms(6, 3).programs.BT
    source = unit("F(6,3)", {"N": 6}, {"transform": program}, ("pipeline", "gamma"))
    parts = ["// F(6,3)", "constexpr int N = 6;", program.cuda("transform")]
    places = [source.index(part) for part in (*parts, kernel("pipeline"), kernel("gamma"))]
    assert places == sorted(places)


def test_true_constants_are_macros_and_false_ones_nothing() -> None:
    assert "#define COURIER\n" in unit("", {"COURIER": True, "N": 6}, {}, ("courier",))
    assert unit("", {"COURIER": False}, {}, ("courier",)).count("COURIER") == 0


def test_only_code_that_is_compiled_counts_for_a_fingerprint() -> None:
    text = "int a;\n#ifdef COURIER  // why\nint b;\n#else\nint c;\n#endif\n"
    text += "#ifdef COURIER\nd();\n#endif\n"
    without, compiled = fingerprint(text), fingerprint("int a; int c;  // what for")
    assert without == compiled
    assert fingerprint("#define COURIER\n" + text) != without
    assert fingerprint("#define COURIER\n" + text) == fingerprint(
        "#define COURIER\nint a;\nint b;\nd();\n"
    )


def test_a_file_stands_where_another_one_asks_for_it() -> None:
    assert "uint4 exchanged(" in kernel("direct_tensor")
    assert "emit.file" not in kernel("direct_tensor")
