"""A project of sites in processes of their own: ``python benchmarks/federation_processes.py COHORT --out CSV``.

Every site of a cohort becomes a folder, and answers every request by ``brio federate answer`` in a process that sees
nothing but this folder and the project's files. A row for each site and round is added to a table: bytes, seconds of
processor time and the peak memory of the process; at the end, how far the model is from that of pooled scans.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from brio import Cohort, federation, load_model
from brio.cohort import audit, relabel
from brio.connectome import Connectomes
from brio.jobs import JobSpec
from brio.models import fit_model
from federation import LEAST_PER_CLASS, choose_sites, pooled_settings


def run_command(*words: Any) -> dict[str, Any]:
    """Run a command of brio in a process of its own; returns its processor time and peak memory."""
    child = subprocess.Popen([sys.executable, "-m", "brio", *map(str, words)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"brio {' '.join(map(str, words))}: ended with status {os.waitstatus_to_exitcode(status)}")
    return {"seconds": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss * 1024 / 1e6}


def answer_all(project: Path, sites: Path, n_processes: int) -> list[dict[str, Any]]:
    """Let every site answer the newest request; returns a row for each."""
    *_, request = sorted(project.glob("request-*.brio"))
    number = int(request.stem.split("-")[1])

    def answer(site: Path) -> dict[str, Any]:
        out = project / "answers" / f"answer-{number}-{site.name}.brio"
        used = run_command("federate", "answer", request, site, "--out", out)
        sizes = {"request_mb": request.stat().st_size / 1e6, "answer_mb": out.stat().st_size / 1e6}
        return {"round": number, "site": site.name, **sizes, **used}

    with ThreadPoolExecutor(n_processes) as pool:
        return list(pool.map(answer, sorted(sites.iterdir())))


def main() -> None:
    """Carry out a project, and add its rows to a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--label")
    parser.add_argument("--processes", type=int, default=20, help="at a time")
    given = parser.parse_args()
    whole = Cohort.load(given.cohort)
    asked = relabel(whole, given.label, LEAST_PER_CLASS) if given.label else whole
    pool = choose_sites(asked.select(audit(asked).keep), None, False)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        project, sites = Path(folder) / "project", Path(folder) / "sites"
        for name in np.unique(pool.sites):
            pool.select(pool.sites == name).save(sites / str(name))
        words = ["federate", "start", "--rois", given.cohort, "--classes", ",".join(pool.classes), "--out", project]
        words += ["--sites", len(np.unique(pool.sites))]
        run_command(*words)
        while not (project / "model").exists():
            rows += answer_all(project, sites, given.processes)
            run_command("federate", "combine", project)
        model = load_model(project / "model")
        table = pd.read_csv(project / "scores" / "sites.csv")
    settings = pooled_settings(federation.Terms("pooled", "log-ridge", "", {"name": ["one", "two"]}, pool.classes))
    pooled = fit_model(JobSpec(pool, ["log-ridge"], settings=settings, device="cpu", exclude=False))
    ours, theirs = (one.collect_margins(Connectomes(pool)).full[0] for one in (model, pooled))
    about = {"atlas": pool.atlas.name, "question": given.label or "diagnosis"}
    about |= {"correlation": np.corrcoef(ours, theirs)[0, 1], "site_models_auc": table["auc"].mean()}
    made = pd.DataFrame([about | row for row in rows])
    if given.out.exists():
        made = pd.concat([pd.read_csv(given.out), made])
    made.to_csv(given.out, index=False)
    print(made.groupby("round").mean(numeric_only=True).to_string())


if __name__ == "__main__":
    main()
