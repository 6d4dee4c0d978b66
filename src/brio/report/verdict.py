"""The verdict in sentences: the best method, its difference from the reference, and reasons for caution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formatting import (
    UNKNOWN_INTERVAL,
    bracket_interval,
    format_count,
    format_interval,
    format_points,
    format_whole,
    join_names,
    state_p,
    typeset,
)
from ..models.external import Validation
from .comparisons import ALPHA, LEVEL, Comparison, EvidenceArm
from .evidence import Evidence
from .repeat import read_defaults


def write_verdict(evidence: Evidence) -> list[str]:
    """Write the best method, its difference from the reference, reasons for caution, and the limits of few sites."""
    parts = [
        _describe_confound_baselines(evidence),
        _describe_audit(evidence),
        *_describe_short_training(evidence.comparison),
    ]
    caution = f"{'; '.join(parts)}."
    if not evidence.comparison.ranked:
        return ["No method that uses connectomes has an AUC, so there is no ranking.", "No comparison.", caution]
    few_sites = evidence.comparison.ranked[0].job.summary.few_sites_note
    return [_describe_best(evidence), _describe_difference(evidence), caution, *filter(None, [few_sites])]


def describe_validation(validation: Validation) -> str:
    """State the AUC of a model on new scans, and the AUC that was expected."""
    title, auc = validation.title, validation.auc
    scans = f"on scans of {validation.where} that it had not seen"
    if validation.caution:
        people = format_count(validation.n_people, "participant")
        return f"{title} classifies {validation.n_right} of {people} correctly {scans}; {validation.caution}."
    if auc.value is None:
        return f"{title} has no AUC {scans}, because no site has both classes."
    interval = bracket_interval(auc.ends, format_whole).replace("(", "(95% interval ").replace(")", "%)")
    text = f"{title} reaches an AUC of {format_whole(auc.value)}%{interval} {scans}"
    expected = validation.expected.get("auc")
    if expected is None or expected.value is None:
        return f"{text}; no expected AUC is known for this model."
    return f"{text}; the expected AUC was {format_whole(expected.value)}%."


def _describe_best(evidence: Evidence) -> str:
    ranked, no_claim = evidence.comparison.ranked, evidence.no_claim
    best, auc = ranked[0], ranked[0].summary.auc
    where = "at sites it was not trained on" if best.protocol == "loso" else "on new scans from sites it was trained on"
    units, interval = format_count(auc.n, best.unit), format_interval(auc.interval, format_whole)
    certainty = f"95% interval {interval}, {units}" if auc.interval else units
    if interval == UNKNOWN_INTERVAL:
        certainty = f"{units}, too few for an interval"
    n_methods = evidence.comparison.n_methods
    rank = f", the highest of {n_methods} ranked methods" if n_methods > 1 else ""
    text = f"{best.title} reaches a mean AUC of {format_whole(auc.mean)}% ({certainty}) {where}{rank}"
    if auc.interval and auc.interval[0] <= 0.5 <= auc.interval[1] and interval != UNKNOWN_INTERVAL:
        text += "; the interval includes chance"
    if best.summary.transductive:
        text += "; it used unlabelled test scans"
    return f"{no_claim[:1].upper()}{no_claim[1:]}. {text}." if no_claim else f"{text}."


def _describe_difference(evidence: Evidence) -> str:
    comparison = evidence.comparison
    reference = comparison.reference
    if reference is None or len(comparison.ranked) == 1:
        return _explain_no_comparison(evidence)
    arm = _choose_compared_arm(comparison, reference)
    row = comparison.differences[arm.name]
    points = round(100 * abs(row["mean_difference"]))
    if points:
        side = "higher" if row["mean_difference"] > 0 else "lower"
        text = f"{arm.title} scored {format_count(points, 'point')} {side} than {reference.title} in mean AUC"
    else:
        size = "differ by less than one point in" if row["mean_difference"] else "have the same"
        text = f"{arm.title} and {reference.title} {size} mean AUC"
    if not comparison.has_linear_reference:
        text = f"No linear method is ranked; {text}"
    if not np.isnan(row["low"]):
        interval = typeset(format_interval([row["low"], row["high"]], lambda end: format_points(end, 0)))
        text += f" (95% interval of the difference {interval})"
    if evidence.no_claim:
        return f"{text}; this difference is not tested for significance."
    if row["warning"]:
        return f"{text}; {row['warning']}."
    n_tests = sum(not np.isnan(other["p"]) for other in comparison.differences.values())
    return f"{text}, {_describe_tests(row, arm.unit, n_tests)}."


def _explain_no_comparison(evidence: Evidence) -> str:
    comparison = evidence.comparison
    advice = "" if comparison.has_linear_reference else "; compare it with at least one linear method"
    if sum(not arm.control for arm in evidence.main) > 1:
        why = "the other methods are smoke runs, used other scans or have no AUC"
        return f"Only {comparison.ranked[0].title} can be ranked ({why}), so there is no comparison{advice}."
    others = " apart from confound baselines" if any(arm.control for arm in evidence.main) else ""
    return f"Only one method{others} was run, so there is no comparison{advice}."


def _describe_tests(row: Mapping[str, Any], unit: str, n_tests: int) -> str:
    """State whether a difference is significant, and whether it is shown to be small."""
    basis = f"{state_p(row['p_holm'])}, corrected t test over {format_count(int(row['n']), unit)}"
    basis += f", adjusted for {n_tests} comparisons" if n_tests > 1 else ""
    text = f"{'a' if row['p_holm'] <= ALPHA else 'not a'} significant difference ({basis})"
    if row["p_level"] > ALPHA:
        return text
    return f"{text}; the difference is below {LEVEL} (two one-sided tests, {state_p(row['p_level'])})"


def _choose_compared_arm(comparison: Comparison, reference: EvidenceArm) -> EvidenceArm:
    """Return the best arm; if a linear baseline is best, return BRIO, else the best arm of another family."""
    best = comparison.ranked[0]
    if best is not reference and best.summary.family != "linear":
        return best
    others = [arm for arm in comparison.ranked if arm is not reference]
    networks = [arm for arm in others if arm.summary.family != "linear"]
    brio = [arm for arm in networks if arm.name == "brio"]
    return (brio or networks or others)[0]


def _describe_confound_baselines(evidence: Evidence) -> str:
    controls = evidence.controls
    above = [arm for arm in controls if arm.summary.is_above_chance]
    if above:
        names = join_names([f"{arm.title} ({format_whole(arm.summary.auc.mean)}%)" for arm in above])
        return f"{names} scored above chance without connectomes, so part of any score may not come from the brain"
    if controls:
        names = join_names([arm.title for arm in controls])
        if evidence.no_claim or all(arm.summary.auc.n < 2 for arm in controls):
            return f"Confound baselines ({names}), which do not use connectomes, were not tested"
        return f"Confound baselines ({names}), which do not use connectomes, did not score significantly above chance"
    label = "sex" if evidence.label_is_sex else evidence.label_covariate
    were_left_out = any(arm.control and arm.name in evidence.given_label for arm in evidence.main)
    shortcuts = ", ".join(name for name in ("age", "sex", "motion") if name != label)
    which = "No confound baseline was scored"
    which += f" without {label}, which defines the label" if were_left_out else ""
    return f"{which}, so shortcuts through {shortcuts} or scan length cannot be ruled out"


def _describe_short_training(comparison: Comparison) -> list[str]:
    """Name neural networks that were trained for fewer epochs than their default; empty if there are none."""
    short = []
    for arm in comparison.ranked:
        planned, defaults = arm.planned, read_defaults(arm.method)
        epochs, usual = planned.settings.get("epochs"), (defaults or {}).get("epochs")
        if planned.tuned is None and epochs is not None and usual is not None and epochs < usual:
            short.append(f"{arm.title} ({epochs} instead of {usual})")
    names = join_names(short, most=3)
    return [f"training for fewer epochs than the default may lower the score of {names}"] if short else []


def _describe_audit(evidence: Evidence) -> str:
    job = evidence.audited
    if job is None:
        return "no audit is stored in this folder"
    plan = job.require_plan()
    if plan.audit is None:
        return "no audit was applied"
    n = len(plan.excluded)
    share = f"{n:,} of {format_count(job.summary.n_scans + n, 'scan')}" if n else "no scans"
    text = f"the audit excluded {share}"
    if (warnings := evidence.audit_warnings) is None:
        return f"{text}; its warnings are not stored in this folder"
    return f"{text} and warns that {join_names(warnings)}" if warnings else f"{text} and gave no warnings"
