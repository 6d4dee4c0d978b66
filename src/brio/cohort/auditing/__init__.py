"""The audit of a cohort: defects, associations with the site, and proposed exclusions."""

from .audit import Audit, AuditRules, audit, format_audit

__all__ = ["Audit", "AuditRules", "audit", "format_audit"]
