"""Does agreement between sites mean stable predictions?"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from scipy import stats

from brio.diagnostics import DELTA_AUC, discordance_interval, discordance_rate, spearman, spearman_interval
from brio.formatting import format_p, format_signed, state_p

from .comparisons import Verdict, arm_scores, compare_sites, difference_cells, judge, name_family, shown
from .evidence import (
    describe_runs_of_today,
    link_figure,
    name_source,
    read_paper_claim,
    read_study,
)
from .markdown import arm_label, fixed, in_words, interval, state, write_commands, write_page, write_table

FILE = "stability.md"
TITLE = "Does agreement between sites mean stable predictions?"
STUDIES, OLD = "studies/aal116-version-2", "studies/aal116"
SUPPORT = ["brio-wo-rs", "brio-wo-sm", "brio-wo-sf"]
RELEVANCE = ["brio-wo-tr", "brio-wo-qg", "backbone"]
SHARED_SCANS = (
    "Discrepancy and variation are measured on source scans, most of which folds share. The tests over folds speak of "
    "other folds and seeds of these scans, not of other participants."
)


def rows(study: str, studies: str = STUDIES) -> pd.DataFrame:
    """Return the runs of one of the studies: site discrepancy D_site, predictive variation D_re_pred, AUC."""
    return read_study(f"{studies}/{study}")


@cache
def variation(study: str, studies: str = STUDIES) -> pd.DataFrame:
    """Return the differences in predictive variation to BRIO, paired over folds (lower is better)."""
    return compare_sites(
        arm_scores(rows(study, studies), "D_re_pred", 1.0),
        "brio",
        "stability",
        f"variation, {study}, {studies}",
        lower_is_better=True,
    )


@cache
def mismatch_differences(kind: str) -> pd.DataFrame:
    """Return the differences in mismatch rate to BRIO in points, paired over folds (lower is better)."""
    return compare_sites(arm_scores(rows("mismatch"), kind), "brio", "stability", kind, lower_is_better=True)


def aligned_arms() -> list[str]:
    """Return the arms without qualification, by strength of alignment."""
    by_strength = rows("alignment").groupby("arm")["lambda_env"].first().drop(["brio", "matched w/o QG"])
    return list(by_strength.sort_values().index)


def strongest_alignment(quantity: str) -> pd.DataFrame:
    """Return the difference of the strongest alignment to none, paired over folds."""
    arms = aligned_arms()
    return compare_sites(
        arm_scores(rows("alignment"), quantity, 1.0)[[arms[0], arms[-1]]],
        arms[0],
        "stability",
        f"alignment, {quantity}",
    )


def _label(arm: str) -> str:
    strength = rows("alignment").groupby("arm")["lambda_env"].first().get(arm)
    if arm in ("brio", "matched w/o QG") or strength is None:
        return arm_label(arm)
    return f"w/o QG, lambda_env = {strength:g}" if strength else "backbone (lambda_env = 0)"


def _table(study: str, arms: list[str] | None = None) -> str:
    means = rows(study).groupby("arm", sort=False)[["D_site", "D_re_pred", "auc"]].mean()
    table = variation(study)
    out = []
    for arm in arms or list(means.index):
        row = means.loc[arm]
        cells = [_label(arm), f"{row['D_site']:.3g}", f"{row['D_re_pred']:.3f}", *difference_cells(table, arm, 3)]
        out.append([*cells, fixed(100 * row["auc"])])
    header = ["arm", "site discrepancy", "predictive variation", "variation minus BRIO", "95 % interval", "p", "AUC"]
    return write_table(header, out)


@cache
def rho(leave_out: tuple[str, ...] = (), studies: str = STUDIES) -> tuple[float, float, float]:
    """Return Spearman's rho of discrepancy and variation over runs, with its interval."""
    runs = rows("agreement", studies)
    runs = runs[~runs["arm"].isin(leave_out)]
    return (spearman(runs), *spearman_interval(runs))


def _agreement() -> list[str]:
    runs = rows("agreement").rename(columns={"arm": "method"})
    most_alike = runs.groupby("method")["D_site"].mean().nsmallest(2).index
    rest = rho(tuple(most_alike))
    within = runs.groupby("method")[["D_site", "D_re_pred"]].apply(spearman).sort_values()
    low, high = discordance_interval(runs)
    means = runs.groupby("method")[["D_site", "D_re_pred"]].mean()
    over_methods = stats.spearmanr(means["D_site"], means["D_re_pred"])
    return [
        "## Across methods",
        _table("agreement"),
        write_table(
            ["over runs", "value", "95 % interval"],
            [
                [f"Spearman's rho, all {len(runs)} runs", fixed(rho()[0], 2), interval(*rho()[1:], 2)],
                [
                    f"Spearman's rho without {in_words(arm_label(a) for a in most_alike)}, under which sites look "
                    "most alike",
                    fixed(rest[0], 2),
                    interval(*rest[1:], 2),
                ],
                [
                    "pairs of methods in a fold and seed in which the smaller discrepancy has the larger variation, %",
                    fixed(100 * discordance_rate(runs), 0),
                    interval(100 * low, 100 * high, 0),
                ],
            ],
        ),
        f"Within a method rho runs from {fixed(within.iloc[0], 2)} ({arm_label(str(within.index[0]))}) to "
        f"{format_signed(within.iloc[-1], 2)} ({arm_label(str(within.index[-1]))}). Intervals draw folds with "
        "replacement.",
        f"Over the means of the {len(means)} methods rho is {fixed(over_methods.statistic, 2)} "
        f"({state_p(over_methods.pvalue)}): the interval speaks of other folds of these scans, not of other methods.",
        f"The paper: {read_paper_claim(f'{STUDIES}/agreement')}",
        link_figure(f"{STUDIES}/agreement/figure.svg", "Site discrepancy and predictive variation of the methods"),
    ]


