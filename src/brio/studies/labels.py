"""Whether the order of methods holds for other labels of the same scans: age and sex in place of the diagnosis."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ..cohort.covariates import COVARIATE_COLUMNS, describe_question
from ..drawing import make_panels, series_style
from ..errors import BrioError
from ..formatting import format_interval, format_signed, state_p
from ..methods import find_method
from ..protocol import LEAST_SITES, find_two_class_sites
from .context import Arm, StudyContext, display_name, list_own_arms
from .study import Finding, register_study
from .summaries import (
    describe_differences,
    describe_left_out,
    draw_intervals,
    label_axis,
    move_first,
    summarise_arms,
    tidy_rows,
)

QUESTIONS = ("age>site-median", "age>14.5", "sex")
"""What is asked besides the cohort's own label, where its covariates allow it."""
METHODS = (
    *("ridge", "log-ridge", "tangent-ridge", "fc-tangent-ridge", "svm", "logistic", "brio-plus", "brio"),
    *("mlp", "brainnettf", "vrex", "irm", "coral"),
)
"""The linear family, BRIO plus, BRIO, and the five networks without age or sex that are best on AAL116 of ABIDE."""
OWN, TOGETHER = "own label", "all labels"
"""How tables call the cohort's own label, and the mean over all labels at each site."""


def _ask_questions(context: StudyContext) -> tuple[list[str], list[str]]:
    """Choose the questions that the cohort can answer; say why others are left out, an error if they were given."""
    asked, left_out = [], []
    for question in context.questions or QUESTIONS:
        try:
            n_sites = len(find_two_class_sites(context.job_for(question).cohort))
            if n_sites < LEAST_SITES:
                raise BrioError(f"the question '{question}' leaves {n_sites} sites with both classes of {LEAST_SITES}")
            asked.append(question)
        except BrioError as error:
            if context.questions:
                raise
            left_out.append(f"The question '{question}' is not asked: {error}.")
    if not asked:
        raise BrioError(f"study 'labels' has no other label to ask for. {' '.join(left_out)} Give one with --label")
    return asked, left_out


def _list_arms(context: StudyContext) -> list[Arm]:
    own = list_own_arms(context, context.methods or context.select_runnable_methods(METHODS))
    return own + [
        replace(a, label=question)
        for question in _ask_questions(context)[0]
        for a in own
        if not context.job_for(question).missing_inputs(a.method)
    ]


def _explain_left_out(context: StudyContext, methods: list[str], questions: list[str]) -> list[str]:
    """Say which methods are not trained for which question, and why."""
    sentences = []
    for question in questions:
        job = context.job_for(question)
        missing = {name: why for name in methods if (why := job.missing_inputs(name))}
        given = [n for n in missing if job.cohort.label_covariate in map(COVARIATE_COLUMNS.get, find_method(n).needs)]
        if given:
            sentences.append(f"Left out of '{question}', since they are given what it asks for: {', '.join(given)}.")
        sentences += [f"Left out of '{question}': {why}." for name, why in missing.items() if name not in given]
    return sentences


@register_study(
    "labels", "Other labels of the same scans", "It has one label for each cohort, the diagnosis.", _list_arms
)
def compare_labels(context: StudyContext, arms: list[Arm]) -> Finding:
    """Compare methods for the cohort's own label, age and sex: does the best method depend on what is asked?"""
    questions, not_asked = _ask_questions(context)
    methods = list(dict.fromkeys(a.method for a in arms))
    by_label = {label: [a for a in arms if a.label == label] for label in (None, *questions)}
    own = [a.name for a in by_label[None]]
    shared = [name for name in own if all(name in {a.name for a in some} for some in by_label.values())]
    if not shared:
        left_out = " ".join(_explain_left_out(context, methods, questions))
        raise BrioError(f"no method can be trained for every label, so nothing can be compared. {left_out}")
    reference = next((a.name for a in by_label[None] if a.method == "ridge" and a.name in shared), shared[0])
    rows = {label or OWN: context.collect_rows(some) for label, some in by_label.items()}
    rows[TOGETHER] = _average_labels(rows, shared)
    summaries = {
        label: summarise_arms(part, reference).sort_values("AUC", ascending=False).reset_index(drop=True)
        for label, part in rows.items()
    }
    best = summaries[TOGETHER].iloc[0]
    columns = Counter(question.split(">")[0].split("=")[0].strip() for question in questions)
    several = " and ".join(column for column, n in columns.items() if n > 1)
    repeated = f"{several} is asked for more than once, and " if several else ""
    text = [
        f"Over {len(rows) - 1} labels together, {display_name(best['arm'])} has the highest mean AUC: "
        f"{best['AUC']:.1f} % (95 % interval {format_interval([best['low'], best['high']], '{:.1f}'.format)}).",
        *describe_differences(summaries[TOGETHER], reference, "mean AUC over labels"),
        *_describe_consistency(summaries, reference, shared),
        *(_describe_label(label, one, reference) for label, one in summaries.items() if label != TOGETHER),
        "Holm's correction counts the methods of one label. Labels share their scans, so they are averaged at each "
        f"site first, with the same weight, and the tests count sites; {repeated}some sites may lack some labels.",
        *(f"'{q}', {describe_question(context.job_for(q).cohort_before_exclusions)}." for q in questions),
        *not_asked,
        *describe_left_out(context),
        *_explain_left_out(context, methods, questions),
    ]
    table = pd.concat([tidy_rows(part).assign(question=label) for label, part in rows.items() if label != TOGETHER])
    summary = pd.concat([one.assign(question=label) for label, one in summaries.items()], ignore_index=True)
    shown = move_first(summary.drop(columns=["ACC", "ACC SD", "epochs", "K"]), "question")
    table = move_first(table, "question").reset_index(drop=True)
    return Finding(table, shown, text, lambda: _draw(summary, own, reference))


