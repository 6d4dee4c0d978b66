"""Write a report: the page and the model card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import BrioError
from ..formatting import (
    MISSING,
    escape_marks,
    format_count,
    format_interval,
    format_percent,
    format_table,
    join_names,
)
from ..formatting import escape_markdown as _escape
from ..storage import make_folders, remove_leftovers, write_atomically
from ..version import __version__
from .evidence import Evidence, read_evidence
from .html.page import render_page
from .verdict import write_verdict

_METRICS = {
    "accuracy": "acc",
    "balanced accuracy": "balanced_acc",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "Brier score": "brier",
}


def write_model_card(evidence: Evidence) -> str:
    """Write a model card in Markdown, with the headings of Mitchell et al. 2019.

    It names no participant.
    """
    methods = join_names([arm.name for arm in evidence.comparison.ranked or evidence.arms], most=4)
    versions = ", ".join(_escape(f"{name} {version}") for name, version in evidence.versions)
    sections = {
        "Summary": [f"- {_escape(sentence)}" for sentence in write_verdict(evidence)],
        "Model details": _describe_methods(evidence),
        "Intended use": [
            f"Usable for one person? {_escape(evidence.usability.sentence)}",
            "",
            "Research on how well functional connectomes separate the classes "
            f"{_escape(evidence.classes.positive)} and {_escape(evidence.classes.negative)} across sites.",
            "",
            "**Not** for diagnosis, screening, prognosis or any decision about a person. This is not a medical device "
            "and was not tested as one: the results describe groups of scans. They do not extend to scanners, "
            "preprocessing or populations unlike those below.",
        ],
        "Data": _describe_data(evidence),
        "Evaluation": _describe_evaluation(evidence),
        "Limitations": _describe_limitations(evidence),
        # an indented block: no name inside a command can end it
        "Reproduce": [*(f"    {' '.join(command.split())}" for command in evidence.commands), "", f"{versions}."],
    }
    texts = [f"## {heading}\n\n" + "\n".join(lines) for heading, lines in sections.items()]
    title = f"# Model card: {_escape(methods)} on {_escape(evidence.title)}"
    return "\n\n".join([title, f"Written by brio {__version__} from the stored results.", *texts]) + "\n"


def _format_escaped_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return format_table(
        [escape_marks(cell) for cell in header], [list(map(escape_marks, row)) for row in rows]
    ).splitlines()


def _describe_methods(evidence: Evidence) -> list[str]:
    lines = []
    for arm in evidence.main:
        facts = [arm.summary.family, arm.summary.provenance, f"version {arm.plan.methods[arm.method].version}"]
        facts += [f"needs {', '.join(arm.summary.needs)}"] if arm.summary.needs else []
        facts += ["sees no connectome"] if arm.control else []
        facts += ["uses unlabelled scans of the test site"] if arm.summary.transductive else []
        lines.append(f"- **{_escape(arm.name)}**: {_escape('; '.join(filter(None, facts)))}")
    return lines or ["No method was run here."]


def _describe_data(evidence: Evidence) -> list[str]:
    job = evidence.audited
    if job is None:
        return ["This folder does not describe its cohort."]
    summary, cohort = job.summary, evidence.cohort
    lines = [
        f"{_escape(summary.cohort)}, atlas {_escape(summary.atlas)}, fingerprint `{summary.fingerprint[:16]}`: "
        f"{format_count(summary.n_scans, 'scan')} used, {len(job.require_plan().excluded)} excluded by the audit."
    ]
    if cohort:
        rows = [(row["site"], *map(str, row["n"]), row["frames"] or MISSING) for row in cohort["rows"]]
        lines += ["", *_format_escaped_table(("site", *cohort["classes"], "frames"), rows)]
    marks = {"warn": "**Warning:** "}
    return [*lines, "", *(f"- {marks.get(level, '')}{_escape(text)}" for level, text in evidence.audit_lines)]


def _describe_evaluation(evidence: Evidence) -> list[str]:
    if not evidence.main:
        return ["No method was evaluated."]
    summary, unit = evidence.main[0].job.summary, evidence.main[0].unit
    units, seeds = format_count(len(summary.folds), unit), format_count(len(summary.seeds), "seed")
    protocol = f"k-fold: {units}, scans of every site are used for training"
    if unit == "site":
        protocol = f"Leave one site out: each of {units} is tested by models that were not trained on it"
    header = ("method", "AUC", "95 % interval", "pair-weighted AUC", *_METRICS, "calibration error, pooled")
    rows = []
    for arm in sorted(evidence.main, key=lambda arm: -(arm.summary.auc.mean or 0.0)):
        pairs, metrics = arm.summary.pair_weighted_auc, [arm.summary.metric(name).mean for name in _METRICS.values()]
        shares = [pairs.mean if pairs else None, *metrics, arm.calibration_error]
        auc = [format_percent(arm.summary.auc.mean), format_interval(arm.summary.auc.interval)]
        rows.append([arm.name, *auc, *map(format_percent, shares)])
    return [
        f"{protocol}; {seeds}. {evidence.selection} Values in percent, mean over {unit}s, with 95 % "
        f"intervals ({summary.intervals}); the calibration error is over all test participants and seeds together.",
        "",
        *_format_escaped_table(header, rows),
    ]


def _describe_limitations(evidence: Evidence) -> list[str]:
    lines, ranked = [], evidence.comparison.ranked
    if ranked:
        best, scores = ranked[0], ranked[0].scores
        if best.job.summary.smoke_run:
            lines.append(f"- {best.job.summary.smoke_note}")
        if len(scores) > 1:
            lowest, highest = (
                f"{format_percent(scores[k])} % ({_escape(k)})" for k in (scores.idxmin(), scores.idxmax())
            )
            lines.append(
                f"- The AUC of {_escape(best.name)} ranges from {lowest} to {highest}: the mean does not predict the "
                f"score {'at one site' if best.unit == 'site' else 'in one fold'}."
            )
        if len(ranked) > 1:
            lines.append(
                "- The best of several methods was chosen on the test scans, so its score tends to be too high."
            )
        for fold, reason in best.summary.without_auc.items():
            lines.append(f"- {_escape(str(fold))} has no AUC: {_escape(str(reason))}.")
    for arm in evidence.controls:
        if arm.summary.is_above_chance:
            lines.append(
                f"- {_escape(arm.name)} scored above chance ({format_percent(arm.summary.auc.mean)} %) without "
                "connectomes: part of any score may not come from the brain."
            )
    if evidence.unfinished:
        lines.append(f"- Not finished: {_escape(join_names(evidence.unfinished, most=12))}.")
    return lines or ["- See the report."]


PAGE, CARD = "report.html", "MODEL_CARD.md"
_PAGE_MARK, _CARD_MARK = '<meta name="generator" content="brio ', "\n\nWritten by brio "
"""By which a page and a card that brio wrote are recognised."""


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a folder of results as one HTML file, and ``MODEL_CARD.md`` beside it.

    The page is self-contained and needs no network. Nothing is trained.
    """
    page = Path(folder) / PAGE if out is None else Path(out)
    evidence = read_evidence(Path(folder))
    if page.is_dir():
        raise BrioError(f"{page}: is a folder; give the name of the page, for example {page / PAGE}")
    card = page.with_name(CARD)
    _refuse_foreign(page, _PAGE_MARK)
    _refuse_foreign(card, _CARD_MARK)
    page_text, card_text = render_page(evidence), write_model_card(evidence)
    make_folders(page.parent)
    remove_leftovers(page.parent)
    write_atomically(card, card_text)
    write_atomically(page, page_text)
    return page


def _refuse_foreign(path: Path, mark: str) -> None:
    """Refuse to replace a file that brio did not write."""
    if path.exists() and not path.is_file():  # opening a pipe would wait for a writer
        raise BrioError(f"{path}: is no ordinary file; give another --out")
    try:
        with path.open("rb") as file:
            start = file.read(10_000).decode(errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise BrioError(f"{path}: cannot be read ({error.strerror}); give another --out") from error
    if mark not in start:
        raise BrioError(f"{path}: was not written by brio, and is not replaced; move it, or give another --out")
