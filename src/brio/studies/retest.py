"""Whether a model gives a participant the same answer in another session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..cohort.scans import average_over_scans, index_participants
from ..drawing import make_panels, series_style
from ..errors import BrioError
from ..formatting import format_interval
from ..protocol.calibration import count_agreeing_pairs, estimate_session_variance, jackknife_participants
from .context import Arm, StudyContext, display_method, list_own_arms
from .study import Finding, register_study
from .summaries import label_axis, move_first

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

    def compute(self, weight: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Compute each quantity for every seed, shape [S]. ``weight``: of each participant, shape [n]."""
        w = np.ones(len(self.cell)) if weight is None else weight
        inside = estimate_session_variance(self.full, self.member, self.cell, w)
        whole = estimate_session_variance(self.full, self.member, self.site, w)

        def average(values: np.ndarray) -> np.ndarray:
            return np.average(values, axis=0, weights=w)

        scans = average(average_over_scans(self.variance, self.member))
        return {
            "between_participants": inside.participants,
            "between_sessions": inside.sessions,
            "within_scans": scans,
            "sessions_over_scans": inside.sessions / scans,
            "icc": whole.icc,
            "icc_within_classes": inside.icc,
            "same_decision": average(count_agreeing_pairs(self.full > 0, self.member)),
            "same_decision_reestimates": average(average_over_scans(self.agreement, self.member)),
        }

    def average_seeds(self) -> dict[str, float]:
        """Return the mean of each quantity over seeds."""
        return {name: float(values.mean()) for name, values in self.compute().items()}

    def compute_intervals(self) -> dict[str, tuple[float, float]]:
        """Compute the 95 % interval of the mean over seeds of each quantity."""
        low, high = jackknife_participants(lambda w: np.array([v.mean() for v in self.compute(w).values()]), self.cell)
        return dict(zip(self.compute(), zip(low.tolist(), high.tolist(), strict=True), strict=True))


def _list_arms(context: StudyContext) -> list[Arm]:
    cohort, folds = context.cohort, context.job.spec.folds  # folds are test sites: there is no k-fold here
    tested = np.ones(len(cohort), dtype=bool) if folds is None else np.isin(cohort.sites, folds)
    _, n_scans = np.unique(cohort.participant_ids[tested], return_counts=True)
    n_repeated = int((n_scans > 1).sum())
    if n_repeated < LEAST_PARTICIPANTS:
        where = "in this cohort" if folds is None else f"in fold {', '.join(folds)}"
        raise BrioError(
            f"study 'retest' compares scans of the same participants and needs at least {LEAST_PARTICIPANTS} with "
            f"several, but {'only one' if n_repeated else 'nobody'} {where} has several; import repeated scans with "
            f"--sessions all{'' if folds is None else ', or choose other folds'}"
        )
    return list_own_arms(context)


