"""The HTML page: the contents of a report, drawn by the template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...version import __version__
from ..cohort import list_exclusions
from ..contents import ReportContents
from ..evidence import EvidenceArm
from ..ranking import compare_arms
from ..repeat import describe_settings, wrap_command
from .answers import build_answers
from .brain import describe_brain
from .factors import RunFactors, read_factors, summarise_qualification
from .figures import (
    ArmStyle,
    assign_styles,
    build_calibration,
    build_forest,
    build_result_table,
    build_roc,
    build_training,
)
from .sections import list_sections
from .studies import describe_study
from .template import fill_template

MAX_BYTES = 5_000_000
"""Above this size the page is written without the interactive brain."""


def render_page(contents: ReportContents) -> str:
    """Render the report as one HTML page that needs no network and no other file."""
    context = _build_context(contents)
    page = _render(context)
    brain = context["brain"]
    if len(page.encode()) > MAX_BYTES and brain and brain["page"]:
        brain["page"] = None
        brain["missing"] = f"The interactive brain is left out to keep this page under {MAX_BYTES // 1_000_000} MB."
        page = _render(context)
    return page


def _build_context(contents: ReportContents) -> dict[str, Any]:
    """Build the variables of the template."""
    evidence, comparison = contents.evidence, contents.comparison
    main, facts = evidence.main, evidence.cohort_facts
    other_protocol = [arm for arm in evidence.arms if arm.protocol != evidence.protocol]
    styles = assign_styles([*main, *evidence.varied, *other_protocol], comparison)
    ordered = sorted(main, key=lambda arm: styles[arm.name].key)
    factors = _collect_factors(ordered)
    training = _build_panels(ordered, styles, build_training)
    with_curves = {panel["style"].name for panel in training}
    context = {
        "version": __version__,
        "contents": contents,
        "evidence": evidence,
        "comparison": comparison,
        "cohort": contents.cohort,
        "summary": main[0].job.summary if main else None,
        "classes": evidence.classes,
        "is_smoke_run": bool(contents.smoke_reason),
        "answers": build_answers(contents),
        "unit": "site" if evidence.protocol == "loso" else "fold",
        "styles": styles,
        "main_styles": [styles[arm.name] for arm in ordered],
        "n_methods": len({arm.method for arm in ordered}),
        "results": build_result_table(main, comparison, evidence.given_label) if main else None,
        "other_protocol": _build_further_table(other_protocol),
        "varied": _build_further_table(evidence.varied),
        "forest": build_forest(main, styles, facts) if main else None,
        "roc": _build_panels(ordered, styles, build_roc),
        "calibration": _build_panels(ordered, styles, build_calibration),
        "training": training,
        "without_curves": [arm.name for arm in ordered if arm.summary.epochs and arm.name not in with_curves],
        "has_factor_methods": any(arm.summary.family == "BRIO" for arm in main),
        "qualification": {name: summarise_qualification(runs, evidence.protocol) for name, runs in factors.items()},
        "brain": describe_brain(*next(iter(factors.items())), facts) if factors else None,
        "studies": [describe_study(study) for study in evidence.studies],
        "exclusions": list_exclusions(evidence),
        "exclusions_applied": not main or main[0].plan.audit is not None,
        "settings": [describe_settings(arm) for arm in ordered],
        "commands": [wrap_command(command) for command in contents.commands],
    }
    return context | {"sections": list_sections(contents, context)}


def _build_panels(
    arms: Sequence[EvidenceArm],
    styles: dict[str, ArmStyle],
    build: Callable[[EvidenceArm], dict[str, Any] | None],
) -> list[dict[str, Any]]:
    """Build one small chart for each arm that has the data for it."""
    charts = [(styles[arm.name], build(arm)) for arm in arms]
    return [{"style": style, **chart} for style, chart in charts if chart is not None]


def _build_further_table(arms: list[EvidenceArm]) -> dict[str, Any] | None:
    """Build the table of arms that are not main: of the other protocol, or with other settings."""
    if not arms:
        return None
    comparison = compare_arms([arm for arm in arms if arm.plain])
    return {"table": build_result_table(arms, comparison), "comparison": comparison}


def _collect_factors(arms: list[EvidenceArm]) -> dict[str, list[RunFactors]]:
    """Read the factors of the arms that have them, without ablations: these have no qualification to show."""
    factors = {}
    for arm in arms:
        settings = arm.plan.methods[arm.method].settings
        if settings.get("variant", "full") == "full" and (runs := read_factors(arm)):
            factors[arm.name] = runs
    return factors


def _render(context: dict[str, Any]) -> str:
    return fill_template(
        "report.html.j2",
        context,
        styles=("report.css", "report_media.css"),
        scripts=("tables.js", "answers.js", "report.js"),
    )
