"""Who is compared with whom, and the verdict: three sentences made from numbers by rules, and claiming no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...protocol.statistics import compare_over_folds, compare_over_sites
from ...results import average_seeds, score_units
from .reading import Evidence, EvidenceArm
from .words import count, interval, listed, percent, signed, stated_p

__all__ = ["ALPHA", "Comparison", "audit_warnings", "comparison", "verdict"]

ALPHA = 0.05
LINEAR = ("ridge", "logistic", "svm", "tangent-ridge", "fc-tangent-ridge", "core-scaffold")
"""The linear model others are compared with is the first of these that was run: the order is fixed beforehand, since
the best of them on the test scans would be chosen by them."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods that are compared with each other, best first.

    Attributes
    ----------
    ranked : list of EvidenceArm
        Without controls, without arms that only vary a setting and, where others are whole, without smoke runs.
    reference : EvidenceArm or None
        What the others are compared with: a linear model, else BRIO, else the best.
    linear : bool
        Whether the reference is a linear model.
    against : dict of str to dict
        For each other method its row of :func:`brio.protocol.statistics.compare`.
    """

    ranked: list[EvidenceArm]
    reference: EvidenceArm | None
    linear: bool
    against: dict[str, dict[str, Any]]


def comparison(arms: Sequence[EvidenceArm]) -> Comparison:
    """Rank the methods of one protocol by their mean AUC and test them against the reference."""
    rivals = [arm for arm in arms if arm.plain and not arm.control and arm.summary.auc.mean is not None]
    whole = [arm for arm in rivals if not arm.job.summary.smoke_run]
    ranked = sorted(whole or rivals, key=lambda arm: -(arm.summary.auc.mean or 0.0))
    if not ranked:
        return Comparison([], None, False, {})
    by_name = {arm.name: arm for arm in ranked}
    linear = next((by_name[name] for name in LINEAR if name in by_name), None)
    reference = linear or by_name.get("brio") or ranked[0]
    table = _tested(ranked, reference.name)
    against = {row["method"]: row for row in table.to_dict("records")}
    return Comparison(ranked, reference, linear is not None, {str(k): v for k, v in against.items()})


def _tested(arms: Sequence[EvidenceArm], reference: str) -> pd.DataFrame:
    """The comparisons with the reference, one family for Holm's correction."""
    if len(arms) < 2:
        return pd.DataFrame(columns=["method"])
    rows = pd.concat([arm.rows for arm in arms], ignore_index=True)
    scores = average_seeds(rows, units=score_units(arms[0].protocol))
    if arms[0].protocol == "loso":
        return compare_over_sites(scores, reference, alpha=ALPHA).rename(columns={"n_sites": "n"})
    n_test, n_source = float(rows["n_test"].mean()), float(rows["n_source"].mean())
    tested = compare_over_folds(scores, n_test, n_source, reference, alpha=ALPHA)
    return tested.rename(columns={"n_folds": "n"})


def verdict(evidence: Evidence, found: Comparison) -> list[str]:
    """Three sentences: who is best, whether that is more than luck, and what should make the reader doubt."""
    if not found.ranked:
        return [
            "No method that looks at connectomes has an AUC here, so there is nothing to rank.",
            "Nothing was compared.",
            _doubts(evidence),
        ]
    return [_best(evidence, found), _difference(evidence, found), _doubts(evidence)]


def _smoke(evidence: Evidence, found: Comparison) -> str:
    """Why the numbers are no basis for a claim, or nothing."""
    if evidence.smoke:
        return evidence.smoke
    jobs = [arm.job.summary for arm in found.ranked if arm.job.summary.smoke_run]
    if not jobs:
        return ""
    seeds = min(len(s.seeds) for s in jobs)
    folds = min(len(s.folds) for s in jobs)
    return f"{count(seeds, 'seed')}, {count(folds, 'fold')}"


def _best(evidence: Evidence, found: Comparison) -> str:
    best = found.ranked[0]
    auc = best.summary.auc
    unseen = best.protocol == "loso"
    units = count(auc.n, "site" if unseen else "fold")
    where = "at sites it has not seen" if unseen else "on scans it has not seen, of sites it has"
    reach = f"a mean AUC of {percent(auc.mean)}"
    reach += f" (95 % interval {interval(auc.interval)}, over {units})" if auc.interval else f" (over {units})"
    n = len({arm.method for arm in found.ranked})  # one may be there tuned and with its own settings
    rank = f", the highest of {n} methods" if n > 1 else ""
    text = f"{best.name} reaches {reach} {where}{rank}"
    if auc.interval is not None and auc.interval[0] <= 0.5:
        text += "; the interval includes chance"
    if best.summary.transductive:
        text += "; it was given the unlabelled scans of the site it is tested on"
    smoke = _smoke(evidence, found)
    return f"A smoke run ({smoke}) and no basis for a claim: {text}." if smoke else f"{text}."


