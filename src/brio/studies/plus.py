"""What each part of BRIO plus is worth."""

from __future__ import annotations

import pandas as pd

from ..results.format import format_signed
from .arms import Arm, arm
from .context import StudyContext
from .study import Finding, study
from .summaries import describe_differences, draw_arms, summarise_arms, tidy_rows

__all__ = ["plus"]

WHOLE = arm("brio-plus")
LINEAR = arm("brio-plus-linear")
FACTORS = arm("brio-plus-factors")
PARTS = {
    WHOLE: "BRIO plus",
    LINEAR: "linear path alone",
    FACTORS: "factors alone",
    arm("brio-plus", lambda_re=0.0, lambda_env=0.0): "nothing penalised",
    arm("brio-plus", lambda_re=0.0): "w/o re-estimation penalty",
    arm("brio-plus", lambda_env=0.0): "w/o alignment",
    arm("brio-plus-wo-qg"): "alignment w/o qualification",
    arm("brio-plus", J=1): "one factor",
    arm("brio-plus", shrinkage=0.99): "w/o logarithm",
    arm("brio-plus", site_intercepts=False): "one intercept",
}
"""Arms, and what readers are shown: the whole, its two paths, then each part taken out.

The logarithm of a matrix that is almost the identity is almost the matrix, up to a scale and an offset: so a shrinkage
of 0.99 leaves the correlations nearly as they are.
"""


def _arms(context: StudyContext) -> list[Arm]:
    return list(PARTS)


@study(
    "plus",
    "What each part of BRIO plus is worth",
    "has no such model. It asks for factors, support under re-estimation and qualified alignment; so does this one.",
    _arms,
)
def plus(context: StudyContext) -> Finding:
    """BRIO plus against its linear path, its factors, and itself without each of its parts."""
    rows = context.rows(_arms(context))
    summary = summarise_arms(rows, WHOLE.name)
    shares = pd.concat(
        [context.run_details(a, "share_of_factors", "left_out_auc").assign(arm=a.name) for a in PARTS],
        ignore_index=True,
    )
    share = 100 * shares.groupby("arm")["share_of_factors"].mean()
    left_out = 100 * shares.groupby("arm")["left_out_auc"].mean()
    summary.insert(3, "left-out source sites", summary["arm"].map(left_out))
    summary.insert(4, "share of factors", summary["arm"].map(share))
    named = {a.name: words for a, words in PARTS.items()}
    told = summary.assign(arm=summary["arm"].map(named)).rename(columns={f"to {WHOLE.name}": "to BRIO plus"})
    gain = summary.set_index("arm").loc[LINEAR.name]
    low, high = -gain["until"], -gain["from"]
    how = f" (95 % interval {format_signed(low)} to {format_signed(high)})" if low == low else ""
    text = [
        f"The whole has {format_signed(-gain[f'to {WHOLE.name}'])} points of AUC over its own linear path{how}; "
        f"{share[WHOLE.name]:.0f} % of the variance of its logit comes from the factors' own kernels."
    ]
    text += describe_differences(told, "BRIO plus")
    table = tidy_rows(rows).merge(shares, on=["arm", "fold", "seed"], how="left")
    return Finding(table, told, text, lambda: draw_arms(told, "BRIO plus"))
