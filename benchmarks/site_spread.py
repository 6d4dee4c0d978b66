"""How much does the AUC vary between sites by sampling alone?

    python benchmarks/site_spread.py COHORT [--with COHORT] [--auc 67.53] [--sd 4.12]

Suppose that a model has the same true AUC at every site. The AUC measured at a site still varies, because the site has
few participants. This draws margins of patients and controls from two normal distributions with the given AUC, as many
at each site as the cohort has after its audit, and prints the SD over sites that sampling alone gives: its mean, its
95% range, and how often it is at most the given SD.
"""

import argparse

import numpy as np
from scipy import stats

from brio.cohort import Cohort, audit


def draw_site_aucs(n_patients: int, n_controls: int, auc: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw AUCs of one site whose true AUC is given.

    Parameters
    ----------
    n_patients, n_controls : int
    auc : float
        True AUC; margins are normal with equal variances.
    n : int
        Number of draws.
    rng : Generator

    Returns
    -------
    ndarray, shape [n]
    """
    patients = rng.normal(np.sqrt(2) * stats.norm.ppf(auc), 1.0, (n, n_patients))
    margins = np.concatenate([patients, rng.normal(size=(n, n_controls))], axis=1)
    rank_sum = stats.rankdata(margins, axis=1)[:, :n_patients].sum(axis=1)
    return (rank_sum - n_patients * (n_patients + 1) / 2) / (n_patients * n_controls)


def main() -> None:
    """Print the spread over sites that sampling alone gives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--with", dest="companions", action="append", default=[])
    parser.add_argument("--auc", type=float, default=67.53, help="true AUC at every site, in percent")
    parser.add_argument("--sd", type=float, default=4.12, help="SD over sites to compare with, in points")
    parser.add_argument("--draws", type=int, default=20_000)
    args = parser.parse_args()

    cohort = Cohort.load(args.cohort)
    cohort = cohort.select(audit(cohort, companions=[Cohort.load(c) for c in args.companions]).keep)
    rng = np.random.default_rng(0)
    drawn = []
    for site in np.unique(cohort.sites):
        labels = cohort.labels[cohort.sites == site]
        drawn.append(draw_site_aucs(int(labels.sum()), int((1 - labels).sum()), args.auc / 100, args.draws, rng))
    sd = 100 * np.std(drawn, axis=0, ddof=1)
    low, high = np.quantile(sd, [0.025, 0.975])
    print(f"{len(drawn)} sites, {len(cohort)} scans, true AUC {args.auc:g} at every site, {args.draws:,} draws")
    print(f"SD over sites by sampling alone: {sd.mean():.1f} on average, {low:.1f} to {high:.1f} in 95% of draws")
    print(f"at most {args.sd:g} in {(sd <= args.sd).mean():.1e} of draws")


if __name__ == "__main__":
    main()
