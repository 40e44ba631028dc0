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
# # openCNN: a fused F(2×2, 3×3) in CUDA
#
# openCNN computes F(2×2, 3×3) in one kernel, from filters that another kernel transforms. How its
# sums go through shared memory is the paper's subject: here its layouts are drawn from the data
# that a kernel of winolab's (family `fused2d`) is printed from, counted, searched and measured.
#
# The code below uses `winolab` for whatever a reader would reuse. What comes from `experiments`
# and `papers` belongs to this checkout: the paper's printed numbers, the rows that are kept of
# long runs, and the figures. Tables have the paper's column beside ours and a verdict: a cell
# that a constant was fitted on is called fitted and is not counted.
# %%
# %matplotlib inline

# %%
# %matplotlib inline
import numpy as np

import winolab
from experiments.harness.facts import facts, matrices, table
from experiments.report.beside import Paper
from winolab import Transforms

paper = Paper("opencnn_2021")
paper

# %% [markdown]
# ## Equation 3: the matrices
#
# The paper prints B, G and A of F(2, 3) at the points 0, 1, −1 and ∞. They are proved to be
# convolution, and are those of the points up to the order and the scale of their rows.

# %%
printed = matrices("opencnn_2021", "eq3")
f23 = winolab.transforms(2, 3, printed["points"])
theirs = Transforms(printed["AT"], printed["G"], printed["BT"])
assert f23.equivalent(theirs)
f23

# %% [markdown]
# The paper counts four multiplications and eight additions for two outputs of three taps, the
# filter's transform precomputed, where direct convolution has six and four.

# %%
stated = facts("opencnn_2021")["counts"]
programs = f23.programs
additions = programs.BT.counts.additions + programs.AT.counts.additions
print(f"multiplications {f23.alpha}, paper {stated['multiplications']}")
print(f"additions {additions}, paper {stated['additions']}")
assert (f23.alpha, additions) == (stated["multiplications"], stated["additions"])

# %% [markdown]
# ## Table 2: the layers
#
# The 3×3 layers of ResNet that Tables 3 and 4 time (Table 2), at batch 32: multiplications that
# F(2×2, 3×3) saves, tiles at the edges counted whole, and its error on zero-mean data beside direct
# convolution's, in FP32, over a sample of each layer's channels.

# %%
rng = np.random.default_rng(0)
for row in table("opencnn_2021", 2)["rows"]:
    h, w, c = row["H"], row["W"], row["C"]
    tiles = -(-h // 2) * -(-w // 2)
    saved = h * w * 9 / (tiles * 16)
    x = rng.standard_normal((1, h, w, c)).astype(np.float32)
    filters = rng.standard_normal((4, 3, 3, c)).astype(np.float32)
    exact = winolab.conv_forward(x, filters, padding=1, precision="fp64", out_dtype=np.float64)
    errors = []
    for text in ("winograd:2x2:3x3", "direct"):
        y = winolab.conv_forward(x, filters, padding=1, algorithm=text)
        errors.append(np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2)))
    print(f"{row['layer']}  {h:2}×{w:<2} {c:3} channels  saves {saved:.2f}  relative RMS "
          f"{errors[0]:.1e}, direct {errors[1]:.1e}")  # fmt: skip

# %% [markdown]
# ## Who has what: Figures 4 and 5
#
# A block sums 64 filters × 32 tiles in 16 states; a warp has two of these states, and its lanes lie
# as below, 4 × 4 sums a cell. All of it, 128 KB, goes from registers through shared memory in four
# rounds, because a tile's 16 states are in eight warps. Yan et al. store a cell's four tiles at
# once (128 bits), of 16 filters a round: eight lanes of each half-warp have nothing to do. openCNN
# stores two at once (64 bits), of 32 filters.

# %%
paper.figure("layouts", 1)

# %% [markdown]
# ## Where it goes: Figures 5 to 8
#
# Layouts are data here: a few functions of integers from which the kernel's indexing is printed,
# and by which a model of 32 banks counts what a warp's instructions cost. Below is which lane
# stores each word of a state in the first round. Padding (blank) keeps lanes out of one another's
# banks; the compact layout turns its rows instead. The last one is ours.

# %%
paper.figure("layouts")

# %% [markdown]
# ## How it is read: Figures 9 to 12
#
# A thread transforms two tiles. To be stored to memory at once they have to be neighbours, but a
# 64-bit store has put the first two tiles of a cell on one row and the last two on another.
# Either results change lanes by shuffles (the layout `shuffled`), or the products swap the second
# tile with the third, y with z, which costs nothing (all others of the paper).

