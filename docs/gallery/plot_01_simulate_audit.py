"""
Simulate and audit a cohort
===========================

The audit finds defects that would otherwise affect the results: scans without signal in
many regions, duplicate scans, scans that are too short, and sites with only one class.
Here we simulate a cohort, damage three scans, and let :func:`brio.audit` find them.
"""

# %%
# A cohort whose true effects are known
# -------------------------------------
# :func:`brio.simulate` draws scans from several sites. Four brain networks carry four
# kinds of signal; ``provenance["truth"]`` lists the regions of each network.

import matplotlib.pyplot as plt
import numpy as np

import brio

cohort = brio.simulate(brio.Simulation(n_sites=5, per_class=8, seed=3))
for network, rois in cohort.provenance["truth"].items():
    print(network, rois)
cohort

# %%
# Damage three scans
# ------------------
# The first scan loses the signal in 8 of its 24 regions, the second is cut to 30 frames,
# and the third is replaced with a noisy copy of another scan.

rng = np.random.default_rng(0)
scans = [cohort.scan(i).copy() for i in range(len(cohort))]
scans[4][:, :8] = 0.0
scans[11] = scans[11][:30]
scans[20] = scans[21] + 0.05 * rng.normal(size=scans[21].shape).astype("float32")
damaged = brio.Cohort.from_scans(
    scans,
    site=cohort.sites,
    label=cohort.labels,
    participant_id=cohort.ids,
    covariates=cohort.participants[["age", "sex", "tr", "mean_fd"]],
    atlas=cohort.atlas,
    name="damaged",
)

# %%
# Audit the cohort
# ----------------
# The audit gives reasons for every proposed exclusion. ``brio.run`` applies the
# exclusions by default.

report = brio.audit(damaged)
for participant, reasons in report.exclusions.items():
    print(f"{participant}: {'; '.join(map(str, reasons))}")
print(f"{report.n_before} scans, {report.n_after} after exclusion")

# %%
# Site, diagnosis and scan length
# -------------------------------
# Scan length differs between sites. A model that reads scan length could infer the site,
# so the audit reports this association. Within a site, scan length should not differ
# between patients and controls.

used = damaged.select(report.keep)
figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
names = np.unique(used.sites)
for label, (name, colour) in enumerate(
    [("controls", "#0072B2"), ("patients", "#D55E00")]
):
    for x, site in enumerate(names):
        lengths = used.n_frames[(used.sites == site) & (used.labels == label)]
        jitter = rng.uniform(-0.08, 0.08, len(lengths))
        axis.scatter(
            x - 0.12 + 0.24 * label + jitter,
            lengths,
            s=22,
            color=colour,
            label=name if x == 0 else None,
        )
axis.set(
    xticks=range(len(names)),
    xticklabels=names,
    ylabel="frames",
    title="Scan length by site and class",
)
axis.legend(frameon=False)
plt.show()
