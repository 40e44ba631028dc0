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
# # Beyond minimal Winograd
#
# Winograd's minimal algorithm F(n, r) multiplies n + r − 1 times for n outputs of r taps. Its error
# grows so fast with n that 16-bit convolution takes n = 2, and FP32 n = 4 or 6. Minimality is the
# wrong aim: let the modulus polynomial have quadratic factors such as x² + 1 beside points, each of
# which takes three products, one more than its degree. The larger tile wins back the
# multiplications, and the error nearly disappears.
#
# **What is claimed here**, and where it comes from: every algorithm below is proved when it is
# built (its matrices convolve exactly, over the rationals); noise gains are computed from the
# matrices; errors are simulated, in the arithmetics that are named, and speeds are kept rows of a
# GPU. What was not measured is said at the end.
#
# **Prior art.** Winograd (1980) and Blahut (2010, chapter 5) have moduli of factors of any degree.
# Barabasz & Gregg (2019, arXiv 1905.05233) took them to neural networks: their abstract reports up
# to 6.5 times better recognition in FP16 in one case, at as many multiplications, and 5 % fewer
# multiplications in BF16, on 2000 images of ImageNet. SFC (He et al. 2024, 2407.02913) takes
# transforms of additions by symbolic Fourier transforms; its abstract states 3.68 multiplications
# saved of 3×3 filters, at errors like F(2×2,3×3)'s, which saves 2.25. What sources quote of them
# runs beside ours in the record table: a modulus of F(6,3) in 9 states of Barabasz's program errs
# 1.3 to 1.7 times as much, SFC-6(7×7,3×3) a tenth more in 16 bits, in FP32 as much. We know of no
# table of such algorithms by width and format, and of no GPU kernels but those measured below.

# %%
# %matplotlib inline
import numpy as np

import winolab
from experiments.harness.tables import rows_of
from experiments.moduli.tables import TABLES
from experiments.report.beside import Beside
from papers.beyond_minimal import figures
from winolab.ref.error.metrics import noise_gain

tables = {table.name: table for table in TABLES}
rows = {name: rows_of(table) for name, table in tables.items()}

# %% [markdown]
# ## One algorithm
#
# F(8, 3) in 12 states: five points, infinity, and a pair x² ± 6/7 x + 1. Building it proves it.

# %%
points = "0,3/4,-3/4,4/3,-4/3,inf,x^2+6/7*x+1,x^2-6/7*x+1"
made = winolab.transforms(8, 3, points)
print(made.n * made.r / made.alpha, "multiplications saved in one dimension,", made.alpha, "states")
minimal = winolab.transforms(4, 3)
print(minimal.n * minimal.r / minimal.alpha, "by F(4, 3) in", minimal.alpha)

# %% [markdown]
# An independent check of the same identity, by integers of 256 bits and the definition of a
# correlation: no algorithm of this size agrees with it by chance.

# %%
rng = np.random.default_rng(0)
g, d = ([int.from_bytes(rng.bytes(32)) for _ in range(size)] for size in (3, 10))
states = [
    sum(a * b for a, b in zip(u, g, strict=True)) * sum(a * b for a, b in zip(v, d, strict=True))
    for u, v in zip(made.G, made.BT, strict=True)
]
y = [sum(a * s for a, s in zip(row, states, strict=True)) for row in made.AT]
assert y == [sum(g[k] * d[i + k] for k in range(3)) for i in range(8)]

# %% [markdown]
# The noise gain, Σ ‖AT‖² ‖G‖² ‖BT‖² over the states by n r, predicts relative errors of zero-mean
# data: they grow with its root, in every format. Nesting multiplies it.

# %%
for name in ("gamma:4:2:3", "gamma:6:4:3", "gamma:8:6:3", f"gamma:12:8:3@{points}"):
    print(f"{noise_gain(name):8.2f}  {name}")

# %% [markdown]
# ## The frontier
#
# Each dot is an algorithm of the record table (`winolab records`), which a search over real factors
# and their nearest rationals filled; the grey ones are minimal. Direct convolution is at 1.

# %%
figures.frontier()