def _alignment() -> list[str]:
    means = rows("alignment").groupby("arm")[["D_site", "D_re_pred", "auc", "validation_auc"]].mean()
    arms, matched = aligned_arms(), variation("alignment").loc["matched w/o QG"]
    falls = bool((np.diff(means.loc[arms, "D_site"]) < 0).all())
    uneven = bool((np.diff(means.loc[arms, "D_re_pred"]) > 0).any())
    return [
        "## Alignment without qualification",
        state(
            "Stronger alignment lowers the discrepancy at every step, and the variation from "
            f"{means.loc[arms[0], 'D_re_pred']:.3f} to {means.loc[arms[-1], 'D_re_pred']:.3f}, though not at every "
            "step. BRIO's variation is lower at every strength. The matched setting, chosen by validation AUC in each "
            f"fold and seed, has a validation AUC of {fixed(100 * means.loc['matched w/o QG', 'validation_auc'])} "
            f"(BRIO {fixed(100 * means.loc['brio', 'validation_auc'])}), a discrepancy of "
            f"{means.loc['matched w/o QG', 'D_site']:.3f} (BRIO {means.loc['brio', 'D_site']:.3f}), and a variation "
            f"that is higher by {matched['mean']:.3f} (in {matched['worse']} of {matched['n']} folds).",
            falls and uneven and bool((variation("alignment").loc[arms, "mean"] > 0).all()),
        ),
        _table("alignment", [*arms, "matched w/o QG", "brio"]),
        f"The paper: {read_paper_claim(f'{STUDIES}/alignment')}",
        link_figure(f"{STUDIES}/alignment/figure.svg", "Discrepancy and variation along the strength of alignment"),
    ]


def _parts() -> list[str]:
    table = variation("agreement-of-ablations")
    support, relevance = table.loc[SUPPORT], table.loc[RELEVANCE]
    return [
        "## Which part makes predictions stable?",
        state(
            "**Task relevance; that support does is not shown.** Without relevance in the "
            f"weights (w/o TR, w/o QG, backbone) the variation is higher by {relevance['mean'].min():.3f} to "
            f"{relevance['mean'].max():.3f} (largest {state_p(relevance['p_holm'].max())}). With less of support, or "
            "without any re-estimate in training (w/o RS, w/o SM, w/o SF), it differs from BRIO's by "
            f"{format_signed(support['mean'].min(), 3)} to {format_signed(support['mean'].max(), 3)} (smallest "
            f"{state_p(support['p_holm'].min())}).",
            bool((relevance["p_holm"] <= 0.05).all() and (relevance["mean"] > 0).all())
            and bool((support["p_holm"] > 0.05).all()),
        ),
        _table("agreement-of-ablations"),
        write_commands(
            "brio study agreement abide-aal --with abide-cc "
            + " ".join(f"--method {name}" for name in ("brio", *SUPPORT, *RELEVANCE))
            + " --out abide-parts --device cuda-tf32",
        ),
    ]


def _before() -> list[str]:
    table, support = variation("alignment", OLD), variation("agreement-of-ablations", OLD).loc["brio-wo-rs"]
    strengths = table.drop(index="matched w/o QG")
    value, low, high = rho(studies=OLD)
    return [
        "## With the settings of version 0.1.0",
        state(
            f"The same held: Spearman's rho over runs was {fixed(value, 2)} ({interval(low, high, 2)}), and BRIO's "
            f"variation was lower than that of alignment without qualification at {len(shown(strengths, 1))} of "
            f"{len(strengths)} strengths. Without support it was even lower, by {-support['mean']:.3f} "
            f"({state_p(support['p_holm'])}), which is not shown with version 2. A job of `agreement` before "
            "that, whose table is not stored, had the same values except for `gsat` and `brainood`, which did not "
            "repeat at the time ([the order of sums](reproducibility.md#the-order-of-sums)).",
            high < 0 and len(shown(strengths, 1)) == len(strengths) and support["mean"] < 0,
        ),
    ]


