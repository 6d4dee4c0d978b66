"""Comparisons of the methods of one or several jobs: ranks, differences over sites and participants, tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from .. import results
from ..errors import BrioError, nearest
from ..formatting import (
    MISSING,
    format_count,
    format_detectable,
    format_interval,
    format_p,
    format_percent,
    format_points,
    format_table,
    join_names,
)
from ..methods import list_methods
from ..methods.registry import DISPLAY_NAMES, rank_block
from ..protocol import EQUIVALENCE_MARGIN, USUAL_VALIDATION_SITES, ProtocolSettings, explain_few_sites
from ..protocol.calibration import RocBand, calibration_error, reliability_curve, roc_band
from ..results import MethodSummary, StoredJob, Summary
from ..results.files import PLAN, SUMMARY
from ..results.job import PredictionRow
from ..results.summarise import (
    COVARIANCE_COLUMNS,
    SITE_COLUMNS,
    add_intervals,
    compare_scores,
    compute_chance_p,
    read_covariances,
    write_site_tables,
)

ALPHA = 0.05


def list_linear_methods() -> list[str]:
    """List the linear methods of brio; the first of them that was run is the reference.

    The order is fixed in advance, because choosing the best of them on the test scans would bias the comparison.
    """
    return [entry.name for entry in list_methods() if entry.linear]


@dataclass(frozen=True, eq=False)
class EvidenceArm:
    """A method with its settings: one row of the results table."""

    name: str  # as the report shows it: the name of the method, or that of the arm where a study changed its settings
    method: str
    job: StoredJob
    plain: bool

    @property
    def title(self) -> str:
        """Its name in sentences and charts."""
        return self.name.replace(self.method, DISPLAY_NAMES.get(self.method, self.method), 1).replace(",", ", ")

    @property
    def summary(self) -> MethodSummary:
        """The scores of the method."""
        return self.job.summary.methods[self.method]

    @property
    def mean_auc(self) -> float:
        """The AUC by which arms are ordered; 0 where there is none."""
        return self.summary.auc.mean or 0.0

    @property
    def planned(self) -> results.PlannedMethod:
        """What the plan of its job says about the method."""
        return self.job.require_plan().methods[self.method]

    @property
    def protocol(self) -> str:
        """``"loso"`` or ``"kfold"``."""
        return self.job.summary.protocol

    @property
    def unit(self) -> str:
        """What one score belongs to: a site, or a fold under k-fold."""
        return "site" if self.protocol == "loso" else "fold"

    @property
    def control(self) -> bool:
        """Whether the method sees no connectome."""
        return self.summary.control

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per run, with the name of the arm as method."""
        return self.job.rows[self.job.rows["method"] == self.method].assign(method=self.name)

    @cached_property
    def scores(self) -> pd.Series:
        """The AUC of every unit that has one, by its name: a test site, or a fold of one seed."""
        scores = results.average_seeds(self.rows, units=results.unit_columns(self.protocol))[self.name]
        return scores.set_axis(results.name_units(scores.index)).dropna()

    @property
    def intervals_of_sites(self) -> dict[str, tuple[float, float]]:
        """The 95% interval of the AUC of every unit over its participants; none of areas without spread."""
        if self.job.sites is None:
            return {}
        sites = add_intervals(self.job.sites[self.job.sites["method"] == self.method]).dropna(subset=["low"])
        names = results.name_units(sites.set_index(results.unit_columns(self.protocol)).index)
        return dict(zip(names, zip(sites["low"], sites["high"], strict=True), strict=True))

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """Predictions for test scans, without runs that diverged; empty where predictions were not stored."""
        if self.job.predictions is None:
            return pd.DataFrame(columns=[f.name for f in fields(PredictionRow)])
        return self.job.predictions[self.job.predictions["method"] == self.method].dropna(subset=["margin"])

    @cached_property
    def calibration_error(self) -> float | None:
        """Expected calibration error over ten bins with equal numbers of predictions; None without predictions."""
        if self.predictions.empty:
            return None
        label, probability = (self.predictions[name].to_numpy(dtype=float) for name in ("label", "probability"))
        return calibration_error(label, probability)

    @cached_property
    def reliability(self) -> list[dict[str, Any]]:
        """Bins of these predictions: observed share with its interval over sites; empty without predictions."""
        if self.predictions.empty:
            return []
        label, probability = (self.predictions[name].to_numpy(dtype=float) for name in ("label", "probability"))
        curve = reliability_curve(label, probability, site=self.predictions["site"].to_numpy())
        return curve[curve["count"] > 0].to_dict("records")

    @cached_property
    def roc(self) -> RocBand | None:
        """The mean ROC curve over sites (or folds) with its band; None where none of them has both classes."""
        correction = results.mean_correction(self.rows, self.protocol)
        try:
            return roc_band(self.predictions, by=results.unit_columns(self.protocol), points=51, correction=correction)
        except BrioError:
            return None

    @property
    def runs(self) -> list[results.StoredRun]:
        """The stored runs of the arm."""
        return [run for run in self.job.runs if run.record.row.method == self.method]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods ranked by mean AUC, and their tests against a reference."""

    ranked: list[EvidenceArm]  # best first; without controls, and without smoke runs unless there are no others
    reference: EvidenceArm | None  # A linear method, else BRIO, else the best method; None where nothing is ranked
    has_linear_reference: bool
    differences: dict[str, dict[str, Any]]

    @property
    def n_methods(self) -> int:
        """Number of methods that are ranked; a method may be ranked tuned and untuned."""
        return len({arm.method for arm in self.ranked})


def compare_arms(arms: Sequence[EvidenceArm]) -> Comparison:
    """Rank the arms of one protocol by their mean AUC and test them against the reference."""
    candidates = [arm for arm in arms if not arm.control and arm.summary.auc.mean is not None]
    scans = Counter(arm.job.summary.fingerprint for arm in candidates).most_common(1)
    candidates = [arm for arm in candidates if arm.job.summary.fingerprint == scans[0][0]]  # others cannot be paired
    complete = [arm for arm in candidates if not arm.job.summary.smoke_run]
    ranked = sorted(complete or candidates, key=lambda arm: -arm.mean_auc)
    if not ranked:
        return Comparison([], None, False, {})
    by_name = {arm.name: arm for arm in ranked}
    names = list_linear_methods()
    linear = next((by_name[name] for name in names if name in by_name), None) or next(
        (arm for name in names for arm in ranked if arm.method == name), None
    )
    reference = linear or by_name.get("brio") or ranked[0]
    differences: dict[str, dict[str, Any]] = {}
    if len(ranked) > 1:
        rows, protocol = pd.concat([arm.rows for arm in ranked], ignore_index=True), reference.protocol
        table = compare_scores(
            results.average_seeds(rows, units=results.unit_columns(protocol)), rows, protocol, reference.name
        )
        differences = {str(row["method"]): {str(k): v for k, v in row.items()} for row in table.to_dict("records")}
    return Comparison(ranked, reference, linear is not None, differences)


PROTOCOL_NAMES = {"loso": "leave one site out", "kfold": "k-fold"}
UNITS = {"loso": "sites", "kfold": "folds"}
MOST_NAMED = 12
DETECTABLE = "Detectable: smallest true difference that the test detects with 80% power"
LEVEL = f"{100 * EQUIVALENCE_MARGIN:g} points"


def label_folders(folders: Sequence[Path]) -> list[str]:
    """Label the folders of jobs by their name, with as much of the path as tells different folders apart."""
    paths = [folder.resolve() for folder in folders]
    depth = 1
    while len({path.parts[-depth:] for path in paths}) < len(set(paths)):
        depth += 1
    return ["/".join(path.parts[-depth:]) for path in paths]


def _label_jobs(jobs: Sequence[StoredJob]) -> tuple[dict[str, StoredJob], str]:
    """Label jobs that are compared; also say which are smoke runs, and that they are not tested, as a report does.

    K-fold jobs of one cohort whose folds share nothing but their numbers are an error.
    """
    labelled = dict(zip(label_folders([job.folder for job in jobs]), jobs, strict=True))
    first: dict[str, str] = {}
    for label, summary in ((label, job.summary) for label, job in labelled.items() if job.summary.protocol == "kfold"):
        other = first.setdefault(summary.cohort, label)
        known = labelled[other].summary
        if known.fold_rule != summary.fold_rule or known.fingerprint != summary.fingerprint:
            why, remedy = "by different rules", "with the same version of brio"
            if known.fingerprint != summary.fingerprint:
                why, remedy = "from different scans", "on the same cohort with the same exclusions"
            raise BrioError(
                f"{label}: its folds and those of {other} were made {why}, so scores cannot be paired; "
                f"run both jobs {remedy}"
            )
    smoke = [label for label, job in labelled.items() if job.summary.smoke_run]
    if not smoke:
        return labelled, ""
    left_out = "Smoke runs are not tested, so there are no p values."
    if len(smoke) == len(labelled):
        return labelled, f"{results.describe_smoke_run()} {left_out}"
    marked = " ".join(map(results.describe_smoke_run, smoke))
    return labelled, f"{marked} {left_out} To test the other jobs, leave out {join_names(smoke)}."


def join_rows(jobs: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, dict[tuple[str, str], str]]:
    """Join the rows of jobs by their labels; also return the names of their methods, by label of the job and method.

    Runs that two jobs share are kept once. A method whose scores differ between jobs counts as several methods, each
    with the label of its job added; ``registered`` is the name that ``brio methods`` has for it.
    """
    run, group = ["cohort", "method", "protocol", "fold", "seed"], ["cohort", "protocol", "method"]
    rows = pd.concat([frame.assign(job=label) for label, frame in jobs.items()], ignore_index=True)
    rows = rows.drop_duplicates([*run, *(name for name in ("n_test", *results.METRICS) if name in rows)])
    clashing = set(rows.loc[rows.duplicated(run, keep=False), group].itertuples(index=False, name=None))
    names = {
        (label, method): f"{method} ({label})" if (cohort, protocol, method) in clashing else method
        for label, frame in jobs.items()
        for cohort, protocol, method in frame[group].drop_duplicates().itertuples(index=False, name=None)
    }
    method = [names[label, name] for label, name in zip(rows["job"], rows["method"], strict=True)]
    return rows.assign(registered=rows["method"], method=method).drop(columns="job"), names


def write_differences(jobs: Sequence[StoredJob], reference: str) -> str:
    """Write how the methods of jobs differ from a reference, with a table for each cohort and protocol."""
    labelled, smoke_note = _label_jobs(jobs)
    rows, _ = join_rows({label: job.rows for label, job in labelled.items()})
    text = comparison_table(rows, reference, tested=not smoke_note)
    notes = dict.fromkeys([smoke_note, *(job.summary.few_sites_note for job in jobs)])
    return "\n\n".join([*filter(None, notes), text])


def compare_methods(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Compare the AUC of all methods with that of a reference, see :func:`compare_scores`.

    Each cohort and protocol is compared by itself. P values are corrected within each cohort and protocol (Holm).

    Returns cohort and protocol, then the columns of :func:`brio.protocol.compare_family`; ``n`` counts the pairs.
    """
    methods = dict.fromkeys(rows["method"])
    if reference not in methods:
        raise BrioError(f"the reference method '{reference}' is not in the results; {nearest(reference, methods)}")
    parts = []
    for (cohort, protocol), group in rows.groupby(["cohort", "protocol"], sort=False):
        if reference in set(group["method"]) and group["method"].nunique() > 1:
            differences = compare_scores(paired_scores(group), group, str(protocol), reference)
            differences.insert(0, "protocol", protocol)
            differences.insert(0, "cohort", cohort)
            parts.append(differences)
    if not parts:
        raise BrioError(
            f"nothing to compare with '{reference}': no other method was run on its cohort under its protocol; add a "
            "job of another method"
        )
    return pd.concat(parts, ignore_index=True)


