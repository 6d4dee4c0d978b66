"""Sections of the page on BRIO plus: its parts, folds with known sites, simulated regimes."""

from __future__ import annotations

from brio.results.format import format_p

from .comparisons import (
    arm_scores,
    compare_sites,
    describe_scores,
    difference_cells,
    with_interval,
)
from .evidence import link_figure, read_measured_table, read_study
from .markdown import fixed, state, with_sd, write_commands, write_frame, write_table

ATLASES = ("aal116", "cc200")
PARTS = "brio-plus/aal116-parts"
_ALIGNED = ("w/o alignment", "alignment w/o qualification")
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
    more = 100 * rows.groupby("arm")[["share_of_factors", "inner_auc", "acc"]].mean()
    out = []
    for arm in auc:
        cells = [with_sd(means.loc[arm, "mean"], means.loc[arm, "sd"]), fixed(more.loc[arm, "inner_auc"])]
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
        "## Its parts in version 2",
        state(
            f"No part is shown to matter on AAL116 (p from {format_p(table['p_holm'].min())} on). Leaving out the "
            f"logarithm costs most: {with_interval(table.loc[worst])}.",
            bool((table["p_holm"] > 0.05).all()) and worst == "brio-plus,shrinkage=0.99",
        ),
        write_commands(
            "brio study plus abide-aal --seeds 5 --set protocol.validation_sites=0 --device cuda --out plus-study",
        ),
        "Computed with version 0.1.0; the command runs the arms of version 3 now.",
        write_table(header, out),
        "*AUC on inner folds* is the mean AUC over source sites withheld in turn, by which the penalty is chosen. "
        "*Share of factors* is the share of the logit's variance from the factors' own kernels. The ACC of *one "
        "intercept* is not printed: its logits lacked the intercept, which has since been corrected.",
        link_figure(f"{PARTS}/figure.svg", "Parts of BRIO plus"),
    ]


def write_simulated() -> list[str]:
    """Return the section on the simulated regimes."""
    blocks = ["## Simulated regimes with known truth"]
    present, parts = (read_measured_table(f"simulated-regimes{v}.txt") for v in ("", "-version-2"))
    auc, old = (table.set_index(["regime", "arm"])["AUC"].astype(float) for table in (present, parts))
    misleading = [regime for regime in old.index.unique("regime") if regime != "stable"]
    without = old["misleading", "w/o re-estimation penalty"]
    regimes = old.index.unique("regime")
    aligned = max(abs(old[r, arm] - old[r, "brio-plus"]) for r in regimes for arm in _ALIGNED)
    blocks += [
        state(
            "Where a burst of shared activity in patients is consistent over all source sites and reversed at the "
            f"test site, linear models follow it: AUC {fixed(auc['misleading', 'ridge'])} for ridge, "
            f"{fixed(auc['misleading', 'log-ridge'])} for `log-ridge`. BRIO plus does so less "
            f"({fixed(auc['misleading', 'brio-plus'])}), and only because of its re-estimation penalty: without it, it "
            f"has {fixed(auc['misleading', 'w/o re-estimation penalty'])}. It does not reach what it has without "
            f"the burst ({fixed(auc['stable', 'brio-plus'])}).",
            auc["misleading", "brio-plus"] - auc["misleading", "w/o re-estimation penalty"] > 5
            and abs(auc["misleading", "w/o re-estimation penalty"] - auc["misleading", "ridge"]) < 2
            and auc["misleading", "brio-plus"] < auc["stable", "brio-plus"],
        ),
        "In *same network* the burst is in half of the network that holds the stable effect; in *some scans* half of "
        "the patients have it.",
        write_frame(present),
        "Ten simulated cohorts per regime, the last of eight sites as test site: `python "
        "benchmarks/simulated_regimes.py`; stored as `evidence/measurements/simulated-regimes.txt`.",
        state(
            "The arms of version 2, which had alignment of sites and its qualification, say why these were removed: "
            "without alignment, or with alignment that is not qualified, its AUC differs by no more than "
            f"{fixed(aligned)} points in any regime; without the re-estimation penalty it falls to {fixed(without)} "
            "where the burst misleads.",
            all(old[r, "brio-plus"] > old[r, "w/o re-estimation penalty"] for r in misleading),
        ),
        write_frame(parts),
        "Stored as `evidence/measurements/simulated-regimes-version-2.txt`.",
    ]
    return blocks