def _average_labels(rows: dict[str, pd.DataFrame], shared: list[str]) -> pd.DataFrame:
    """Average scores over the labels that a site and seed can be scored for, of arms that have all labels."""
    every = pd.concat(rows.values(), ignore_index=True)
    every = every[every["arm"].isin(shared)]
    keys = ["arm", "method", "protocol", "fold", "seed"]
    scores = every.groupby(keys, sort=False)[["auc", "acc", "n_test", "n_source"]].mean().reset_index()
    facts = every.drop_duplicates("arm").set_index("arm")[["epochs", "K"]]
    return scores.join(facts, on="arm")


def _describe_consistency(summaries: dict[str, pd.DataFrame], reference: str, shared: list[str]) -> list[str]:
    """Say which methods are above the reference for every label, for none, or for some alone."""
    column = f"minus {reference}"
    labels = [label for label in summaries if label != TOGETHER]
    differences = {
        name: [float(summaries[label].set_index("arm").loc[name, column]) for label in labels]
        for name in shared
        if name != reference
    }
    name_of, sentences = display_name(reference), []
    above = ", ".join(display_name(name) for name, d in differences.items() if min(d) > 0)
    below = ", ".join(display_name(name) for name, d in differences.items() if max(d) < 0)
    mixed = "; ".join(
        f"{display_name(name)} ({', '.join(f'{format_signed(x)} {label}' for x, label in zip(d, labels, strict=True))})"
        for name, d in differences.items()
        if min(d) <= 0 <= max(d)
    )
    if differences:
        every = f"Above {name_of} for every label: {above}."
        sentences.append(every if above else f"No method is above {name_of} for every label.")
    sentences += [f"Below {name_of} for every label: {below}."] if below else []
    sentences += [f"Above {name_of} for some labels and not for others: {mixed}."] if mixed else []
    return sentences


def _describe_label(label: str, summary: pd.DataFrame, reference: str) -> str:
    best, column = summary.iloc[0], f"minus {reference}"
    ends = format_interval([best["low"], best["high"]], "{:.1f}".format)
    sentence = f"{label}: {display_name(best['arm'])} has the highest AUC, {best['AUC']:.1f} % ({ends})"
    if pd.isna(best[column]):
        return f"{sentence}."
    return f"{sentence}, {format_signed(best[column])} points from {display_name(reference)} ({state_p(best['p'])})."


def _draw(summary: pd.DataFrame, arms: list[str], reference: str) -> Any:
    """A panel for each label: methods as dots with intervals over sites, filled where they differ significantly."""
    labels = list(dict.fromkeys(summary["question"]))
    figure, axes = make_panels(
        len(labels), max(6.5, 2.0 + 0.5 * len(arms)), 1.2 + 1.3 * len(labels), len(labels), sharex=True
    )
    for axis, label in zip(axes, labels, strict=True):
        rows = summary[summary["question"] == label].set_index("arm")
        for x, name in enumerate(arms):
            if name not in rows.index:
                continue
            row = rows.loc[name]
            dot: dict[str, Any] = {"k": 0 if name == reference else 1, "linestyle": "none", "markersize": 6}
            differs = name != reference and row["p"] is not None and row["p"] <= 0.05
            fill = series_style(dot["k"])["color"] if differs or name == reference else "white"
            draw_intervals(axis, [x], [row["AUC"]], [row["low"]], [row["high"]], **dot, markerfacecolor=fill)
        axis.axhline(rows.loc[reference, "AUC"], color="0.5", linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        label_axis(axis, y="AUC, %", title=f"{label} ({int(rows['folds'].max())} sites)", grid="x")
        axis.locator_params(axis="y", nbins=5)
    axes[-1].set_xticks(np.arange(len(arms)), [display_name(a) for a in arms], rotation=40, ha="right", fontsize=9)
    axes[-1].set_xlim(-0.6, len(arms) - 0.4)
    note = (
        f"Bars: 95 % intervals over sites. Dashed: {display_name(reference)}. Filled: differs from it, p ≤ 0.05 (Holm)."
    )
    figure.supxlabel(note, fontsize=8, color="0.3")
    return figure