def comparison_table(rows: pd.DataFrame, reference: str, tested: bool = True) -> str:
    """Write the comparisons of all methods with a reference in Markdown, in percentage points.

    Only sites (or folds of a seed) for which both methods have a score are paired; lines below the table name the
    test and the other sites.
    """
    differences = compare_methods(rows, reference)
    texts = []
    for (cohort, protocol), group in rows.groupby(["cohort", "protocol"], sort=False):
        selected = differences[(differences["cohort"] == cohort) & (differences["protocol"] == protocol)]
        name, units = f"{cohort}, {PROTOCOL_NAMES[protocol]}", UNITS[protocol]
        if not len(selected):
            methods = ", ".join(dict.fromkeys(group["method"]))
            texts.append(f"{name}: nothing to compare with {reference} (methods with results: {methods})\n")
            continue
        title = f"Difference in AUC from {reference}, in points: {name}"
        n_tested = int(selected["p"].notna().sum())
        notes = [_describe_test(group, units, n_tested, tested), *_name_missing(group, units)]
        if tested:
            level = selected.loc[selected["p_level"] <= ALPHA, "method"]  # by two one-sided tests
            if len(level):
                notes.append(f"Difference below {LEVEL} (two one-sided tests at level 0.05): {', '.join(level)}.")
            family = f" (Bonferroni: adjusted for {n_tested} comparisons)." if n_tested > 1 else "."
            warned = selected[selected["warning"] != ""].groupby("warning", sort=False)["method"].agg(", ".join)
            notes += [DETECTABLE + family, *(f"{methods}: {warning}." for warning, methods in warned.items())]
        texts.append("\n".join([title, "", _format_differences(selected, units, tested), "", *notes]) + "\n")
    return "\n".join(texts)


