"""
Adapt a model to a hospital with a few labelled scans
=====================================================

If patients are rarer at a hospital than among the scans used to fit a model, the
predicted probabilities are too high there. :func:`brio.models.adapt_model` corrects the
slope and intercept with labelled scans from that hospital; the weights do not change.
In a shell, use ``brio adapt``.
"""

# %%
# A model, and a hospital where one in four participants is a patient
# -------------------------------------------------------------------
# Thirty of the hospital's scans have labels for adapting the model. The other scans are
# used to score it.

import matplotlib.pyplot as plt
import numpy as np

import brio
from brio.models import adapt_model

sites = brio.Simulation(n_sites=6, per_class=15, stable=0.35, seed=17)
model = brio.fit(brio.simulate(sites), "log-ridge", device="cpu")

new = brio.simulate(brio.Simulation(n_sites=1, per_class=120, stable=0.35, seed=18))
rng = np.random.default_rng(0)
controls, patients = (rng.permutation(np.flatnonzero(new.labels == k)) for k in (0, 1))
order = rng.permutation(np.concatenate([controls[:90], patients[:30]]))
labelled, rest = (
    new.select(np.isin(np.arange(len(new)), part)) for part in (order[:30], order[30:])
)
print(f"{len(labelled)} labelled scans, {labelled.labels.sum()} of patients")

# %%
# Adapt
# -----

adapted = adapt_model(model, labelled, device="cpu")
print(*adapted.adaptation.describe(adapted.classes), sep="\n")

# %%
# Did it help?
# ------------
# On the other scans, the mean probability should equal the share of patients. Adapting
# does not change the order of the scans, so the AUC does not change either.

before, after = (
    brio.predict(one, rest, device="cpu").table["probability"].to_numpy()
    for one in (model, adapted)
)
for name, probability in (("before", before), ("after", after)):
    brier = np.mean((probability - rest.labels) ** 2)
    print(f"{name:6}  mean {probability.mean():.2f}, Brier score {brier:.3f}")
print(f"share of patients {rest.labels.mean():.2f}")

# %%
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
grid = np.linspace(0, 1, 21)
for probability, name, colour in (
    (before, "before", "#0072B2"),
    (after, "after", "#D55E00"),
):
    axis.hist(probability, grid, histtype="step", linewidth=2, color=colour, label=name)
    axis.axvline(probability.mean(), color=colour, linestyle=(0, (4, 3)))
axis.axvline(rest.labels.mean(), color="black", label="share of patients")
axis.set(xlim=(0, 1), xlabel="probability of being a patient", ylabel="scans")
axis.legend(frameon=False, loc="upper right")
plt.show()
