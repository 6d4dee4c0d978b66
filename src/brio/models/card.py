"""The model card: what a model is, what it was fitted to, how good it is, and what it holds of participants."""

from __future__ import annotations

from ..formatting import escape_markdown, format_code, format_count, format_p, format_percent, format_table
from .attacks import read_measured_attacks
from .evidence import LEAST_SITES, LEAST_WITH_REASON, LEVEL, REASONS, Evidence, choose_rule
from .model import Model
from .predict import DEFAULT_ACCURACY
from .ranges import LEAST_PARTICIPANTS, PARTICIPANTS_BEHIND


def write_card(model: Model) -> str:
    """Write the card of a model as Markdown."""
    training, ranges, facts, adaptation = model.training, model.ranges, model.method.facts, model.adaptation
    zero, one = model.classes
    sites = [[escape_markdown(name), str(n[0]), str(n[1])] for name, n in training.sites.items()]
    measured = read_measured_attacks(model.method.name)  # on ABIDE
    attacks = model.attacks or measured
    usual = [f"- Ranges are not stored: fewer than {LEAST_PARTICIPANTS} participants."]
    if ranges.least_frames is not None:
        usual = [
            f"- 95% have at least {ranges.least_frames:.0f} frames.",
            f"- Usual repetition time: {_describe_range(ranges.tr, 's')}.",
            f"- Usual mean framewise displacement: {_describe_range(ranges.motion, 'mm')}.",
            f"- Usually at most {format_count(ranges.dead_rois or 0, 'ROI')} without signal.",
        ]
    kept, adapted, local = [], [], ""
    if facts.keeps_scans:
        rows = "" if measured is None else f" {measured.describe_rows()}"
        kept = [
            f"**It holds numbers of single source scans**: {facts.keeps_scans}.{rows} Treat it as participants' data."
        ]
    if adaptation is not None:
        scores = "The scores above are of the original model at new sites, and so is the rule for `predicted`."
        sentences = (*adaptation.describe((escape_markdown(zero), escape_markdown(one))), scores)
        adapted = ["## Adapted to one hospital", "\n".join(f"- {sentence}" for sentence in sentences)]
        if adaptation.known_scans is not None:
            local = f", and of the scans of {adaptation.n_participants} participants it was adapted to"
    n_sessions = len(model.known_scans.digests) - training.n_scans
    sessions = f" and of {n_sessions} sessions that were joined" if n_sessions > 0 else ""
    lines = [
        f"# Model card: {model.method.name} on {escape_markdown(training.cohort)}",
        *kept,
        f"Fitted with brio {training.versions['brio']} to {training.n_scans} scans of {len(training.sites)} sites, "
        f"{len(model.atlas)} ROIs ({escape_markdown(model.atlas.name)}); {format_count(len(model.members), 'member')}. "
        f"A probability is that of class {format_code(one)} against {format_code(zero)}.",
        "## What it is for",
        "Research on groups of scans from sites that it was not fitted to. Not a medical device; do not use it to make "
        "decisions about individuals.",
        "## How good it is at new sites",
        *_describe_evidence(model.evidence),
        *adapted,
        "## Scans that differ from those it was fitted to",
        *_describe_reasons(model.evidence),
        "## The interval",
        "`low` and `high` say where the probability would lie for equally many other minutes of the same scan. They do "
        "not say what another day would show. Halves of "
        f"source scans differ {model.interval_factor:.2f} times as much as the re-estimates suggest; the interval "
        "allows for that.",
        "## Scans it was fitted to",
        format_table(["site", escape_markdown(zero), escape_markdown(one)], sites),
        "\n".join(usual)
        + f"\n- Excluded by the audit: {training.n_excluded}. Cohort fingerprint {training.fingerprint[:12]}.",
        "## What it holds of participants",
        attacks.describe()
        if attacks is not None
        else "What somebody who has a participant's scan can tell from a model of this method was not measured. "
        "Take it that they can tell whether it was in the training set.",
        f"The method holds {facts.holds}. The model also holds the mean connectome of the source sites, "
        f"the ranges above (each limit is a value that {PARTICIPANTS_BEHIND} participants reach, or computed from "
        f"quartiles of {LEAST_PARTICIPANTS} or more), the numbers of scans of each site and class"
        f"{', and what it reads, averaged over source scans' if model.patterns else ''}.",
        f"It holds a short salted digest of each of the {training.n_scans} scans it was fitted to{sessions}{local}, by "
        "which it recognises them and flags their predictions. Nothing of a scan can be computed from its digest, but "
        "who has the same file, bit by bit, can tell for certain that it was among them.",
        "## Settings",
        "\n".join(f"- `{name}`: {value}" for name, value in vars(model.method.settings).items()),
    ]
    return "\n\n".join(lines) + "\n"


