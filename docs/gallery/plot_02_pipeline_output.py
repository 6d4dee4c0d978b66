"""
Import the output of a pipeline
===============================

:func:`brio.import_cohort` reads the files of XCP-D, giga_connectome, HALFpipe and
C-PAC under their original names. This example makes a small folder in the layout of
XCP-D. One of its scans ends after five frames. In a shell, use ``brio import bids``.
"""

# %%
# A derivatives folder
# --------------------

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import brio

folder = Path(tempfile.mkdtemp())
truth = brio.simulate(brio.Simulation(n_sites=4, per_class=6, n_rois=20, seed=41))
rows = []
for k in range(len(truth)):
    participant = f"sub-{k + 1:02d}"
    place = folder / "xcp_d" / participant / "func"
    place.mkdir(parents=True)
    stem = f"{participant}_task-rest_space-MNI152NLin2009cAsym_seg-Gordon"
    scan = pd.DataFrame(truth.scan(k), columns=truth.atlas.rois["name"])
    scan = scan.iloc[:5] if k == 3 else scan
    file = place / f"{stem}_stat-mean_timeseries.tsv"
    scan.to_csv(file, sep="\t", index=False, na_rep="n/a")
    diagnosis = ("HC", "ASD")[truth.labels[k]]
    rows.append((participant, truth.sites[k], diagnosis, 20 + k))
columns = ["participant_id", "site", "diagnosis", "age"]
pd.DataFrame(rows, columns=columns).to_csv(
    folder / "xcp_d" / "participants.tsv", sep="\t", index=False
)
print(file.relative_to(folder))

# %%
# Import, and look for defects
# ----------------------------
# The short scan is imported like the others, and the audit proposes to exclude it.

cohort = brio.import_cohort(
    "bids",
    folder / "xcp_d",
    out=folder / "cohort",
    atlas="Gordon",
    label_column="diagnosis",
    patient="ASD",
    control="HC",
)
cohort

# %%
brio.audit(cohort)

# %%
# A mean connectome
# -----------------
# Regions of the same simulated network are correlated.

mean = np.mean([np.corrcoef(cohort.scan(k).T) for k in range(10, 20)], axis=0)
figure, axis = plt.subplots(figsize=(4.8, 4), layout="constrained")
picture = axis.imshow(mean - np.eye(len(mean)), cmap="RdBu_r", vmin=-0.6, vmax=0.6)
axis.set(xticks=[], yticks=[], xlabel="region", ylabel="region")
figure.colorbar(picture, label="mean correlation of ten scans")
plt.show()
