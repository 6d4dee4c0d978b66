"""What scores mean for participants: AUC within subgroups, and the same participant in another session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..cohort.covariates import COVARIATE_COLUMNS, read_covariates
from ..cohort.scans import average_over_scans, index_participants
from ..drawing import DASHED, draw_dot, label_axis, make_panels, note_beside, series_style
from ..errors import BrioError
from ..formatting import bracket_interval, format_interval, format_number, format_range, format_signed, state_p
from ..protocol.calibration import count_agreeing_pairs, estimate_session_variance, jackknife_participants
from ..protocol.statistics import adjust_holm, site_correction
from .context import Arm, StudyContext, display_method, list_own_arms
from .study import Finding, register_study
from .summaries import FACTS, read_arm_predictions, stack_arms

# ---------------------------------------------------------------- subgroups
# Everything is a weighted sum over the pairs of a patient and a control of one site. A bootstrap draw is a weight for
# each participant, and random subgroups are indicators in another order, so thousands of either are a few products.

RESAMPLES = 2_000
"""Bootstrap draws, and as many draws of random subgroups."""

BETWEEN_SITES = 0.9
"""A variable with more of its variance between sites is treated as a property of the site."""


class SitePairs(NamedTuple):
    """The pairs of one site.

    Shapes: patients, controls [n1], [n0], in_order [n1, n0].
    """

    patients: np.ndarray  # rows of the participants
    controls: np.ndarray
    in_order: np.ndarray  # share of the seeds under which the patient has the larger margin; a tie is half


def collect_site_pairs(predictions: pd.DataFrame) -> tuple[pd.DataFrame, list[SitePairs]]:
    """Collect the pairs of every test site.

    Shapes: returns participants [n, 3].

    Returns participants: participant_id, site and label, one row per participant.
    """
    margins = predictions.pivot_table(index=["site", "participant_id", "label"], columns="seed", values="margin")
    participants = margins.index.to_frame(index=False)
    site, label, margin = participants["site"].to_numpy(), participants["label"].to_numpy(), margins.to_numpy()
    pairs = []
    for e in np.unique(site):
        patients, controls = (np.flatnonzero((site == e) & (label == c)) for c in (1, 0))
        if len(patients) and len(controls):
            gap = margin[patients][:, None] - margin[controls][None, :]  # [n1, n0, seeds]
            pairs.append(SitePairs(patients, controls, ((gap > 0) + 0.5 * (gap == 0)).mean(axis=2)))
    return participants, pairs


def divide_into_thirds(values: np.ndarray, site: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """Divide participants into thirds of a variable, from low to high.

    A variable that hardly differs within sites, such as the length of a scan, is a property of the site. Every
    participant then has the median of the site, and sites are the units.

    Shapes: values [n], site [n]; returns code [n], used [n].
    """
    column = pd.Series(values)
    centre = column.groupby(site).transform("mean")
    total = column.var(ddof=0)
    by_site = bool(total > 0 and (column - centre).pow(2).mean() < (1 - BETWEEN_SITES) * total)
    if by_site:
        column = column.groupby(site).transform("median")
    used = column.to_numpy(dtype=float)
    cuts = np.nanquantile(used, [1 / 3, 2 / 3])
    return np.where(np.isnan(used), -1, np.searchsorted(cuts, used, side="left")), used, by_site


@dataclass(frozen=True, eq=False)
class SubgroupScores:
    """AUC in each of G subgroups, and what chance gives. Shares, not percent.

    Shapes: auc [G], n_pairs, n_sites [G], drawn [B, G], random [B, G].
    """

    auc: np.ndarray  # NaN where a subgroup has no pair
    n_pairs: np.ndarray  # pairs of the subgroup, and sites that have some
    n_sites: np.ndarray
    drawn: np.ndarray  # AUC in bootstrap draws of participants within sites, or of sites
    random: np.ndarray  # AUC in random subgroups of the same sizes
    widening: float  # of the intervals of an AUC, since models of left-out sites share training scans

    def interval(self, group: int) -> tuple[float, float]:
        """Return the interval of the AUC of a subgroup."""
        auc, (low, high) = float(self.auc[group]), _central(self.drawn[:, group])
        return max(0.0, auc - self.widening * (auc - low)), min(1.0, auc + self.widening * (high - auc))

    def difference(self, first: int, second: int) -> tuple[float, tuple[float, float], tuple[float, float], float]:
        """Return the AUC of one subgroup minus that of another; what models share does not change it."""
        observed = float(self.auc[first] - self.auc[second])
        random = self.random[:, first] - self.random[:, second]
        random = random[~np.isnan(random)]
        interval = _central(self.drawn[:, first] - self.drawn[:, second])
        if np.isnan(observed) or not len(random):
            return observed, interval, _central(random), float("nan")
        extreme = np.abs(random - random.mean()) >= abs(observed - random.mean()) - 1e-12
        return observed, interval, _central(random), float((1 + extreme.sum()) / (1 + len(random)))


def score_subgroups(
    pairs: Sequence[SitePairs], code: np.ndarray, n_groups: int, *, by_site: bool = False, seed: int = 0
) -> SubgroupScores:
    """Score the subgroups of one variable.

    Shapes: code [n].
    """
    rng = np.random.default_rng(seed)
    observed = np.array([_sum_pairs(site, *_indicate(site, code, n_groups)) for site in pairs])[..., 0, :]  # [S, 2, G]
    if by_site:
        drawn, random = _draw_sites(observed, rng), _exchange_sites(observed, rng)
    else:
        drawn, random = np.zeros((2, RESAMPLES, n_groups)), np.zeros((2, RESAMPLES, n_groups))
        for site in pairs:
            indicators = _indicate(site, code, n_groups)
            counts = [rng.multinomial(n := x.shape[1], np.full(n, 1 / n), RESAMPLES) for x in indicators]
            drawn += _sum_pairs(site, *(c[..., None] * x for c, x in zip(counts, indicators, strict=True)))
            orders = [_permute(x.shape[1], rng) for x in indicators]
            random += _sum_pairs(site, *(x[0, order] for x, order in zip(indicators, orders, strict=True)))
    auc, n_pairs = _divide(observed.sum(axis=0)), observed[:, 1].sum(axis=0)
    widening = np.sqrt(1 + len(pairs) * site_correction(len(pairs)))
    return SubgroupScores(auc, n_pairs, (observed[:, 1] > 0).sum(axis=0), _divide(drawn), _divide(random), widening)


def _permute(n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw permutations of n things. Shape [B, n]."""
    return rng.permuted(np.tile(np.arange(n), (RESAMPLES, 1)), axis=1)


