# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lavin & Gray 2016: minimal filtering in two dimensions
#
# Three things of the paper are checked here: the matrices it prints, the operations it counts, and
# Table 4, the largest element error of five VGG layers. Everything below is computed from the
# interpolation points.

# %%
# %matplotlib inline
import sys
from pathlib import Path

root = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "experiments").is_dir())
sys.path.insert(0, str(root))

import numpy as np
import pandas as pd

import winolab
from experiments.harness.facts import facts, matrices, table
from experiments.harness.tables import select, stored
from papers.lavin_gray_2016 import accuracy as lavin_gray
from papers.lavin_gray_2016.figures import table4
from winolab.ref.algebra.transforms import Transforms

pd.options.display.float_format = "{:.3g}".format

# %% [markdown]
# ## The matrices
#
# F(2,3), F(3,2) and F(4,3) of equations 7, 14 and 15. The paper's own rows are proved to be
# convolution, and are those that the points 0, ±1, ±2 and ∞ give, up to the order and the scale of
# the rows.

# %%
for name in ("eq7", "eq14", "eq15"):
    printed = matrices("lavin_gray_2016", name)
    n, r = printed["tile"]
    ours = winolab.transforms(n, r, printed["points"])
    theirs = Transforms(printed["AT"], printed["G"], printed["BT"])
    print(f"{printed['source']}: F({n},{r}), the same: {ours.equivalent(theirs)}")
    assert ours.equivalent(theirs)

# %%
exact = winolab.transforms(4, 3, "0,1,-1,2,-2,inf")
pd.DataFrame([[str(v) for v in row] for row in exact.BT])

# %% [markdown]
# ## The operations
#
# The programs that compute the transforms are counted as the paper counts: a fused multiply-add is
# one instruction. A 2-D transform runs along the columns and then along the rows.

# %%
counts = {row["algorithm"]: row for row in facts("lavin_gray_2016")["counts"]["rows"]}
paper = counts["F(4,3)"]
programs = exact.programs
pd.DataFrame(
    {
        "paper": [paper["data"], paper["filter"], paper["inverse"]],
        "winolab": [p.counts.instructions for p in (programs.BT, programs.G, programs.AT)],
    },
    index=["data", "filter", "inverse"],
)

# %% [markdown]
# ## Table 4, from the committed rows
#
# Data and filters are uniform on [-1, 1]. The paper gives the largest error over a whole layer, so
# ours is that of a whole layer too, with the interval in which another draw would lie. With 512
# channels the paper's Winograd columns lie below a single accumulator's and agree with partial sums
# of 256 channels.

# %%
rows = select(stored("lavin_gray_2016"), table="table4")
cells = lavin_gray.cells(rows)
pd.DataFrame(
    [(c.where, c.column, c.paper, c.ours, c.low, c.high, c.ratio, c.agrees) for c in cells],
    columns=["layer", "column", "paper", "ours", "low", "high", "ratio", "agrees"],
)

# %%
table4(rows)

# %% [markdown]
# ## One entry, computed now
#
# Layer 5 with F(2×2,3×3): all 100,352 outputs of one image, in simulated FP32, with one accumulator
# over the 512 channels and with partial sums of 256.

# %%
job = next(
    job
    for job in lavin_gray.jobs(False)
    if dict(job.labels)["layer"] == "5" and dict(job.labels)["column"] == "F2x2"
)
printed = next(row for row in table("lavin_gray_2016", 4)["rows"] if row["layer"] == "5")
for row in job.run():
    if row["variant"] != "fp16":
        print(f"{row['variant']:7} {row['layer_max']:.2e}   paper {printed['F2x2']:.2e}")
        assert row["bound_ratio"] <= 1

# %% [markdown]
# The fp16 column needs no simulation: rounding inputs to fp16 has a relative error of 2.9·10⁻⁴ RMS
# in a product, and √K products of RMS 1/3 add up.

# %%
for row in lavin_gray.layers():
    spread = np.sqrt(9 * row["C"]) / 3 * 2.9e-4
    print(
        f"layer {row['layer']:3}  predicted RMS {spread:.1e}, paper's maximum {row['fp16']:.1e}: "
        f"{row['fp16'] / spread:.1f} standard deviations"
    )
