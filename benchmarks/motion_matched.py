"""Does an AUC hold among patients and controls who moved alike?

    python benchmarks/motion_matched.py COHORT JOB [JOB ...] [--caliper 0.25]

Patients and controls of each site are paired: as many as possible whose mean displacement differs by at most a quarter
of the standard deviation of all participants, and of all such pairings the one with the least sum of differences. JOBS
are folders of ``brio run`` with predictions, leave one site out; margins are averaged over seeds. Each is scored on
all test participants and on the paired ones, at the sites with at least five pairs; displacement alone stands in the
first row. Prints a Markdown table: means over sites in percent, and the difference with its corrected t interval.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from brio.cohort import Cohort
from brio.protocol import auc
from brio.protocol.statistics import compare_by_corrected_t

LEAST_PAIRS = 5


def pair_participants(motion: np.ndarray, label: np.ndarray, most: float) -> np.ndarray:
    """Return the positions of the members of pairs of a patient and a control whose motion differs by at most this."""
    patients, controls = np.flatnonzero(label == 1), np.flatnonzero(label == 0)
    distance = np.abs(motion[patients][:, None] - motion[controls])
    rows, columns = linear_sum_assignment(np.where(distance <= most, distance, 1e6))
    near = distance[rows, columns] <= most
    return np.sort(np.concatenate([patients[rows[near]], controls[columns[near]]]))


def read_margins(job: Path) -> pd.DataFrame:
    """Read the margins of each method (columns) for each participant, means over seeds."""
    rows = pd.read_csv(job / "predictions.csv", dtype={"participant_id": str})
    return rows.pivot_table(index="participant_id", columns="method", values="margin", aggfunc="mean")


def main() -> None:
    """Pair the participants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("jobs", nargs="+", type=Path)
    parser.add_argument("--caliper", type=float, default=0.25)
    args = parser.parse_args()

    cohort = Cohort.load(args.cohort)
    people = cohort.participants.set_index("participant_id")[["site", "label", "mean_fd"]]
    margins = pd.concat([read_margins(job) for job in args.jobs], axis=1)
    if margins.columns.duplicated().any() or margins.isna().any(axis=None):
        parser.error("each method must be in one job, and all jobs must have the same participants")
    people = people.loc[margins.index].dropna()
    scores = margins.loc[people.index]
    scores.insert(0, "displacement alone", people["mean_fd"])
    most = args.caliper * people["mean_fd"].std()
    every, paired, n_pairs = [], [], 0
    for site, own in people.groupby("site"):
        label, motion = own["label"].to_numpy(), own["mean_fd"].to_numpy(dtype=float)
        kept = pair_participants(motion, label, most)
        if len(kept) < 2 * LEAST_PAIRS:
            continue
        n_pairs += len(kept) // 2
        for members, areas in ((np.arange(len(own)), every), (kept, paired)):
            values = scores.loc[own.index[members]]
            areas.append({"site": site} | {name: 100 * auc(label[members], values[name]) for name in scores})
    before, after = (pd.DataFrame(areas).set_index("site") for areas in (every, paired))
    print(f"# {n_pairs} pairs at {len(before)} sites; displacement differs by at most {most:.3f} mm")
    header = ["cohort", "method", "all", "paired", "difference", "low", "high"]
    print("| " + " | ".join(header) + " |\n" + "| --- " * len(header) + "|")
    for name in scores:
        change = compare_by_corrected_t(after[name], before[name])
        numbers = (before[name].mean(), after[name].mean(), change.mean, change.low, change.high)
        print("| " + " | ".join([cohort.atlas.name, str(name), *(f"{x:.2f}" for x in numbers)]) + " |")


if __name__ == "__main__":
    main()
