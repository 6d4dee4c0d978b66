"""
A report for readers and reviewers
==================================

:func:`brio.run` evaluates methods at sites they were not trained on, and
:meth:`brio.Result.report` writes one HTML file that opens without an internet
connection. Anyone who receives the results folder can recompute every number in this
file. In a shell, use ``brio run``, ``brio report`` and ``brio verify``.
"""

# %%
# Evaluate
# --------

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import brio

folder = Path(tempfile.mkdtemp())
cohort = brio.simulate(brio.Simulation(n_sites=7, per_class=12, stable=0.4, seed=21))
methods = ["log-ridge", "ridge", "covariates-only"]
result = brio.run(cohort, methods, out=folder / "results", device="cpu")
result

# %%
# Write the report
# ----------------
# The report comes with a model card, and with a file of the references that its methods
# paragraph cites. These files are in the folder:

page = result.report()
print(*sorted(path.name for path in page.parent.iterdir()), sep="\n")

# %%
# The report has these sections:

sections = re.findall(
    r"<h2[^>]*>(.*?)</h2>", page.read_text(encoding="utf-8"), re.DOTALL
)
print(*(re.sub(r"<[^>]+>", "", title).strip() for title in sections), sep="\n")

# %%
# Verify
# ------
# ``brio verify`` needs only the folder. You do not need the scans, and you do not have
# to trust those who computed the results.

command = [sys.executable, "-m", "brio", "verify", str(folder / "results")]
done = subprocess.run(command, capture_output=True, text=True, check=True)
print(done.stdout.replace(str(folder), "..."))

# %%
# Site by site
# ------------
# The figure of the report is drawn from a table with one score for each method and test
# site.

auc = result.rows.pivot_table(index="fold", columns="method", values="auc")[methods]
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for k, (method, colour) in enumerate(
    zip(methods, ("#0072B2", "#56B4E9", "0.6"), strict=True)
):
    y = np.arange(len(auc)) + 0.2 * (k - 1)
    axis.scatter(100 * auc[method], y, s=45, color=colour, label=method, zorder=3)
axis.axvline(50, color="0.6", linestyle=(0, (4, 3)), linewidth=1)
axis.set(yticks=range(len(auc)), yticklabels=auc.index, xlabel="AUC at this site, %")
axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
