"""Comparison of the methods of several jobs over sites and over participants, as text and as tables to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ..errors import BrioError
from ..results import (
    INTERVALS,
    MEAN_OVER_SITES,
    PAIR_WEIGHTED,
    StoredJob,
    assess_auc,
    average_seeds,
    compare_over_people,
    covariance_rows,
    mean_correction,
    summarise_scores,
    unit_columns,
)
from ..results.files import PLAN, SUMMARY
from ..results.format import MISSING, format_interval, format_p, format_percent, format_points, format_table
from ..results.people import compute_chance_p
from ..results.sites import COVARIANCE_COLUMNS, SITE_COLUMNS, read_covariances, write_site_tables
from .comparisons import (
    PROTOCOL_NAMES,
    check_same_folds,
    comparison_table,
    join_jobs,
    label_folders,
    mark_smoke_runs,
    name_methods,
)
from .ranking import LINEAR_METHODS

OVER_PEOPLE = (
    "Over participants, with the sites fixed: for new ones at these sites, not for new sites (DeLong's variance, "
    "corrected for shared training scans). The test of a pair is the one over sites."
)


@dataclass(frozen=True, eq=False)
class JoinedJobs:
    """The methods of several jobs of one cohort under one protocol."""

    rows: pd.DataFrame  # one row per run, see brio.report.join_jobs
    sites: pd.DataFrame
    covariances: pd.DataFrame
    smoke_note: str = ""  # which jobs are smoke runs, which are not tested; empty where none is

    @property
    def protocol(self) -> str:
        """``"loso"`` or ``"kfold"``."""
        return str(self.rows["protocol"].iloc[0])


def gather_jobs(jobs: Sequence[StoredJob]) -> JoinedJobs:
    """Join jobs for a comparison; covariances between methods of different jobs are computed from their predictions.

    Where predictions were not kept, ``covariances.csv`` in the folder of a job, or in the folder above it, serves.
    """
    labels = label_folders([job.folder for job in jobs])
    check_same_folds({label: job.summary for label, job in zip(labels, jobs, strict=True)})
    frames = {label: job.rows for label, job in zip(labels, jobs, strict=True)}
    rows = join_jobs(frames)
    if rows[["cohort", "protocol"]].drop_duplicates().shape[0] != 1:
        raise BrioError("these jobs are of several cohorts or protocols; compare those of one at a time")
    names = name_methods(frames)
    predictions, sites, covariances = [], [], []
    for label, job in zip(labels, jobs, strict=True):
        own = {method: names[label, method] for method in job.summary.methods}
        if job.predictions is not None:
            predictions.append(_rename(job.predictions, own))
        elif job.covariances is not None:
            covariances.append(_rename(job.covariances, own))
        if job.sites is not None:
            sites.append(_rename(job.sites, own))
    if predictions:
        together = pd.concat(predictions, ignore_index=True)
        together = together.drop_duplicates(["method", "fold", "seed", "participant_id"])
        covariances.insert(0, covariance_rows(together, str(rows["protocol"].iloc[0])))
    above = [read_covariances(folder) for folder in dict.fromkeys(job.folder.resolve().parent for job in jobs)]
    covariances += [table for table in above if table is not None]
    return JoinedJobs(
        rows=rows,
        sites=_concatenate(sites, ["method", "seed", "fold"], SITE_COLUMNS),
        covariances=_concatenate(covariances, ["method", "other", "fold"], COVARIANCE_COLUMNS),
        smoke_note=mark_smoke_runs({label: job.summary for label, job in zip(labels, jobs, strict=True)}),
    )


def _rename(table: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    return table.assign(**{c: table[c].map(names) for c in ("method", "other") if c in table})


def _concatenate(tables: list[pd.DataFrame], keys: list[str], columns: list[str]) -> pd.DataFrame:
    """Join tables; of rows with the same keys, the first is kept."""
    filled = [table for table in tables if len(table)]
    if not filled:
        return pd.DataFrame(columns=columns)
    return pd.concat(filled, ignore_index=True).drop_duplicates(keys, ignore_index=True)


def write_joined_tables(joined: JoinedJobs, folder: Path) -> None:
    """Write ``sites.csv`` and ``covariances.csv`` of joined jobs; they name no participant."""
    if joined.sites.empty:
        raise BrioError("none of the jobs has predictions.csv or sites.csv, so there is nothing to write; run again")
    if any((folder / name).exists() for name in (PLAN, SUMMARY)):
        raise BrioError(f"{folder}: is the folder of a job, which has these tables of its own; choose another --out")
    write_site_tables(folder, joined.sites, joined.covariances)


def compare_jobs(joined: JoinedJobs, reference: str | None = None, alpha: float = 0.05) -> str:
    """Write how methods of joined jobs compare with chance and with a reference, over sites and participants."""
    methods = list(dict.fromkeys(joined.rows["method"]))
    if reference is None:
        reference = next((name for name in LINEAR_METHODS if name in methods), methods[0])
    parts = [f"{joined.smoke_note}\n"] if joined.smoke_note else []
    parts.append(_write_scores(joined))
    if len(methods) > 1:
        parts.append(comparison_table(joined.rows, reference, alpha=alpha, tested=not joined.smoke_note))
        parts.append(_write_people(joined, reference, alpha))
    return "\n".join(parts)


def _write_scores(joined: JoinedJobs) -> str:
    """Write both means of the AUC of each method with their intervals, and the tests against chance."""
    rows, protocol = joined.rows, joined.protocol
    units = "sites" if protocol == "loso" else "folds"
    scores = average_seeds(rows, units=unit_columns(protocol))
    header = ["method", f"AUC, mean over {units}", f"95 % interval, {INTERVALS[protocol]}", f"p, chance, {units}"]
    if protocol == "loso":
        header[3:] = ["at a new site", "95 % interval, participants", "AUC, pair-weighted"]
        header += ["95 % interval, participants", "p, chance"]
    lines = []
    for name in scores:
        own = rows[rows["method"] == name]
        summary = summarise_scores(scores[name], mean_correction(own, protocol), limits=(0.0, 1.0))
        line = [str(name), format_percent(summary.mean), format_interval(summary.interval)]
        p = format_p(compute_chance_p(scores[name], own, protocol))
        if protocol == "kfold":
            lines.append([*line, p])
            continue
        line.append(format_interval(summary.new_site_interval))
        tests = assess_auc(joined.sites, joined.covariances, str(name))
        if not tests:
            lines.append([*line, *[MISSING] * 3, p])
            continue
        mean, pairs = tests[MEAN_OVER_SITES], tests[PAIR_WEIGHTED]
        line += [format_interval([mean.low, mean.high]), format_percent(pairs.mean)]
        lines.append([*line, format_interval([pairs.low, pairs.high]), p])
    title = f"AUC in percent: {rows['cohort'].iloc[0]}, {PROTOCOL_NAMES[protocol]}"
    notes = [f"p against chance: two-sided corrected t test over {units}, not corrected for the number of methods."]
    if joined.smoke_note:
        header, lines, notes = header[:-1], [line[:-1] for line in lines], []
    if protocol == "loso":
        notes += [
            "At a new site: 95 % prediction interval of the AUC at one new site of a size like these.",
            OVER_PEOPLE,
        ]
    return "\n".join([title, "", format_table(header, lines), "", *notes]) + "\n"


def _write_people(joined: JoinedJobs, reference: str, alpha: float) -> str:
    """Write the differences over participants, or why there are none."""
    if joined.protocol == "kfold":
        return (
            "Not compared over participants: under k-fold the models of different folds share training scans, and "
            "intervals over participants are too narrow.\n"
        )
    table = compare_over_people(joined.sites, joined.covariances, reference, alpha=alpha)
    methods = [name for name in dict.fromkeys(joined.rows["method"]) if name != reference]
    without = [name for name in methods if name not in set(table["method"])]
    header = ["method", "estimand", "sites", "difference", f"{100 * (1 - alpha):g} % interval"]
    lines = [
        [
            str(row.method),
            str(row.estimand),
            str(row.n_sites),
            format_points(row.mean_difference),
            format_interval([row.low, row.high], format_points),
        ]
        for row in table.itertuples()
    ]
    texts = []
    if lines:
        title = f"Difference in AUC to {reference}, in points, over participants at these sites"
        texts += [title, "", format_table(header, lines), "", OVER_PEOPLE]
    if without:
        texts.append(
            f"No covariance with {reference} is stored for {', '.join(without)}: give the folders with their "
            "predictions.csv, or keep covariances with 'brio compare FOLDERS --out DIR'."
        )
    return "\n".join(texts) + "\n"
