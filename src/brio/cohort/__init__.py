"""Cohorts: scans with their participants and atlas, readers of file layouts, the audit and the simulator."""

from .atlas import Atlas, load_bundled_atlas
from .auditing import Audit, AuditRules, audit, format_audit
from .cohort import Cohort, write_cohort
from .covariates import leave_out_sites, relabel
from .scans import find_extraction

__all__ = ["Atlas", "Audit", "AuditRules", "Cohort", "audit", "find_extraction", "format_audit", "leave_out_sites"]
__all__ += ["load_bundled_atlas", "relabel", "write_cohort"]
