"""The files of a job and nothing else: typed records, aggregation from seeds to sites, formatting.

No other room reads or writes these files.
"""

from ..storage import lock_folder
from .aggregate import (
    average_seeds,
    mean_correction,
    name_units,
    summarise_ensemble,
    summarise_metrics,
    summarise_scores,
    unit_columns,
)
from .cohort_files import GROUP_COLUMNS
from .job import StoredJob, StoredRun, write_plan
from .people import ESTIMANDS, MEAN_OVER_SITES, PAIR_WEIGHTED, assess_auc, compare_over_people
from .plan import Plan, PlannedMethod, TunedChoice
from .run_record import Predictions, RunRecord, RunRow
from .sites import collect_areas, covariance_rows, describe_calibration, site_rows
from .store import RunStore
from .study import StoredStudy, StudyOptions, StudyRecord
from .summarise import FULL_SEEDS, changed_settings, summarise
from .summary import INTERVALS, METRICS, MethodSummary, MetricSummary, Summary, TuningBudget, describe_smoke_run
from .tables import COLUMNS, prediction_rows, read_results, result_rows, write_tables
from .tuning import TuningRecord

__all__ = [
    "COLUMNS",
    "ESTIMANDS",
    "FULL_SEEDS",
    "GROUP_COLUMNS",
    "INTERVALS",
    "MEAN_OVER_SITES",
    "METRICS",
    "PAIR_WEIGHTED",
    "MethodSummary",
    "MetricSummary",
    "Plan",
    "PlannedMethod",
    "Predictions",
    "RunRecord",
    "RunRow",
    "RunStore",
    "StoredJob",
    "StoredRun",
    "StoredStudy",
    "StudyOptions",
    "StudyRecord",
    "Summary",
    "TunedChoice",
    "TuningBudget",
    "TuningRecord",
    "assess_auc",
    "average_seeds",
    "changed_settings",
    "collect_areas",
    "compare_over_people",
    "covariance_rows",
    "describe_calibration",
    "describe_smoke_run",
    "lock_folder",
    "mean_correction",
    "name_units",
    "prediction_rows",
    "read_results",
    "result_rows",
    "site_rows",
    "summarise",
    "summarise_ensemble",
    "summarise_metrics",
    "summarise_scores",
    "unit_columns",
    "write_plan",
    "write_tables",
]
