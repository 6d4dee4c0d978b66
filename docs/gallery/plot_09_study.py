"""
A study of the paper on your cohort
===================================

Every table and figure of the paper can be reproduced with a command. This study
measures how much the scores at unseen sites drop if scans are shorter. Models are
trained on full scans and then applied to the first, middle and last part of each test
scan.
"""

# %%
# One command
# -----------
# In a shell, the command is ``brio study scan-length cohort --method ridge --out
# studies``. This example uses one seed, which makes the study a smoke run; the printed
# text says so.

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import brio

folder = Path(tempfile.mkdtemp())
simulation = brio.Simulation(n_sites=6, per_class=10, frames=240, stable=0.5, seed=7)
brio.simulate(simulation).save(folder / "cohort")
arguments = f"study scan-length {folder / 'cohort'} --method ridge --seeds 1"
arguments += f" --device cpu --quiet --out {folder / 'studies'}"
command = [sys.executable, "-m", "brio", *shlex.split(arguments)]
done = subprocess.run(command, capture_output=True, text=True, check=True)
print(done.stdout.replace(str(folder), "..."))

# %%
# Output files
# ------------
# The study writes a tidy table, the figure, the text, and a record of the command.
# Trained arms are kept, so a second study that needs them does not train them again,
# and an interrupted study can be resumed.

results = folder / "studies" / "studies" / "scan-length"
print(*sorted(path.name for path in results.iterdir()), sep="\n")

# %%
figure = plt.figure(figsize=(8, 4.2), layout="constrained")
axis = figure.add_subplot()
axis.imshow(plt.imread(results / "figure.png"))
axis.set_axis_off()
plt.show()
