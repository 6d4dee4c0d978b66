"""
Confound baselines: does something other than connectivity predict the diagnosis?
=================================================================================

A model that separates patients from controls may use head motion or age instead of
connectivity. Confound baselines are methods that see no connectome. If one of them is
above chance, interpret all other scores with caution.
"""

# %%
# A cohort in which patients move more
# ------------------------------------

import matplotlib.pyplot as plt
import numpy as np

import brio

clean = brio.simulate(brio.Simulation(n_sites=6, per_class=12, stable=0.4, seed=9))
covariates = clean.participants[["age", "sex", "tr", "mean_fd"]].copy()
covariates["mean_fd"] *= np.where(clean.labels == 1, 1.6, 1.0)
moving = brio.Cohort.from_scans(
    [clean.scan(i) for i in range(len(clean))],
    site=clean.sites,
    label=clean.labels,
    participant_id=clean.ids,
    covariates=covariates,
    atlas=clean.atlas,
    name="patients move more",
)

# %%
# Run the confound baselines and ridge
# ------------------------------------
# The method ``covariates-only`` reads age, sex and motion, ``length-only`` reads the
# number of frames, and ``dead-rois-only`` reads which regions have no signal.

methods = ["ridge", "covariates-only", "length-only", "dead-rois-only"]
tables = {
    cohort.name: brio.run(cohort, methods, device="cpu").table()
    for cohort in (clean, moving)
}
tables["patients move more"][["AUC", "SD", "low", "high"]].astype(float).round(1)

# %%
figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
for k, ((name, table), colour) in enumerate(
    zip(tables.items(), ("#0072B2", "#D55E00"), strict=True)
):
    y = np.arange(len(methods))[::-1] + 0.12 - 0.24 * k
    low, mean, high = (
        table.loc[methods, column].astype(float) for column in ("low", "AUC", "high")
    )
    axis.hlines(y, low, high, color=colour, linewidth=2.5)
    axis.scatter(mean, y, s=44, color=colour, label=name, zorder=3)
axis.axvline(50, color="0.6", linestyle=(0, (4, 3)), linewidth=1)
axis.set(yticks=range(len(methods)), yticklabels=methods[::-1])
axis.set(xlabel="AUC at unseen sites, %", title="Bars: 95% t intervals over sites")
axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
