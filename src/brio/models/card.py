"""The model card: what a model is, what it was fitted to, how good it is, and what it holds of participants."""

from __future__ import annotations

from ..results.format import escape_markdown, format_code, format_count, format_percent, format_table
from .evidence import Estimate, Evidence, choose_rule
from .model import Model
from .predict import DEFAULT_ACCURACY

__all__ = ["write_card"]


def write_card(model: Model) -> str:
    """Write the card of a model as Markdown.

    Parameters
    ----------
    model : Model

    Returns
    -------
    str
    """
    training, ranges = model.training, model.ranges
    zero, one = model.classes
    sites = [[escape_markdown(name), str(n[0]), str(n[1])] for name, n in training.sites.items()]
    seeds = len(model.members)
    lines = [
        f"# Model card: {model.method.name} on {escape_markdown(training.cohort)}",
        f"Fitted with brio {training.versions['brio']} to {training.n_scans} scans of {len(training.sites)} sites, "
        f"{len(model.atlas)} ROIs ({escape_markdown(model.atlas.name)}); {seeds} member{'s' if seeds > 1 else ''}. A "
        f"probability is that of class {format_code(one)} against {format_code(zero)}.",
        "## What it is for",
        "Research on groups of scans from sites that it was not fitted to. It is no medical device: it must not decide "
        "about a person.",
        "## How good it is at new sites",
        *_describe_evidence(model.evidence),
        *_describe_adaptation(model),
        "## The interval",
        "`low` and `high` say where the probability would lie for equally many other minutes of the same scan. They do "
        "not say what another day would show. Halves of "
        f"source scans differ {model.interval_factor:.2f} times as much as re-estimates let expect; the interval "
        "allows for that.",
        "## Scans it was fitted to",
        format_table(["site", escape_markdown(zero), escape_markdown(one)], sites),
        f"- 95 % have at least {ranges.least_frames:.0f} frames.",
        f"- Repetition time: {_describe_range(ranges.tr, 's')}.",
        f"- Mean framewise displacement: {_describe_range(ranges.motion, 'mm')}.",
        f"- At most {ranges.dead_rois} ROIs without signal.",
        f"- Excluded by the audit: {training.n_excluded}. Cohort fingerprint {training.fingerprint[:12]}.",
        "## What it holds of participants",
        f"No identifiers. The method holds {model.method.facts.holds}. The model also holds the mean connectome of the "
        "source sites, the ranges above, whose ends are of single scans"
        + (", and what the model reads, averaged over all source scans." if model.patterns else "."),
        _describe_known_scans(model),
        *_warn_of_kept_scans(model.method.facts.keeps_scans),
        "## Settings",
        "\n".join(f"- `{name}`: {value}" for name, value in vars(model.method.settings).items()),
    ]
    return "\n\n".join(lines) + "\n"


def _describe_known_scans(model: Model) -> str:
    holds = []
    if model.known_scans is not None:
        holds.append(f"the {model.training.n_scans} scans it was fitted to")
    if model.adaptation is not None and model.adaptation.known_scans is not None:
        holds.append(f"the scans of {model.adaptation.n_participants} participants it was adapted to")
    sessions = ""
    if model.known_scans is not None and len(model.known_scans.digests) > model.training.n_scans:
        sessions = f", and of {len(model.known_scans.digests) - model.training.n_scans} sessions that were joined"
    if not holds:
        return "It holds no digests of single scans: it recognises its whole cohort, but no part of it."
    return (
        f"It holds a short salted digest of each of {' and of '.join(holds)}{sessions}, by which it recognises them. "
        "Nothing of a scan can be computed from its digest, but who has the same file can tell that it was among them."
    )


def _warn_of_kept_scans(kept: str) -> list[str]:
    if not kept:
        return []
    return [f"**It keeps numbers of single source scans**: {kept}. Share it as you would share those."]


def _describe_evidence(evidence: Evidence | None) -> list[str]:
    if evidence is None:
        return ["**Not evaluated.** Fit it with `--evidence RESULTS` or `--evaluate` to know."]
    lines = [
        f"- Leave one site out: {evidence.n_scans} scans of {format_count(evidence.n_sites, 'site')}, "
        f"{format_count(evidence.n_seeds, 'seed')}.",
        f"- AUC, mean over {evidence.averaged_sites}: {_describe_percent(evidence.auc)}. Pair-weighted: "
        f"{_describe_percent(evidence.pair_weighted_auc)}.",
        f"- Accuracy: {evidence.accuracy_in_words}. Brier score {evidence.brier:.3f}.",
        f"- Calibration slope {_describe(evidence.slope)} (perfect: 1), intercept {_describe(evidence.intercept)} "
        "(perfect: 0).",
    ]
    rows = "\n".join(
        f"| {p.coverage:.0%} | {format_percent(p.accuracy)} % ({p.n_right} of {p.n}) | {p.threshold:.2f} |"
        for p in evidence.risk
        if round(20 * p.coverage) % 4 == 0
    )
    table = f"| largest absolute logits | accuracy | absolute logit at least |\n| --- | --- | --- |\n{rows}"
    differences = [f"**The evidence differs from the model: {words}.**" for words in evidence.differences]
    smoke = [f"**{evidence.smoke_note}**"] if evidence.smoke_note else []
    rule = choose_rule(evidence.rules, DEFAULT_ACCURACY)
    calls = f"No rule calls a tenth of the scans with an accuracy of {DEFAULT_ACCURACY:.0%}."
    if rule is not None:
        calls = (
            f"`predicted` names a class where the absolute logit is at least {rule.threshold:.2f} (for a wanted "
            f"accuracy of {DEFAULT_ACCURACY:.0%}) and the scan has no flag. At left-out sites: {rule.describe()}."
        )
    return [*smoke, "\n".join(lines), table, calls, *differences]


def _describe_adaptation(model: Model) -> list[str]:
    if model.adaptation is None:
        return []
    zero, one = map(escape_markdown, model.classes)
    sentences = model.adaptation.describe((zero, one))
    scores = "The scores above are of the original model at new sites, and so is the rule for `predicted`."
    return ["## Adapted to one hospital", "\n".join(f"- {sentence}" for sentence in (*sentences, scores))]


def _describe_percent(estimate: Estimate) -> str:
    if estimate.value is None:
        return "unknown"
    interval = (
        f" ({format_percent(estimate.low)} to {format_percent(estimate.high)})" if estimate.low is not None else ""
    )
    return f"{format_percent(estimate.value)} %{interval}"


def _describe(estimate: Estimate) -> str:
    if estimate.value is None:
        return "unknown"
    interval = f" ({estimate.low:.2f} to {estimate.high:.2f})" if estimate.low is not None else ""
    return f"{estimate.value:.2f}{interval}"


def _describe_range(limits: tuple[float, ...] | None, unit: str) -> str:
    if limits is None:
        return "unknown"
    return f"{limits[0]:.3g} {unit}" if limits[0] == limits[1] else f"{limits[0]:.3g} to {limits[1]:.3g} {unit}"
