"""Cohorts: ragged scans with participants and atlas, readers of real file layouts, audit and simulator."""

from .atlas import Atlas, bundled_atlas
from .cohort import Cohort
from .writer import CohortWriter

__all__ = ["Atlas", "Cohort", "CohortWriter", "bundled_atlas"]