def _difference(evidence: Evidence, found: Comparison) -> str:
    best, reference = found.ranked[0], found.reference
    if reference is None or len(found.ranked) == 1:
        held = "" if found.linear else ", and it should at least be held against a linear model"
        return f"Nothing was run beside it, so no more can be said of it{held}."
    who, other = _opponents(found, best, reference)
    row = found.against[who.name]
    lead = "" if found.linear else "No linear model was run, the least to compare with; "
    apart = f"{who.name} less {other.name} is {signed(row['mean_difference'])} points of AUC"
    if not np.isnan(row["low"]):
        apart += f" (95 % interval {interval([row['low'], row['high']], signed)})"
    pair = f"{who.name} and {other.name}"
    if _smoke(evidence, found):
        return f"{lead}{pair} are not tested against each other in a smoke run; {apart}."
    units = count(int(row["n"]), "site" if who.protocol == "loso" else "fold")
    if row["warning"]:
        return (
            f"{lead}{pair} cannot be told apart: {apart}, and {units} are too few for the test to show any difference."
        )
    test = "Wilcoxon" if who.protocol == "loso" else "corrected resampled t"
    many = len(found.against)
    corrected = f", corrected for {many} comparisons" if many > 1 else ""
    basis = f"{stated_p(row['p_holm'])}, {test} over {units}{corrected}"
    if row["p_holm"] <= ALPHA:
        side = "above" if row["mean_difference"] > 0 else "below"
        return f"{lead}{who.name} is {side} {other.name} by more than luck explains: {apart}; {basis}."
    return f"{lead}{pair} cannot be told apart: {apart}; {basis}."


def _opponents(found: Comparison, best: EvidenceArm, reference: EvidenceArm) -> tuple[EvidenceArm, EvidenceArm]:
    """The best and the reference; where a linear model is best, BRIO, else the best that is none, and the reference."""
    if best is not reference and best.name not in LINEAR:
        return best, reference
    others = [arm for arm in found.ranked if arm is not reference]
    networks = [arm for arm in others if arm.name not in LINEAR]
    brio = [arm for arm in networks if arm.name == "brio"]
    return (brio or networks or others)[0], reference


def _doubts(evidence: Evidence) -> str:
    controls = [arm for arm in evidence.main if arm.control and arm.summary.auc.mean is not None]
    above = [a for a in controls if a.summary.is_above_chance]
    if above:
        told = listed([f"{a.name} ({percent(a.summary.auc.mean)})" for a in above])
        text = f"{told} {'is' if len(above) == 1 else 'are'} above chance without looking at a connectome"
        text += ", so part of any score here may not be about the brain"
    elif controls:
        text = f"Controls that see no connectome ({listed([a.name for a in controls])}) are not clearly above chance"
    else:
        text = "No control was run, so shortcuts through age, sex, motion or scan length are not ruled out"
    return f"{text}; {_audited(evidence)}."


def _audited(evidence: Evidence) -> str:
    job = evidence.audited
    if job is None:
        return "no cohort was audited here"
    if job.require_plan().audit is None:
        return "the audit's exclusions were not applied"
    n = len(job.require_plan().excluded)
    text = (
        f"the audit left out {n:,} of {count(job.summary.n_scans + n, 'scan')}" if n else "the audit left out no scan"
    )
    if job.audit is None:
        return f"{text}; what it warned of is not in this folder"
    warnings = audit_warnings(job.audit)
    return f"{text} and warns that {listed(warnings, most=2)}" if warnings else f"{text} and warns of nothing"


def audit_warnings(audit: dict[str, Any]) -> list[str]:
    """What an audit found that lets a classifier be right without the brain, or makes a site unfit."""
    out = []
    label = audit.get("label_by_site") or {}
    if label.get("p") is not None and label["p"] < ALPHA:
        out.append("the site tells something of the label")
    length = audit.get("length_by_label") or {}
    if length.get("p") is not None and length["p"] < ALPHA:
        out.append("scan length goes with the label")
    patterns = audit.get("dead_patterns") or {}
    if any(test["p"] < ALPHA for test in patterns.values()):
        out.append("missing regions give the site away")
    if audit.get("one_class"):
        out.append(f"{count(len(audit['one_class']), 'site has', 'sites have')} one class only")
    return out
