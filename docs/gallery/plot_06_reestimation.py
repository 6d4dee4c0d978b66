"""
What re-estimation does to one connectome
=========================================

A scan gives one connectome, but other minutes of the same scan would have given a
different one. Block resampling shows how large the difference is: blocks of frames are
drawn, the same for all regions, and the connectome is estimated again (Eq. 2 of the
paper).
"""

# %%
# One scan, 64 re-estimates
# -------------------------
# Blocks preserve the correlation between neighbouring frames. In a job, brio estimates
# their length from the source sites of a fold. Here, blocks have 8 frames.

import matplotlib.pyplot as plt
import numpy as np

import brio
from brio.connectome import Connectomes, ReestimateRequest

simulation = brio.Simulation(
    n_sites=4, per_class=6, frames=240, unstable=3.0, dead_share=0.0, seed=4
)
cohort = brio.simulate(simulation)
connectomes = Connectomes(cohort, "cpu")
patient = int(np.flatnonzero(cohort.labels == 1)[0])
wanted = ReestimateRequest(
    scans=np.array([patient]), block_length=np.array([8]), seed=0, refresh=0, K=64
)
(_, estimates), *_ = connectomes.iterate_reestimates(wanted)
full, estimates = connectomes.full[patient].numpy(), estimates[0].numpy()
print(full.shape, estimates.shape)

# %%
figure, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained")
panels = [
    ("full scan", full),
    ("re-estimate 1", estimates[0]),
    ("re-estimate 2", estimates[1]),
]
for axis, (title, matrix) in zip(axes, panels, strict=False):
    image = axis.imshow(matrix, cmap="RdBu_r", vmin=-1.5, vmax=1.5)
    axis.set(title=title, xticks=[], yticks=[])
figure.colorbar(image, ax=axes[:3], shrink=0.8, label="Fisher z")
spread = axes[3].imshow(estimates.std(0), cmap="viridis", vmin=0)
axes[3].set(title="SD over 64", xticks=[], yticks=[])
figure.colorbar(spread, ax=axes[3], shrink=0.8)
plt.show()

# %%
# Which edges can be trusted?
# ---------------------------
# The simulation has a short burst of shared activity in the ``unstable`` network of
# patients. In the full scan, the edges of this network look like any others. However, a
# re-estimate may contain the burst twice or not at all, so these edges vary more.

truth = cohort.provenance["truth"]
figure, axis = plt.subplots(figsize=(6.4, 3), layout="constrained")
for k, name in enumerate(("stable", "unstable", "spurious", "site")):
    rois = np.array(truth[name])
    u, v = np.triu_indices(len(rois), 1)
    sd = estimates[:, rois[u], rois[v]].std(0)
    axis.scatter(
        np.full(len(sd), k) + np.linspace(-0.15, 0.15, len(sd)), sd, s=20, color=f"C{k}"
    )
    axis.hlines(sd.mean(), k - 0.25, k + 0.25, color="black")
axis.set(xticks=range(4), xticklabels=["stable", "unstable", "spurious", "site"])
axis.set(
    ylabel="SD over re-estimates, Fisher z",
    title="Edges within the four simulated networks",
)
plt.show()
