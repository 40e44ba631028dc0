"""The text of direct.cu with macros, and the signature of its compiled form."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_name("direct.cu")
THREADS = 128  # of a block
MACROS = (
    (), ("HALF",), ("UNWRITTEN_TILE",), ("OFF_BY_ONE_PAD",), ("SPLIT",), ("MISSING_BARRIER",),
    ("TF32",), ("SWALLOWED_NAN",), ("READS_OUTSIDE",), ("STALE_WORKSPACE",),
    ("TRANSPOSED_FILTER",), ("HALF", "HALF_SUMS"),
)  # fmt: skip
SIZES = "N H W C K R S OH OW SH SW PH PW LH LW G"
SIGNATURE = f"""name = "conv"
arguments = {["x", "w", "y", "workspace", *(f"int {name}" for name in SIZES.split())]}
grid = ["N*OH*OW", "G"]
block = [{THREADS}]
workspace = 4
"""


def source(*macros: str) -> str:
    """The text of direct.cu with those macros defined."""
    return "".join(f"#define {name}\n" for name in macros) + FILE.read_text()
