"""
A model that another hospital can use
=====================================

:func:`brio.fit` learns from all sites of a cohort and writes the model to a folder.
Another hospital loads the model with :func:`brio.load_model` and applies it to its own
scans with :func:`brio.predict`. In a shell, use ``brio fit`` and ``brio predict``.
"""

# %%
# Fit the model and evaluate it
# -----------------------------
# ``evaluate=True`` leaves out each site in turn and stores the results with the model,
# as evidence. Without evidence, the model gives probabilities but no classes.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import brio

folder = Path(tempfile.mkdtemp())
sites = brio.Simulation(n_sites=6, per_class=12, stable=0.5, seed=11)
model = brio.fit(
    brio.simulate(sites), "log-ridge", evaluate=True, device="cpu", out=folder / "model"
)
model

# %%
# Predict the scans of a new hospital
# -----------------------------------
# Scans need no labels. Each scan gets a probability with an interval for other minutes of
# the same scan, and a class or "no call". If a scan differs so much from the scans of the
# model that you must not rely on its prediction, it gets a flag.

new = brio.simulate(brio.Simulation(n_sites=1, per_class=10, stable=0.5, seed=12))
predictions = brio.predict(brio.load_model(folder / "model"), new, device="cpu")
table = predictions.table
table[["probability", "low", "high", "predicted", "flag"]].head()

# %%
# One line per scan
# -----------------
# In this simulation the true classes are known. A hollow point means that the interval
# crosses one half, so other minutes of the scan may give the other class.

order = np.argsort(table["probability"].to_numpy())
patient = (new.labels == 1)[order]
rows = table.iloc[order]
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for name, chosen, colour in (
    ("control", ~patient, "#0072B2"),
    ("patient", patient, "#D55E00"),
):
    y = np.flatnonzero(chosen)
    part = rows[chosen]
    crosses = (part["low"] < 0.5) & (part["high"] > 0.5)
    axis.hlines(y, part["low"], part["high"], color=colour, linewidth=2)
    axis.scatter(
        part["probability"],
        y,
        s=40,
        facecolors=np.where(crosses, "white", colour),
        edgecolors=colour,
        zorder=3,
        label=name,
    )
axis.axvline(0.5, color="0.6", linestyle=(0, (4, 3)), linewidth=1)
axis.set(xlim=(0, 1), yticks=[], xlabel="probability of being a patient")
axis.set_ylabel("scans of a new hospital")
axis.legend(frameon=False, loc="lower right")
plt.show()