def _indicate(site: SitePairs, code: np.ndarray, n_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """1 where a patient, or a control, is in a subgroup. Shapes [1, n1, G] and [1, n0, G]."""
    members = (code[:, None] == np.arange(n_groups)).astype(float)[None]
    return members[:, site.patients], members[:, site.controls]


def _sum_pairs(site: SitePairs, patients: np.ndarray, controls: np.ndarray) -> np.ndarray:
    """Weights of pairs in order, and of all pairs, in each subgroup, from weights [B, n1, G], [B, n0, G]: [2, B, G]."""
    in_order = np.einsum("bng,bng->bg", np.einsum("bmg,mn->bng", patients, site.in_order, optimize=True), controls)
    return np.stack([in_order, patients.sum(axis=1) * controls.sum(axis=1)])


def _draw_sites(observed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the sites of each subgroup with replacement: [S, 2, G] -> [2, B, G]; zero with fewer than two sites."""
    drawn = np.zeros((2, RESAMPLES, observed.shape[2]))
    for g in range(observed.shape[2]):
        members = np.flatnonzero(observed[:, 1, g])
        if len(members) > 1:
            counts = rng.multinomial(len(members), np.full(len(members), 1 / len(members)), RESAMPLES)
            drawn[:, :, g] = (counts @ observed[members, :, g]).T
    return drawn


def _exchange_sites(observed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Exchange the subgroups of sites at random: [S, 2, G] -> [2, B, G]."""
    total, member = observed.sum(axis=2), (observed[:, 1] > 0).astype(float)  # [S, 2], [S, G]
    return np.einsum("bsg,sk->kbg", member[_permute(len(total), rng)], total)


def _divide(sums: np.ndarray) -> np.ndarray:
    """AUC from weights of pairs in order and of all pairs; NaN where there is no pair."""
    return np.divide(sums[0], sums[1], out=np.full(sums[0].shape, np.nan), where=sums[1] > 0)


def _central(values: np.ndarray) -> tuple[float, float]:
    """The central 95% of draws; NaN where none has a value."""
    low, high = pd.Series(values).quantile([0.025, 0.975])
    return low, high


@dataclass(frozen=True, eq=False)
class _Variable:
    """A variable that divides the participants, in the order of the pairs."""

    name: str
    groups: tuple[str, ...]
    code: np.ndarray
    values: np.ndarray
    by_site: bool = False


@register_study("subgroups")
def compare_subgroups(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare the AUC (default: ridge) between sexes and between thirds of age, motion and scan length."""
    parts, left_out = {}, dict[str, str]()
    for a in arms:
        participants, pairs = collect_site_pairs(read_arm_predictions(context, a))
        variables, missing = _list_variables(context.cohort, participants)
        left_out |= missing
        if not variables:
            raise BrioError(
                f"cohort '{context.cohort.name}' has no variable for subgroups: {'; '.join(missing.values())}"
            )
        label = participants["label"].to_numpy()
        rows = pd.concat([_score_variable(variable, pairs, label) for variable in variables], ignore_index=True)
        compared = rows["p"].notna()
        rows.loc[compared, "p Holm"] = adjust_holm(rows.loc[compared, "p"].to_numpy())
        parts[a] = rows
    table = stack_arms(parts, context.results_of)
    summary = table.drop(columns=FACTS).assign(arm=table["arm"].map(display_method))
    text = [_describe_subgroup(row, several=len(arms) > 1) for _, row in summary[summary["p"].notna()].iterrows()]
    text += [
        "AUC is computed over pairs of a patient and a control from the same site and subgroup. Intervals are "
        "bootstrapped over participants within sites. Intervals of an AUC are widened, because models of left-out "
        "sites share training scans. Random subgroups have as many participants of each site and class as the real "
        "ones. If a variable hardly varies within sites, whole sites are drawn and exchanged instead of participants.",
        *(f"Left out: {why}." for why in left_out.values()),
    ]
    return Finding(table, _format_rows(summary), text, lambda: _draw_subgroups(summary), digits=6)


def _list_variables(cohort: Cohort, participants: pd.DataFrame) -> tuple[list[_Variable], dict[str, str]]:
    """The variables that divide the participants, and why others do not."""
    first, _ = index_participants(cohort.participant_ids)
    row_of = pd.Series(first, index=cohort.participant_ids[first])
    rows, site = row_of.loc[participants["participant_id"]].to_numpy(), participants["site"].to_numpy()
    variables, left_out = [], {}
    for name in COVARIATE_COLUMNS:
        try:
            values = read_covariates(cohort, [name], "study 'subgroups'", "use other variables")[rows, 0]
        except BrioError as missing:
            left_out[name] = str(missing)
            continue
        if name == "sex":
            variables.append(_Variable("sex", ("female", "male"), values.astype(np.int64), values))
        else:
            shown = {"age": "age, years", "motion": "motion, mean FD in mm"}[name]
            variables.append(_make_thirds(shown, values, site))
    variables.append(_make_thirds("scan length, frames", cohort.n_frames[rows].astype(float), site))
    alike = {v.name: f"{v.name.split(',')[0]} hardly differs" for v in variables if len(v.groups) < 2}
    return [v for v in variables if v.name not in alike], left_out | alike


def _make_thirds(name: str, values: np.ndarray, site: np.ndarray) -> _Variable:
    """Divide a variable into thirds; a third that ties leave empty is not a subgroup."""
    code, used, by_site = divide_into_thirds(values, site)
    present, renumbered = np.unique(code, return_inverse=True)
    groups = tuple(("lowest third", "middle third", "highest third")[g] for g in present if g >= 0)
    return _Variable(name, groups, renumbered - int(present[0] < 0), used, by_site)


_ESTIMATES = ["AUC", "low", "high", "random low", "random high"]


def _score_variable(variable: _Variable, pairs: list[SitePairs], label: np.ndarray) -> pd.DataFrame:
    """One row per subgroup in percent, then one for the difference of the last and the first subgroup."""
    groups = variable.groups
    scores = score_subgroups(pairs, variable.code, len(groups), by_site=variable.by_site)
    largest = np.nanmax(variable.values)
    digits = 0 if largest >= 100 else 1 if largest >= 10 else 2
    rows: list[dict[str, Any]] = []
    for g, group in enumerate(groups):
        members = variable.code == g
        values = variable.values[members]
        ends = "" if variable.name == "sex" else format_range(float(values.min()), float(values.max()), digits)
        n_patients, n_controls = np.bincount(label[members], minlength=2)[::-1]
        row = {"variable": variable.name, "subgroup": group, "range": ends, "patients": n_patients}
        rows.append(row | {"controls": n_controls, "sites": scores.n_sites[g], "pairs": scores.n_pairs[g]})
    rows.append({"variable": variable.name, "subgroup": f"{groups[-1]} minus {groups[0]}", "range": ""})
    difference, interval, random, p = scores.difference(len(groups) - 1, 0)
    estimates = [(scores.auc[g], *scores.interval(g), *_central(scores.random[:, g])) for g in range(len(groups))]
    percent = 100 * pd.DataFrame([*estimates, (difference, *interval, *random)], columns=_ESTIMATES)
    p_values = [*[np.nan] * len(groups), p]
    return pd.DataFrame(rows).join(percent).assign(p=p_values, units="sites" if variable.by_site else "participants")


def _describe_subgroup(row: pd.Series, several: bool) -> str:
    of_method = f" of {row['arm']}" if several else ""
    pairs = ([row[f"{k}low"], row[f"{k}high"]] for k in ("", "random "))
    interval, random = (format_interval(ends, format_signed, whole=100) for ends in pairs)
    return (
        f"{row['variable'].split(',')[0].capitalize()}, {row['subgroup']}: the AUC{of_method} differs by "
        f"{format_signed(row['AUC'])} points (95% interval {interval}; random subgroups {random}; "
        f"{state_p(row['p'])}, {state_p(row['p Holm'])} after Holm's correction)."
    )


def _format_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The small table that readers see."""
    counts = {name: table[name].astype("Int64") for name in ("patients", "controls", "sites", "pairs")}
    shown = table.assign(**counts).drop(columns="units")
    return shown if table["arm"].nunique() > 1 else shown.drop(columns="arm")


def _draw_subgroups(summary: pd.DataFrame) -> Any:
    """Subgroups in rows under the name of their variable, with the difference of the last and the first beside them."""
    arms = list(dict.fromkeys(summary["arm"]))
    row_height = 0.7 + 0.3 * len(arms)
    of_first = summary[summary["arm"] == arms[0]]
    y, headings = _place_rows(of_first, row_height)
    figure, axes = make_panels(2, 9.6, 1.3 + 0.26 * (y.max() + row_height), width_ratios=[1.3, 1])
    for k, arm in enumerate(arms):
        rows = summary[summary["arm"] == arm]
        shift = 0.5 * (k - (len(arms) - 1) / 2)
        for place, (_, row) in zip(y + shift, rows.iterrows(), strict=True):
            _draw_row(axes[0 if np.isnan(row["p"]) else 1], place, row, k, 0.2 if len(arms) > 1 else 0.28)
    label_axis(axes[0], "AUC over pairs within site and subgroup, %")
    label_axis(axes[1], "difference in AUC, points (p after Holm's correction)")
    axes[1].axvline(0, **DASHED | {"color": "0.5", "zorder": 1})
    compared = of_first["p"].notna().to_numpy()
    labels = (of_first["subgroup"] + ", " + of_first["range"]).str.removesuffix(", ")[~compared]
    axes[0].set_yticks([*headings.values(), *y[~compared]], [*headings, *labels], fontsize=9)
    for heading in axes[0].get_yticklabels()[: len(headings)]:
        heading.set_fontweight("bold")
    for tick in axes[0].yaxis.get_major_ticks()[: len(headings)]:
        tick.tick1line.set_visible(False)
    differences = [str(name).replace(" third minus ", " minus\n") for name in of_first[compared]["subgroup"]]
    axes[1].set_yticks(y[compared], differences, fontsize=9)
    for axis in axes:
        axis.set_ylim(y.max() + 1.2 * row_height, -0.6)
    if len(arms) > 1:
        for k, arm in enumerate(arms):
            axes[0].plot([], [], label=arm, **series_style(k))
        entries = axes[0].get_legend_handles_labels()
        figure.legend(*entries, fontsize=9, frameon=False, loc="outside upper center", ncols=len(arms))
    figure.supxlabel(
        "Bars: 95% intervals. Grey: 95% range of random subgroups of the same sizes.", fontsize=8, color="0.3"
    )
    return figure


def _place_rows(rows: pd.DataFrame, row_height: float) -> tuple[np.ndarray, dict[str, float]]:
    """Heights of the rows, a difference in the middle of its subgroups, and heights of the names of variables."""
    places, headings, top = [], dict[str, float](), 0.0
    for name, own in rows.groupby("variable", sort=False):
        headings[str(name)] = top
        of_groups = top + 1.0 + row_height * np.arange(len(own) - 1)
        places += [*of_groups, of_groups.mean()]  # the last row is the difference
        top = of_groups[-1] + row_height + 0.5
    return np.array(places), headings


def _draw_row(axis: Any, place: float, row: pd.Series, k: int, half: float) -> None:
    """Draw an AUC or a difference of arm k with its interval, over the range of random subgroups."""
    axis.fill_betweenx([place - half, place + half], row["random low"], row["random high"], color="0.88", zorder=0)
    draw_dot(axis, place, row["AUC"], row["low"], row["high"], k, markersize=5)
    if not np.isnan(row["p"]):
        note_beside(axis, place, state_p(row["p Holm"]))


# ---------------------------------------------------------------- test and retest

LEAST_PARTICIPANTS = 2
"""Participants with several scans: the jackknife leaves out one."""


@dataclass(frozen=True, eq=False)
class _Repeats:
    """Margins of one arm for the N repeated scans of n participants, under S seeds."""

    seeds: list[int]
    full: np.ndarray  # [N, S]
    variance: np.ndarray  # over re-estimates of each scan, [N, S]
    agreement: np.ndarray  # share of re-estimates with the decision of their scan, [N, S]
    member: np.ndarray  # participant of each scan, [N]
    cell: np.ndarray  # site and class of each participant, [n]
    site: np.ndarray  # [n]
    label: np.ndarray  # [n]

    def compute(self, weight: np.ndarray | None = None) -> pd.DataFrame:
        """Compute each quantity, a column each, for every seed. ``weight``: of each participant, shape [n]."""
        w = np.ones(len(self.cell)) if weight is None else weight
        inside = estimate_session_variance(self.full, self.member, self.cell, w)
        whole = estimate_session_variance(self.full, self.member, self.site, w)

        def average(values: np.ndarray) -> np.ndarray:
            return np.average(values, axis=0, weights=w)

        scans = average(average_over_scans(self.variance, self.member))
        quantities = {
            "between_participants": inside.participants,
            "between_sessions": inside.sessions,
            "within_scans": scans,
            "sessions_over_scans": inside.sessions / scans,
            "icc": whole.icc,
            "icc_within_classes": inside.icc,
            "same_decision": average(count_agreeing_pairs(self.full > 0, self.member)),
            "same_decision_reestimates": average(average_over_scans(self.agreement, self.member)),
        }
        return pd.DataFrame(quantities)


def _list_repeated_arms(context: StudyContext) -> list[Arm]:
    cohort, folds = context.cohort, context.job.spec.folds  # folds are test sites: there is no k-fold here
    tested = np.ones(len(cohort), dtype=bool) if folds is None else np.isin(cohort.sites, folds)
    _, n_scans = np.unique(cohort.participant_ids[tested], return_counts=True)
    n_repeated = int((n_scans > 1).sum())
    if n_repeated < LEAST_PARTICIPANTS:
        where = "in this cohort" if folds is None else f"at {', '.join(folds)}"
        raise BrioError(
            f"study 'retest' needs at least {LEAST_PARTICIPANTS} participants with several scans, but "
            f"{'only one' if n_repeated else 'no'} participant {where} has several; import repeated scans with "
            f"--sessions all{'' if folds is None else ', or choose other folds'}"
        )
    return list_own_arms(context)


@register_study("retest", _list_repeated_arms)
def compare_sessions(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare the variation of margins between sessions with that between re-estimates of one scan (default: ridge)."""
    repeats = {a.name: _collect(context, a) for a in arms}
    tables = {
        a: repeats[a.name].compute().assign(seed=repeats[a.name].seeds, participants=len(repeats[a.name].cell))
        for a in arms
    }
    table = stack_arms(tables, context.trained_results, "seed", "participants")
    summary = pd.DataFrame([_summarise_sessions(name, own) for name, own in repeats.items()])
    text = [_describe_sessions(row, repeats[a.name]) for a, (_, row) in zip(arms, summary.iterrows(), strict=True)]
    text.append(
        "Margins are those of test scans. Variances are computed within sites and classes, so that differences between "
        "scanners or diagnoses do not make a model look reliable. Re-estimates understate the uncertainty of a scan: "
        "in simulations without differences between sessions, the variance between sessions was up to 1.5 times the "
        "variance between re-estimates. Only a larger ratio suggests that the participant or the scanner changed. ICC "
        "is ICC(1) with one-way random effects (Shrout & Fleiss 1979), computed over all participants of a site and "
        "within its classes. Intervals come from a jackknife over participants."
    )
    return Finding(table, summary, text, lambda: _draw_sessions(repeats, context.cohort.classes), digits=6)


def _collect(context: StudyContext, arm: Arm) -> _Repeats:
    """Margins of the repeated scans under every seed."""
    from ..diagnostics import collect_repeated_margins

    frozen = context.freeze_runs(arm)
    scans, full, reestimated = collect_repeated_margins(frozen)
    cohort = context.cohort
    first, member = index_participants(cohort.participant_ids[scans])
    people = scans[first]
    site = np.unique(cohort.sites[people], return_inverse=True)[1]
    return _Repeats(
        seeds=list(dict.fromkeys(fitted.run.seed for fitted in frozen.fitted)),
        full=full,
        variance=reestimated.var(axis=2, ddof=1),
        agreement=((reestimated > 0) == (full > 0)[..., None]).mean(axis=2),
        member=member,
        cell=np.unique(2 * site + cohort.labels[people], return_inverse=True)[1],
        site=site,
        label=cohort.labels[people],
    )


def _summarise_sessions(name: str, own: _Repeats) -> dict[str, Any]:
    """One row of the small table, with intervals over participants."""
    mean = own.compute().mean()
    ends = jackknife_participants(lambda w: own.compute(w).mean().to_numpy(), own.cell)
    intervals = pd.DataFrame(ends, columns=mean.index)

    def show(quantity: str, digits: int) -> str:
        write = partial(format_number, digits=digits)
        return f"{write(mean[quantity])}{bracket_interval(intervals[quantity], write, np.inf)}"

    return {
        "arm": name.split(",")[0],
        "variance between participants": mean["between_participants"],
        "between sessions": mean["between_sessions"],
        "within scans": mean["within_scans"],
        "sessions / scans (95% interval)": show("sessions_over_scans", 1),
        "ICC (95% interval)": show("icc", 2),
        "ICC within classes (95% interval)": show("icc_within_classes", 2),
        "same decision in two sessions, %": f"{100 * mean['same_decision']:.1f}",
        "same decision of re-estimates, %": f"{100 * mean['same_decision_reestimates']:.1f}",
    }


def _describe_sessions(row: pd.Series, own: _Repeats) -> str:
    return (
        f"{display_method(row['arm'])}: {len(own.cell)} participants with {len(own.member)} scans. Two sessions of a "
        f"participant get the same decision in {row['same decision in two sessions, %']}% of cases (a re-estimate and "
        f"its scan in {row['same decision of re-estimates, %']}%). The variance between sessions is "
        f"{row['sessions / scans (95% interval)']} times that between re-estimates of one scan. The ICC is "
        f"{row['ICC (95% interval)']}, and within classes {row['ICC within classes (95% interval)']}."
    )


def _draw_sessions(repeats: dict[str, _Repeats], classes: tuple[str, str]) -> Any:
    """Margins of the first two sessions of each participant under the first method; variance components of all."""
    figure, (left, right) = make_panels(2, 9.6, max(3.6, 2.4 + 0.4 * len(repeats)), width_ratios=[1, 1.2])
    name, own = next(iter(repeats.items()))
    margin = own.full.mean(axis=1)
    first, _ = index_participants(own.member)
    second = np.array([np.flatnonzero(own.member == i)[1] for i in range(len(first))])
    titles = ("controls", "patients") if classes == ("0", "1") else classes
    for label, title in enumerate(titles):
        here = own.label == label
        style = series_style(label)
        left.scatter(margin[first][here], margin[second][here], s=14, alpha=0.7, label=title, **style)
    ends = [float(margin.min()), float(margin.max())]
    left.plot(ends, ends, **DASHED)
    for line in (left.axhline, left.axvline):
        line(0, color="0.85", linewidth=0.8, zorder=0)
    x = f"margin in the first session ({display_method(name)})"
    label_axis(left, x, "margin in the second session", legend={})
    _draw_components(right, repeats)
    return figure


def _draw_components(axis: Any, repeats: dict[str, _Repeats]) -> None:
    """Shares of participants, sessions and re-estimates in the variance within a class, one bar per method."""
    for y, own in enumerate(repeats.values()):
        mean = own.compute().mean()
        scans = min(mean["within_scans"], mean["between_sessions"])
        parts = np.array([max(mean["between_participants"], 0.0), mean["between_sessions"] - scans, scans])
        edge = 0.0
        for k, share in enumerate(100 * parts / parts.sum()):
            label = ("between participants", "between sessions, beyond re-estimates", "within scans (re-estimates)")[k]
            colour = series_style((2, 4, 5)[k])["color"]
            axis.barh(y, share, left=edge, height=0.6, color=colour, label=label if y == 0 else None)
            edge += share
    axis.set_yticks(range(len(repeats)), [display_method(name) for name in repeats], fontsize=9)
    below, limits = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18)}, (len(repeats) - 0.4, -0.6)
    label_axis(axis, "share of the variance of margins within a class, %", legend=below, xlim=(0, 100), ylim=limits)
