"""The model of sites that share no scans, computed from the sums of their answers, and the evidence on it."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..connectome import unfold_edges
from ..methods import make_method
from ..methods.linear.ridge import KernelRidgeMethod
from ..models.evidence import UNKNOWN, Estimate, Evidence, make_estimate, pool_recalibration
from ..models.known_scans import KnownScans
from ..models.model import Member, Model, TrainingFacts
from ..models.patterns import Patterns
from ..models.ranges import ScanRanges, read_ranges
from ..protocol import Fold
from ..protocol.calibration import Recalibration
from ..results.summarise import PAIR_WEIGHTED, assess_auc, summarise_scores
from ..training import FittedRun, Run, RunState
from ..version import __version__
from .equations import Spread
from .messages import ALL, Arrays, Request, SiteScore, Terms, digest
from .progress import Progress

SITE_MODELS = "each site scored the mean of the other sites' models, not this model; probabilities were not checked"


def make_project_method(terms: Terms) -> KernelRidgeMethod:
    """Make the method of a project with its penalty."""
    own = {"least_penalty": terms.penalty, "largest_penalty": terms.penalty, "penalties": 1}
    method = make_method(terms.method, own | {"choose_by": "source-sites"})
    assert isinstance(method, KernelRidgeMethod)
    return method


def build_model(progress: Progress, held_out: Spread | None = None) -> Model:
    """Build the model of all sites, calibrated by a spread; fields known only from the last answers are left empty."""
    terms, nothing = progress.terms, np.empty(0, dtype=np.int64)
    atlas, is_log = terms.make_atlas(), terms.method == "log-ridge"
    slope, intercept = progress.calibrate(held_out)
    fill = torch.from_numpy(progress.fill)
    fitted = FittedRun(
        run=Run(Fold("all", nothing, nothing, nothing, (), ()), 0),
        test_logit=np.empty(0),
        validation_auc=0.0,
        details={"penalty": progress.penalty} | ({} if is_log else {"calibration": [1.0, 0.0]}),
        state=RunState.from_learned(mean=fill if is_log else unfold_edges(fill, len(atlas))),
        parameters={
            "centre": torch.from_numpy(progress.centre),
            "coefficients": torch.from_numpy(slope * progress.point.w),
            "intercept": torch.tensor(intercept, dtype=torch.float64),
        },
    )
    return Model(
        method=make_project_method(terms),
        members=(Member(fitted),),
        atlas=atlas,
        classes=terms.classes,
        block_length=progress.block_length,
        interval_factor=1.0,
        ranges=ScanRanges(),
        mean=unfold_edges(torch.from_numpy(progress.mean), len(atlas)).float(),
        training=TrainingFacts(
            cohort=terms.project,
            fingerprint="",
            n_scans=progress.n_all,
            n_excluded=0,
            sites={},
            one_class_sites=(),
            versions={"brio": __version__, "torch": torch.__version__, "numpy": np.__version__},
            federated=True,
        ),
        known_scans=KnownScans("0", ()),
    )


def complete_model(request: Request, last: Arrays, scores: Mapping[str, SiteScore]) -> Model:
    """Add to a model what the last answers provide: patterns, the interval factor, ranges and evidence."""
    described, begun, *_ = request.shown[ALL]
    progress = Progress(request.terms, request.shown[ALL])
    spreads = [one.calibrated.spread for one in scores.values() if one.calibrated is not None]
    held_out = Spread(*np.sum(spreads, axis=0)) if spreads else None  # of the very models that leave a site out
    model, (squares, n) = build_model(progress, held_out), last["halves"]
    pattern = last["covariance"] / max(float(last["variance"]), 1e-300) / progress.calibrate(held_out)[0]
    fingerprint = digest(request)[:16]
    return replace(
        model,
        training=replace(model.training, sites=request.sites, fingerprint=fingerprint),
        patterns=(Patterns(progress.n_all, pattern),),
        interval_factor=max(1.0, float(np.sqrt(squares / n))),
        ranges=read_ranges(described["facts"], begun["distance"]),
        evidence=gather_evidence(request.terms, scores, fingerprint),
    )


def list_site_rows(method: str, scores: Mapping[str, SiteScore]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """List the scores of all sites, and their variances, as the tables of ``brio run`` have them."""
    rows = pd.DataFrame([{"fold": name} | asdict(one) for name, one in scores.items()]).assign(method=method)
    sites = rows[["method", "fold", "n_patients", "n_controls", "auc"]].assign(
        seed=pd.array([pd.NA] * len(rows), dtype="Int64"), ensemble_auc=rows["auc"], auc_variance=rows["variance"]
    )
    return sites, rows[["method", "fold"]].assign(other=method, covariance=rows["variance"])


def gather_evidence(terms: Terms, scores: Mapping[str, SiteScore], fingerprint: str) -> Evidence:
    """Gather the evidence on the model from the scores of all sites."""
    sites, covariances = list_site_rows(terms.method, scores)
    over_sites = summarise_scores(sites["auc"], limits=(0.0, 1.0))
    weighted = assess_auc(sites, covariances, terms.method)[PAIR_WEIGHTED]
    n = sites["n_patients"] + sites["n_controls"]
    checked: dict[str, Any] = {"accuracy": None, "brier": None, "slope": UNKNOWN, "intercept": UNKNOWN}
    if terms.leaves_sites_out:
        own = pd.DataFrame([asdict(one)["calibrated"] for one in scores.values()])
        coefficients = pd.DataFrame(own["calibration"].tolist(), columns=Recalibration._fields, dtype=float)
        for name, (estimate, sd) in zip(("slope", "intercept"), pool_recalibration(coefficients), strict=True):
            checked |= {name: estimate, f"{name}_sd": sd}
        checked |= {"accuracy": own["n_right"].sum() / n.sum(), "brier": own["brier"].sum() / n.sum()}
        checked["accuracy_over_sites"] = (own["n_right"] / n).mean()
    return Evidence(
        n_participants=int(n.sum()),
        n_sites=len(scores),
        n_seeds=1,
        fingerprint=fingerprint,
        auc=Estimate(over_sites.mean, *(over_sites.interval or (None, None))),
        pair_weighted_auc=make_estimate(weighted.mean, weighted.low, weighted.high),
        risk=(),
        rules=(),
        n_two_class_sites=len(scores),
        differences=() if terms.leaves_sites_out else (SITE_MODELS,),
        **checked,
    )
