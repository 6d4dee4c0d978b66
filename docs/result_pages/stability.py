"""Does agreement between sites imply stable predictions?"""

from __future__ import annotations

from functools import cache

import pandas as pd
from scipy import stats

from brio import diagnostics
from brio.formatting import format_signed, state_p
from brio.studies.context import display_name

from .comparisons import LEVEL, Verdict, arm_scores, compare_sites, count_shown, judge
from .evidence import read_study
from .markdown import fixed, interval

STUDIES = "studies/aal116"
STUDIED = ("agreement", "alignment", "agreement-of-ablations", "mismatch")
SOURCES = [f"{STUDIES}/{study}" for study in STUDIED]
SUPPORT = ["brio-wo-rs", "brio-wo-sm", "brio-wo-sf"]
RELEVANCE = ["brio-wo-tr", "brio-wo-qg", "backbone"]
MATCHED = "matched w/o QG"
TOLERANCE = 100 * diagnostics.DELTA_AUC
MISMATCHES = {"mismatch": "total", "auc_preserved_mismatch": "AUC-preserved"}


def rows(study: str) -> pd.DataFrame:
    """Return the runs of one of the studies: site discrepancy D_site, predictive variation D_re_pred, AUC."""
    return read_study(f"{STUDIES}/{study}")


def means(study: str) -> pd.DataFrame:
    """Return the means of each arm over runs."""
    return rows(study).groupby("arm", sort=False).mean(numeric_only=True)


@cache
def variation(study: str) -> pd.DataFrame:
    """Return the differences in predictive variation to BRIO, paired over folds (lower is better)."""
    scores = arm_scores(rows(study), "D_re_pred", 1.0)
    return compare_sites(scores, "brio", "stability", f"variation, {study}", lower_is_better=True)


@cache
def mismatch_differences(kind: str) -> pd.DataFrame:
    """Return the differences in mismatch rate to BRIO in points, paired over folds (lower is better)."""
    return compare_sites(
        arm_scores(rows("mismatch"), kind), "brio", "stability", f"{MISMATCHES[kind]} mismatches", lower_is_better=True
    )


def aligned_arms() -> list[str]:
    """Return the arms without qualification, by strength of alignment."""
    return list(means("alignment")["lambda_env"].drop(["brio", MATCHED]).sort_values().index)


def label(arm: str) -> str:
    """Return what readers are shown for an arm: its strength of alignment, if that is what it differs by."""
    strength = means("alignment")["lambda_env"].get(arm)
    if arm in ("brio", MATCHED) or strength is None:
        return display_name(arm)
    return f"w/o QG, lambda_env = {strength:g}" if strength else "backbone (lambda_env = 0)"


@cache
def rho(leave_out: tuple[str, ...] = ()) -> tuple[float, float, float]:
    """Return Spearman's rho of discrepancy and variation over runs, with its interval."""
    runs = rows("agreement")
    runs = runs[~runs["arm"].isin(leave_out)]
    return diagnostics.spearman(runs)


def rho_within() -> pd.Series:
    """Return Spearman's rho over the runs of each method, lowest first."""
    by_arm = rows("agreement").groupby("arm")[["D_site", "D_re_pred"]]
    return by_arm.apply(lambda runs: stats.spearmanr(runs).statistic).sort_values()


def rho_over_methods() -> tuple[float, float]:
    """Return Spearman's rho over the means of methods, and its p value."""
    return stats.spearmanr(means("agreement")["D_site"], means("agreement")["D_re_pred"])


def discordance() -> tuple[float, float, float]:
    """Return the share of discordant pairs of methods with its interval, in percent."""
    runs = rows("agreement").rename(columns={"arm": "method"})
    rate, low, high = diagnostics.discordance(runs)
    return 100 * rate, 100 * low, 100 * high


def count_alike() -> pd.Series:
    """Return the share of the runs of each arm whose discrepancy is below the median of all runs, in percent."""
    runs = rows("mismatch")
    return 100 * (runs["D_site"] < runs["D_site"].median()).groupby(runs["arm"]).mean()


@cache
def judge_claims() -> list[Verdict]:
    """Return the verdicts on agreement, alignment and mismatch."""
    value, low, high = rho()
    arms = aligned_arms()
    ends = means("alignment").loc[[arms[0], arms[-1]]]
    changes = pd.concat(
        [
            compare_sites(
                arm_scores(rows("alignment"), quantity, 1.0)[list(ends.index)],
                arms[0],
                "stability",
                f"alignment, {quantity}",
            )
            for quantity in ("D_site", "D_re_pred")
        ]
    )
    site, variations = ends["D_site"].to_list(), ends["D_re_pred"].to_list()
    lower, higher, n = count_shown([changes])
    less, more, strengths = count_shown([variation("alignment").loc[arms]])
    without = variation("agreement-of-ablations").loc["brio-wo-rs"]
    tested = "significant" if without["p_holm"] <= LEVEL else "not significant"
    verdicts = [
        (
            "Methods with lower site discrepancy do not consistently have lower predictive variation",
            f"Spearman's rho {fixed(value, 2)} ({interval(low, high, 2)})",
            "contradicted" if low > 0 else "agrees",
        ),
        (
            "Stronger alignment lowers site discrepancy and predictive variation",
            f"without alignment and with the strongest: discrepancy {site[0]:.3f} and {site[1]:.3f}, variation "
            f"{variations[0]:.3f} and {variations[1]:.3f} (largest {state_p(changes['p_holm'].max())})",
            judge(lower, higher, n),
        ),
        (
            "BRIO has lower predictive variation than alignment without qualification",
            f"significant at {more} of {strengths} strengths; without support (w/o RS), the variation changes by "
            f"{format_signed(without['mean'], 3)} ({tested})",
            judge(more, less, strengths),
        ),
    ]
    for kind, words in MISMATCHES.items():
        less, more, n = count_shown([mismatch_differences(kind)])
        claim = f"BRIO has lower {words} mismatch rates than alignment without qualification"
        verdicts.append((claim, f"significant at {more} of {n} strengths", judge(more, less, n)))
    return verdicts