def _mismatch() -> list[str]:
    runs = rows("mismatch")
    median = runs["D_site"].median()
    alike = 100 * (runs["D_site"] < median).groupby(runs["arm"]).mean()
    rates = 100 * runs.groupby("arm", sort=False)[["mismatch", "auc_preserved_mismatch"]].mean()
    total, preserved = (mismatch_differences(kind) for kind in rates)
    out = []
    for arm in [*aligned_arms(), "brio"]:
        cells = [_label(arm), fixed(alike[arm], 0)]
        for kind, table in (("mismatch", total), ("auc_preserved_mismatch", preserved)):
            cells += [fixed(rates.loc[arm, kind]), format_p(table.loc[arm, "p_holm"]) if arm in table.index else ""]
        out.append(cells)
    header = ["arm", "runs below the median discrepancy, %", "mismatches, %", "p", "AUC-preserved mismatches, %", "p"]
    few = [arm for arm in total.index if total.loc[arm, "warning"]]
    return [
        "## Mismatches",
        "A mismatch is a run whose discrepancy is below the median of all runs and whose variation is above the "
        "median. Part of what the rate compares is therefore how strongly an arm aligns: the first column of numbers. "
        f"A validation AUC counts as preserved at no more than {100 * DELTA_AUC:g} point below the backbone's; this "
        "tolerance is ours.",
        write_table(header, out),
        f"p values are against BRIO. Too few folds differ to reach p < 0.05: {in_words(_label(arm) for arm in few)}.",
        f"The paper: {read_paper_claim(f'{STUDIES}/mismatch')}",
        link_figure(f"{STUDIES}/mismatch/figure.svg", "Mismatch rates"),
    ]


def page() -> str:
    """Return the page."""
    steadier = shown(variation("agreement"), -1)
    return write_page(
        TITLE,
        state(
            f"**No, as the paper says.** Over runs of {rows('agreement')['arm'].nunique()} methods, lower site "
            f"discrepancy does not go with lower predictive variation (Spearman's rho {fixed(rho()[0], 2)}, "
            f"{interval(*rho()[1:], 2)}). BRIO's predictions change less under re-estimation than those of alignment "
            "without qualification at every strength. That support makes them so is not shown, and the "
            f"predictions of {in_words(arm.upper() for arm in steadier.index)} change less than BRIO's.",
            rho()[2] < 0 and set(steadier.index) == {"coral", "irm"},
        ),
        f"AAL116; {describe_runs_of_today()} *Site discrepancy* measures how "
        "differently representations are distributed across source sites; *predictive variation* how much a "
        "prediction changes when the connectome is re-estimated from the same scan. Differences are paired over "
        f"folds. {name_family('stability')}",
        SHARED_SCANS,
        *_agreement(),
        *_alignment(),
        *_parts(),
        *_mismatch(),
        *_before(),
        name_source(
            *(f"{STUDIES}/{s}" for s in ("agreement", "alignment", "agreement-of-ablations", "mismatch")),
            *(f"{OLD}/{s}" for s in ("agreement", "alignment", "agreement-of-ablations")),
        ),
    )


@cache
def verdicts() -> list[Verdict]:
    """Return the verdicts on agreement, alignment and mismatch."""
    value, low, high = rho()
    arms = aligned_arms()
    table = variation("alignment").loc[arms]
    ends = rows("alignment").groupby("arm")[["D_site", "D_re_pred"]].mean().loc[[arms[0], arms[-1]]]
    changes = pd.concat([strongest_alignment(quantity) for quantity in ends])
    out = [
        Verdict(
            "Lower site discrepancy does not consistently go with lower predictive variation",
            f"Spearman's rho {fixed(value, 2)} ({interval(low, high, 2)})",
            "contradicted" if low > 0 else "agrees",
            FILE,
        ),
        Verdict(
            "Stronger alignment lowers discrepancy and variation",
            f"from lambda_env 0 to the strongest: discrepancy {ends.iloc[0, 0]:.3f} to {ends.iloc[1, 0]:.3f}, "
            f"variation {ends.iloc[0, 1]:.3f} to {ends.iloc[1, 1]:.3f} (largest {state_p(changes['p_holm'].max())})",
            judge(len(shown(changes, -1)), len(shown(changes, 1)), len(changes)),
            FILE,
        ),
        Verdict(
            "BRIO has lower predictive variation than alignment without qualification",
            f"shown at {len(shown(table, 1))} of {len(table)} strengths; without support (w/o RS) it changes by "
            f"{format_signed(variation('agreement-of-ablations').loc['brio-wo-rs', 'mean'], 3)} (not shown)",
            judge(len(shown(table, 1)), len(shown(table, -1)), len(table)),
            FILE,
        ),
    ]
    for kind, label in (("mismatch", "total"), ("auc_preserved_mismatch", "AUC-preserved")):
        table = mismatch_differences(kind)
        out.append(
            Verdict(
                f"BRIO has lower {label} mismatch rates than alignment without qualification",
                f"shown at {len(shown(table, 1))} of {len(table)} strengths",
                judge(len(shown(table, 1)), len(shown(table, -1)), len(table)),
                FILE,
            )
        )
    return out
