# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
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
# The matrices that the paper prints, the operations that it counts, and Table 4, the largest
# element error of five VGG layers: all of it computed from the interpolation points.
#
# The code below uses `winolab` for whatever a reader would reuse. What comes from `experiments`
# and `papers` belongs to this checkout: the paper's printed numbers, the rows that are kept of
# long runs, and the figures. Tables have the paper's column beside ours and a verdict: a cell
# that a constant was fitted on is called fitted and is not counted.

# %%
# %matplotlib inline
import numpy as np
import pandas as pd

import winolab
from experiments.harness.facts import facts, matrices, table
from experiments.report.beside import Paper
from winolab import Transforms

pd.options.display.float_format = "{:.3g}".format
paper = Paper("lavin_gray_2016")
paper

# %% [markdown]
# Ours over the paper's, cell by cell:

# %%
paper.agreement()

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
f43 = winolab.transforms(4, 3, "0,1,-1,2,-2,inf")
f43

# %% [markdown]
# For a paper or a kernel, the same as LaTeX or as CUDA, with constants rounded once:

# %%
print(f43.to_cuda()[:700], "…")

# %% [markdown]
# ## The operations
#
# The programs that compute the transforms are counted as the paper counts: a fused multiply-add is
# one instruction. A 2-D transform runs along the columns and then along the rows.

# %%
counts = {row["algorithm"]: row for row in facts("lavin_gray_2016")["counts"]["rows"]}
printed = counts["F(4,3)"]
programs = f43.programs
pd.DataFrame(
    {
        "paper": [printed["data"], printed["filter"], printed["inverse"]],
        "winolab": [p.counts.instructions for p in (programs.BT, programs.G, programs.AT)],
    },
    index=["data", "filter", "inverse"],
)

# %% [markdown]
# ## Tables 1 and 2: what an output takes
#
# Tiles are compared by normalized complexity: multiplications an output, and the instructions of
# each transform over the multiplications of a tile, for Winograd and for the FFT, whose complex
# products take four real ones, or three.

# %%
paper.table("table1")

# %%
paper.figure("table1")

# %%
paper.table("table2")

# %% [markdown]
# ## Table 3: the layers

# %%
paper.table("table3")

# %% [markdown]
# ## Winograd and FFT, both run
#
# The same layer by direct convolution, Winograd and FFT: errors in FP32.

# %%
rng = np.random.default_rng(0)
x = rng.standard_normal((1, 30, 30, 32)).astype(np.float32)
w = rng.standard_normal((16, 3, 3, 32)).astype(np.float32)
exact = winolab.conv_forward(x, w, padding=1, precision="fp64", out_dtype=np.float64)
for text in ("direct", "winograd:2x2:3x3", "winograd:4x4:3x3", "fft:16:4", "fft:16:3", "fft:32:3"):
    y = winolab.conv_forward(x, w, padding=1, algorithm=text)
    error = np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2))
    print(f"{text:18} relative RMS {error:.1e}")

# %% [markdown]
# ## Table 4: the largest errors
#
# Data and filters are uniform on [-1, 1]. The paper gives the largest error over a whole layer, so
# ours is that of a whole layer too, with the interval in which another draw of 1 to 64 images would
# lie. With 512 channels the paper's Winograd columns lie below a single accumulator's; partial sums
# of 256 channels, which the paper does not mention, are shown.

# %%
paper.table("table4")

# %%
paper.figure("table4")

# %% [markdown]
# ### One entry, computed now
#
# Layer 5 with F(2×2,3×3): all 100,352 outputs of one image, in simulated FP32, with one accumulator
# over the 512 channels and with partial sums of 256.

# %%
from papers.lavin_gray_2016 import accuracy

job = next(
    job
    for job in accuracy.jobs(False)
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
for row in accuracy.layers():
    spread = np.sqrt(9 * row["C"]) / 3 * 2.9e-4
    print(
        f"layer {row['layer']:3}  predicted RMS {spread:.1e}, paper's maximum {row['fp16']:.1e}: "
        f"{row['fp16'] / spread:.1f} standard deviations"
    )

# %% [markdown]
# ## Tables 5 and 6, Figure 1: the speed of a fused F(2×2, 3×3)
#
# The paper's GPU is of 2015, ours an H100: what compares is a share of the device's peak, which
# effective TFLOPS may exceed. Layers are weighted by how often VGG network E has them. With 64
# images the shares are alike; with one they are not, since an H100 has five times as many
# multiprocessors to fill: there sums over channels are split among blocks.

# %%
paper.table("table5")

# %%
paper.figure("table5")

# %% [markdown]
# The fp16 column stores data in 16 bits and computes in fp32 (precision `fp16_ffma`). On the CPU
# the same arithmetic is simulated, so that the kernel's every bit can be checked:

# %%
x16, w16 = x.astype(np.float16), w.astype(np.float16)
y16 = winolab.conv_forward(x16, w16, padding=1, algorithm="winograd:2x2:3x3", precision="fp16_ffma")
y32 = winolab.conv_forward(
    x16.astype(np.float32), w16.astype(np.float32), padding=1, algorithm="winograd:2x2:3x3"
)
assert (y16 == y32.astype(np.float16)).all()
paper.table("table6")

# %%
paper.figure("figure1")

# %% [markdown]
# ## What is not above
#
# Every other table and figure of the paper, as far as its numbers are known.

# %%
paper.rest()
