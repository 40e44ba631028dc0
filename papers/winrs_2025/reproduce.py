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
# # WinRS: filter gradients in segments, planned before they are computed
#
# A filter gradient convolves x with dy as a large filter and has few outputs. WinRS cuts dy into
# segments, each of which fills a bucket of dw's size on its own blocks, and cuts a segment's rows
# into units of r elements, from which Ωα(n, r) computes n taps.

# %%
# %matplotlib inline
import numpy as np

import winolab
from winolab import Problem
from winolab.ref.algorithms.winrs.plan import plan

vgg16_2 = Problem.of((32, 224, 224, 64), (64, 3, 3, 64), padding=1)
print(plan(vgg16_2, "rtx4090"))

# %% [markdown]
# The plan as the paper draws it: segments, coloured by kernel, and their units.

# %%
from papers.winrs_2025.partition_picture import picture

small = plan(Problem.of((32, 28, 28, 256), (256, 3, 3, 256), padding=1), "rtx4090")
picture([small.as_dict() | small.partition()])

# %% [markdown]
# Segments and workspace fall as channels grow (the paper's Figure 9).

# %%
for channels in (64, 128, 256, 512, 1024):
    size = 6144 // channels
    layer = Problem.of((256, size, size, channels), (channels, 3, 3, channels), padding=1)
    made = plan(layer, "rtx4090")
    print(
        f"{channels:5} channels {len(made.segments):4} segments {made.workspace / 2**20:6.1f} MiB"
    )

# %% [markdown]
# ## It is the gradient
#
# In exact arithmetic every partition gives direct convolution's gradient, strides and dilation
# included.

# %%
rng = np.random.default_rng(0)
x, w_shape = rng.integers(-9, 10, (2, 17, 16, 4)), (6, 5, 6, 2)
for options in (
    {"padding": 2, "groups": 2},
    {"padding": 3, "groups": 2, "stride": (2, 3)},
    {"padding": 5, "groups": 2, "dilation": 2},
):
    problem = Problem.of(x.shape, w_shape, **options)
    dy = rng.integers(-9, 10, problem.y_shape)
    direct = winolab.conv_backward_filter(x, dy, w_shape, precision="exact", **options)
    for text in ("winrs", "winrs;segments=6"):
        ours = winolab.conv_backward_filter(
            x, dy, w_shape, precision="exact", algorithm=text, **options
        )
        assert (ours == direct).all()
    print(options, "equal")

# %% [markdown]
# ## Its error in FP16
#
# Ω16(9,8) on U[0,1]: what the paper's FP16 sums lose, what FP32 sums lose, and what better points
# are worth. Then the same on zero-mean data, which no one should train with at α = 16.

# %%
from papers.winrs_2025 import errors as winrs
from papers.winrs_2025.accuracy import Gradient
from papers.winrs_2025.grid import Layer
from winolab.algorithm import Tile

layer = Layer(32, 32, 256, 9)
variants = (winrs.PAPER16, winrs.OURS16, winrs.BEST16)
for data in ("u01", "normal"):
    for row in Gradient((), layer, Tile(9, 8), variants, data).run():
        metric = "mare" if data == "u01" else "relative_rms"
        print(f"{data:7} {row['variant']:24} {metric} {row[metric]:.1e}")

# %% [markdown]
# ## When it wins
#
# The timing model beside Table 3's averages over cuDNN's GEMM.

# %%
from experiments.harness.facts import table
from papers.winrs_2025.timing import CUDNN, predicted

for row in table("winrs_2025", 3)["rows"]:
    times = predicted(row["device"], row["precision"], row["filter"])
    ours = times.speedup("gemm", *CUDNN[row["precision"], "gemm"]).mean()
    taps, published = row["filter"], row["gemm"][0]
    print(f"{row['device']:10} {row['precision']} {taps}×{taps}: {ours:.2f}, published {published}")

# %% [markdown]
# ## On a GPU
#
# Measured, from kept rows, so that it renders without one: a seeded sample of the grid, three
# layers a filter size (`python -m experiments.measure.throughput --lists winrs`). The paper's
# Figures 10
# and 11:

# %%
import pandas as pd

from experiments.gpu import figures as gpu_figures
from experiments.gpu import losses as gpu_losses
from experiments.gpu import paper_tables as gpu_tables
from experiments.gpu.rows import stored

measured = stored()
gpu_figures.gradient_speeds(measured)

# %% [markdown]
# Table 3: speedups over cuDNN's kinds of algorithms by filter size, beside the paper's on an
# RTX 4090 (geometric mean and extremes here, averages and extremes there).

# %%
pd.options.display.float_format = "{:.3g}".format
pd.options.display.max_rows = 400


def frame(cells) -> pd.DataFrame:
    """Cells as a table."""
    lines = [(c.where, c.column, c.paper, c.ours, c.note) for c in cells]
    found = pd.DataFrame(lines, columns=["", "quantity", "paper", "ours", "note"])
    return found.astype(object).where(found.notna(), "")


speedups = gpu_tables.cells_winrs3(measured)
frame(c for c in speedups if "average" in c.column)

# %% [markdown]
# What `conv_backward_filter` picks by itself beside the fastest of all of cuDNN's algorithms and
# PyTorch in the same precision, and where it is behind them:

# %%
gradients = [row for row in measured if row["direction"] == "backward_filter"]
gpu_losses.ratios(gradients)

# %%
print("\n".join(gpu_losses.told(gradients, stored("counters"))))

# %% [markdown]
# Table 2 and Figure 9: workspace, in MiB and as a multiple of the data, beside cuDNN's.

# %%
frame(gpu_tables.cells_winrs2(measured))

# %%
gpu_figures.gradient_workspace(measured)

# %% [markdown]
# Table 4 and Figure 12: mean relative errors on U[0,1].

# %%
frame(gpu_tables.cells_winrs4(measured))

# %%
gpu_figures.gradient_errors(measured)
