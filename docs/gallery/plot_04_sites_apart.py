"""
One model for sites that do not share scans
===========================================

Hospitals that may not pool their scans can still fit one model. Each hospital answers
requests with sums over its scans. This example simulates six sites in one process, with
the functions of ``brio.federation``. Between hospitals, ``brio federate`` writes the
same requests and answers to files.
"""

# %%
# Six sites, each with its own scans
# ----------------------------------
# Both classes need names, which mean the same at every site.

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import brio
from brio import federation

simulation = brio.Simulation(n_sites=6, per_class=15, stable=0.45, seed=31)
pooled = replace(brio.simulate(simulation), classes=("control", "patient"))
sites = [pooled.select(pooled.sites == name) for name in np.unique(pooled.sites)]
print([len(site) for site in sites])

# %%
# Rounds of requests and answers
# ------------------------------
# The coordinator sees sums and never a scan. Nevertheless, the answers are not anonymous.
# ``brio federate show`` explains in words what a request asks for.

terms = federation.Terms(
    project="example",
    method="log-ridge",
    atlas=pooled.atlas.name,
    rois=pooled.atlas.rois.to_dict("list"),
    classes=pooled.classes,
)
message, sizes = federation.start(terms), []
while isinstance(message, federation.Request):
    answers = [federation.answer(message, site) for site in sites]
    sizes.append(len(federation.encode(answers[0])) / 1024)
    message = federation.combine(message, answers)
model = message
print(f"{len(sizes)} rounds, {sum(sizes):.0f} kB from the first site")
model

# %%
# Compare with pooled scans
# -------------------------
# For comparison, we fit the same method to all scans at once, and apply both models to a
# new hospital. The model of pooled scans chooses its penalty by inner folds. The penalty
# of the federated model is fixed beforehand.

new = brio.simulate(brio.Simulation(n_sites=1, per_class=30, stable=0.45, seed=32))
logits = {
    name: brio.predict(one, new, device="cpu").table["logit"].to_numpy()
    for name, one in (
        ("pooled", brio.fit(pooled, "log-ridge", device="cpu")),
        ("federated", model),
    )
}
figure, axis = plt.subplots(figsize=(4.6, 4.4), layout="constrained")
for label, name, colour in ((0, "control", "#0072B2"), (1, "patient", "#D55E00")):
    chosen = new.labels == label
    axis.scatter(
        logits["pooled"][chosen],
        logits["federated"][chosen],
        s=40,
        color=colour,
        label=name,
    )
limits = (min(map(np.min, logits.values())), max(map(np.max, logits.values())))
axis.plot(limits, limits, color="0.6", linewidth=1)
axis.set(xlabel="logit, pooled scans", ylabel="logit, federated model")
axis.legend(frameon=False)
plt.show()
