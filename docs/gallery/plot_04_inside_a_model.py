"""
What a model uses
=================

:func:`brio.models.explain_model` shows which edges and regions a model uses. In the
simulated cohort, one brain network differs between patients and controls, so we can
check whether the model found it. In a shell, use ``brio explain``.
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
# A pattern shows how an edge changes as the margin of the model increases, that is, as
# predictions move towards patients. Regions are ranked by the patterns of their edges.
# Patterns describe the model; they do not identify causes.

explanation = explain_model(model, device="cpu")
regions = explanation.rois.sort_values("rank")
regions.head(8)

# %%
# Did the model find the simulated networks?
# ------------------------------------------
# The ``provenance`` of a simulated cohort holds the truth. The model uses the stable
# network. It also uses the unstable network, which has a burst associated with the
# diagnosis in these minutes. The regions of the site network carry no information about
# the diagnosis.

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
