"""
Write a method
==============

A method is registered by one Python file. brio then trains it over all folds at once,
and scores, tunes and reports it like the built-in methods. The file used here is
``docs/examples/my_method.py``; :doc:`/own-method` explains it.
"""

# %%
# Load the file
# -------------
# On the command line, use ``--load my_method.py``.

import matplotlib.pyplot as plt

import brio
from brio.methods import find_method, load_methods

(name,) = load_methods("../examples/my_method.py")
print(name, "-", find_method(name).summary)

# %%
# Compare it with ridge
# ---------------------
# Change the settings of the new method as for any other method. Real cohorts need more
# epochs than this example.

cohort = brio.simulate(
    brio.Simulation(n_sites=6, per_class=10, n_rois=16, frames=100, stable=0.7, seed=1)
)
result = brio.run(
    cohort,
    [name, "ridge"],
    settings={"epochs": 20, "learning_rate": 0.003},
    device="cpu",
)
result.table()[["AUC", "SD", "low", "high", "ACC"]].astype(float).round(1)

# %%
# The table ``predictions`` has one row per test scan and run.

figure, axes = plt.subplots(1, 2, figsize=(7.5, 3), layout="constrained", sharey=True)
for axis, (method, rows) in zip(
    axes, result.predictions.groupby("method", sort=False), strict=True
):
    for label, colour in ((0, "#0072B2"), (1, "#D55E00")):
        values = rows.loc[rows["label"] == label, "probability"]
        axis.hist(
            values,
            bins=12,
            range=(0, 1),
            color=colour,
            alpha=0.6,
            label=("controls", "patients")[label],
        )
    axis.set(title=method, xlabel="probability of being a patient, at the test site")
axes[0].set_ylabel("scans")
axes[0].legend(frameon=False)
plt.show()
