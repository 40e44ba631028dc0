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
# # DWM: large filters and strides as sums of small convolutions
#
# The Decomposable Winograd Method cuts a filter into pieces of at most three taps a dimension,
# and a stride into phases of the input, so that every piece is a small convolution with stride 1.
# The numbers of the paper's tables did not survive in the text that we have; its prose did, and
# each of its claims stands beside what comes out here.
#
# The code below uses `winolab` for whatever a reader would reuse. What comes from `experiments`
# and `papers` belongs to this checkout: the paper's printed numbers, the rows that are kept of
# long runs, and the figures. Tables have the paper's column beside ours and a verdict: a cell
# that a constant was fitted on is called fitted and is not counted.

# %%
# %matplotlib inline
import numpy as np

import winolab
from experiments.report.beside import Paper
from winolab import Problem, decomposition

paper = Paper("dwm_2021")
paper

# %% [markdown]
# The claims of each table that hold, and those that do not:

# %%
paper.agreement()

# %% [markdown]
# A cut is a value that can be looked at.

# %%
decomposition(Problem.of((1, 9, 9, 1), (1, 5, 5, 1)), winolab.dwm())

# %% [markdown]
# With stride 2 the pieces are phases: each reads every second element of the input.

# %%
decomposition(Problem.of((1, 9, 9, 1), (1, 5, 5, 1), stride=2), winolab.dwm())

# %% [markdown]
# ## It is convolution
#
# In exact arithmetic all three directions equal direct convolution, whatever the stride and the
# dilation.

# %%
rng = np.random.default_rng(0)
x, w = rng.integers(-9, 10, (2, 17, 16, 4)), rng.integers(-9, 10, (6, 7, 5, 2))
options = {"stride": (2, 3), "dilation": (1, 2), "padding": 3, "groups": 2, "precision": "exact"}
y = winolab.conv_forward(x, w, **options)
dy = rng.integers(-9, 10, y.shape)
checks = [
    (winolab.conv_forward, (x, w)),
    (winolab.conv_backward_data, (dy, w, x.shape)),
    (winolab.conv_backward_filter, (x, dy, w.shape)),
]
for function, arguments in checks:
    same = function(*arguments, **options) == function(*arguments, **options, algorithm="dwm:3:2")
    assert same.all()
    print(function.__name__, "equal")

# %% [markdown]
# ## Tables 3 and 4: what it saves
#
# A block of two outputs a dimension takes ∏(Sᵢ + mᵢ) multiplications for Sᵢ taps in mᵢ pieces. The
# extremes over strides, kernels and dimensions are the abstract's 1.44 and 3.38.

# %%
for ndim, kernel, stride in [(2, 3, 2), (2, 5, 1), (2, 7, 2), (3, 3, 1), (3, 3, 2), (3, 7, 2)]:
    size = stride + kernel
    layer = Problem.of((1, *[size] * ndim, 1), (1, *[kernel] * ndim, 1), stride=stride)
    saved = layer.macs / decomposition(layer, winolab.dwm()).multiplications()
    print(f"{ndim}-D, {kernel} taps, stride {stride}: {saved:.2f}")

# %%
paper.figure("table3")

# %%
paper.table("table3")

# %%
paper.figure("table4")

# %%
paper.table("table4")

# %% [markdown]
# Only the number of pieces counts (equation 23), not where the filter is cut. All cuts of some:

# %%
paper.table("equation23")

# %% [markdown]
# ## Tables 1 and 2: what it does to the error
#
# Mean squared errors against FP64. F(2, r) loses digits with every tap; DWM loses less than one
# long sum does. Over 16 channels, now:

# %%
for kernel in (3, 5, 7, 9, 11):
    x = rng.standard_normal((1, kernel + 5, kernel + 5, 16)).astype(np.float32)
    w = rng.standard_normal((8, kernel, kernel, 16)).astype(np.float32)
    exact = winolab.conv_forward(x, w, precision="fp64", out_dtype=np.float64)
    errors = {}
    for text in ("direct", f"winograd:2x2:{kernel}x{kernel}@wincnn", "dwm:3:2"):
        errors[text] = np.mean((winolab.conv_forward(x, w, algorithm=text) - exact) ** 2)
    print(f"{kernel:2}×{kernel:<2}", "  ".join(f"{k} {v:.0e}" for k, v in errors.items()))

# %% [markdown]
# The paper's layers, from kept rows. Winograd in FP16 overflows from 9 taps on.

# %%
paper.figure("table1")

# %%
paper.table("table1")

# %%
paper.figure("table2")

# %%
paper.table("table2")

# %% [markdown]
# ## Table 7: up to six dimensions
#
# Seven taps in each of six dimensions, one channel, two outputs a dimension.

# %%
paper.figure("table7")

# %%
paper.table("table7")

# %% [markdown]
# ## Tables 8 and 14: whole networks, and memory

# %%
paper.table("table8")

# %%
paper.table("table14")

# %% [markdown]
# ## Tables 10 and 12: what FP16 does to video networks
#
# SPyNet's outputs have NaN where its 7×7 layers run by one tile, GDConvNet's are nothing but NaN.
# The weights are not ours; the layers are, on data of a wide range whose scale grows.

# %%
paper.table("ranges")

# %% [markdown]
# The same layers, whole, by the kernels of a GPU:

# %%
paper.table("ranges_measured")

# %% [markdown]
# ## Which strategy is the fastest?
#
# The paper's DWM was the best on a quarter of its shapes. By the planner's model of an H100:

# %%
paper.table("strategies")

# %% [markdown]
# ## Equation 18: training updates filters, not their transforms

# %%
paper.table("equation18")

# %% [markdown]
# ## Beyond the paper: what other pieces and tiles are worth
#
# DWM takes pieces of three taps and tiles of two outputs, whatever the filter. All others, by
# predicted error and multiplications saved:

# %%
paper.figure("frontier")

# %%
paper.table("frontier")

# %% [markdown]
# ## What is not above
#
# Every other table and figure of the paper, as far as its numbers are known.

# %%
paper.rest()
