"""Evidence: how well the method of a model performs at left-out sites, read from a finished job without torch.

Evidence decides for which scans a class is called, and which differences between a scan and those of the model matter.
A difference is a **flag** if the model does not apply to the scan (it is not a connectome of these regions, or the
model has seen it), or if scans with this difference were predicted less accurately at left-out sites. Otherwise it is a
**note**.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from ..cohort import Cohort
from ..cohort.cohort import UNNAMED_CLASSES
from ..cohort.values import compare_classes
from ..connectome import HarmonisationRule
from ..errors import BrioError, file_error
from ..formatting import bracket_interval, format_count, format_percent, join_names
from ..protocol.calibration import WHOLE_COEFFICIENT, average_recalibration, read_logits, recalibrate_sites
from ..results import StoredJob, explain_no_claim
from ..results.files import PREDICTIONS
from ..schemas import StoredCount, StoredNonNegative, StoredShare, one_of
from ..settings import format_setting

if TYPE_CHECKING:
    from ..connectome import Connectomes
    from ..training import Method

LEAST_WITH_REASON, LEAST_SITES, LEVEL = 30, 2, 0.05
"""A reason is tested if this many participants at this many left-out sites have it, and flags if p is below LEVEL."""

TESTED = ("short", "dead_rois", "tr", "motion", "edge_sd", "far")
"""Reasons that flag only if scans with them were predicted less accurately at left-out sites."""


@dataclass(frozen=True)
class ReasonEvidence:
    """Accuracy at left-out sites for participants whose scan has a given reason."""

    code: Annotated[str, one_of(*TESTED)]
    n: StoredCount  # participants of left-out sites who have it, and their sites
    n_sites: StoredCount
    accuracy: StoredShare | None  # share of these participants, and of all others, that were predicted right
    accuracy_without: StoredShare | None
    p: StoredShare | None  # one-sided, for these participants doing no worse; None where too few have the reason

    @property
    def is_flag(self) -> bool:
        """Whether scans with this reason are flagged."""
        return self.p is not None and self.p < LEVEL


def compare_reasons(scans: pd.DataFrame, left_out: pd.DataFrame) -> tuple[ReasonEvidence, ...]:
    """Test for each reason whether scans with it were predicted less accurately at left-out sites.

    A one-sided z test compares the accuracies of scans with and without the reason. The variance of each accuracy is
    that over its scans or that between its sites, whichever is larger, because scans from one site tend to be right or
    wrong together.
    """
    right = ((scans["logit"] > 0) == scans["label"]).to_numpy(dtype=float)
    site, checked, tested = scans["fold"].to_numpy(), left_out.loc[scans["participant_id"]], []
    for code in TESTED:
        has = checked[code].to_numpy()
        n, n_sites, p, variance = int(has.sum()), len(np.unique(site[has])), None, 0.0
        accuracy, without = (float(right[part].mean()) if part.any() else None for part in (has, ~has))
        if accuracy is not None and without is not None and n >= LEAST_WITH_REASON and n_sites >= LEAST_SITES:
            for part in (has, ~has):
                share, n_part = right[part].mean(), int(part.sum())
                sums = pd.Series(right[part] - share).groupby(site[part]).sum()
                over_sites = float((sums**2).sum()) / n_part**2 * len(sums) / max(1, len(sums) - 1)
                variance += max(float(share * (1 - share)) / n_part, over_sites)
            p = float(ndtr((accuracy - without) / max(variance, 1e-12) ** 0.5))
        tested.append(ReasonEvidence(code, n, n_sites, accuracy, without, p))
    return tuple(tested)


def find_flagged_scans(scans: pd.DataFrame, left_out: pd.DataFrame, reasons: Iterable[ReasonEvidence]) -> np.ndarray:
    """Find which scans of the evidence the model would have flagged, had their site been new. Shape [n], bool."""
    flags = ["foreign", *(reason.code for reason in reasons if reason.is_flag)]
    return left_out.loc[scans["participant_id"], flags].any(axis=1).to_numpy()


_FINAL_SETTINGS = {
    "choose_by": (
        "source-sites",
        "the evaluated runs chose the penalty on validation sites (choose_by=validation), but the model chose it on "
        "inner folds (choose_by=source-sites)",
        "--set choose_by=source-sites --set protocol.validation_sites=0",
    ),
    "refit": (
        True,
        "the model was trained again with its validation sites (refit=true), but the evaluated runs were not "
        "(refit=false)",
        "--set refit=true",
    ),
}
"""Settings with different defaults in run and fit: value of the model, the difference, options of 'brio run'."""


def describe_differing_settings(job: StoredJob, method: Method, harmonisation: HarmonisationRule) -> tuple[str, ...]:
    """Describe which settings differ between the evaluated runs and the model, with both values and a remedy."""
    evaluated = [run.record.settings for run in job.runs if run.record.row.method == method.name]
    if not evaluated or job.plan is None:
        return ("the settings of the evaluated runs are not stored and may differ",)
    rules = (HarmonisationRule(**job.plan.harmonise or {}), harmonisation)
    theirs, ours = ({f"harmonise.{key}": value for key, value in asdict(rule).items()} for rule in rules)
    own = json.loads(json.dumps(asdict(method.settings) | ours))  # as records hold them
    evaluated = [settings | theirs for settings in evaluated]
    question = f" --label {shlex.quote(job.plan.label)}" if job.plan.label else ""
    sentences, parts = [], []
    for key in sorted({key for one in evaluated for key in one if one[key] != own.get(key)}):
        value, words, options = _FINAL_SETTINGS.get(key, (None, "", ""))
        if key in _FINAL_SETTINGS and own.get(key) == value:
            command = f"brio run COHORT --method {method.name}{question} --seeds 3 {options} --out RESULTS"
            sentences.append(
                f"{words}; to evaluate the settings of the model, use --evaluate, or --evidence RESULTS after "
                f"'{command}'"
            )
        else:
            values = " or ".join(dict.fromkeys(format_setting(one[key]) for one in evaluated if key in one))
            parts.append(f"{key} ({values} in the evidence, {format_setting(own.get(key))} in the model)")
    return (*sentences, *([f"different values of {', '.join(parts)}"] if parts else []))


def read_evidence_job(folder: str | Path, method: str, cohort: Cohort | None = None) -> StoredJob:
    """Read a finished job that evaluated a method at test sites."""
    job = StoredJob.read(Path(folder))
    if method not in job.summary.methods:
        has = ", ".join(job.summary.methods)
        raise BrioError(
            f"{folder}: has results of {has}, but not of '{method}'; give a folder of 'brio run --method {method}'"
        )
    if job.summary.protocol != "loso":
        raise BrioError(
            f"{folder}: was evaluated by k-fold, which does not test new sites; repeat 'brio run' with --protocol loso"
        )
    if job.predictions is None:
        raise BrioError(
            f"{folder}: has no stored predictions; repeat 'brio run', or use --evaluate instead of --evidence"
        )
    if cohort is not None:
        compare_participants(job, method, cohort)
    return job


def compare_participants(job: StoredJob, method: str, cohort: Cohort) -> tuple[str, ...]:
    """Refuse evidence on another question, and say which participants are missing from it or only in it.

    The question differs if the atlas, the classes or the label of any participant differ, or if no participant is in
    common.
    """
    assert job.predictions is not None
    keys, problem = ["participant_id", "site"], ""
    theirs = (job.cohort_facts or {}).get("classes", list(UNNAMED_CLASSES))
    labelled = cohort.select(cohort.labelled)
    own = pd.DataFrame({"participant_id": labelled.participant_ids, "site": labelled.sites, "own": labelled.labels})
    evaluated = job.predictions.loc[job.predictions["method"] == method, [*keys, "label"]].astype({"site": str})
    pairs = own.drop_duplicates().merge(evaluated.drop_duplicates(), on=keys, how="outer", indicator="found")
    common = pairs[pairs["found"] == "both"]
    n_own, n_common = (pairs["found"] != "right_only").sum(), len(common)
    n_differing = int((common["own"] != common["label"]).sum())
    if job.summary.atlas != cohort.atlas.name:
        problem = f"was evaluated with the atlas '{job.summary.atlas}', but the model uses '{cohort.atlas.name}'"
    elif compare_classes(theirs, cohort.classes) != "same" and UNNAMED_CLASSES not in (tuple(theirs), cohort.classes):
        problem = (
            f"cannot be evidence for this model: its classes are {' and '.join(theirs)}, but those of the model are "
            f"{' and '.join(cohort.classes)}"
        )
    elif n_common == 0:
        problem = "has no participant (by participant_id and site) in common with the model"
    elif n_differing:
        problem = (
            f"cannot be evidence for this model: {n_differing:,} of {format_count(n_common, 'shared participant')} "
            f"{'has' if n_differing == 1 else 'have'} a different label in the cohort of the model"
        )
    if problem:
        advice = "give a job of the same cohort, or use --evaluate instead of --evidence"
        raise BrioError(f"{job.folder}: {problem}; {advice}")
    differences = []
    theirs, own_sites = (set(pairs.loc[pairs["found"] != side, "site"]) for side in ("left_only", "right_only"))
    if theirs - own_sites:
        differences.append(f"the model was not fitted to {join_names(sorted(theirs - own_sites))}")
    if own_sites - theirs:
        differences.append(f"{join_names(sorted(own_sites - theirs))} of the model were not evaluated")
    if n_common < n_own:
        share = f"{n_common:,} of the {n_own:,} participants"
        differences.append(f"the evidence covers only {share} in the cohort of the model")
    if n_more := len(pairs) - n_own:
        differences.append(f"the evidence has {format_count(n_more, 'participant')} that the model was not fitted to")
    if not differences and job.summary.fingerprint != cohort.fingerprint:
        differences.append(
            "the evidence covers the same participants, but its scans or tables differ from those of the model"
        )
    return tuple(differences)


COVERAGES = tuple(k / 20 for k in range(1, 21))
LEAST_COVERAGE = 0.1
"""A rule that calls fewer participants is not offered, because too few determine its accuracy."""
NEAREST_SHARE, LEAST_NEAREST = 0.1, 20
"""Of the called participants, this share nearest to the threshold (but at least this many) must beat chance."""
_WANTED = tuple(k / 100 for k in range(50, 101))
_Z_ONE_SIDED, _Z_TWO_SIDED = 1.6448536269514722, 1.959963984540054


@dataclass(frozen=True)
class RiskPoint:
    """Accuracy of the participants with the largest absolute logits."""

    coverage: StoredShare  # their share of all participants
    threshold: StoredNonNegative  # their smallest absolute logit
    accuracy: StoredShare
    n: StoredCount

    @property
    def n_right(self) -> int:
        """How many of them were predicted correctly."""
        return round(self.accuracy * self.n)


@dataclass(frozen=True)
class CallRule:
    """Rule for calling a class: the absolute logit reaches the threshold, and the scan has no flag."""

    wanted_accuracy: StoredShare  # largest accuracy for which the threshold is this one
    threshold: StoredNonNegative  # chosen on all participants of the evidence
    n_called: StoredCount  # participants without a flag who are called by a threshold chosen on the other sites
    n_right: StoredCount  # those of them with the right class
    n_participants: StoredCount  # all without a flag

    @property
    def coverage(self) -> float:
        """Share of participants without a flag that is expected to be called at a new site."""
        return self.n_called / self.n_participants

    @property
    def accuracy(self) -> Estimate:
        """Accuracy among called participants that is expected at a new site, with a 95% Wilson interval."""
        if not self.n_called:
            return UNKNOWN
        ends = (_bound_share(self.n_right, self.n_called, sign * _Z_TWO_SIDED) for sign in (-1, 1))
        return Estimate(self.n_right / self.n_called, *ends)

    def describe(self) -> str:
        """Describe what the rule achieved at the sites of the evidence, with the underlying counts."""
        if not self.n_called:
            return f"none of {self.n_participants:,} participants without a flag was called"
        accuracy = self.accuracy
        return (
            f"{self.coverage:.0%} of {self.n_participants:,} participants without a flag were called, "
            f"{self.n_right / self.n_called:.1%} of them correctly ({self.n_right:,} of {self.n_called:,}; "
            f"95% interval {format_percent(accuracy.low)} to {format_percent(accuracy.high)}%), with the threshold for "
            "each site chosen on the other sites"
        )


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval; both are None if there are too few sites to compute them."""

    value: float | None
    low: float | None
    high: float | None

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise BrioError("has only one end of an interval; expected both ends or neither")

    @property
    def ends(self) -> tuple[float, float] | None:
        """Both ends of the interval; None if there is no interval."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def write(self, show: Callable[[float], str], unit: str = "", kind: str = "", whole: float = 1.0) -> str:
        """Write the number with its unit, and its interval in brackets."""
        if self.value is None:
            return "unknown"
        return f"{show(self.value)}{unit}{bracket_interval(self.ends, show, whole).replace('(', f'({kind}', 1)}"

    def write_coefficient(self) -> str:
        """Write a slope or an intercept of calibration with its interval."""
        return self.write("{:.2f}".format, kind="95% interval ", whole=WHOLE_COEFFICIENT)


UNKNOWN = Estimate(None, None, None)


def make_estimate(value: float | None, low: float = np.nan, high: float = np.nan) -> Estimate:
    """Make an estimate; NaN becomes None."""
    return Estimate(*(float(x) if x is not None and np.isfinite(x) else None for x in (value, low, high)))


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Scores of a method at test sites, each left out in turn. Each participant counts once (mean over scans)."""

    n_participants: StoredCount
    n_sites: StoredCount
    n_seeds: StoredCount
    fingerprint: str  # of the cohort
    auc: Estimate  # mean over test sites, t interval
    pair_weighted_auc: Estimate
    accuracy: StoredShare | None  # of all participants, logits averaged over seeds; None where no logit was checked
    brier: StoredShare | None
    slope: Estimate  # calibration at test sites: means of a random-effects model; 1 and 0 are perfect
    intercept: Estimate
    risk: tuple[RiskPoint, ...]  # accuracy against coverage
    differences: tuple[str, ...] = ()  # in what the evaluated method differs from the model; empty where it does not
    slope_sd: StoredNonNegative | None = None
    intercept_sd: StoredNonNegative | None = None
    n_two_class_sites: StoredCount  # sites whose AUC the mean is of
    smoke_run: bool = False  # whether the job was a smoke run
    n_fewest: StoredCount | None = None  # participants of the smaller class; None before version 0.3
    mean_accuracy: StoredShare | None = None
    accuracy_over_sites: StoredShare | None = None
    new_site_interval: tuple[float, float] | None = None  # 95% interval of the AUC at one new site
    reasons: tuple[ReasonEvidence, ...] = ()
    rules: tuple[CallRule, ...]

    @property
    def no_claim(self) -> str:
        """Explain why the evidence supports no claim; empty if it may support one."""
        smoke = "fewer than three seeds, or not every fold" if self.smoke_run else ""
        n_sites = 0 if self.auc.value is None else self.n_two_class_sites
        return explain_no_claim(smoke, self.n_fewest, n_sites, self.auc.ends, subject="the evaluation of the model")

    @property
    def accuracy_in_words(self) -> str:
        """The accuracy over participants next to that over sites, so that the two are not confused."""
        if self.accuracy is None:
            return "unknown"
        seeds, averaged = ("", "") if self.n_seeds == 1 else (" and seeds", ", logits averaged over seeds")
        text = f"{format_percent(self.accuracy)}% of all participants{averaged}"
        if self.mean_accuracy is None:
            return text
        return f"{text} (mean over sites{seeds}, as 'brio run' prints it: {format_percent(self.mean_accuracy)}%)"

    @property
    def protocol_in_words(self) -> str:
        """Say which model each site scored: one fitted without it or, in a federation, the mean of others."""
        return "each left out in turn" if self.brier is not None else "each testing the mean of the other sites' models"

    @property
    def averaged_sites(self) -> str:
        """Say over which sites the mean AUC was taken."""
        if self.n_two_class_sites == self.n_sites:
            return "sites"
        return f"the {self.n_two_class_sites} sites with both classes"

    def describe(self) -> str:
        """Say in one line how well the method separates the classes at test sites."""
        auc, weighted = (one.write(format_percent, "%", "95% interval ") for one in (self.auc, self.pair_weighted_auc))
        differences = (
            f"; the evidence differs from the model: {'; '.join(self.differences)}" if self.differences else ""
        )
        return (
            f"at {self.n_sites} sites, {self.protocol_in_words}: AUC, mean over {self.averaged_sites}, {auc}; "
            f"pair-weighted {weighted}{differences}"
        )


