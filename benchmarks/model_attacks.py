"""What does a published model give away of the participants it was fitted to?

    python benchmarks/model_attacks.py FOLDER --out OUT.csv [--method ridge ...] [--halves 2] [--device cuda-tf32]

FOLDER holds packed scans of ABIDE. Each method is fitted, with the settings of ``brio fit``, to half of the
participants of each site and class (and then to the other half), and attacked by somebody who has the model and scans
of participants:

- membership: is a scan one of those that the model was fitted to? Its margin fits its label better, or is larger, or
  the coefficients have more in common with what is peculiar to the scan. For this the attacker has half of the other
  participants.
- diagnosis: the margin of a scan in the training set, and of one that is not, as a guess of its label.
- stored rows, where a model holds numbers of single scans: ``fc-hgnn`` stores sex and age of the scans in its bank,
  ordered by site and class; a row is found where these are unique at the site.

Writes one row per method, which holds nothing of a single participant, into OUT.csv; methods that are there already are
kept. ``src/brio/models/measured_attacks.csv`` and ``evidence/measurements/model-attacks.csv`` are such files.
"""

import argparse
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd

from brio.cohort import Cohort, audit
from brio.cohort.covariates import read_covariates
from brio.cohort.readers import import_cohort
from brio.connectome import Connectomes
from brio.device import resolve_device
from brio.methods import list_methods
from brio.models.attacks import MeasuredAttacks, fit_halves, measure_attacks
from brio.models.fit import settle_final_settings
from brio.protocol import Fold, auc
from brio.training import FittedRun, Method

METHODS = [entry.name for entry in list_methods() if entry.name == entry.base and not entry.control]


def attack_method(name: str, connectomes: Connectomes, cohort_name: str, n_halves: int = 2) -> MeasuredAttacks:
    """Fit a method to halves of the participants and measure all attacks."""
    method = settle_final_settings(name, {})
    fitted = fit_halves(method, connectomes, n_halves=n_halves)
    measured = measure_attacks(method, connectomes, fitted, cohort_name)
    if not method.facts.keeps_scans:
        return measured
    rows = [ATTACKS_ON_ROWS[name](method, run, fold, connectomes) for run, fold, _ in fitted]
    return replace(
        measured,
        rows_diagnosis=float(np.mean([row[0] for row in rows])),
        rows_recognised=sum(row[1] for row in rows),
        rows=sum(row[2] for row in rows),
    )


def attack_bank(method: Method, run: FittedRun, fold: Fold, connectomes: Connectomes) -> tuple[float, int, int]:
    """Attack sex and age of the bank of ``fc-hgnn``, whose rows are ordered by site and class."""
    bank, cohort = run.state.inference, connectomes.cohort
    known = read_covariates(cohort, ["sex", "age"], "this benchmark")  # what somebody knows of a participant
    mean, deviation = run.state.learned["age"].tolist()
    sites, slots = np.unique(cohort.sites[method.training_scans(cohort, fold)]), method.settings.bank
    found, n_rows, labels, guesses = 0, 0, [], []
    for k, real in enumerate((bank["bank_real"] > 0).tolist()):
        if not real:
            continue
        n_rows += 1
        site, guess = sites[k // (2 * slots)], k // slots % 2
        sex, age = float(bank["bank_sex"][k]), float(bank["bank_age"][k]) * deviation + mean
        alike = np.flatnonzero((cohort.sites == site) & (known[:, 0] == sex) & np.isclose(known[:, 1], age, atol=0.005))
        if len(alike) == 1:
            found += 1
            labels.append(cohort.labels[alike[0]])
            guesses.append(float(guess))
    return auc(np.array(labels), np.array(guesses)), found, n_rows


ATTACKS_ON_ROWS = {"fc-hgnn": attack_bank}


def read_abide(folder: str, place: Path) -> Cohort:
    """Read ABIDE in AAL116, without the scans that the audit excludes."""
    aal, cc = (import_cohort("packed", folder, place / name, atlas=name) for name in ("aal116", "cc200"))
    return aal.select(audit(aal, companions=[cc]).keep)


def add_row(path: Path, measured: MeasuredAttacks) -> None:
    """Put the row of a method into a file, in place of an older one."""
    table = pd.DataFrame([asdict(measured)])
    if path.exists():
        before = pd.read_csv(path)
        table = pd.concat([before[before["method"] != measured.method], table]) if len(before) else table
    counts = ["n_scans", "n_sites", "rows_recognised", "rows"]
    table[counts] = table[counts].astype("Int64")
    table.sort_values("method").to_csv(path, index=False, float_format="%.4f", lineterminator="\n")


def main() -> None:
    """Attack methods one by one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--halves", type=int, default=2, choices=(1, 2))
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda-tf32")
    args = parser.parse_args()
    device = resolve_device(args.device)
    with device.network_precision(), tempfile.TemporaryDirectory(prefix="brio-attacks-") as place:
        connectomes = Connectomes(read_abide(args.folder, Path(place)), device.torch_device)
        for name in args.method or METHODS:
            measured = attack_method(name, connectomes, "ABIDE (AAL116)", args.halves)
            add_row(args.out, measured)
            print(measured, flush=True)


if __name__ == "__main__":
    main()
