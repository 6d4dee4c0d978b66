"""
The estimator in scikit-learn's cross_validate
==============================================

:class:`brio.BrioClassifier` is a scikit-learn classifier for time series. Pass the sites
to ``fit`` through ``params``, and to the splitter through ``groups``.
"""

# %%
# Scans, labels, sites
# --------------------
# Scans are arrays of shape (frames, regions); their lengths may differ.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import cross_validate

import brio

cohort = brio.simulate(
    brio.Simulation(n_sites=6, per_class=10, stable=0.6, unstable=0.0, seed=5)
)
X = [cohort.scan(i) for i in range(len(cohort))]
y, sites = np.where(cohort.labels == 1, "patient", "control"), cohort.sites
print(len(X), X[0].shape, X[-1].shape)

# %%
# One score per test site
# -----------------------
# ``method`` can be any name listed by ``brio methods``.

scores = cross_validate(
    brio.BrioClassifier("ridge", random_state=0, device="cpu"),
    X,
    y,
    groups=sites,
    cv=brio.LeaveOneSiteOut(),
    params={"sites": sites},
    scoring=["roc_auc", "balanced_accuracy"],
)
print(np.round(scores["test_roc_auc"], 2))

# %%
# Compare with folds that contain every site
# ------------------------------------------
# :class:`brio.SiteStratifiedKFold` distributes the scans of each site over all folds. It
# answers another question: how well does the model work at hospitals it was trained on?

known = cross_validate(
    brio.BrioClassifier("ridge", random_state=0, device="cpu"),
    X,
    y,
    groups=sites,
    cv=brio.SiteStratifiedKFold(5),
    params={"sites": sites},
    scoring="roc_auc",
)
figure, axis = plt.subplots(figsize=(6, 2.6), layout="constrained")
axis.scatter(scores["test_roc_auc"], np.full(6, 1.0), s=36, color="#D55E00")
axis.scatter(known["test_score"], np.full(5, 0.0), s=36, color="#0072B2")
axis.axvline(0.5, color="0.6", linestyle=(0, (4, 3)), linewidth=1)
axis.set(
    yticks=[0, 1],
    yticklabels=["sites known\n(five folds)", "site unseen\n(six sites)"],
    ylim=(-0.6, 1.6),
)
axis.set(xlabel="AUC", title="Ridge regression on connectomes")
plt.show()

# %%
# A fitted model
# --------------
# A fitted model predicts a probability for each new scan, with an interval for other
# minutes of the same scan. You can save the model to a folder, without pickle, and use it
# with ``brio predict`` too.

model = brio.BrioClassifier("ridge", random_state=0, device="cpu").fit(
    X, y, sites=sites
)
folder = Path(tempfile.mkdtemp()) / "model"
model.save(folder)
same = brio.BrioClassifier.load(folder)
print(same.predict_interval(X[:3]).round(2))
print(same.classes_, np.allclose(same.predict_proba(X[:3]), model.predict_proba(X[:3])))