def gather_evidence(
    folder: str | Path,
    method: Method,
    fingerprint: str,
    rule: HarmonisationRule,
    connectomes: Connectomes | None = None,
) -> Evidence:
    """Gather the evidence on a method, as a model has it, from a finished job."""
    from .ranges import check_left_out_sites  # needs torch

    name = method.name
    job = read_evidence_job(folder, name)
    assert job.predictions is not None
    differences = describe_differing_settings(job, method, rule)
    is_same_cohort = bool(fingerprint) and job.summary.fingerprint == fingerprint
    if connectomes is not None:
        differences += compare_participants(job, name, connectomes.cohort)
    elif not is_same_cohort:
        raise BrioError(
            f"{folder}: cannot be matched with the scans of the model; give the cohort of the model, or a job of it"
        )
    own = job.predictions[job.predictions["method"] == name]
    summary = job.summary.methods[name]
    auc, weighted = (
        UNKNOWN if one is None else Estimate(one.mean, *(one.interval or (None, None)))
        for one in (summary.auc, summary.pair_weighted_auc)
    )
    people = average_logits(own)
    right = (people["logit"] > 0) == people["label"]
    (slope, slope_sd), (intercept, intercept_sd) = calibrate_sites(own)
    reasons: tuple[ReasonEvidence, ...] = ()
    unflagged = people  # by which classes are called, since flagged ones never are
    if is_same_cohort and connectomes is not None:
        left_out = check_left_out_sites(connectomes)
        if unknown := sorted(set(people["participant_id"]) - set(left_out.index)):
            raise file_error(Path(folder) / PREDICTIONS, f"participant '{unknown[0]:.40}' is not in the cohort")
        reasons = compare_reasons(people, left_out)
        unflagged = people[~flag_by_other_sites(people, left_out)]
    return Evidence(
        n_participants=len(people),
        n_sites=people["fold"].nunique(),
        n_seeds=own["seed"].nunique(),
        fingerprint=job.summary.fingerprint,
        auc=auc,
        pair_weighted_auc=weighted,
        accuracy=float(right.mean()),
        brier=float(((people["probability"] - people["label"]) ** 2).mean()),
        slope=slope,
        intercept=intercept,
        risk=trace_risk(people["label"].to_numpy(), people["logit"].to_numpy()),
        differences=differences,
        slope_sd=slope_sd,
        intercept_sd=intercept_sd,
        n_two_class_sites=summary.auc.n,
        smoke_run=job.summary.smoke_run,
        n_fewest=int(np.bincount(people["label"].astype(int), minlength=2).min()),
        mean_accuracy=summary.acc.mean,
        new_site_interval=summary.auc.new_site_interval,
        accuracy_over_sites=float(right.groupby(people["fold"]).mean().mean()),
        reasons=reasons,
        rules=learn_call_rules(*(unflagged[name].to_numpy() for name in ("label", "logit", "fold"))),
    )


