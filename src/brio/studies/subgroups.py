"""Whether a method does equally well in women and men, by age, by motion and by length of the scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..cohort import Cohort
from ..cohort.covariates import COVARIATE_COLUMNS, read_covariates
from ..cohort.sessions import index_participants
from ..drawing import make_panels, series_style
from ..errors import BrioError
from ..formatting import state_p
from ..protocol.paired_tests import adjust_holm
from ..results.format import format_interval, format_p, format_range, format_signed
from .arms import display_name
from .context import StudyContext
from .estimands import list_own_arms, read_arm_predictions
from .figures import compute_error_bars
from .study import Finding, register_study
from .subgroup_pairs import SitePairs, collect_site_pairs, divide_into_thirds, score_subgroups


@dataclass(frozen=True, eq=False)
class _Variable:
    """A variable that divides the participants, in the order of the pairs."""

    name: str
    groups: tuple[str, ...]
    code: np.ndarray
    values: np.ndarray
    by_site: bool = False


@register_study(
    "subgroups",
    "Performance in subgroups of participants",
    "It reports no subgroups.",
    list_own_arms,
)
def compare_subgroups(context: StudyContext) -> Finding:
    """Compare the AUC (default ridge) between sexes, and thirds of age, motion and scan length."""
    arms = list_own_arms(context)
    tables, left_out = [], dict[str, str]()
    for a in arms:
        participants, pairs = collect_site_pairs(read_arm_predictions(context, a))
        variables, missing = _list_variables(context.cohort, participants)
        left_out |= missing
        if not variables:
            raise BrioError(f"cohort '{context.cohort.name}' has no variable to divide participants by")
        rows = pd.concat([_score_variable(variable, pairs, participants) for variable in variables], ignore_index=True)
        compared = rows["p"].notna()
        rows.loc[compared, "p Holm"] = adjust_holm(rows.loc[compared, "p"].to_numpy())
        tables.append(rows.assign(arm=a.name, **context.results_of(a).facts))
    table = pd.concat(tables, ignore_index=True)
    table = table[["arm", *(name for name in table.columns if name != "arm")]]
    summary = table.drop(columns=["folds", "seeds", "epochs", "K"]).assign(
        arm=[display_name(str(name).split(",")[0]) for name in table["arm"]]
    )
    text = [_describe(row, several=len(arms) > 1) for _, row in summary[summary["p"].notna()].iterrows()]
    text += [
        "AUC counts pairs of a patient and a control of the same site and the same subgroup. Intervals draw "
        "participants within sites, or sites where the variable is a property of the site. Random subgroups have the "
        "same sizes at each site and class.",
        *(f"Left out: {why}." for why in left_out.values()),
    ]
    return Finding(table, _format_rows(summary), text, lambda: _draw(summary), digits=6)


def _list_variables(cohort: Cohort, participants: pd.DataFrame) -> tuple[list[_Variable], dict[str, str]]:
    """The variables that divide the participants, and why others do not."""
    first, _ = index_participants(cohort.participant_ids)
    row_of = pd.Series(first, index=cohort.participant_ids[first])
    rows, site = row_of.loc[participants["participant_id"]].to_numpy(), participants["site"].to_numpy()
    variables, left_out = [], {}
    for name in COVARIATE_COLUMNS:
        try:
            values = read_covariates(cohort, [name], "study 'subgroups'")[rows, 0]
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
    """A variable in thirds; a third that ties have left empty is no subgroup."""
    code, used, by_site = divide_into_thirds(values, site)
    present, renumbered = np.unique(code, return_inverse=True)
    groups = tuple(("lowest third", "middle third", "highest third")[g] for g in present if g >= 0)
    return _Variable(name, groups, renumbered - int(present[0] < 0), used, by_site)


def _score_variable(variable: _Variable, pairs: list[SitePairs], participants: pd.DataFrame) -> pd.DataFrame:
    """One row per subgroup in percent, then one for the difference of the last and the first subgroup."""
    scores = score_subgroups(pairs, variable.code, len(variable.groups), by_site=variable.by_site)
    label, rows = participants["label"].to_numpy(), []
    for g, group in enumerate(variable.groups):
        members = variable.code == g
        (low, high), (random_low, random_high) = scores.interval(g), scores.random_range(g)
        rows.append(
            {
                "variable": variable.name,
                "subgroup": group,
                "range": _format_values(variable, members),
                "patients": int((members & (label == 1)).sum()),
                "controls": int((members & (label == 0)).sum()),
                "sites": int(scores.n_sites[g]),
                "pairs": int(scores.n_pairs[g]),
                "AUC": 100 * scores.auc[g],
                "low": 100 * low,
                "high": 100 * high,
                "random low": 100 * random_low,
                "random high": 100 * random_high,
                "p": np.nan,
            }
        )
    last = len(variable.groups) - 1
    difference, interval, random, p = scores.difference(last, 0)
    ends = {"low": interval[0], "high": interval[1], "random low": random[0], "random high": random[1]}
    rows.append(
        {"variable": variable.name, "subgroup": f"{variable.groups[last]} minus {variable.groups[0]}", "range": ""}
        | {"AUC": 100 * difference, **{key: 100 * value for key, value in ends.items()}, "p": p}
    )
    return pd.DataFrame(rows).assign(units="sites" if variable.by_site else "participants")


def _format_values(variable: _Variable, members: np.ndarray) -> str:
    """The range of a variable in a subgroup."""
    if variable.name == "sex":
        return ""
    values = variable.values[members]
    largest = np.nanmax(variable.values)
    digits = 0 if largest >= 100 else 1 if largest >= 10 else 2
    return format_range(float(values.min()), float(values.max()), digits)


def _describe(row: pd.Series, several: bool) -> str:
    of_method = f" of {row['arm']}" if several else ""
    interval, random = (
        format_interval([row[f"{kind}low"], row[f"{kind}high"]], format_signed) for kind in ("", "random ")
    )
    return (
        f"{row['variable'].split(',')[0].capitalize()}, {row['subgroup']}: the AUC{of_method} differs by "
        f"{format_signed(row['AUC'])} points (95 % interval {interval}; random subgroups {random}; "
        f"{state_p(row['p'])}, {state_p(row['p Holm'])} after Holm's correction)."
    )


def _format_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The small table that readers see, with ranges in one column."""
    ends = [format_interval(pair, "{:.1f}".format) for pair in table[["random low", "random high"]].to_numpy(float)]
    counts = {name: table[name].astype("Int64") for name in ("patients", "controls", "sites", "pairs")}
    corrected = [format_p(p) for p in table["p Holm"]]
    shown = table.drop(columns=["random low", "random high", "units"])
    shown = shown.assign(**counts, **{"random subgroups": ends, "p Holm": corrected})
    return shown if table["arm"].nunique() > 1 else shown.drop(columns="arm")


def _draw(summary: pd.DataFrame) -> Any:
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
    axes[0].set_xlabel("AUC of pairs within site and subgroup, %", fontsize=9)
    axes[1].set_xlabel("difference of AUC, points (p after Holm's correction)", fontsize=9)
    axes[1].axvline(0, color="0.5", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    compared = of_first["p"].notna().to_numpy()
    labels = [
        row["subgroup"] + (f", {row['range']}" if row["range"] else "") for _, row in of_first[~compared].iterrows()
    ]
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
    figure.supxlabel("Bars: 95 % intervals. Grey: 95 % of random subgroups of the same sizes.", fontsize=8, color="0.3")
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
    style = series_style(k)
    axis.fill_betweenx([place - half, place + half], row["random low"], row["random high"], color="0.88", zorder=0)
    bars = compute_error_bars([row["AUC"]], [row["low"]], [row["high"]])
    axis.errorbar(row["AUC"], place, xerr=bars, fmt=style["marker"], color=style["color"], capsize=2, markersize=5)
    if not np.isnan(row["p"]):
        beside = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 8, "color": "0.3"}
        axis.annotate(state_p(row["p Holm"]), (1.02, place), **beside)
