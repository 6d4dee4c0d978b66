"""AUC of methods, of parts of BRIO, of its settings and for other labels: comparison, ablation, sensitivity, labels."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ..cohort.covariates import COVARIATE_COLUMNS, describe_labels
from ..drawing import DASHED, draw_intervals, label_axis, make_panels, series_style
from ..errors import BrioError
from ..formatting import format_count, format_interval, format_number, format_signed
from ..jobs.job import Job
from ..methods import find_method, list_methods
from ..protocol import LEAST_SITES, find_two_class_sites
from .context import Arm, StudyContext, display_name, list_own_arms, make_arm
from .study import Finding, register_study
from .summaries import describe_differences, describe_left_out, draw_arms, move_first, summarise_arms, tidy_rows


def list_compared_arms(context: StudyContext, protocol: str = "loso") -> list[Arm]:
    """List the arms of a comparison of methods.

    These are the methods of the context or, where it names none, all methods that the cohort has the inputs for.
    Variants of another method and methods that were loaded from a file take part only if they are named.
    """
    every = [entry.name for entry in list_methods() if not entry.fixed and not entry.file]
    return [make_arm(name, protocol, tuned=True) for name in context.methods or context.select_runnable_methods(every)]


def choose_reference(arms: list[Arm]) -> str:
    """Choose the arm that the others are compared with: BRIO where it takes part, else the first."""
    names = [a.name for a in arms]
    return "brio" if "brio" in names else names[0]


@register_study("comparison", list_compared_arms)
def compare_methods(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare all methods, leaving one site out: mean and SD of AUC and ACC over test sites."""
    return _rank_arms(context, arms)


