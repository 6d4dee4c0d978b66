"""Sites that share no scan against pooled scans, on real connectomes: ``python benchmarks/federation.py COHORT``.

Every site of a cohort becomes a cohort of its own, and the functions of ``brio.federation`` are called in one process,
as the commands call them. Prints the AUC at left-out sites of one, two, four and more iterations beside that of pooled
scans under the same penalty, the bytes of an answer, and by how much the scores of the converged model differ.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from brio import Cohort, federation, run
from brio.cohort import audit, relabel
from brio.federation.messages import ALL
from brio.federation.progress import Progress
from brio.jobs import JobSpec
from brio.models import Model, fit_model


def split_sites(cohort: Cohort, least: int) -> dict[str, Cohort]:
    """Make a cohort of every site with enough participants of each class."""
    parts = {str(e): cohort.select(cohort.sites == e) for e in np.unique(cohort.sites)}
    return {name: one for name, one in parts.items() if min(np.bincount(one.labels, minlength=2)) >= least}


def federate(terms: federation.Terms, sites: dict[str, Cohort]) -> Iterator[tuple[Any, list, float]]:
    """Run a project to its end; yields each request with its answers and the seconds they took, and last the model."""
    request: Any = federation.start(terms)
    while isinstance(request, federation.Request):
        began = time.perf_counter()
        answers = [federation.answer(request, one) for one in sites.values()]
        yield request, answers, time.perf_counter() - began
        request = federation.combine(request, answers)
    yield request, [], 0.0


def main() -> None:
    """Print the comparison for a cohort."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cohort", type=Path)
    parser.add_argument("--label")
    parser.add_argument("--method", default="log-ridge")
    parser.add_argument("--iterations", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--sites", type=int, help="the first so many sites, largest first")
    parser.add_argument("--evaluation", default="leave-one-site-out")
    given = parser.parse_args()
    whole = Cohort.load(given.cohort)
    asked = relabel(whole, given.label, 10) if given.label else whole
    used = asked.select(audit(asked).keep)
    sites = split_sites(used, 10)
    order = sorted(sites, key=lambda name: -len(sites[name]))[: given.sites]
    sites = {name: sites[name] for name in sorted(order)}
    pool = used.select(np.isin(used.sites, list(sites)))
    print(f"{given.cohort.name}, {given.label or 'diagnosis'}: {len(pool)} scans of {len(sites)} sites")
    for iterations in given.iterations:
        terms = federation.Terms(
            "benchmark", given.method, pool.atlas.name, {"name": pool.atlas.rois["name"].tolist()}, pool.classes,
            iterations=iterations, evaluation=given.evaluation,
        )  # fmt: skip
        *rounds, (model, _, _) = federate(terms, sites)
        assert isinstance(model, Model)
        assert model.evidence is not None
        size = sum(len(federation.encode(answers[0])) for _, answers, _ in rounds) / 1e6
        seconds = sum(seconds for *_, seconds in rounds) / len(rounds) / len(sites)
        last = rounds[-1][0]
        point = Progress(terms, last.shown[ALL]).point
        left = np.linalg.norm(point.residual) / np.linalg.norm(last.shown[ALL][1]["labels"])
        print(
            f"{iterations} iterations: {model.evidence.describe()}; residual {left:.1e} of A'b, {size:.1f} MB of a "
            f"site in {len(rounds)} rounds, {seconds:.2f} s a site and round"
        )
        if iterations == max(given.iterations):
            compare_pooled(model, pool, terms)
    settings = pooled_settings(terms) | {"protocol.validation_sites": 0}
    result = run(pool, [given.method], seeds=1, settings=settings, device="cpu")
    summary = result.summary.methods[given.method]
    print(f"pooled, the same penalty: AUC {100 * summary.auc.mean:.2f}")


def pooled_settings(terms: federation.Terms) -> dict[str, object]:
    """Settings of the same model of pooled scans."""
    fixed = {"least_penalty": terms.penalty, "largest_penalty": terms.penalty, "penalties": 1}
    return fixed | {"choose_by": "source-sites"}


def compare_pooled(model: Model, pool: Cohort, terms: federation.Terms) -> None:
    """Print by how much the scores of a model differ from those of the model of pooled scans."""
    pooled = fit_model(JobSpec(pool, [terms.method], settings=pooled_settings(terms), device="cpu", exclude=False))
    coefficients = []
    for one in (model, pooled):
        w = one.members[0].fitted.parameters["coefficients"].double().numpy()
        coefficients.append(w / np.linalg.norm(w))
    difference = np.linalg.norm(coefficients[0] - coefficients[1])
    print(f"against the pooled model: coefficients differ by {difference:.1e} of their size")


if __name__ == "__main__":
    main()
