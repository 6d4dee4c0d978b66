"""
Harmonisation, and the site that ComBat was not fitted to
=========================================================

ComBat estimates the effect of each site it is fitted to. It has no estimate for a new
hospital, so you must choose how to treat scans from there. Every table states this
choice.
"""

# %%
# ComBat fitted to source sites only
# ----------------------------------
# ``brio.connectome.harmonisation.fit_combat`` works on any features. Here we apply it to
# the edges of connectomes, and leave the last site out of the fit, like a test site.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import brio
from brio.connectome import Connectomes
from brio.connectome.harmonisation import fit_combat

cohort = brio.simulate(
    brio.Simulation(
        n_sites=6, per_class=12, site_shift=0.6, spurious=0.0, dead_share=0.0, seed=2
    )
)
upper = np.triu_indices(cohort.n_rois, 1)
edges = Connectomes(cohort, "cpu").full.numpy()[:, upper[0], upper[1]].astype(float)
unseen = cohort.sites == "site06"
combat = fit_combat(edges[~unseen], cohort.sites[~unseen])

# %%
# Three policies for the unseen site
# ----------------------------------
# ``identity`` leaves its scans as they are, ``pooled`` applies the average site effect,
# and ``unlabelled`` estimates the effect from the scans of that site without their
# labels. The last policy is transductive: its evaluation is fair only if you will have
# such scans before you predict. With a fourth policy, ``raise``, brio stops with an
# error.

policies = ("identity", "pooled", "unlabelled")
grand_mean = edges[~unseen].mean(0)
figure, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained", sharey=True)
adjusted = {"no ComBat": edges}
for policy in policies:
    extended = combat.extend_to_unseen_sites(
        edges[unseen], cohort.sites[unseen], policy
    )
    adjusted[policy] = extended.apply(edges, cohort.sites)
for axis, (policy, values) in zip(axes, adjusted.items(), strict=True):
    for k, site in enumerate(np.unique(cohort.sites)):
        shift = (values[cohort.sites == site].mean(0) - grand_mean) / edges.std(0)
        axis.boxplot(
            shift,
            positions=[k],
            widths=0.6,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": "#D55E00" if site == "site06" else "#9ecae1"},
            medianprops={"color": "black"},
        )
    axis.axhline(0, color="0.6", linewidth=0.8)
    axis.set(
        title=policy,
        xticks=range(6),
        xticklabels=["1", "2", "3", "4", "5", "6"],
        xlabel="site",
    )
axes[0].set_ylabel("shift of edges from the mean, SD")
plt.show()

# %%
# In a job
# --------
# You can make the same choice in ``brio.run``, or on the command line with ``brio run
# cohort --method ridge --set harmonise.kind=combat --set harmonise.unseen=pooled``. In
# every fold, ComBat is fitted again to the source scans only.

tables = {"no ComBat": brio.run(cohort, ["ridge"], device="cpu").table()}
for policy in policies:
    settings = {"harmonise.kind": "combat", "harmonise.unseen": policy}
    tables[policy] = brio.run(
        cohort, ["ridge"], settings=settings, device="cpu"
    ).table()
pd.concat(tables).droplevel(1)[["AUC", "SD", "low", "high"]].astype(float).round(1)