@register_study("in-distribution", partial(list_compared_arms, protocol="kfold"))
def compare_methods_in_distribution(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare all methods in ten folds stratified by site and class: mean and SD of AUC and ACC over test folds."""
    return _rank_arms(context, arms)


def _rank_arms(context: StudyContext, arms: list[Arm]) -> Finding:
    """Rank arms by mean AUC and compare each with the reference."""
    reference = choose_reference(arms)
    rows = context.collect_rows(arms)
    summary = _rank(rows, reference)
    text = [f"{_describe_best(summary)}."]
    text += describe_differences(summary, reference) if len(arms) > 1 else []
    tuned = [display_name(a.name) for a in arms if context.results_of(a).summary.is_tuned]
    if tuned:
        rest = "" if len(tuned) == len(arms) else " The settings of the other methods were not."
        text.append(f"The settings of {', '.join(tuned)} were tuned.{rest}")
    text += describe_left_out(context)
    return Finding(tidy_rows(rows), summary, text, lambda: draw_arms(summary, reference))


def _rank(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    return summarise_arms(rows, reference).sort_values("AUC", ascending=False).reset_index(drop=True)


def _describe_best(summary: pd.DataFrame) -> str:
    best, write = summary.iloc[0], partial(format_number, digits=1)
    spread = f"95% interval {format_interval(best[['low', 'high']], write, whole=100)}, SD {write(best['SD'])}"
    return f"{display_name(best['arm'])} has the highest mean AUC: {best['AUC']:.1f}% ({spread})"


PAPERS = ("brio-wo-rs", "brio-wo-tr", "brio-wo-sm", "brio-wo-sf")
OURS = ("brio-wo-qg", "backbone", "brio-shuffled", "backbone-shuffled")


@register_study("ablation", lambda context: [make_arm(name) for name in ("brio", *PAPERS, *OURS)])
def compare_ablations(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare BRIO with the paper's four ablations of Eqs. (18) and (19), w/o QG, the backbone and shuffled sites."""
    rows = context.collect_rows(arms)
    summary = summarise_arms(rows, "brio")
    summary.insert(1, "reported by", ["ours" if name in OURS else "paper" for name in summary["arm"]])
    by_arm = summary.set_index("arm")
    n_lower, mean = (by_arm.loc[list(PAPERS), "minus brio"] < 0).sum(), by_arm["AUC"]
    text = [
        f"BRIO has a higher mean AUC than {n_lower} of the paper's four ablations.",
        *describe_differences(summary, "brio"),
        f"Alignment changes the mean AUC of the backbone by {mean['brio'] - mean['backbone']:+.1f} points, and by "
        f"{mean['brio-shuffled'] - mean['backbone-shuffled']:+.1f} points if site names are shuffled among the "
        "source scans of each class.",
    ]

    def label(name: str) -> str:
        return f"{display_name(name)} (ours)" if name in OURS else display_name(name)

    return Finding(tidy_rows(rows), summary, text, lambda: draw_arms(summary, "brio", label))


K_VALUES, J_VALUES, SCALES = (2, 4, 8, 16), (1, 2, 4, 8, 16), (0.5, 1.0, 2.0)
_LABELS = {"K": "re-estimates K", "J": "factors J", "block": "block length, relative to its estimate"}


def make_setting_arms(context: StudyContext) -> dict[str, dict[float, Arm]]:
    """Make the arms along each setting; the default is the plain method, which other studies share."""
    own = context.settings_of("brio")
    width, plain = own.J * own.d_t, make_arm("brio")
    varied: dict[str, dict[float, Arm]] = {
        "K": {K: make_arm("brio", K=K) for K in K_VALUES} | {own.K: plain},
        "J": {J: make_arm("brio", J=J, d_t=width // J) for J in J_VALUES if width % J == 0} | {own.J: plain},
        "block": {scale: make_arm("brio", block_scale=scale) for scale in SCALES} | {own.block_scale: plain},
    }
    return {setting: dict(sorted(arms.items())) for setting, arms in varied.items()}


def _list_setting_arms(context: StudyContext) -> list[Arm]:
    return list(dict.fromkeys(a for group in make_setting_arms(context).values() for a in group.values()))


@register_study("sensitivity", _list_setting_arms)
def vary_settings(context: StudyContext, arms: list[Arm]) -> Finding:
    """Vary K, J (with the total width J d_t fixed) and the block length (half and twice its unrounded estimate)."""
    rows = context.collect_rows(arms)
    repetition_time = np.nan  # median, in seconds
    if "tr" in context.cohort.participants:
        repetition_time = pd.to_numeric(context.cohort.participants["tr"], errors="coerce").median()
    tables, summaries, text = [], [], []
    for setting, group in make_setting_arms(context).items():
        runs = pd.concat([rows[rows["arm"] == a.name].assign(value=value) for value, a in group.items()])
        tables.append(tidy_rows(runs.assign(setting=setting), "setting", "value", "block_length"))
        summary = summarise_arms(runs, "brio")
        summary.insert(0, "setting", setting)
        summary.insert(1, "value", list(group))
        frames = [runs[runs["arm"] == a.name]["block_length"].mean() for a in group.values()]
        seconds = ["" if np.isnan(repetition_time) else f" ({n * repetition_time:.1f})" for n in frames]
        summary.insert(2, "block, frames (s)", [f"{n:.1f}{s}" for n, s in zip(frames, seconds, strict=True)])
        summaries.append(summary)
        best = summary.loc[summary["AUC"].idxmax()]
        label = _LABELS[setting][0].upper() + _LABELS[setting][1:]
        text.append(f"{label}: the mean AUC is highest at {best['value']:g} ({best['AUC']:.1f}%).")
        text += describe_differences(summary, "brio")
    summary = pd.concat(summaries, ignore_index=True)
    unit = "sites" if context.job.spec.protocol == "loso" else "folds"
    shown = summary.assign(value=summary["value"].map("{:g}".format))
    return Finding(pd.concat(tables, ignore_index=True), shown, text, lambda: _draw_settings(summary, unit))


def _draw_settings(summary: pd.DataFrame, unit: str) -> Any:
    figure, axes = make_panels(3, 9.6, 3.2, sharey=True)
    for k, (axis, (setting, table)) in enumerate(zip(axes, summary.groupby("setting", sort=False), strict=True)):
        draw_intervals(axis, list(table["value"]), table["AUC"], table["low"], table["high"], k, capsize=3)
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(table["value"]), [f"{value:g}" for value in table["value"]])
        axis.minorticks_off()
        label_axis(axis, _LABELS[str(setting)], "" if k else f"AUC, % (95% interval over {unit})", grid="y")
    return figure


QUESTIONS = ("age>site-median", "age>14.5", "sex")
"""Other labels that are compared with the cohort's own label if its covariates allow it."""
LABEL_METHODS = (
    *("ridge", "log-ridge", "tangent-ridge", "fc-tangent-ridge", "svm", "logistic", "brio-plus", "brio"),
    *("mlp", "brainnettf", "vrex", "irm", "coral"),
)
"""The linear family, BRIO plus, BRIO, and the five networks without age or sex that are best on AAL116 of ABIDE."""
OWN, TOGETHER = "own label", "all labels"
"""Names in tables of the cohort's own label and of the mean over all labels at each site."""


def _ask_questions(context: StudyContext) -> tuple[list[str], list[str]]:
    """Choose the questions that the cohort can answer; state why others are left out; an error if they were given."""
    asked, left_out = [], []
    for question in context.questions or QUESTIONS:
        try:
            n_sites = len(find_two_class_sites(context.job_for(question).cohort))
            if n_sites < LEAST_SITES:
                few = format_count(n_sites, "site")
                raise BrioError(
                    f"with the label '{question}', {few} {'has' if n_sites == 1 else 'have'} both classes, but "
                    f"{LEAST_SITES} are needed"
                )
            asked.append(question)
        except BrioError as error:
            if context.questions:
                raise
            left_out.append(f"The label '{question}' is left out: {error}.")
    if not asked:
        why = " ".join(left_out)
        raise BrioError(f"study 'labels' has no label besides the cohort's own. {why} Give one, such as 'age>14.5'")
    return asked, left_out


def _list_label_arms(context: StudyContext) -> list[Arm]:
    own = list_own_arms(context, context.methods or context.select_runnable_methods(LABEL_METHODS))
    return own + [
        replace(a, label=question)
        for question in _ask_questions(context)[0]
        for a in own
        if not _is_given_label(context.job_for(question), a.method)
        and not context.job_for(question).missing_inputs(a.method)
    ]


def _is_given_label(job: Job, method: str) -> bool:
    """Return whether the column of a label is an input of a method; without it, the method would be another one."""
    return job.cohort.label_covariate in map(COVARIATE_COLUMNS.get, find_method(method).needs)


def _explain_left_out(context: StudyContext, methods: list[str], questions: list[str]) -> list[str]:
    """Say which methods are not trained for which question, and why."""
    sentences = []
    for question in questions:
        job = context.job_for(question)
        given = [name for name in methods if _is_given_label(job, name)]
        if given:
            why = "because its column is an input of these methods"
            sentences.append(f"Left out for the label '{question}', {why}: {', '.join(given)}.")
        others = [why for name in methods if name not in given and (why := job.missing_inputs(name))]
        sentences += [f"Left out for the label '{question}': {why}." for why in others]
    return sentences


@register_study("labels", _list_label_arms)
def compare_labels(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare methods for the cohort's own label, age and sex: does the best method depend on the label?"""
    questions, not_asked = _ask_questions(context)
    methods = list(dict.fromkeys(a.method for a in arms))
    by_label = {label: [a for a in arms if a.label == label] for label in (None, *questions)}
    own = [a.name for a in by_label[None]]
    shared = [name for name in own if all(name in {a.name for a in some} for some in by_label.values())]
    left_out = _explain_left_out(context, methods, questions)
    if not shared:
        raise BrioError(f"no method can be trained for every label, so none are compared. {' '.join(left_out)}")
    reference = next((a.name for a in by_label[None] if a.method == "ridge" and a.name in shared), shared[0])
    rows = {label or OWN: context.collect_rows(some) for label, some in by_label.items()}
    tables = [tidy_rows(part).assign(question=label) for label, part in rows.items()]
    rows[TOGETHER] = _average_labels(pd.concat(tables), shared)
    summaries = {label: _rank(part, reference) for label, part in rows.items()}
    columns = Counter(re.split("[>=]", question)[0].strip() for question in questions)
    several = " and ".join(column for column, n in columns.items() if n > 1)
    repeated = f" More than one label concerns {several}." if several else ""
    text = [
        f"Over all {len(tables)} labels, {_describe_best(summaries[TOGETHER])}.",
        *describe_differences(summaries[TOGETHER], reference, "mean AUC over labels"),
        *_describe_consistency(summaries, reference, shared),
        *(f"{label}: {_describe_best(one)}." for label, one in summaries.items() if label != TOGETHER),
        "p values are adjusted within each label (Holm). For all labels together, the scores at each site are averaged "
        f"with equal weights over the labels that the site has; these means are then tested over sites.{repeated}",
        *(f"'{q}', {describe_labels(context.job_for(q).cohort_before_exclusions)}." for q in questions),
        *not_asked,
        *describe_left_out(context),
        *left_out,
    ]
    summary = pd.concat([one.assign(question=label) for label, one in summaries.items()], ignore_index=True)
    shown = move_first(summary.drop(columns=["ACC", "ACC SD", "epochs", "K"]), "question")
    table = move_first(pd.concat(tables, ignore_index=True), "question")
    return Finding(table, shown, text, lambda: _draw_labels(summary, own, reference))


def _average_labels(rows: pd.DataFrame, shared: list[str]) -> pd.DataFrame:
    """Average scores over the labels for which a site and seed have scores, for arms that have all labels."""
    runs = rows[rows["arm"].isin(shared)].groupby(["arm", "method", "protocol", "fold", "seed"], sort=False)
    return runs.agg({"auc": "mean", "acc": "mean", "epochs": "first", "K": "first"}).reset_index()


def _describe_consistency(summaries: dict[str, pd.DataFrame], reference: str, shared: list[str]) -> list[str]:
    """State which methods are above the reference for every label, for none, or only for some."""
    columns = {label: one.set_index("arm")[f"minus {reference}"] for label, one in summaries.items()}
    differences = pd.DataFrame(columns).drop(columns=TOGETHER).loc[shared].drop(reference).astype(float)
    if differences.empty:
        return []
    above, below = (differences > 0).all(axis=1), (differences < 0).all(axis=1)
    mixed = [
        f"{display_name(str(name))} ({', '.join(f'{format_signed(d)} {label}' for label, d in row.items())})"
        for name, row in differences[~above & ~below].iterrows()
    ]
    kinds = {
        f"Higher AUC than {display_name(reference)} for every label": map(display_name, differences.index[above]),
        f"Lower AUC than {display_name(reference)} for every label": map(display_name, differences.index[below]),
        f"Higher AUC than {display_name(reference)} for only some labels": mixed,
    }
    return [f"{kind}: {', '.join(names) or 'none'}." for kind, names in kinds.items()]


def _draw_labels(summary: pd.DataFrame, arms: list[str], reference: str) -> Any:
    """A panel for each label: methods as dots with intervals over sites, filled where they differ significantly."""
    labels = list(dict.fromkeys(summary["question"]))
    width, height = max(6.5, 2.0 + 0.5 * len(arms)), 1.2 + 1.3 * len(labels)
    figure, axes = make_panels(len(labels), width, height, len(labels), sharex=True)
    for axis, label in zip(axes, labels, strict=True):
        rows = summary[summary["question"] == label].set_index("arm")
        for x, name in enumerate(arms):
            if name not in rows.index:
                continue
            row = rows.loc[name]
            k = 0 if name == reference else 1
            fill = series_style(k)["color"] if name == reference or row["p"] <= 0.05 else "white"
            look: dict[str, Any] = {"linestyle": "none", "markersize": 6, "markerfacecolor": fill}
            draw_intervals(axis, x, row["AUC"], row["low"], row["high"], k, **look)
        axis.axhline(rows.loc[reference, "AUC"], **DASHED | {"color": "0.5"})
        label_axis(axis, y="AUC, %", title=f"{label} ({int(rows['folds'].max())} sites)", grid="x")
        axis.locator_params(axis="y", nbins=5)
    axes[-1].set_xticks(np.arange(len(arms)), [display_name(a) for a in arms], rotation=40, ha="right", fontsize=9)
    axes[-1].set_xlim(-0.6, len(arms) - 0.4)
    name = display_name(reference)
    beside = f"Dashed: {name}. Filled: significantly different from {name}, p ≤ 0.05 (Holm)."
    figure.supxlabel(f"Bars: 95% intervals over sites. {beside}", fontsize=8, color="0.3")
    return figure
