"""Cohorts: ragged scans with participants and atlas, readers of real file layouts, audit and simulator."""

from .atlas import Atlas, bundled_atlas
from .auditing import Audit, AuditRules, audit
from .cohort import Cohort
from .writer import CohortWriter

__all__ = ["Atlas", "Audit", "AuditRules", "Cohort", "CohortWriter", "audit", "bundled_atlas"]
