"""Sites that share no scan against pooled scans: ``python benchmarks/federation.py COHORT --out CSV``.

Every site of a cohort becomes one that answers for itself, and the functions of ``brio.federation`` are called in one
process, as the commands call them. A row for each number of iterations, and one for pooled scans with the same penalty,
is added to a table: scores at left-out sites, how far the model is from that of pooled scans, bytes and seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from brio import Cohort, federation, run
from brio.cohort import audit, relabel
from brio.connectome import Connectomes
from brio.federation.messages import ALL
from brio.federation.progress import Progress
from brio.federation.site import Site
from brio.jobs import JobSpec
from brio.models import Model, fit_model

LEAST_PER_CLASS, FEWEST_LEFT_OUT = 10, 4


def choose_sites(cohort: Cohort, number: int | None, evenly: bool) -> Cohort:
    """Choose the largest sites of a cohort, or sites of all sizes, from the largest to the smallest."""
    sizes = {e: np.bincount(cohort.labels[cohort.sites == e], minlength=2) for e in np.unique(cohort.sites)}
    order = sorted((e for e in sizes if sizes[e].min() >= LEAST_PER_CLASS), key=lambda e: -sizes[e].sum())
    if number is not None and evenly:
        order = [order[i] for i in np.linspace(0, len(order) - 1, number).round().astype(int)]
    return cohort.select(np.isin(cohort.sites, order[:number]))


def thin_out(cohort: Cohort, site: str | None, share: float = 0.5) -> Cohort:
    """Leave out a share of the patients of one site, which then has another balance of the classes."""
    patients = np.flatnonzero((cohort.sites == site) & (cohort.labels == 1))
    keep = np.ones(len(cohort), dtype=bool)
    keep[patients[: int(share * len(patients))]] = False
    return cohort.select(keep)


def federate(terms: federation.Terms, sites: list[Site]) -> Iterator[tuple[Any, list[federation.Answer], float]]:
    """Run a project to its end; yields each request with its answers and seconds, and last the model."""
    request: federation.Request | Model = federation.start(terms)
    while isinstance(request, federation.Request):
        began = time.perf_counter()
        answers = [site.answer(request) for site in sites]
        yield request, answers, time.perf_counter() - began
        request = federation.combine(request, answers)
    yield request, [], 0.0


def pooled_settings(terms: federation.Terms) -> dict[str, Any]:
    """Return the settings of the same model of pooled scans."""
    fixed = {"least_penalty": terms.penalty, "largest_penalty": terms.penalty, "penalties": 1}
    return fixed | {"choose_by": "source-sites"}


def measure(terms: federation.Terms, sites: list[Site], pool: Cohort, scores: np.ndarray) -> dict[str, Any]:
    """Run a project, and measure it; scores [n] are those of pooled scans, in standard deviations."""
    *rounds, (model, _, _) = federate(terms, sites)
    last, evidence = rounds[-1][0], model.evidence
    summed = Progress(terms, last.shown[ALL])
    margin = model.collect_margins(Connectomes(pool)).full[0]
    aucs = [one.score.auc for one in rounds[-1][1]]
    return {
        "iterations": terms.iterations,
        "auc": float(np.mean(aucs)),
        "auc_low": evidence.auc.low,
        "auc_high": evidence.auc.high,
        "accuracy": evidence.accuracy,
        "brier": evidence.brier,
        "slope": evidence.slope.value,
        "in_the_large": evidence.intercept.value,
        "residual": float(np.linalg.norm(summed.point.residual) / np.linalg.norm(summed.labels)),
        "score_difference": float(np.abs((margin - margin.mean()) / margin.std() - scores).max()),
        "rounds": len(rounds),
        "largest_request_mb": max(len(federation.encode(request)) for request, *_ in rounds) / 1e6,
        "answers_mb": sum(max(map(len, map(federation.encode, answers))) for _, answers, _ in rounds) / 1e6,
        "seconds": sum(seconds for *_, seconds in rounds) / len(rounds) / len(sites),
    }


def main() -> None:
    """Measure a cohort, and add the rows to a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--label")
    parser.add_argument("--method", default="log-ridge")
    parser.add_argument("--iterations", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--sites", type=int, help="the largest sites only")
    parser.add_argument("--evenly", action="store_true", help="sites of all sizes instead")
    parser.add_argument("--thin-out", help="leave out half of the patients of a site")
    given = parser.parse_args()
    whole = Cohort.load(given.cohort)
    asked = relabel(whole, given.label, LEAST_PER_CLASS) if given.label else whole
    pool = choose_sites(thin_out(asked.select(audit(asked).keep), given.thin_out), given.sites, given.evenly)
    names = np.unique(pool.sites)
    evaluation = "leave-one-site-out" if len(names) >= FEWEST_LEFT_OUT else "site-models"
    rois = {"name": pool.atlas.rois["name"].tolist()}
    how = {"method": given.method, "evaluation": evaluation, "classes": pool.classes}
    terms = [
        federation.Terms("benchmark", atlas=pool.atlas.name, rois=rois, iterations=k, **how) for k in given.iterations
    ]
    sites = [Site(terms[0], pool.select(pool.sites == name)) for name in names]
    settings = pooled_settings(terms[0])
    spec = JobSpec(pool, [given.method], settings=settings, device="cpu", exclude=False)
    margin = fit_model(spec).collect_margins(Connectomes(pool)).full[0]
    rows = [measure(one, sites, pool, (margin - margin.mean()) / margin.std()) for one in terms]
    if evaluation == "leave-one-site-out":
        left_out = {"protocol.validation_sites": 0}
        job = run(pool, [given.method], seeds=1, settings=settings | left_out, device="cpu", exclude=False).summary
        own = job.methods[given.method]
        low, high = own.auc.interval or (None, None)
        scores = {
            "auc": own.auc.mean,
            "auc_low": low,
            "auc_high": high,
            "accuracy": own.acc.mean,
            "brier": own.brier.mean,
        }
        rows.append({"iterations": "pooled", **scores})
    kind = "thinned" if given.thin_out else "evenly" if given.evenly else "largest" if given.sites else "all"
    about = {"atlas": pool.atlas.name, "question": given.label or "diagnosis", "method": given.method}
    about |= {"sites": len(names), "kind": kind, "scans": len(pool), "evaluation": evaluation}
    table = pd.DataFrame([about | row for row in rows])
    if given.out.exists():
        table = pd.concat([pd.read_csv(given.out, dtype={"iterations": str}), table])
    table.to_csv(given.out, index=False)
    print(table.tail(len(rows)).to_string())


if __name__ == "__main__":
    main()
