"""
Qualification of factors: relevance is not enough
=================================================

BRIO measures two properties of each factor of the connectome. Relevance is how well the
factor separates patients from controls. Support is how little its contribution changes
when the connectome is re-estimated. This example simulates one factor with high
relevance and high support, one relevant factor with lower support, and two factors that
do not separate the classes.
"""

# %%
# A cohort with a stable and an unstable factor
# ---------------------------------------------
# Patients have stronger coupling in the ``stable`` network in every minute. In the
# ``unstable`` network they have one short burst per scan. This burst occurs at every
# source site, so the sites agree on it.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

import brio
from brio.methods.brio.qualification import (
    contribution_statistics,
    normalise_relevance,
    pair_support,
    qualification_profile,
    reestimation_support,
    reestimation_variation,
    reference_scale,
    relevance,
)

simulation = brio.Simulation(
    n_sites=6,
    per_class=12,
    frames=400,
    stable=0.25,
    unstable=3.0,
    spurious=0.0,
    dead_share=0.0,
)
cohort = brio.simulate(simulation)

# %%
# Factors and their contributions
# -------------------------------
# BRIO learns its factors. Here, each simulated network is a factor. The state of a factor
# is the mean connectivity within its network, and a logistic regression on the states
# gives each factor a weight. The contribution of a factor is its weight times its state,
# Eq. (10). For a re-estimate, the frames of a scan are drawn again in blocks.

truth = cohort.provenance["truth"]
networks = ["stable", "unstable", "spurious", "site"]
rng = np.random.default_rng(0)
K = 4


def read_states(scan: np.ndarray) -> list[float]:
    """Mean Fisher z between the regions of each network."""
    z = np.arctanh(np.clip(np.corrcoef(scan.T), -0.999, 0.999))
    rows = (z[np.ix_(truth[name], truth[name])] for name in networks)
    return [block[np.triu_indices(len(block), 1)].mean() for block in rows]


def resample(scan: np.ndarray, block: int = 8) -> np.ndarray:
    """Draw blocks of frames, circularly and with replacement."""
    starts = rng.integers(0, len(scan), -(-len(scan) // block))
    frames = (starts[:, None] + np.arange(block)).ravel()[: len(scan)] % len(scan)
    return scan[frames]


scans = [cohort.scan(i) for i in range(len(cohort))]
h = torch.tensor([read_states(scan) for scan in scans])
h_re = torch.tensor([[read_states(resample(scan)) for _ in range(K)] for scan in scans])
w = torch.from_numpy(LogisticRegression(C=1e3).fit(h, cohort.labels).coef_[0])
a, a_re = w * h, w * h_re
print(tuple(a.shape), tuple(a_re.shape))

# %%
# Support, Eqs. (11) to (16)
# --------------------------
# The tensor ``cell_average`` averages over the scans of each source site and class.

sites, labels = cohort.sites, cohort.labels
cells = [[(sites == e) & (labels == c) for c in (0, 1)] for e in np.unique(sites)]
cell_average = torch.tensor(np.array(cells), dtype=a.dtype)
cell_average /= cell_average.sum(-1, keepdim=True)

_, V_sub, Delta = contribution_statistics(a, cell_average)
D_re = reestimation_variation((a_re - a[:, None]).square().mean(1), cell_average)
q_re = reestimation_support(reference_scale(V_sub, Delta), D_re, 1e-6)
support = q_re.mean((0, 1))

# %%
# Qualification, Eqs. (18) and (19)
# ---------------------------------
# Relevance, Eq. (13), compares the distance between the classes with their spread. For
# each pair of source sites and each class, ``g`` is the strength of alignment, and
# ``alpha_bar`` distributes it over the factors. Weight moves from the unstable factor to
# the stable one.

R_task = relevance(w[:, None], Delta.mean(0), V_sub.mean(0), 1e-6, 1e-6)
pi_task = normalise_relevance(R_task)
g, alpha_bar = qualification_profile(pi_task, pair_support(q_re))
print(f"strength g: {g.min():.2f} to {g.max():.2f}")

figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
colours = ["#009E73", "#D55E00", "0.7", "0.7"]
panels = [
    ("relevance", pi_task),
    ("support under re-estimation", support),
    ("weight in alignment / relevance", alpha_bar.mean((0, 1)) / pi_task),
]
for axis, (title, values) in zip(axes, panels, strict=True):
    axis.bar(networks, values, color=colours)
    axis.set_title(title, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
axes[1].set_ylim(0, 1)
axes[2].axhline(1, color="0.4", linewidth=0.8)
plt.show()

# %%
# The same scan, estimated twice
# ------------------------------
# A point on the diagonal is a contribution that re-estimation does not change.

figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.6), layout="constrained")
for axis, name in zip(axes, ("stable", "unstable"), strict=True):
    j = networks.index(name)
    for label, colour in ((0, "#0072B2"), (1, "#D55E00")):
        members = labels == label
        axis.scatter(
            a[members, j],
            a_re[members, 0, j],
            s=12,
            color=colour,
            label=("controls", "patients")[label],
        )
    axis.axline((0, 0), slope=1, color="0.5", linewidth=0.8)
    axis.set(
        title=f"{name}: support {support[j]:.2f}", xlabel="contribution, full scan"
    )
axes[0].set_ylabel("contribution, re-estimate")
axes[0].legend(frameon=False)
plt.show()