def paired_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the AUC of methods, in the order of ``brio methods``, on the test scans of one cohort under one protocol.

    It is averaged over seeds; under k-fold the rows are the folds of each seed.
    """
    cohort, units = rows["cohort"].iloc[0], results.unit_columns(rows["protocol"].iloc[0])
    n_test = rows.groupby(units)["n_test"].agg(["min", "max"])
    unequal = n_test[n_test["min"] != n_test["max"]]
    for unit, (least, most) in zip(results.name_units(unequal.index), unequal.to_numpy().tolist(), strict=True):
        raise BrioError(
            f"{cohort}, {unit}: some methods have {least} and others {most} test participants; "
            "run all methods with the same exclusions and folds"
        )
    scores = results.average_seeds(rows, units=units)
    position = {entry.name: k for k, entry in enumerate(list_methods())}
    registered = dict(zip(rows["method"], rows.get("registered", rows["method"]), strict=True))
    return scores[sorted(scores.columns, key=lambda name: position.get(registered[name], len(position)))]


def _format_differences(differences: pd.DataFrame, units: str, tested: bool) -> str:
    several = len(differences) > 1
    header = ["method", units, "difference", "95% interval", "better", "worse"]
    header += ["p", "p, Holm", "detectable", "detectable, Bonferroni"][: 3 + several] if tested else []
    rows = []
    for row in differences.itertuples():
        interval = format_interval([row.low, row.high], format_points)
        cells = [row.method, row.n, format_points(row.mean_difference), interval, row.better, row.worse]
        detectable = [format_detectable(d) for d in (row.detectable, row.detectable_in_family)]
        cells += [format_p(row.p), format_p(row.p_holm), *detectable[: 1 + several]] if tested else []
        rows.append([str(cell) for cell in cells])
    return format_table(header, rows)


def _describe_test(group: pd.DataFrame, units: str, comparisons: int, tested: bool) -> str:
    """Describe what was tested and how, for the caption."""
    several = tested and comparisons > 1
    family = f". p, Holm: adjusted for these {comparisons} comparisons." if several else "."
    test = f"{'Two-sided corrected t test' if tested else 'Corrected t interval'} over"
    if units == "folds":
        return f"{test} the folds of all seeds (Nadeau & Bengio 2003){family}"
    seeds = group.groupby("method")["seed"].nunique()
    if seeds.nunique() == 1:
        mean = "one seed" if seeds.iloc[0] == 1 else f"scores averaged over {seeds.iloc[0]} seeds"
    else:
        mean = f"scores averaged over different numbers of seeds ({', '.join(f'{m} {n}' for m, n in seeds.items())})"
    return f"{test} test sites (Nadeau & Bengio 2003), {mean}{family}"


def _name_missing(group: pd.DataFrame, units: str) -> list[str]:
    """Name the sites (or folds) that are left out of comparisons, and which scores are missing."""
    scores, by = paired_scores(group), results.unit_columns(group["protocol"].iloc[0])
    ran = group.groupby([*by, "method"]).size().unstack("method")[scores.columns].notna()
    missing = scores.index[scores.isna().any(axis=1)]
    parts = []
    for name, index in zip(results.name_units(missing), missing, strict=True):
        absent = [m for m in scores if not ran.loc[index, m]]
        silent = [m for m in scores if ran.loc[index, m] and pd.isna(scores.loc[index, m])]
        why = [f"no run of {', '.join(absent)}"] if absent else []
        if silent:
            everywhere = len(silent) + len(absent) == len(scores.columns)
            why.append("no AUC" + ("" if everywhere else f" for {', '.join(silent)}"))
        parts.append(f"{name} ({'; '.join(why)})")
    if not parts:
        return []
    more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    return [f"Only {units} with scores for both methods are compared. Missing: {'; '.join(parts[:MOST_NAMED])}{more}."]


def paper_figures() -> pd.DataFrame:
    """Return the scores of the paper's main table (leave one site out).

    Returns columns cohort, method, auc, auc_sd, acc, acc_sd; the SD is over sites.
    """
    with resources.files("brio.report").joinpath("paper_loso.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def markdown_table(summaries: Sequence[Summary], paper: bool = False) -> str:
    """Write a table with one row per method and job: mean ± SD over test sites (or folds), in percent.

    Rows are in blocks (BRIO; published code or equations; our reading; redesigns; linear models; confound baselines),
    methods of a block in the order of ``brio methods``. Rows of smoke runs are marked as such. Lines below the table
    describe its intervals and give the notes needed to read it (:attr:`~brio.results.Summary.cautions`).
    """
    order = {entry.name: k for k, entry in enumerate(list_methods())}
    published = paper_figures().set_index(["cohort", "method"]).to_dict("index")
    header = ["cohort", "family", "method", "AUC", "95% interval"]
    header += ["pair-weighted AUC", "95% interval, participants", "AUC, seeds averaged", "ACC"]
    header += ["paper's AUC", "paper's ACC"] if paper else []
    header += ["folds", "seeds", "epochs (steps)", "K", "block", "settings", "provenance", ""]
    rows = []
    for summary in summaries:
        for name, method in summary.methods.items():
            row = [f"{summary.cohort} ({summary.n_scans})", method.family, name]
            row += [_format_mean_sd(method.auc), format_interval(method.auc.interval)]
            pairs = method.pair_weighted_auc or results.MetricSummary()
            row += [format_percent(pairs.mean), format_interval(pairs.interval)]
            row += [_format_mean_sd(method.auc_of_averaged_logits), _format_mean_sd(method.acc)]
            if paper:
                reported = published.get((summary.cohort, name)) if summary.protocol == "loso" else None
                both = [(reported[m], reported[f"{m}_sd"]) for m in ("auc", "acc")] if reported else []
                row += [f"{mean:.1f} ± {sd:.1f}" for mean, sd in both] or [MISSING] * 2
            row += [str(method.folds), str(method.seeds), method.training, str(method.K or MISSING), method.block]
            row += [_describe_settings(method, summary), method.provenance, _list_remarks(summary, method)]
            rows.append((summary.cohort, rank_block(method.block), order.get(name, len(order)), row))
    rows.sort(key=lambda r: r[:3])
    kinds = dict.fromkeys(summary.intervals for summary in summaries)
    notes = [f"95% interval of the mean AUC: {'; '.join(kinds)}."]
    if any(method.pair_weighted_auc for summary in summaries for method in summary.methods.values()):
        notes.append(
            "Pair-weighted: each pair of participants from different classes at the same test site has the same "
            "weight; the interval is over participants at these sites."
        )
    if any(summary.protocol == "loso" for summary in summaries):
        notes.append(
            "Leave one site out: AUC and ACC are means over seeds, then over test sites; AUC, seeds averaged, is the "
            "AUC of margins averaged over seeds."
        )
    notes += dict.fromkeys(caution for summary in summaries for caution in summary.cautions)
    return "\n".join([format_table(header, [row for *_, row in rows]), "", *notes]) + "\n"


def _format_mean_sd(metric: results.MetricSummary) -> str:
    spread = "" if metric.mean is None or metric.sd is None else f" ± {format_percent(metric.sd)}"
    return f"{format_percent(metric.mean)}{spread}"


def _describe_settings(method: MethodSummary, summary: Summary) -> str:
    changed = ", ".join(f"{k}={v}" for k, v in method.changed.items())
    tuning = method.tuning
    if tuning is None or not method.is_tuned:
        return changed or "default"
    here = (tuning.cohort, tuning.atlas) == (summary.cohort, summary.atlas)
    carried = "" if here else f" in {tuning.cohort}"
    best = f"best of {tuning.budget} configurations{carried}, chosen without test scans"
    return f"{best}; {changed}" if changed else best


def _list_remarks(summary: Summary, method: MethodSummary) -> str:
    folds = summary.protocol == "kfold"
    setting, usual = "validation_sites", USUAL_VALIDATION_SITES
    if folds:
        setting, usual = "validation_folds", ProtocolSettings.validation_folds
    n, unit = summary.protocol_settings.get(setting, usual), setting.replace("_", " ").removesuffix("s")
    remarks = [
        "smoke run" if summary.smoke_run else "",
        "k-fold" if folds else "",
        "" if n == usual else format_count(n, unit) if n else f"no {unit}s",
        summary.harmonise,
        "transductive" if method.transductive else "",
        "confound baseline" if method.control else "",
    ]
    return ", ".join(filter(None, remarks))


OVER_PEOPLE = (
    "Intervals over participants (DeLong's variance, corrected for shared training scans) apply to new participants at "
    "these sites, not to new sites."
)


@dataclass(frozen=True, eq=False)
class JoinedJobs:
    """The methods of several jobs of one cohort under one protocol."""

    rows: pd.DataFrame  # one row per run, see :func:`join_rows`
    sites: pd.DataFrame
    covariances: pd.DataFrame
    smoke_note: str = ""  # which jobs are smoke runs, which are not tested; empty where none is

    @property
    def protocol(self) -> str:
        """``"loso"`` or ``"kfold"``."""
        return str(self.rows["protocol"].iloc[0])


def gather_jobs(jobs: Sequence[StoredJob]) -> JoinedJobs:
    """Join jobs for a comparison; covariances between methods of different jobs are computed from their predictions.

    If predictions were not kept, ``covariances.csv`` in the folder of a job, or in the folder above it, is used.
    """
    labelled, smoke_note = _label_jobs(jobs)
    rows, names = join_rows({label: job.rows for label, job in labelled.items()})
    if rows[["cohort", "protocol"]].drop_duplicates().shape[0] != 1:
        raise BrioError("these jobs use different cohorts or protocols; compare jobs with the same cohort and protocol")
    predictions, sites, covariances = [], [], []
    for label, job in labelled.items():
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
        covariances.insert(0, results.covariance_rows(together, str(rows["protocol"].iloc[0])))
    above = [read_covariances(folder) for folder in dict.fromkeys(job.folder.resolve().parent for job in jobs)]
    covariances += [table for table in above if table is not None]
    return JoinedJobs(
        rows=rows,
        sites=_join_tables(sites, ["method", "seed", "fold"], SITE_COLUMNS),
        covariances=_join_tables(covariances, ["method", "other", "fold"], COVARIANCE_COLUMNS),
        smoke_note=smoke_note,
    )


def _rename(table: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    return table.assign(**{c: table[c].map(names) for c in ("method", "other") if c in table})


def _join_tables(tables: list[pd.DataFrame], keys: list[str], columns: list[str]) -> pd.DataFrame:
    """Join tables; of rows with the same keys, the first is kept."""
    filled = [table for table in tables if len(table)]
    if not filled:
        return pd.DataFrame(columns=columns)
    return pd.concat(filled, ignore_index=True).drop_duplicates(keys, ignore_index=True)


def write_joined_tables(joined: JoinedJobs, folder: Path) -> None:
    """Write ``sites.csv`` and ``covariances.csv`` of joined jobs; they name no participant."""
    if joined.sites.empty:
        raise BrioError("no job has predictions.csv or sites.csv, so there is nothing to write; run the jobs again")
    if any((folder / name).exists() for name in (PLAN, SUMMARY)):
        raise BrioError(f"{folder}: is the folder of a job, which has its own tables; choose another --out")
    write_site_tables(folder, joined.sites, joined.covariances)


def compare_jobs(joined: JoinedJobs, reference: str | None = None) -> str:
    """Compare the methods of joined jobs with chance and with a reference, over sites and participants."""
    methods = list(dict.fromkeys(joined.rows["method"]))
    if reference is None:
        reference = next((name for name in list_linear_methods() if name in methods), methods[0])
    parts = [f"{joined.smoke_note}\n"] if joined.smoke_note else []
    parts.append(_write_scores(joined))
    if len(methods) > 1:
        parts.append(comparison_table(joined.rows, reference, tested=not joined.smoke_note))
        parts.append(_write_people(joined, reference))
    return "\n".join(parts)


def _write_scores(joined: JoinedJobs) -> str:
    """Write both means of the AUC of each method with their intervals, and the tests against chance."""
    rows, protocol = joined.rows, joined.protocol
    units, over_sites = UNITS[protocol], protocol == "loso"
    scores = results.average_seeds(rows, units=results.unit_columns(protocol))
    header = ["method", f"AUC, mean over {units}", f"95% interval, {results.INTERVALS[protocol]}"]
    if over_sites:
        header += ["at a new site", "95% interval, participants", "AUC, pair-weighted", "95% interval, participants"]
    header.append("p, chance" if over_sites else f"p, chance, {units}")
    lines = []
    for name in scores:
        own = rows[rows["method"] == name]
        summary = results.summarise_scores(scores[name], results.mean_correction(own, protocol), limits=(0.0, 1.0))
        line = [str(name), format_percent(summary.mean), format_interval(summary.interval)]
        if over_sites:
            line.append(format_interval(summary.new_site_interval))
            if tests := results.assess_auc(joined.sites, joined.covariances, str(name)):
                mean, pairs = tests[results.MEAN_OVER_SITES], tests[results.PAIR_WEIGHTED]
                line += [format_interval([mean.low, mean.high]), format_percent(pairs.mean)]
                line.append(format_interval([pairs.low, pairs.high]))
            else:
                line += [MISSING] * 3
        lines.append([*line, format_p(compute_chance_p(scores[name], own, protocol))])
    title = f"AUC in percent: {rows['cohort'].iloc[0]}, {PROTOCOL_NAMES[protocol]}"
    notes = [f"p against chance: two-sided corrected t test over {units}, not adjusted for the number of methods."]
    if joined.smoke_note:
        header, lines, notes = header[:-1], [line[:-1] for line in lines], []
    if over_sites:
        notes.append("At a new site: 95% prediction interval for the AUC at one new site of similar size.")
        notes += filter(None, [OVER_PEOPLE, explain_few_sites(int(scores.count().max()))])
    return "\n".join([title, "", format_table(header, lines), "", *notes]) + "\n"


def _write_people(joined: JoinedJobs, reference: str) -> str:
    """Write the differences over participants, or why there are none."""
    if joined.protocol == "kfold":
        return "Not compared over participants: this is possible only for leave one site out.\n"
    table = results.compare_over_people(joined.sites, joined.covariances, reference)
    lines = []
    for row in table.itertuples():
        interval = format_interval([row.low, row.high], format_points)
        lines.append([row.method, row.estimand, str(row.n_sites), format_points(row.mean_difference), interval])
    texts = []
    if lines:
        header = ["method", "estimand", "sites", "difference", "95% interval"]
        title = f"Difference in AUC from {reference}, in points, over participants at these sites"
        texts += [title, "", format_table(header, lines), "", OVER_PEOPLE]
    without = [m for m in dict.fromkeys(joined.rows["method"]) if m not in {reference, *table["method"]}]
    if without:
        texts.append(
            f"Not compared over participants: {', '.join(without)}. Give folders that contain the predictions.csv of "
            f"these methods and of {reference}."
        )
    return "\n".join(texts) + "\n"
