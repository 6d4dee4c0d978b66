"""
Compare three methods at unseen sites
=====================================

For each test site, :func:`brio.run` trains every method on the other sites and scores it
at the test site. The three linear methods here need no training loop, so this takes
seconds.
"""

# %%
# Run one job
# -----------
# Each seed draws a different set of validation sites. This example uses two seeds; a
# real comparison needs at least three.

import matplotlib.pyplot as plt
import numpy as np

import brio

cohort = brio.simulate(brio.Simulation(n_sites=8, per_class=14, stable=0.25, seed=1))
methods = ["ridge", "fc-tangent-ridge", "brio-plus"]
result = brio.run(cohort, methods, protocol="loso", seeds=2, device="cpu")
result.table()[["AUC", "SD", "low", "high", "ACC"]].astype(float).round(1)

# %%
# Look at every site
# ------------------
# ``result.rows`` has one row per run: one method, one test site, one seed. The mean
# over sites hides the differences between sites, so look at every site.

scores = (
    100 * result.rows.pivot_table(index="fold", columns="method", values="auc")[methods]
)
table = result.table()
colours = dict(zip(methods, ["#0072B2", "#D55E00", "#009E73"], strict=True))
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for k, name in enumerate(methods):
    offset = 0.2 * (1 - k)
    axis.scatter(
        scores[name],
        np.arange(len(scores)) + 2 + offset,
        s=26,
        color=colours[name],
        label=name,
    )
    mean, low, high = table.loc[name, ["AUC", "low", "high"]].astype(float)
    axis.plot([low, high], [0.7 + offset * 1.5] * 2, color=colours[name], linewidth=2.5)
    axis.scatter([mean], [0.7 + offset * 1.5], s=44, color=colours[name], marker="D")
axis.axvline(50, color="0.6", linestyle=(0, (4, 3)), linewidth=1)
axis.axhline(1.35, color="0.4", linewidth=0.8)
axis.set(
    yticks=[0.7, *range(2, len(scores) + 2)],
    yticklabels=["mean, 95% interval", *scores.index],
)
axis.set(xlabel="AUC at the test site, %", title="Bars: 95% t intervals over sites")
axis.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 0.18))
plt.show()

# %%
# Is the difference more than noise?
# ----------------------------------
# Methods are compared at the same sites, so the differences are paired. ``brio table
# FOLDER --compare ridge`` prints these differences with paired tests, corrected for the
# number of comparisons.

differences = scores.drop(columns="ridge").sub(scores["ridge"], axis=0)
for name, values in differences.items():
    low, high = brio.protocol.t_interval(values.to_numpy())
    print(
        f"{name} minus ridge: {values.mean():+.1f} points "
        f"(95% interval {low:+.1f} to {high:+.1f})"
    )
