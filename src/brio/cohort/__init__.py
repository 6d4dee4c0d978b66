"""Cohorts: scans with their participants and atlas, readers of file layouts, the audit and the simulator."""

from .atlas import Atlas, load_bundled_atlas
from .auditing import Audit, AuditRules, audit, format_audit
from .cohort import Cohort, write_cohort
from .covariates import leave_out_sites, relabel

__all__ = ["Atlas", "Audit", "AuditRules", "Cohort", "audit", "format_audit", "load_bundled_atlas"]
__all__ += ["leave_out_sites", "relabel", "write_cohort"]
