"""
What a model reads
==================

:func:`brio.models.explain_model` shows which edges and regions a model goes by. The
simulation planted a network of regions that differs between patients and controls, so
we can see whether the model found it. In a shell: ``brio explain``.
"""

# %%
# Fit a model
# -----------

import matplotlib.pyplot as plt
import numpy as np

import brio
from brio.models import explain_model

simulation = brio.Simulation(n_sites=6, per_class=15, stable=0.5, seed=13)
cohort = brio.simulate(simulation)
model = brio.fit(cohort, "log-ridge", device="cpu")

# %%
# Patterns of regions
# -------------------
# A pattern says how an edge changes where the model leans towards patients; regions are
# ranked by the patterns of their edges. It is about the model, and none of it is a cause.

explanation = explain_model(model, device="cpu")
regions = explanation.rois.sort_values("rank")
regions.head(8)

# %%
# Did it find what was planted?
# -----------------------------
# ``provenance`` of a simulated cohort holds the truth. The model leans on the stable
# network, and on the unstable one too: a burst that goes with the diagnosis in these
# minutes. Regions of the site network say nothing about it.

truth = cohort.provenance["truth"]
pattern = explanation.rois["absolute_pattern"].to_numpy()
colours = ("#0072B2", "#E69F00", "0.7", "#CC79A7")
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for (name, rois), colour in zip(truth.items(), colours, strict=True):
    rois = np.array(rois)
    axis.bar(rois, pattern[rois], color=colour, label=name)
axis.set(xlabel="region", ylabel="sum of absolute patterns")
axis.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1))
plt.show()
