"""
From your own files to a cohort
===============================

You need a participants table and one file per scan. This example writes such a
folder, imports it with the command ``brio import table``, and opens the cohort.
"""

# %%
# The folder of a study
# ---------------------
# ``participants.tsv`` needs columns for the participant id, the site and the diagnosis.
# The name of each scan file begins with the participant's id. In these files, rows are
# frames and columns are regions.

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import brio

folder = Path(tempfile.mkdtemp()) / "my-study"
folder.mkdir()
rng = np.random.default_rng(1)
rows = []
for number in range(24):
    participant = f"sub-{number + 1:03d}"
    site, diagnosis = ("Basel", "Lyon", "Porto")[number % 3], ("HC", "MDD")[number % 2]
    age = int(rng.integers(18, 60))
    rows.append((participant, site, diagnosis, age))
    series = rng.normal(size=(120, 12)).cumsum(axis=0) % 7
    np.save(folder / f"{participant}_timeseries.npy", series)
columns = ["participant_id", "centre", "diagnosis", "age"]
table = pd.DataFrame(rows, columns=columns)
table.to_csv(folder / "participants.tsv", sep="\t", index=False)
print(*sorted(path.name for path in folder.iterdir())[:4], "...", sep="\n")

# %%
# Import
# ------
# Options tell brio which column names and labels this study uses. In a shell, the command
# is ``brio import table my-study --out cohort ...``.

arguments = f"import table {folder} --out {folder.parent / 'cohort'}"
arguments += " --site-column centre --label-column diagnosis --patient MDD --control HC"
command = [sys.executable, "-m", "brio", *shlex.split(arguments)]
done = subprocess.run(command, capture_output=True, text=True, check=True)
print(done.stdout.splitlines()[0])

# %%
# Open the cohort
# ---------------
# A cohort folder holds plain files: ``frames.npy``, ``participants.tsv``, ``atlas.tsv``
# and ``cohort.json``. The fingerprint is a hash of their content and identifies the
# cohort in every result.

cohort = brio.Cohort.load(folder.parent / "cohort")
cohort

# %%
cohort.participants.head()

# %%
figure, axis = plt.subplots(figsize=(7, 2.6), layout="constrained")
axis.plot(cohort.scan(0)[:, :4] + 8 * np.arange(4), linewidth=1)
axis.set(
    xlabel="frame",
    yticks=[],
    title=f"First four regions of {cohort.ids[0]}, {cohort.sites[0]}",
)
plt.show()
