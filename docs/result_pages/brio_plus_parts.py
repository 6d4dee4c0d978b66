"""Sections of the page on BRIO plus: its parts, folds with known sites, simulated regimes."""

from __future__ import annotations

from brio.results.format import format_p

from .comparisons import (
    arm_scores,
    compare_kfold,
    compare_sites,
    describe_scores,
    difference_cells,
    fold_scores,
    reverse,
    with_interval,
)
from .evidence import link_figure, read_measured_table, read_runs, read_study
from .markdown import atlas_label, fixed, state, with_sd, write_commands, write_frame, write_table

ATLASES = ("aal116", "cc200")
PARTS = "brio-plus/aal116-parts"
PART_LABELS = {
    "brio-plus": "BRIO plus",
    "brio-plus-linear": "linear path alone",
    "brio-plus-factors": "factors alone",
    "brio-plus,lambda_re=0.0,lambda_env=0.0": "without both penalties",
    "brio-plus,lambda_re=0.0": "without re-estimation penalty",
    "brio-plus,lambda_env=0.0": "without alignment",
    "brio-plus-wo-qg": "alignment without qualification",
    "brio-plus,J=1": "one factor",
    "brio-plus,shrinkage=0.99": "without logarithm",
    "brio-plus,site_intercepts=False": "one intercept for all sites",
}


def write_parts() -> list[str]:
    """Return the section on the parts of BRIO plus."""
    rows = read_study(PARTS)
    auc = arm_scores(rows)
    table, means = compare_sites(auc, "brio-plus"), describe_scores(auc)
    more = 100 * rows.groupby("arm")[["share_of_factors", "left_out_auc", "acc"]].mean()
    out = []
    for arm in auc:
        cells = [with_sd(means.loc[arm, "mean"], means.loc[arm, "sd"]), fixed(more.loc[arm, "left_out_auc"])]
        # the logits of this arm lacked the intercept, so its accuracy is wrong; AUC does not depend on it
        acc = "known to be wrong" if arm == "brio-plus,site_intercepts=False" else fixed(more.loc[arm, "acc"])
        out.append(
            [PART_LABELS[arm], *cells, fixed(more.loc[arm, "share_of_factors"]), acc, *difference_cells(table, arm)]
        )
    header = [
        "arm",
        "AUC",
        "AUC on inner folds",
        "share of factors, %",
        "ACC",
        "AUC minus BRIO plus",
        "95 % interval",
        "p",
    ]
    worst = table["mean"].idxmin()
    return [
        "## Its parts",
        state(
            f"No part is shown to matter on AAL116 (p from {format_p(table['p_holm'].min())} on). Leaving out the "
            f"logarithm costs most: {with_interval(table.loc[worst])}.",
            bool((table["p_holm"] > 0.05).all()) and worst == "brio-plus,shrinkage=0.99",
        ),
        write_commands(
            "brio study plus abide-aal --seeds 5 --set protocol.validation_sites=0 --device cuda --out plus-study",
        ),
        write_table(header, out),
        "*AUC on inner folds* is the mean AUC over source sites withheld in turn, by which the penalty is chosen. "
        "*Share of factors* is the share of the logit's variance from the factors' own kernels. The ACC of *one "
        "intercept* is not printed: its logits lacked the intercept, which has since been corrected.",
        link_figure(f"{PARTS}/figure.svg", "Parts of BRIO plus"),
    ]


def write_in_distribution() -> list[str]:
    """Return the section on folds with known sites."""
    blocks = ["## In distribution"]
    for atlas in ATLASES:
        runs = read_runs(f"brio-plus/{atlas}-10-folds")
        table, acc = compare_kfold(runs, "brio-plus"), fold_scores(runs, "acc").mean()
        rows = []
        for name, row in describe_scores(fold_scores(runs)).iterrows():
            cells = difference_cells(reverse(table), str(name))
            rows.append([f"`{name}`", with_sd(row["mean"], row["sd"]), fixed(acc[name]), *cells])
        blocks += [
            f"{atlas_label(atlas)}, {runs['fold'].nunique()} folds stratified by site and class, "
            f"{runs['seed'].nunique()} seeds; SD over the folds of all seeds, corrected resampled t-test.",
            write_table(["method", "AUC", "ACC", "BRIO plus minus it", "95 % interval", "p"], rows),
        ]
    return blocks


def write_simulated() -> list[str]:
    """Return the section on the simulated regimes."""
    table = read_measured_table("simulated-regimes.txt")
    auc = table.set_index(["regime", "method"])["AUC"].astype(float)
    return [
        "## Two simulated regimes with known truth",
        state(
            "Where a stable effect is all there is, BRIO plus and ridge are level. Where a burst of shared activity "
            "in patients is consistent over all source sites and reversed at the test site, linear models follow it "
            f"and BRIO plus does so less: AUC {fixed(auc['misleading', 'brio-plus'])} against "
            f"{fixed(auc['misleading', 'ridge'])}. It does not reach what it has without the burst "
            f"({fixed(auc['stable', 'brio-plus'])}).",
            auc["misleading", "brio-plus"] > auc["misleading", "ridge"]
            and auc["misleading", "brio-plus"] < auc["stable", "brio-plus"],
        ),
        write_frame(table),
        "Ten simulated cohorts per regime, the last of eight sites as test site: `python "
        "benchmarks/simulated_regimes.py`; stored as `evidence/measurements/simulated-regimes.txt`.",
    ]
