"""Whether a model reads the same without each of its sites: closed-form methods are fitted again, site by site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..connectome import Connectomes, HarmonisedConnectomes, fit_harmoniser
from ..errors import BrioError
from ..progress import Progress, silent
from ..protocol import Fold, make_training_fold
from ..training import FittedRun, Inputs, Run
from .model import Model
from .patterns import read_scans

LEAST_SITES = 3
STRONGEST = 15
"""Edges of a pattern that are compared with the classes at a left-out site."""
SELECTIONS = (1, 5, STRONGEST, 50, 150, 500)
"""Numbers of strongest edges for which this is done over all left-out sites."""


class SitePatterns(NamedTuple):
    """Coefficients and patterns of models that were each fitted without one of E sites.

    Shapes: coefficients [E, edges], pattern [E, edges], difference [E, edges], n_scans [E].
    """

    sites: list[str]  # the site that was left out
    coefficients: np.ndarray
    pattern: np.ndarray  # over the scans that the model was fitted to
    difference: np.ndarray  # mean value of an edge in class 1 less that in class 0, at the site that was left out
    n_scans: np.ndarray  # scans of that site
    edge_values: list[str]

    def compare(self, coefficients: np.ndarray, pattern: np.ndarray) -> pd.DataFrame:
        """Correlate coefficients and patterns over edges with those of the whole model.

        Shapes: coefficients, pattern [edges].

        Returns ``site``, ``n_scans``, ``coefficient_correlation``, ``pattern_correlation``, ``edge_values``. At the
        site itself: ``difference_correlation``, that of the pattern without the site and the difference between the
        classes, 0 by chance; ``strongest_same_sign``, the share of the 15 strongest edges of that pattern in which the
        classes differ in its direction, half by chance.
        """
        pairs = list(zip(self.pattern, self.difference, strict=True))
        return pd.DataFrame(
            {
                "site": self.sites,
                "n_scans": self.n_scans,
                "coefficient_correlation": [_correlate(own, coefficients) for own in self.coefficients],
                "pattern_correlation": [_correlate(own, pattern) for own in self.pattern],
                "difference_correlation": [_correlate(own, there) for own, there in pairs],
                "strongest_same_sign": [_compare_strongest(own, there) for own, there in pairs],
                "edge_values": self.edge_values,
            }
        )

    def score_new_sites(self) -> pd.DataFrame:
        """Compare the strongest edges of each fit with the classes at the site that took no part in choosing them.

        There is no such number for an edge of the whole model: that was chosen with all sites, so the classes differ
        in its direction at most of them even where labels are drawn by chance.

        Returns ``strongest_edges``, how many edges of the pattern without a site are selected by their absolute value;
        ``same_sign_new_sites``, the share of them in which the classes differ in the direction of that pattern at the
        left-out site, mean over sites, half by chance; ``sd_over_sites``; ``n_sites``.
        """
        n_edges = self.pattern.shape[1]
        rows = []
        for n in (*(n for n in SELECTIONS if n < n_edges), n_edges):
            shares = [_compare_strongest(*pair, n) for pair in zip(self.pattern, self.difference, strict=True)]
            known = np.array(shares)[np.isfinite(shares)]
            mean, sd = (known.mean() if len(known) else np.nan), (known.std(ddof=1) if len(known) > 1 else np.nan)
            rows.append((n, mean, sd, len(known)))
        return pd.DataFrame(rows, columns=["strongest_edges", "same_sign_new_sites", "sd_over_sites", "n_sites"])


def _correlate(x: np.ndarray, y: np.ndarray) -> float:
    """Correlate two vectors; not a number where one of them is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _compare_strongest(pattern: np.ndarray, difference: np.ndarray, n: int = STRONGEST) -> float:
    """Share of the n strongest edges with the same sign in both, among those with a sign; else not a number."""
    strongest = np.argsort(-np.abs(pattern), kind="stable")[:n]
    agreement = np.sign(pattern[strongest]) * np.sign(difference[strongest])
    return float((agreement[agreement != 0] > 0).mean()) if agreement.any() else float("nan")


def find_reason_against_refits(model: Model) -> str:
    """Say why a model cannot be fitted again without each site; empty where it can."""
    method, explanation = model.method, model.method.explain(model.members[0].fitted)
    if explanation is None or explanation.coefficients is None:
        return f"'{method.name}' has no coefficients of edges, and factors of two fits cannot be matched"
    if method.facts.epochs is not None:
        return f"'{method.name}' is a network; only closed-form methods are fitted again"
    if method.needs_validation:
        return f"'{method.name}' chooses on validation scans, which a fit without a site does not have"
    return ""


def refit_without_each_site(model: Model, plain: Connectomes, progress: Progress = silent) -> SitePatterns:
    """Fit the method of a model again without each site in turn, with the settings and the first seed of the model."""
    cohort, seed = plain.cohort, model.members[0].fitted.run.seed
    whole = make_training_fold(cohort, seed, 0)
    sites = sorted(set(cohort.sites[whole.source].tolist()))
    if len(sites) < LEAST_SITES:
        raise BrioError(f"{len(sites)} sites hold both classes; at least {LEAST_SITES} are needed to leave one out")
    runs = [Run(_leave_out(whole, cohort.sites, site), seed) for site in sites]
    coefficients: list[np.ndarray] = []
    patterns: list[np.ndarray] = []
    differences: list[np.ndarray] = []
    edge_values: list[str] = []
    for k, (run, fitted, inputs) in enumerate(_refit(model, plain, runs, progress)):
        progress(f"reading without {run.fold.name}", k / len(runs))
        explanation = model.method.explain(fitted)
        assert explanation is not None
        assert explanation.coefficients is not None
        coefficients.append(explanation.coefficients)
        edge_values.append(explanation.edge_values)
        pattern = read_scans(model.method, fitted, inputs, run.fold.source).pattern
        assert pattern is not None
        patterns.append(pattern[0])
        left_out = run.fold.test
        difference = read_scans(model.method, fitted, inputs, left_out, label=cohort.labels[left_out]).difference
        assert difference is not None
        differences.append(difference[0])
    sizes = np.array([len(run.fold.test) for run in runs])
    return SitePatterns(sites, np.stack(coefficients), np.stack(patterns), np.stack(differences), sizes, edge_values)


def _leave_out(whole: Fold, sites: np.ndarray, site: str) -> Fold:
    own = sites[whole.source] == site
    return Fold(site, whole.source[~own], whole.validation, whole.source[own], (site,), ())


def _refit(
    model: Model, plain: Connectomes, runs: list[Run], progress: Progress
) -> Iterator[tuple[Run, FittedRun, Inputs]]:
    """Yield every run with its fit and its inputs; each is harmonised on its own sites where the model is."""
    method, harmoniser = model.method, model.members[0].harmoniser
    if harmoniser is None:
        inputs = method.gather_inputs(plain)
        yield from ((run, fitted, inputs) for run, fitted in zip(runs, method.fit(plain, runs, progress), strict=True))
        return
    for k, run in enumerate(runs):
        progress(f"fitting without {run.fold.name}", k / len(runs))
        connectomes = HarmonisedConnectomes(plain, fit_harmoniser(plain, run.fold.source, harmoniser.rule))
        (fitted,) = method.fit(connectomes, [run])
        yield run, fitted, method.gather_inputs(connectomes)
