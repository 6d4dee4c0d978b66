"""The contents of a report, gathered once for the page and the model card."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cohort import AuditLine, build_cohort_table, list_audit_lines
from .evidence import Evidence, read_evidence
from .ranking import Comparison, compare_arms
from .repeat import list_commands, list_versions
from .verdict import write_verdict

__all__ = ["ReportContents", "gather_contents"]


@dataclass(frozen=True, eq=False)
class ReportContents:
    """What the page and the model card both say.

    Attributes
    ----------
    evidence : Evidence
    comparison : Comparison
        Of the main arms.
    verdict : list of str
        Three sentences.
    cohort : dict or None
        See :func:`brio.report.cohort.build_cohort_table`.
    audit_lines : list of AuditLine
    commands : list of str
        That compute the results again.
    versions : list of (str, str)
    """

    evidence: Evidence
    comparison: Comparison
    verdict: list[str]
    cohort: dict[str, Any] | None
    audit_lines: list[AuditLine]
    commands: list[str]
    versions: list[tuple[str, str]]

    @property
    def title(self) -> str:
        """The name of the cohort, else that of the folder."""
        main = self.evidence.main
        return main[0].job.summary.cohort if main else self.evidence.folder.resolve().name


def gather_contents(folder: Path) -> ReportContents:
    """Read a folder of results and gather what a report says about it.

    Parameters
    ----------
    folder : Path
        Of ``brio run``, ``brio tune`` or ``brio study``.

    Returns
    -------
    ReportContents

    Raises
    ------
    BrioError
        If the folder holds no finished results, or a file in it cannot be read.
    """
    evidence = read_evidence(folder)
    comparison = compare_arms(evidence.main)
    return ReportContents(
        evidence=evidence,
        comparison=comparison,
        verdict=write_verdict(evidence, comparison),
        cohort=build_cohort_table(evidence),
        audit_lines=list_audit_lines(evidence.audited) if evidence.audited else [],
        commands=list_commands(evidence),
        versions=list_versions(evidence),
    )