def flag_by_other_sites(people: pd.DataFrame, left_out: pd.DataFrame) -> np.ndarray:
    """Find the participants of each site who are flagged by rules learned at the other sites. Shape [n], bool."""
    flagged, site = np.empty(len(people), dtype=bool), people["fold"].to_numpy()
    for e in np.unique(site):
        reasons = compare_reasons(people[site != e], left_out)
        flagged[site == e] = find_flagged_scans(people[site == e], left_out, reasons)
    return flagged


def average_logits(predictions: pd.DataFrame) -> pd.DataFrame:
    """Average the logits of the probabilities of each participant over seeds.

    Returns ``fold``, ``participant_id``, ``label``, ``logit`` and ``probability``.
    """
    groups = predictions.assign(logit=read_logits(predictions["probability"])).groupby(
        ["fold", "participant_id"], sort=False
    )
    people = groups.agg(label=("label", "first"), logit=("logit", "mean"))
    return people.reset_index().assign(probability=lambda t: 1 / (1 + np.exp(-t["logit"])))


def calibrate_sites(predictions: pd.DataFrame) -> list[tuple[Estimate, float | None]]:
    """Calibration slope and intercept in the large over sites, each with its standard deviation between sites."""
    return pool_recalibration(recalibrate_sites(predictions))


