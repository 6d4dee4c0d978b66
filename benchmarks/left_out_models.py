"""Does a model that is fitted, stored and applied to files say what ``brio run`` says?

    python benchmarks/left_out_models.py COHORT [--with COHORT] [--method ridge ...] [--site NYU ...] [--processes 8]
        [--device cuda]

For each site: fit a model to all other sites, write it, write the scans of the site as files of the Preprocessed
Connectomes Project, and predict them with ``brio predict`` without any table. Margins and AUC are compared with those
of leave-one-site-out on the same folds. Networks get the validation sites of their fold by name. The cohort must be of
AAL116 or CC200. Printed is one row per method; a difference above 1e-4 ends the script with an error.
"""

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd

from brio.cohort import Cohort, audit
from brio.connectome import Connectomes
from brio.jobs import JobSpec
from brio.models import fit_model, write_model
from brio.models.fit import settle_final_settings
from brio.protocol import auc, leave_one_site_out
from brio.training import Run

LARGEST_GAP = 1e-4


def write_pcp_files(cohort: Cohort, folder: Path) -> None:
    """Write scans as ``{participant}_rois_{atlas}.1D``."""
    folder.mkdir()
    atlas = cohort.atlas
    codes = atlas.rois["code" if "code" in atlas.rois else "index"]
    header = "\t".join(f"#{code}" for code in codes)
    name = {"aal116": "aal"}.get(atlas.name, atlas.name)
    for i, participant in enumerate(cohort.ids):
        np.savetxt(folder / f"{participant}_rois_{name}.1D", cohort.scan(i), "%.9g", "\t", header=header, comments="")


def compare_site(task: tuple[str, list[str], str, str, str]) -> tuple[str, float, float, float]:
    """Largest difference of margins at one site, and both AUCs."""
    path, companions, name, site, device = task
    cohort = Cohort.load(path)
    cohort = cohort.select(audit(cohort, companions=[Cohort.load(c) for c in companions]).keep)
    method = settle_final_settings(name, {})
    folds = leave_one_site_out(cohort, 0, validation_sites=2 if method.needs_validation else 0)
    fold = next(f for f in folds if f.name == site)
    (run,) = method.fit(Connectomes(cohort, device), [Run(fold, 0)])
    others = cohort.select(cohort.sites != site)
    spec = JobSpec(others, [name], exclude=False, device=device)
    model = fit_model(spec, validation_sites=fold.validation_sites, holds_scans=True)
    here = cohort.select(fold.test)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_model(model, folder / "model")
        write_pcp_files(here, folder / "files")
        words = ["predict", folder / "model", folder / "files", "--out", folder / "out", "--reestimates", "2"]
        subprocess.run(
            [sys.executable, "-m", "brio", *map(str, words), "--device", "cpu"], check=True, capture_output=True
        )
        table = pd.read_csv(folder / "out" / "predictions.csv", dtype={"participant_id": str})
    margin = table.set_index("participant_id").loc[here.ids, "margin"].to_numpy()
    return (
        site,
        float(np.abs(margin - run.test_logit).max()),
        auc(here.labels, margin),
        auc(here.labels, run.test_logit),
    )


def main() -> None:
    """Compare all sites and methods."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort")
    parser.add_argument("--with", dest="companions", action="append", default=[])
    parser.add_argument("--method", action="append")
    parser.add_argument("--site", action="append")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="where models are trained; they are applied on the CPU")
    args = parser.parse_args()
    sites = args.site or sorted(set(Cohort.load(args.cohort).sites.tolist()))
    failed = False
    print("| method | sites | largest difference of margins | of AUC | mean AUC of the files | mean AUC of the run |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in args.method or ["ridge"]:
        tasks = [(args.cohort, args.companions, name, site, args.device) for site in sites]
        with ProcessPoolExecutor(args.processes, get_context("spawn")) as pool:
            rows = list(pool.map(compare_site, tasks))
        gap = max(row[1] for row in rows)
        areas = np.array([row[2:] for row in rows])
        moved = np.nanmax(np.abs(areas[:, 0] - areas[:, 1]))
        means = " | ".join(f"{100 * mean:.2f}" for mean in np.nanmean(areas, 0))
        print(f"| {name} | {len(rows)} | {gap:.1e} | {moved:.1e} | {means} |", flush=True)
        failed |= gap > LARGEST_GAP or moved > LARGEST_GAP
    sys.exit("margins or AUC differ" if failed else 0)


if __name__ == "__main__":
    main()
