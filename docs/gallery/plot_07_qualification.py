"""
Qualification of factors: relevant is not enough
================================================

BRIO asks two questions about each factor of the connectome. Does it separate patients
from controls (relevance)? Does its contribution survive re-estimation of the connectome
(support)? This example plants one factor that passes both and one that passes only the
first.
"""

# %%
# A cohort with a stable and an unstable factor
# ---------------------------------------------
# Patients have stronger coupling in the ``stable`` network in every minute. In the
# ``unstable`` network they have one short burst per scan, at every source site: all
# sites agree on it.

import matplotlib.pyplot as plt
import numpy as np
import torch

import brio
from brio.methods.brio.qualification import (
    contribution_statistics,
    pair_support,
    qualification_profile,
    reestimation_support,
    reestimation_variation,
    reference_scale,
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
model = brio.BrioClassifier("brio-plus", random_state=0, device="cpu").fit(cohort)

# %%
# Which factor owns which network?
# --------------------------------
# The assignment of regions to factors is part of the fitted run.

truth = cohort.provenance["truth"]
assignment = model.fitted_run_.state.inference["Pi_bar"].numpy()
networks = ["stable", "unstable", "spurious", "site"]
factor_of = {name: int(assignment[:, truth[name]].sum(1).argmax()) for name in networks}
print(factor_of)

# %%
# Contributions of the full scan and of re-estimates
# --------------------------------------------------
# A re-estimate is a scan whose frames are drawn again in blocks, so the model can score
# it like any other scan.

rng = np.random.default_rng(0)
source = np.flatnonzero(np.isin(cohort.sites, model.source_sites_))


def resample(scan: np.ndarray, block: int = 8) -> np.ndarray:
    """Draw blocks of frames, circularly and with replacement."""
    starts = rng.integers(0, len(scan), -(-len(scan) // block))
    frames = (starts[:, None] + np.arange(block)).ravel()[: len(scan)] % len(scan)
    return scan[frames]


K = 4
a = torch.from_numpy(model.contributions([cohort.scan(i) for i in source]))
a_re = torch.stack(
    [
        torch.from_numpy(
            model.contributions([resample(cohort.scan(i)) for i in source])
        )
        for _ in range(K)
    ],
    dim=1,
)
print(tuple(a.shape), tuple(a_re.shape))

# %%
# Support, Eqs. (11) to (16)
# --------------------------
# ``cell_average`` averages over the scans of each source site and class.

sites, labels = cohort.sites[source], cohort.labels[source]
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
# Relevance is what the fit recorded. For each pair of source sites and each class,
# ``g`` is the strength of alignment and ``alpha_bar`` shares it among the factors:
# weight moves from the unstable factor to the stable one.

relevance = torch.tensor(model.fitted_run_.details["relevance"], dtype=a.dtype)
g, alpha_bar = qualification_profile(relevance, pair_support(q_re))
print(f"strength g: {g.min():.2f} to {g.max():.2f}")

order = [factor_of[name] for name in networks]
figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
colours = ["#009E73", "#D55E00", "0.7", "0.7"]
panels = [
    ("relevance", relevance[order]),
    ("support under re-estimation", support[order]),
    ("weight in alignment / relevance", (alpha_bar.mean((0, 1)) / relevance)[order]),
]
for axis, (title, values) in zip(axes, panels, strict=True):
    axis.bar(networks, values, color=colours)
    axis.set_title(title, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
axes[1].set_ylim(0, 1)
axes[2].axhline(1, color="0.4", linewidth=0.8)
plt.show()

# %%
# The same scan, twice
# --------------------
# Points on the diagonal are contributions that re-estimation does not change.

figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.6), layout="constrained")
for axis, name in zip(axes, ("stable", "unstable"), strict=True):
    j = factor_of[name]
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