# %%
paper.figure("layouts", 2)

# %% [markdown]
# ## What was discarded, and what is stored: Figures 13 and 14
#
# 64-bit loads in the paper's order ask 16 banks twice for each half-warp, as the authors say. They
# need not: in 24 of 120 orders of a lane's bits nothing conflicts.

# %%
paper.figure("layouts", 3)

# %% [markdown]
# ## The statements, counted
#
# What the paper says of its layouts in numbers, beside what the model counts.

# %%
paper.table("layouts")

# %% [markdown]
# Every layout that the kernel has, counted, and its speed over the kernel with Yan et al.'s layout,
# where it was measured (blocks of 64 filters, CHWN, on an H200 and an H100):

# %%
from winolab.gpu.families.fused2d.banks import Cost
from winolab.gpu.families.fused2d.layouts import layouts

counts = {made.name: Cost.of(made) for made in layouts(64)}
counted = paper.table("counted")
speeds = {c.where: f"{c.ours:.2f}" for c in counted.cells if c.column.startswith("speed")}
for name, cost in counts.items():
    print(f"{name:12} {cost.layout.bytes / 1024:5.1f} KB  {cost.layout.rounds} rounds  "
          f"{cost.stores.idle_share:4.0%} of lanes idle  "
          f"{cost.stores.conflicts + cost.loads.conflicts} conflicts  "
          f"{cost.cycles():6,.0f} cycles on Turing  speed {speeds.get(name, '-')}")  # fmt: skip

# %%
counted

# %% [markdown]
# The last lines are worth a thought. If a block did one thing after another, products at the rate
# of the FFMA units and then the output transform, the banks alone would gain 5 % on 64 channels and
# less on more, on either GPU. The paper's 2.15 and the 1.45 of its code on an H200 are more: what
# else the two layouts' code differs in costs as well, as divergent branches and waits do.

# %% [markdown]
# Are there others as good? Rows of 128 bytes may be turned by any multiple of the digits that say
# which row: `python -m papers.opencnn_2021.search` tries all.

# %%
from papers.opencnn_2021.search import found, least, matter

for name in ("compact", "wide"):
    tried, free = found(name)
    print(f"{name}: {len(free)} of {tried} have no conflict; the turns that matter: {matter(free)}")
print(f"cycles on Turing that no layout can do without: {least():,.0f}")

# %% [markdown]
# ## Table 1: what an access costs
#
# The cycles behind that are Table 1's. On an H200 one warp's stores take nearly the same; sixteen
# warps fill the gaps, and then only idle lanes cost throughput:

# %%
paper.table("table1b")

# %%
paper.figure("table1b")

# %% [markdown]
# ## Tables 3 and 4: speedups
#
# As printed, over cuDNN 8.2's fused Winograd and over the authors' CUDA version of Yan et al.;
# beside them the authors' own code and our kernel with both layouts, on an H200. The
# authors' gain falls with depth on all GPUs, since deeper layers sum more channels for an output.
# In our kernel other warps make the next tiles meanwhile, and the layout hardly matters.

# %%
paper.figure("table3")

# %%
paper.figure("table4")

# %% [markdown]
# The averages that the paper states are those of its entries, to a unit of the last digit:

# %%
stated = {3: {"cudnn": 1.34, "yan": 1.58}, 4: {"cudnn": 1.34, "yan": 1.49}}
for number, averages in stated.items():
    for baseline, average in averages.items():
        entries = [row["speedup"] for row in table("opencnn_2021", number)["rows"]
                   if row["baseline"] == baseline]  # fmt: skip
        print(f"Table {number}, over {baseline}: {np.mean(entries):.2f}, stated {average}")
speedups = paper.table("table3")
theirs = [cell.ours for cell in speedups.cells if cell.where.startswith("the authors")]
print(f"their code over their version of Yan et al.'s on an H200: {np.mean(theirs):.2f}")

# %%
speedups

# %% [markdown]
# ## Figures 15 and 18: TFLOPS, and Figures 17 and 19: over cuDNN
#
# Equation 6 divides by 2.25: FLOPs are those that are multiplied.

# %%
paper.figure("figure15")

# %%
paper.figure("figure16")

# %%
paper.figure("figure17")

# %% [markdown]
# ## Every other table

# %%
paper.rest()
