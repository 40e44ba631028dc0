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
# # WinRS: filter gradients in segments, planned before they are computed
#
# A filter gradient convolves x with dy as a large filter and has few outputs. WinRS cuts dy into
# segments, each of which fills a bucket of dw's size on its own blocks, and cuts a segment's rows
# into units of r elements, from which Ωα(n, r) computes n taps.
#
# The code below uses `winolab` for whatever a reader would reuse. What comes from `experiments`
# and `papers` belongs to this checkout: the paper's printed numbers, the rows that are kept of
# long runs, and the figures. Tables have the paper's column beside ours and a verdict: a cell
# that a constant was fitted on is called fitted and is not counted.

# %%
# %matplotlib inline
from typing import Any

import numpy as np

import winolab
from experiments.gpu import losses as gpu_losses
from experiments.gpu.rows import stored
from experiments.report.beside import Paper
from experiments.report.partition_picture import picture
from papers.winrs_2025 import errors as study
from papers.winrs_2025 import plans
from papers.winrs_2025.accuracy import Gradient
from papers.winrs_2025.grid import Layer
from winolab import Problem, Tile
from winolab.device import H100
from winolab.ref.algorithms.winrs.plan import plan

paper = Paper("winrs_2025")
paper

# %% [markdown]
# Ours over the paper's, cell by cell:

# %%
paper.agreement()

# %% [markdown]
# The paper's planner (`winolab.ref.algorithms.winrs.plan`) for a layer of VGG-16:

# %%
plan(Problem.of((32, 224, 224, 64), (64, 3, 3, 64), padding=1), "rtx4090")

# %% [markdown]
# A plan as the paper draws it: segments, coloured by kernel, and their units.

# %%
small = plan(Problem.of((32, 28, 28, 256), (256, 3, 3, 256), padding=1), "rtx4090")
picture([small.as_dict() | small.partition()])

# %% [markdown]
# ## What a GPU runs of it
#
# `winrs` launches this plan: each kernel of the pair once, over its segments, whose sums lie in
# buckets of dw's size. Beside it the same kernels on segments of our own, ranges of the flat sum,
# as many as fill the GPU. Where the workspace goes: a bucket a segment but for the one that dw
# itself is, which it cannot be in 16 bits.

# %%
problem = Problem.of((32, 28, 28, 256), (256, 3, 3, 256), padding=1)
for precision in ("fp32", "fp16"):
    for whose, planned in (
        ("WinRS's", plans.papers(problem, H100, precision)),
        ("ours", plans.omega(problem, H100, precision)),
    ):
        found = plans.segmented(planned)
        buckets = found.workspace / 4 / np.prod(problem.w_shape)
        print(
            f"{precision} {whose:8} {found.kernel:20} {found.segments:3} segments "
            f"{buckets:4.0f} buckets {found.workspace / 2**20:6.1f} MiB "
            f"{1e6 * found.predicted:6.0f} µs predicted"
        )

# %% [markdown]
# On the whole reconstructed grid, by the model that the planner chooses by:

# %%
paper.table("plans")

# %% [markdown]
# A hundred layers drawn from it by a seed, on a GPU (`python -m papers.winrs_2025.measure.plans`).
# The default is what was fastest of the kernels whose error is admitted unasked; tiles in two
# launches that err more are faster in FP16 and have to be asked for.

# %%
paper.figure("plans_kernels")

# %%
paper.table("plans_kernels")

# %% [markdown]
# ## Where its conclusion holds
#
# Fused Ω in FP16 over direct products, by data sheets. On Hopper transforms bind it while direct
# products run on wgmma; where FP32 lanes keep up with mma.sync its saving is left.

# %%
paper.table("conclusion")

# %% [markdown]
# ## It is the gradient
#
# In exact arithmetic every partition gives direct convolution's gradient, strides and dilation
# included.

