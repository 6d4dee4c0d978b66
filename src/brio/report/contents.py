"""The contents of a report, gathered once for the page and the model card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cohort import AuditLine, Subgroup, build_cohort_table, list_audit_lines, score_subgroups
from .comparisons import Comparison, compare_arms
from .evidence import Evidence, read_evidence
from .repeat import list_commands, list_versions
from .verdict import Answers, Usability, describe_answers, find_smoke_reason, judge_usability, write_verdict


@dataclass(frozen=True, eq=False)
class ReportContents:
    """What the page and the model card both say."""

    evidence: Evidence
    comparison: Comparison  # of the main arms
    verdict: list[str]  # three sentences
    smoke_reason: str  # why these numbers are a smoke run, which is not tested; empty where they are not
    usability: Usability  # whether answers about one person can be used, and why not
    answers: Answers | None  # what answers of the best method mean; None where nothing is ranked
    subgroups: list[Subgroup]  # scores of the best method within groups
    cohort: dict[str, Any] | None  # see brio.report.cohort.build_cohort_table
    audit_lines: list[AuditLine]
    commands: list[str]  # that compute the results again
    versions: list[tuple[str, str]]

    @property
    def title(self) -> str:
        """The name of the cohort, else that of the folder."""
        main = self.evidence.main
        return main[0].job.summary.cohort if main else self.evidence.folder.resolve().name

    @property
    def selection(self) -> str:
        """By what checkpoints and settings were chosen."""
        if self.evidence.has_validation_scans:
            return "Checkpoints and settings are chosen on validation scans or inner folds, never on test scans."
        return (
            "Numbers of epochs and settings are chosen on inner folds over source scans, never on test scans; "
            "there are no validation scans."
        )


def gather_contents(folder: Path) -> ReportContents:
    """Read a folder of results and gather what a report says about it."""
    evidence = read_evidence(folder)
    comparison = compare_arms(evidence.main)
    smoke_reason = find_smoke_reason(evidence, comparison)
    answers = describe_answers(comparison.ranked[0]) if comparison.ranked else None
    skip = ("sex",) if evidence.label_is_sex else ()
    return ReportContents(
        evidence=evidence,
        comparison=comparison,
        verdict=write_verdict(evidence, comparison),
        smoke_reason=smoke_reason,
        usability=judge_usability(answers, evidence.classes, smoke_reason),
        answers=answers,
        subgroups=score_subgroups(answers.arm, skip=skip) if answers else [],
        cohort=build_cohort_table(evidence),
        audit_lines=list_audit_lines(evidence.audited, evidence.classes) if evidence.audited else [],
        commands=list_commands(evidence),
        versions=list_versions(evidence),
    )