@register_study(
    "retest", "Test and retest: the same participant in another session", "It has no repeated scans.", _list_arms
)
def compare_sessions(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare margins of a participant between sessions with those of re-estimates of one scan (default ridge)."""
    repeats = {a.name: _collect(context, a) for a in arms}
    tables, rows, text = [], [], []
    for a in arms:
        own, facts = repeats[a.name], context.trained_results(a).facts
        by_seed = pd.DataFrame(own.compute())
        tables.append(by_seed.assign(arm=a.name, seed=own.seeds, participants=len(own.cell), **facts))
        rows.append(_summarise(a.name, own))
        text.append(_describe(rows[-1], own))
    table = pd.concat(tables, ignore_index=True).astype({"epochs": "Int64", "K": "Int64"})
    text.append(
        "Margins are those of test scans. Variances are of participants of one site and class, so that neither scanner "
        "nor diagnosis makes a model look reliable. Re-estimates resample the frames of one scan, so sessions that "
        "differ by more hold a change of state, or of the scanner. ICC is ICC(1), one-way random effects (Shrout & "
        "Fleiss 1979), over all participants of a site and within its classes. Intervals are of a jackknife over "
        "participants."
    )
    table = move_first(table, "arm", "seed", "participants")
    return Finding(table, pd.DataFrame(rows), text, lambda: _draw(repeats, context.cohort.classes), digits=6)


def _collect(context: StudyContext, arm: Arm) -> _Repeats:
    """Margins of the repeated scans under every seed."""
    from ..diagnostics import DIAGNOSTIC_REESTIMATES, RepeatedMargins, collect_repeated_margins

    method, fitted_runs = context.load_fitted_runs(arm)
    by_seed: list[RepeatedMargins] = []
    seeds = list(dict.fromkeys(fitted.run.seed for fitted in fitted_runs))
    for seed in seeds:
        own = [fitted for fitted in fitted_runs if fitted.run.seed == seed]
        lengths = [context.estimate_block_length(fitted.run) for fitted in own]
        margins = collect_repeated_margins(method, own, context.connectomes, lengths, DIAGNOSTIC_REESTIMATES)
        order = np.argsort(margins.scans)  # folds of k-fold differ between seeds
        by_seed.append(RepeatedMargins(*(field[order] for field in margins)))
    scans, cohort = by_seed[0].scans, context.cohort
    first, member = index_participants(cohort.participant_ids[scans])
    people = scans[first]
    site = np.unique(cohort.sites[people], return_inverse=True)[1]
    full = np.stack([one.full for one in by_seed], axis=1)
    reestimated = np.stack([one.reestimated for one in by_seed], axis=1)  # [N, S, K]
    return _Repeats(
        seeds=seeds,
        full=full,
        variance=reestimated.var(axis=2, ddof=1),
        agreement=((reestimated > 0) == (full > 0)[..., None]).mean(axis=2),
        member=member,
        cell=np.unique(2 * site + cohort.labels[people], return_inverse=True)[1],
        site=site,
        label=cohort.labels[people],
    )


def _summarise(name: str, own: _Repeats) -> dict[str, Any]:
    """One row of the small table, with intervals over participants."""
    mean, intervals = own.average_seeds(), own.compute_intervals()

    def show(quantity: str, digits: int) -> str:
        write = f"{{:.{digits}f}}".format
        return f"{write(mean[quantity])} ({format_interval(intervals[quantity], write)})"

    return {
        "arm": name.split(",")[0],
        "variance between participants": mean["between_participants"],
        "between sessions": mean["between_sessions"],
        "within scans": mean["within_scans"],
        "sessions / scans (95 % interval)": show("sessions_over_scans", 1),
        "ICC (95 % interval)": show("icc", 2),
        "ICC within classes (95 % interval)": show("icc_within_classes", 2),
        "same decision in two sessions, %": f"{100 * mean['same_decision']:.1f}",
        "same decision of re-estimates, %": f"{100 * mean['same_decision_reestimates']:.1f}",
    }


def _describe(row: dict[str, Any], own: _Repeats) -> str:
    return (
        f"{display_method(row['arm'])}: {len(own.cell)} participants with {len(own.member)} scans. Two sessions of a "
        f"participant get the same decision in {row['same decision in two sessions, %']} % (a re-estimate and its scan "
        f"in {row['same decision of re-estimates, %']} %). The variance between sessions over that of "
        f"re-estimates of one scan is {row['sessions / scans (95 % interval)']}. ICC {row['ICC (95 % interval)']}, "
        f"within classes {row['ICC within classes (95 % interval)']}."
    )


def _draw(repeats: dict[str, _Repeats], classes: tuple[str, str]) -> Any:
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
    left.plot(ends, ends, color="0.6", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    for line in (left.axhline, left.axvline):
        line(0, color="0.85", linewidth=0.8, zorder=0)
    label_axis(left, f"margin in the first session ({display_method(name)})", "margin in the second session")
    left.legend(fontsize=8, frameon=False)
    _draw_components(right, repeats)
    return figure


def _draw_components(axis: Any, repeats: dict[str, _Repeats]) -> None:
    """Shares of participants, sessions and re-estimates in the variance within a class, one bar per method."""
    for y, own in enumerate(repeats.values()):
        mean = own.average_seeds()
        scans = min(mean["within_scans"], mean["between_sessions"])
        parts = np.array([max(mean["between_participants"], 0.0), mean["between_sessions"] - scans, scans])
        edge = 0.0
        for k, share in enumerate(100 * parts / parts.sum()):
            label = ("between participants", "between sessions, beyond re-estimates", "within scans (re-estimates)")[k]
            colour = series_style((2, 4, 5)[k])["color"]
            axis.barh(y, share, left=edge, height=0.6, color=colour, label=label if y == 0 else None)
            edge += share
    axis.set_yticks(range(len(repeats)), [display_method(name) for name in repeats], fontsize=9)
    axis.set_ylim(len(repeats) - 0.4, -0.6)
    axis.set_xlim(0, 100)
    label_axis(axis, "share of the variance of margins within a class, %")
    axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18))