def pool_recalibration(sites: pd.DataFrame) -> list[tuple[Estimate, float | None]]:
    """Pool slopes and intercepts in the large over sites, one row each with the columns of ``Recalibration``."""
    means = [average_recalibration(sites, name) for name in ("slope", "in_the_large")]
    return [(make_estimate(mean.mean, mean.low, mean.high), make_estimate(mean.sd).value) for mean in means]


def trace_risk(label: np.ndarray, logits: np.ndarray) -> tuple[RiskPoint, ...]:
    """Compute the accuracy of the participants with the largest absolute logits for several shares of all.

    Shapes: label [n], logits [n].
    """
    size = np.abs(logits)
    order = np.argsort(-size, kind="stable")
    right = ((logits > 0) == label)[order]
    sizes = [(coverage, max(1, round(coverage * len(order)))) for coverage in COVERAGES]
    return tuple(RiskPoint(c, float(size[order[n - 1]]), float(right[:n].mean()), n) for c, n in sizes)


def learn_call_rules(label: np.ndarray, logits: np.ndarray, site: np.ndarray) -> tuple[CallRule, ...]:
    """Choose a threshold for every required accuracy, and score each site with a threshold chosen on the other sites.

    Shapes: label [n], logits [n], site [n].
    """
    size, right = np.abs(logits), (logits > 0) == label
    thresholds = _choose_thresholds(size, right)
    elsewhere = np.empty((len(_WANTED), len(size)))  # thresholds chosen without the site of each participant
    for e in np.unique(site):
        elsewhere[:, site == e] = _choose_thresholds(size[site != e], right[site != e])[:, None]
    rules: list[CallRule] = []
    for wanted, threshold, chosen in zip(_WANTED, thresholds, elsewhere, strict=True):
        if np.isinf(threshold):
            continue
        called = size >= chosen
        rule = CallRule(wanted, float(threshold), int(called.sum()), int(right[called].sum()), len(size))
        if rules and replace(rules[-1], wanted_accuracy=wanted) == rule:
            rules.pop()
        rules.append(rule)
    return tuple(rules)


