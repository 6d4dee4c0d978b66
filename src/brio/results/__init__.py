"""The files of a job and nothing else: typed records, the store of runs, summaries from seeds to sites.

No other package reads or writes these files.
"""

from ..storage import lock_folder
from .cohort import GROUP_COLUMNS
from .job import COLUMNS, StoredJob, StoredRun, prediction_rows, result_rows, score_run, write_plan, write_tables
from .records import (
    INTERVALS,
    LEAST_PER_CLASS,
    METRICS,
    MethodSummary,
    MetricSummary,
    Plan,
    PlannedMethod,
    Predictions,
    RunRecord,
    RunRow,
    StoredStudy,
    StudyOptions,
    StudyRecord,
    Summary,
    TuningRecord,
    describe_smoke_run,
    explain_no_claim,
)
from .store import RunStore
from .summarise import (
    ESTIMANDS,
    FULL_SEEDS,
    MEAN_OVER_SITES,
    PAIR_WEIGHTED,
    assess_auc,
    average_seeds,
    compare_over_people,
    covariance_rows,
    describe_calibration,
    mean_correction,
    name_units,
    site_rows,
    summarise,
    summarise_metrics,
    summarise_scores,
    unit_columns,
)

__all__ = ["lock_folder"]
__all__ += ["GROUP_COLUMNS"]
__all__ += ["COLUMNS", "StoredJob", "StoredRun", "prediction_rows", "result_rows", "score_run"]
__all__ += ["write_plan", "write_tables"]
__all__ += ["INTERVALS", "METRICS", "MethodSummary", "MetricSummary", "Plan", "PlannedMethod", "Predictions"]
__all__ += ["RunRecord", "RunRow", "StoredStudy", "StudyOptions", "StudyRecord", "Summary", "TuningRecord"]
__all__ += ["LEAST_PER_CLASS", "describe_smoke_run", "explain_no_claim"]
__all__ += ["RunStore"]
__all__ += ["ESTIMANDS", "FULL_SEEDS", "MEAN_OVER_SITES", "PAIR_WEIGHTED", "assess_auc", "average_seeds"]
__all__ += ["compare_over_people", "covariance_rows", "describe_calibration", "mean_correction", "name_units"]
__all__ += ["site_rows", "summarise", "summarise_metrics", "summarise_scores", "unit_columns"]
