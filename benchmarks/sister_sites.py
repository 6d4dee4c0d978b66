"""Is a site easier to predict when another sample of the same institution is among the source sites?

    python benchmarks/sister_sites.py COHORT [--with COHORT ...] [--method ridge ...] [--draws 10]

Sites whose names differ only in a number at the end, such as UM_1 and UM_2, are sisters. Every site that has a sister
is the test site of three kinds of models: with all other sites as source sites, without its sisters, and without as
many scans of each class drawn at random from the sites that are no sisters, several times. The last shows what is lost
with fewer scans of any kind. Prints a table in Markdown, one row for each method and test site, AUC in percent.
"""

import argparse
import re
from dataclasses import replace

import numpy as np

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.models.fit import settle_final_settings
from brio.protocol import Fold, auc, leave_one_site_out
from brio.training import Run

METHODS = ["ridge", "fc-tangent-ridge", "log-ridge"]
COLUMNS = ["cohort", "method", "site", "sister_scans", "with_sister", "without_sister", "without_others"]


def find_sisters(sites: np.ndarray) -> dict[str, list[str]]:
    """Find the sisters of each site that has some."""
    names = [str(name) for name in np.unique(sites)]
    stems = {name: re.sub(r"_\d+$", "", name) for name in names}
    sisters = {name: [o for o in names if o != name and stems[o] == stems[name]] for name in names}
    return {name: others for name, others in sisters.items() if others}


def leave_out(fold: Fold, scans: np.ndarray) -> Fold:
    """Return the fold without some of its source scans."""
    return replace(fold, source=np.setdiff1d(fold.source, scans))


def draw_others(cohort: Cohort, fold: Fold, sister_scans: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw as many scans of each class as the sisters have, from the other source sites."""
    pool = np.setdiff1d(fold.source, sister_scans)
    labels = cohort.labels
    parts = [
        rng.choice(pool[labels[pool] == label], int((labels[sister_scans] == label).sum()), replace=False)
        for label in (0, 1)
    ]
    return np.concatenate(parts)


def main() -> None:
    """Fit the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--with", dest="companions", action="append", default=[])
    parser.add_argument("--method", nargs="+", default=METHODS)
    parser.add_argument("--draws", type=int, default=10)
    args = parser.parse_args()

    cohort = Cohort.load(args.cohort)
    cohort = cohort.select(audit(cohort, companions=[Cohort.load(path) for path in args.companions]).keep)
    connectomes, sisters = Connectomes(cohort), find_sisters(cohort.sites)
    folds = {fold.name: fold for fold in leave_one_site_out(cohort, 0, validation_sites=0)}
    rng = np.random.default_rng(0)
    variants: list[tuple[str, Fold]] = []
    for site, others in sisters.items():
        fold, sister_scans = folds[site], np.flatnonzero(np.isin(cohort.sites, others))
        variants += [(site, fold), (site, leave_out(fold, sister_scans))]
        variants += [(site, leave_out(fold, draw_others(cohort, fold, sister_scans, rng))) for _ in range(args.draws)]
    print(f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|", flush=True)
    for name in args.method:
        fitted = settle_final_settings(name, {}).fit(connectomes, [Run(fold, 0) for _, fold in variants])
        for site, others in sisters.items():
            scores = [
                100 * auc(cohort.labels[fold.test], run.test_logit)
                for (of_site, fold), run in zip(variants, fitted, strict=True)
                if of_site == site
            ]
            n = int(np.isin(cohort.sites, others).sum())
            cells = [*(f"{s:.2f}" for s in scores[:2]), f"{np.mean(scores[2:]):.2f}"]
            print(f"| {cohort.atlas.name} | {name} | {site} | {n} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