def _describe_reasons(evidence: Evidence | None) -> list[str]:
    """Say what is a flag and what a note, and how participants with each reason did at left-out sites."""
    always = (
        "Scans of another atlas, with regions in another order, or of noise are flagged (`foreign`), and so are scans "
        "that the model has seen (`known`)."
    )
    if evidence is None or not evidence.reasons:
        return [f"{always} Other differences are notes: whether they matter was not tested."]
    rows = [
        [
            f"`{one.code}`: {REASONS[one.code]}",
            str(one.n),
            str(one.n_sites),
            format_percent(one.accuracy),
            format_percent(one.accuracy_without),
            "not tested" if one.p is None else format_p(one.p),
            "flag" if one.is_flag else "note",
        ]
        for one in evidence.reasons
    ]
    header = ["difference", "participants with it", "sites", "accuracy, %", "of others, %", "p", "counts as"]
    return [
        f"{always} Other differences are flags where participants with them did worse at left-out sites (one-sided z "
        f"test of the accuracy, variance over participants or over sites, p < {LEVEL}; at least {LEAST_WITH_REASON} "
        f"participants of {LEAST_SITES} sites), else notes.",
        format_table(header, rows),
    ]


def _describe_evidence(evidence: Evidence | None) -> list[str]:
    if evidence is None:
        return ["**Not evaluated.** Fit it with `--evidence RESULTS` or `--evaluate` to know."]
    auc, weighted = (one.write(format_percent, " %") for one in (evidence.auc, evidence.pair_weighted_auc))
    slope, intercept = (one.write("{:.2f}".format) for one in (evidence.slope, evidence.intercept))
    lines = [
        f"- Leave one site out: {evidence.n_participants} participants of {format_count(evidence.n_sites, 'site')}, "
        f"{format_count(evidence.n_seeds, 'seed')}.",
        f"- AUC, mean over {evidence.averaged_sites}: {auc}. Pair-weighted: {weighted}.",
        f"- Accuracy: {evidence.accuracy_in_words}. Brier score {evidence.brier:.3f}.",
        f"- Calibration slope {slope} (perfect: 1), intercept {intercept} (perfect: 0).",
    ]
    rows = [
        [f"{p.coverage:.0%}", f"{format_percent(p.accuracy)} % ({p.n_right} of {p.n})", f"{p.threshold:.2f}"]
        for p in evidence.risk
        if round(20 * p.coverage) % 4 == 0
    ]
    table = format_table(["largest absolute logits", "accuracy", "absolute logit at least"], rows)
    differences = [f"**The evidence differs from the model: {words}.**" for words in evidence.differences]
    smoke = [f"**{evidence.smoke_note}**"] if evidence.smoke_note else []
    rule = choose_rule(evidence.rules, DEFAULT_ACCURACY)
    calls = f"No rule calls a tenth of the participants with an accuracy of {DEFAULT_ACCURACY:.0%}."
    if rule is not None:
        calls = (
            f"`predicted` names a class where the absolute logit is at least {rule.threshold:.2f} (for a wanted "
            f"accuracy of {DEFAULT_ACCURACY:.0%}) and the scan has no flag. At left-out sites: {rule.describe()}."
        )
    return [*smoke, "\n".join(lines), table, calls, *differences]


def _describe_range(limits: tuple[float, ...] | None, unit: str) -> str:
    if limits is None:
        return "unknown"
    return f"{limits[0]:.3g} {unit}" if limits[0] == limits[1] else f"{limits[0]:.3g} to {limits[1]:.3g} {unit}"
