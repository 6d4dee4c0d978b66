"""MODEL_CARD.md: what was evaluated, on whom, how well, and what it is not for."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ..results.format import format_table
from ..version import __version__
from .html.cohort import cohort_section, findings
from .html.figures import calibration_gap
from .html.reading import Evidence, EvidenceArm
from .html.repeat import commands, versions
from .html.verdict import Comparison, comparison, verdict
from .html.words import count, interval, listed, percent

__all__ = ["model_card"]

_COLUMNS = (
    ("accuracy", "acc"),
    ("balanced", "balanced_acc"),
    ("sensitivity", "sensitivity"),
    ("specificity", "specificity"),
    ("Brier", "brier"),
)


def model_card(evidence: Evidence, found: Comparison | None = None) -> str:
    """A model card in Markdown, with the headings of Mitchell et al. 2019; every number comes from the results.

    Nobody is named in it.

    References
    ----------
    Mitchell et al., Model Cards for Model Reporting, FAT* 2019.
    """
    found = comparison(evidence.main) if found is None else found
    parts = {
        "In three sentences": [f"- {_plain(sentence)}" for sentence in verdict(evidence, found)],
        "Model details": _details(evidence),
        "Intended use": _use(evidence),
        "Data": _data(evidence),
        "Evaluation": _evaluation(evidence),
        "Limits": _limits(evidence, found),
        "Repeat": _repeat(evidence),
    }
    written = [_head(evidence, found), *(f"## {heading}\n\n" + "\n".join(lines) for heading, lines in parts.items())]
    return "\n\n".join(written) + "\n"


def _plain(text: str) -> str:
    """Text from data as Markdown that means nothing but itself."""
    quiet = html.escape(" ".join(text.split()), quote=False)
    for mark in ("\\", "|", "*", "`", "[", "]"):
        quiet = quiet.replace(mark, "\\" + mark)
    return quiet


def _head(evidence: Evidence, found: Comparison) -> str:
    names = [arm.name for arm in found.ranked] or [arm.name for arm in evidence.arms]
    cohort = evidence.main[0].job.summary.cohort if evidence.main else evidence.folder.resolve().name
    title = f"# Model card: {_plain(listed(names, most=4))} on {_plain(cohort)}"
    return f"{title}\n\nWritten by brio {__version__} from the results."


def _details(evidence: Evidence) -> list[str]:
    lines = []
    for arm in evidence.main:
        planned = arm.plan.methods[arm.method]
        facts = [arm.summary.family, arm.summary.provenance, f"version {planned.version}"]
        facts += [f"needs {', '.join(arm.summary.needs)}"] if arm.summary.needs else []
        facts += ["sees no connectome: a control"] if arm.control else []
        facts += ["is given unlabelled scans of the site it is tested on"] if arm.summary.transductive else []
        lines.append(f"- **{_plain(arm.name)}**: {_plain('; '.join(f for f in facts if f))}")
    return lines or ["No methods were run here."]


def _use(evidence: Evidence) -> list[str]:
    cohort = cohort_section(evidence)
    classes = " from ".join(reversed(cohort["classes"])) if cohort else "one class from the other"
    return [
        f"Research on how well connectomes tell {_plain(classes)} across sites, and on methods for it.",
        "",
        "**Not** for diagnosis, screening, prognosis or any decision about a person: it is not a medical device, was "
        "not tested as one, and describes groups of scans. Scanners, preprocessing or populations unlike those below "
        "are outside of what was measured.",
    ]


def _data(evidence: Evidence) -> list[str]:
    job, cohort = evidence.audited, cohort_section(evidence)
    if job is None:
        return ["Not described in this folder."]
    summary = job.summary
    lines = [
        f"{_plain(summary.cohort)}, atlas {_plain(summary.atlas)}, fingerprint `{summary.fingerprint[:16]}`: "
        f"{count(summary.n_scans, 'scan')} used, {len(job.require_plan().excluded)} left out by the audit.",
    ]
    if cohort:
        first, second = (_plain(name) for name in cohort["classes"])
        rows = [(row["site"], *map(str, row["n"]), row["frames"] or "–") for row in cohort["rows"]]
        lines += ["", *_table(("site", first, second, "frames"), rows)]
    lines += ["", *(f"- {'**Warning:** ' if level == 'warn' else ''}{_plain(text)}" for level, text in findings(job))]
    return lines


def _evaluation(evidence: Evidence) -> list[str]:
    if not evidence.main:
        return ["Nothing was evaluated."]
    summary = evidence.main[0].job.summary
    unseen = evidence.protocol == "loso"
    units = count(len(summary.folds), "site" if unseen else "fold")
    how = (
        f"Leave one site out: each of {units} is tested by models that never saw it"
        if unseen
        else f"k-fold: {units}, every site seen in training"
    )
    seeds = count(len(summary.seeds), "seed")
    rows = [_row(arm) for arm in sorted(evidence.main, key=lambda a: -(a.summary.auc.mean or 0.0))]
    return [
        f"{how}; {seeds}. Checkpoints, penalties and settings are chosen on validation scans or on source sites left "
        "out in turn, never on test scans. "
        f"Percent, mean over {'sites' if unseen else 'folds'}; the interval draws them again.",
        "",
        *_table(("method", "AUC", "95 % interval", *(title for title, _ in _COLUMNS), "calibration error"), rows),
    ]


def _row(arm: EvidenceArm) -> tuple[str, ...]:
    auc = arm.summary.auc
    rest = (percent(arm.summary.metric(name).mean) for _, name in _COLUMNS)
    return arm.name, percent(auc.mean), interval(auc.interval), *rest, percent(calibration_gap(arm))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return format_table(header, [[_plain(cell) for cell in row] for row in rows]).splitlines()


def _limits(evidence: Evidence, found: Comparison) -> list[str]:
    lines = []
    if found.ranked:
        best = found.ranked[0]
        if best.job.summary.smoke_run:
            lines.append("- A smoke run: too few seeds or folds for any claim.")
        scores = best.rows.groupby("fold")["auc"].mean().dropna()
        if len(scores) > 1:
            low, high = scores.idxmin(), scores.idxmax()
            lines.append(
                f"- {_plain(best.name)} ranges from {percent(float(scores[low]))} ({_plain(str(low))}) to "
                f"{percent(float(scores[high]))} ({_plain(str(high))}): the mean promises nothing about one site."
            )
        if len(found.ranked) > 1:
            lines.append("- The best of several methods on the same test scans looks a little better than it is.")
        for fold, why in best.summary.without_auc.items():
            lines.append(f"- {_plain(str(fold))} has no AUC: {_plain(str(why))}.")
    for arm in evidence.main:
        if arm.control and arm.summary.is_above_chance:
            lines.append(
                f"- {_plain(arm.name)} is above chance ({percent(arm.summary.auc.mean)}) without a connectome: "
                "part of any score may be that."
            )
    if evidence.unfinished:
        lines.append(f"- Not finished: {_plain(listed(evidence.unfinished, most=12))}.")
    return lines or ["- See the report."]


def _repeat(evidence: Evidence) -> list[str]:
    # indented, since no name that a command holds can end such a block
    lines = [f"    {' '.join(line.split())}" for line in commands(evidence)]
    return [*lines, "", ", ".join(_plain(f"{name} {version}") for name, version in versions(evidence)) + "."]