# %%
rng = np.random.default_rng(0)
x, w_shape = rng.integers(-9, 10, (2, 17, 16, 4)), (6, 5, 6, 2)
cases: list[dict[str, Any]] = [
    {"padding": 2, "groups": 2},
    {"padding": 3, "groups": 2, "stride": (2, 3)},
    {"padding": 5, "groups": 2, "dilation": 2},
]
for options in cases:
    dy = rng.integers(-9, 10, Problem.of(x.shape, w_shape, **options).y_shape)
    direct = winolab.conv_backward_filter(x, dy, w_shape, precision="exact", **options)
    for text in ("winrs", "winrs;segments=6"):
        ours = winolab.conv_backward_filter(
            x, dy, w_shape, precision="exact", algorithm=text, **options
        )
        assert (ours == direct).all()
    print(options, "equal")

# %% [markdown]
# ## The kernels and their blocks: Figures 2, 5, 6 and 7

# %%
paper.table("figure6")

# %%
paper.table("figure5")

# %%
paper.table("figure2")

# %%
paper.table("figure7")

# %% [markdown]
# ## Table 2 and Figure 9: the workspace
#
# Segments and workspace fall as channels grow.

# %%
paper.table("table2")

# %%
paper.figure("figure9")

# %%
paper.table("figure9")

# %% [markdown]
# ## Table 3: when it wins
#
# A timing model beside the paper's speedups over cuDNN. Two constants of each of cuDNN's algorithms
# and one of WinRS's are fitted to the averages (`python -m papers.winrs_2025.fits`), so that minima
# and maxima are judged.

# %%
paper.figure("table3")

# %%
paper.table("table3")

# %% [markdown]
# Beyond the paper: predicted time against workspace. Stars are the planner's choice.

# %%
paper.figure("frontier")

# %%
paper.table("frontier")

# %% [markdown]
# ## Table 4 and Figure 12: its error
#
# Ω16(9,8) on U[0,1] in FP16: what the paper's FP16 sums lose, what FP32 sums lose, and what better
# points are worth. Then the same on zero-mean data, which no one should train with at α = 16.

# %%
layer = Layer(32, 32, 256, 9)
variants = (study.PAPER16, study.OURS16, study.BEST16)
for data in ("u01", "normal"):
    for row in Gradient((), layer, Tile(9, 8), variants, data).run():
        metric = "mare" if data == "u01" else "relative_rms"
        print(f"{data:7} {row['variant']:24} {metric} {row[metric]:.1e}")

# %%
paper.table("table4")

# %%
paper.figure("figure12")

# %%
paper.table("figure12")

# %%
paper.table("zero_mean")

# %% [markdown]
# ## On a GPU
#
# Measured, from kept rows, so that it renders without one: a seeded sample of the grid, three
# layers a filter size (`python -m experiments.measure.throughput --lists winrs`). The paper's
# Figures 10 and 11:

# %%
paper.figure("table3_kernels")

# %% [markdown]
# Table 3: speedups over cuDNN's kinds of algorithms by filter size, beside the paper's.

# %%
paper.table("table3_kernels")

# %% [markdown]
# What `conv_backward_filter` picks by itself beside the fastest of all of cuDNN's algorithms and
# PyTorch in the same precision:

# %%
gpu_losses.ratios([row for row in stored() if row["direction"] == "backward_filter"])

# %% [markdown]
# Table 2 and Figure 9: workspace, in MiB and as a multiple of the data, beside cuDNN's.

# %%
paper.figure("table2_kernels")

# %%
paper.table("table2_kernels")

# %% [markdown]
# Section 5.2: what each optimization is worth.

# %%
paper.table("ablations_kernels")

# %%
paper.table("simplification")

# %% [markdown]
# Table 4 and Figure 12: mean relative errors on U[0,1].

# %%
paper.figure("table4_kernels")

# %%
paper.table("table4_kernels")

# %% [markdown]
# ## What is not above
#
# Every other table and figure of the paper, as far as its numbers are known.

# %%
paper.rest()