def _choose_thresholds(size: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Find the absolute logit from which the most are called, for each required accuracy; infinite if there is none.

    At least a tenth of the participants must be called, with the wanted accuracy, and the tenth of them that is nearest
    to the threshold (at least twenty) must be correct more often than by chance: lower end of Wilson's one-sided 95%
    interval.
    """
    order = np.argsort(-size, kind="stable")
    total = np.r_[0, np.cumsum(right[order])]
    n = np.arange(max(1, int(np.ceil(LEAST_COVERAGE * len(order)))), len(order) + 1)
    nearest = np.minimum(n, np.maximum(LEAST_NEAREST, np.ceil(NEAREST_SHARE * n).astype(int)))
    n = n[_bound_share(total[n] - total[n - nearest], nearest, -_Z_ONE_SIDED) > 0.5]
    fitting = [n[total[n] >= wanted * n - 1e-9] for wanted in _WANTED]
    return np.array([size[order[own[-1] - 1]] if len(own) else np.inf for own in fitting])


def _bound_share(count: Any, total: Any, z: float) -> Any:
    """End of Wilson's interval of a share: the lower one for a negative z, the upper one for a positive one."""
    share = count / total
    half = z * np.sqrt(share * (1 - share) / total + z * z / (4 * total**2))
    return (share + z * z / (2 * total) + half) / (1 + z * z / total)


def choose_rule(rules: tuple[CallRule, ...], wanted_accuracy: float) -> CallRule | None:
    """Choose the rule for a required accuracy; None if no rule reaches it."""
    return next((rule for rule in rules if rule.wanted_accuracy >= wanted_accuracy - 1e-9), None)