# %% [markdown]
# Nested with themselves, in two dimensions, over 64 channels: what no other record beats in both
# saving and noise gain. Wide filters gain most: a 9×9 filter saves 13.6 in 22² states at a third
# more noise gain than F(2×2,3×3). Where an FP16 error leaps, states leave the format's range.

# %%
figures.plane(rows["plane"])

# %%
Beside(tables["plane"], tables["plane"].cells(rows["plane"]))

# %% [markdown]
# ## Known beside points
#
# Algorithms that were known before the search, with Karatsuba's products and with those of least
# noise, which are the default.

# %%
Beside(tables["lines"], tables["lines"].cells(rows["lines"]))

# %%
Beside(tables["nested"], tables["nested"].cells(rows["nested"]))

# %% [markdown]
# ## Eight bits
#
# INT8 is where points fail: with one scale a tensor F(4×4,3×3) loses a tenth, and F(4×4,5×5) nearly
# everything. Scales a state, as in tap-wise quantisation (Andri et al. 2022, 2209.12982), help
# points; with them quadratic factors lose what points with 10 bits do. Sums by residues (Liu &
# Mattina 2020, 2007.12216) lose nothing but take a convolution a prime, which divides the saving.
#
# Published accuracies are of whole networks, which nothing here trains: base change (Barabasz 2020,
# 2004.11077) reports at most 0.5 % less than quantised direct convolution for ResNet-18 on CIFAR-10
# in 8 bits, trained with Winograd's transforms, and none with products of 9 bits.

# %%
figures.eight_bits(rows["quantized"])

# %%
Beside(tables["quantized"], tables["quantized"].cells(rows["quantized"]))

# %% [markdown]
# Multiplications that residues save of 3×3 filters over 512 channels, each in eight bits, by how
# many primes the sums need.

# %%
figures.residues(512)

# %% [markdown]
# ## What a GPU makes of it
#
# Nested kernels run any modulus up to 24 states an axis. Split FP32 products on one H200, kept rows
# of `python -m experiments.measure.nested`: microseconds, and the error on normal data.

# %%
figures.speeds()

# %% [markdown]
# In split FP32 F(6×6,3×3) with x² + 1 takes 2 to 17 % longer than F(4×4,3×3) in three dimensions
# and 17 to 46 % in two, at 0.59 to 0.63 of its error. For 9×9 filters F(8×8,9×9) in 19² is the
# fastest that was measured at 128 and 256 channels, 1.6 and 2.5 times the best without nested
# kernels, and not at 64. For 5×5 in FP16 the workspace of nested kernels costs more than the
# products save.
#
# Fused on FFMA units, where a multiplication is what counts, F(6,3) in 9 states takes 1.36 to 1.53
# times as long as Γ8(6,3) at 0.34 to 0.40 of its error, F(8,9) in 19 states 1.6 times as long as
# Γ16(8,9) at a fortieth of its error. What calls pick, split products on Tensor Cores, is 3.0 to
# 7.5 times as fast as these with moduli, at errors of their size.
#
# Filter gradients run the same algorithms transposed, in two launches (`python -m
# experiments.measure.ways.omega_moduli`). In split FP32 Ω(9,8) in 19 states takes 0.69 to 0.84 of
# the time of the minimal tile whose error is admitted, Ω9(3,7), at 0.30 to 0.49 of its error, and 1
# to 18 % longer than Ω16(9,8) at a fortieth of its; Ω(3,6) in 9 states 11 % longer than Ω8(3,6) at
# 0.35 to 0.41. For large filters calls therefore take them by default. Fused on FFMA units they
# take 1.02 to 1.58 times as long as the fastest minimal tile whose error is admitted, at 0.27 to
# 0.52 of its error: by name alone.
#
# ## What is missing
#
# A GPU has timed two of the frontier's algorithms, F(8×8,3×3) in 12² and F(9×9,3×3) in 14²: slower
# than F(4×4,3×3), at half of its error. F(8,3) in 12 states runs fused with the reference's bits on
# the CPU and has no time. INT8 and FP8 are simulated and have no kernels. No network was trained or
# evaluated. The search's grid ends at F(16, 9) and at eight states more than n + r − 1.
