"""The audit of a cohort: what is wrong with it, what goes with what, and which scans to leave out."""

from .audit import Audit, audit
from .exclusions import AuditRules

__all__ = ["Audit", "AuditRules", "audit"]
